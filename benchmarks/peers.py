"""Other libraries beside this one: the same training step, the same prediction, in one process.

    make bench-peers        # an environment of its own, then this script into results/peers.json

LeNet-300-100, batch 256, fused Adam everywhere (IVON is its own optimiser), a KL in every step. A prediction is T = 20
samples of 1000 images, against 20 deterministic passes; the peers have no other way than a loop over samples. A peer
that is not installed is reported as missing.
"""

import argparse
import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch
from harness import LENET, as_dicts, pace, run
from predict import passes, predicting
from torch import Tensor, nn
from torch.nn import functional as F

from bayeslim import models
from bayeslim.runtime.timing import interleaved
from bayeslim.step_costs import NUM_DATA, as_record, costs_of, networks, train_step

OURS = ["deterministic", "graves", "graves, local_reparam", "ard"]


@dataclass
class Peer:
    """A network of another library and how it trains."""

    model: nn.Module
    divergence: Callable[[], Tensor | float]
    optimizer: torch.optim.Optimizer | None = None
    """Fused Adam when None."""
    sampled: Callable[[bool], AbstractContextManager[object]] = lambda train: nullcontext()


def perceptron(layer: Callable[[int, int], nn.Module]) -> nn.Sequential:
    first, second, third = itertools.starmap(layer, itertools.pairwise(LENET))
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third)


def torchbnn(device: str) -> Peer:
    import torchbnn as bnn  # pyright: ignore[reportMissingImports]

    model = perceptron(lambda a, b: bnn.BayesLinear(0, 0.1, a, b)).to(device)
    divergence = bnn.BKLLoss(reduction="sum", last_layer_only=False)
    return Peer(model, lambda: divergence(model))


def bayesian_torch(device: str, kind: str) -> Peer:
    from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss  # pyright: ignore[reportMissingImports]

    prior = {"prior_mu": 0.0, "prior_sigma": 1.0, "posterior_mu_init": 0.0, "posterior_rho_init": -4.0}
    model = models.mlp(LENET)
    dnn_to_bnn(model, {**prior, "type": kind, "moped_enable": False})
    return Peer(model.to(device), lambda: get_kl_loss(model))


def blitz(device: str) -> Peer:
    from blitz.losses import kl_divergence_from_nn  # pyright: ignore[reportMissingImports]
    from blitz.modules import BayesianLinear  # pyright: ignore[reportMissingImports]

    model = perceptron(BayesianLinear).to(device)
    return Peer(model, lambda: kl_divergence_from_nn(model))


def ivon(device: str) -> Peer:
    from ivon import IVON  # pyright: ignore[reportMissingImports]

    model = models.mlp(LENET).to(device)
    optimizer = IVON(model.parameters(), lr=0.1, ess=NUM_DATA)
    return Peer(model, lambda: 0.0, optimizer, lambda train: optimizer.sampled_params(train=train))


PEERS: dict[str, tuple[str, Callable[[str], Peer]]] = {
    "torchbnn": ("torchbnn", torchbnn),
    "bayesian-torch": ("bayesian-torch", lambda device: bayesian_torch(device, "Reparameterization")),
    "bayesian-torch, flipout": ("bayesian-torch", lambda device: bayesian_torch(device, "Flipout")),
    "blitz": ("blitz-bayesian-pytorch", blitz),
    "IVON": ("ivon-opt", ivon),
}
"""Name -> its package, and how to build it; building raises ImportError where it is not installed."""


def peer_step(peer: Peer, x: Tensor, y: Tensor) -> Callable[[], None]:
    optimizer = peer.optimizer or torch.optim.Adam(peer.model.parameters(), 1e-3, fused=True)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with peer.sampled(True):
            (F.cross_entropy(peer.model(x), y) + peer.divergence() / NUM_DATA).backward()
        optimizer.step()

    return step


def peer_loop(peer: Peer, x: Tensor, samples: int) -> Callable[[], object]:
    @torch.no_grad()
    def draw() -> Tensor:
        with peer.sampled(False):
            return peer.model(x).softmax(-1)

    def loop() -> tuple[Tensor, Tensor]:
        drawn = torch.stack([draw() for _ in range(samples)])
        return drawn.mean(0), drawn.var(0)

    return loop


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    device, images, samples = chosen.device, 20 if chosen.quick else 1000, 4 if chosen.quick else 20
    x, y = torch.randn(256, LENET[0], device=device), torch.randint(0, 10, (256,), device=device)
    many = torch.randn(images, LENET[0], device=device)
    known = networks(LENET)
    steps: dict[str, Callable[[], Callable[[], None]]] = {
        name: lambda name=name: train_step(known[name]().to(device), x, y) for name in OURS
    }
    loops = {"deterministic": passes(known["deterministic"]().to(device), many, samples)}
    loops |= {name: predicting(known[name]().to(device), many, samples) for name in ("graves", "ard")}
    installed: dict[str, str] = {}
    missing: dict[str, str] = {}
    for name, (package, build) in PEERS.items():
        try:
            loops[name] = peer_loop(build(device), many, samples)
        except ImportError as error:
            missing[name] = str(error)
            continue
        installed[package] = version(package)
        steps[name] = lambda build=build: peer_step(build(device), x, y)
    rounds = 1 if chosen.quick else 30
    return {
        "what": "training step and prediction beside other libraries, ratio to the deterministic network",
        "installed": installed,
        "missing": missing,
        "images": images,
        "samples": samples,
        "train_step": as_record(costs_of(steps, rounds=rounds, device=device)),
        "predict": as_dicts(interleaved(loops, **pace(chosen, 9))),
    }


if __name__ == "__main__":
    run(__doc__, measure)
