"""Cost of a prediction: many samples at once, one sample after the other, and one pass of moments.

    python benchmarks/predict.py --out results/predict.json

LeNet-300-100. Many images: `bl.predict` with T samples against T deterministic passes (a tenth of them is timed).
Few images: the same against a Python loop over samples, as one writes it by hand, over our network or in plain torch,
whose normal numbers take twice as long. Moments: one pass that propagates
variances against one deterministic pass, also of LeNet-5; on CUDA, where passes of small networks wait for the host,
also both as CUDA graphs, as they are and compiled. `graves` is trained by drawing weights, `ard` by drawing outputs;
how they are sampled is left to `bl.predict`. All calls of a case take turns.
"""

import argparse
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from harness import LENET, as_dicts, pace, run
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.export.moments import MomentsNetwork
from bayeslim.runtime.timing import interleaved
from bayeslim.training.replay import Replayed

METHODS = ("graves", "ard")


def predicting(model: nn.Module, x: Tensor, samples: int, method: Any = "sample") -> Callable[[], object]:
    return lambda: bl.predict(model, x, samples=samples, likelihood=bl.Categorical(), method=method)


def looping(model: Callable[[Tensor], Tensor], x: Tensor, samples: int) -> Callable[[], object]:
    """Mean and variance of the probabilities by a loop over sampled networks."""

    @torch.no_grad()
    def loop() -> tuple[Tensor, Tensor]:
        drawn = torch.stack([model(x).softmax(-1) for _ in range(samples)])
        return drawn.mean(0), drawn.var(0)

    return loop


def by_hand(model: nn.Module, x: Tensor, samples: int, method: str) -> Callable[[], object]:
    """The same loop in plain torch, with its own normal numbers: by weights for `graves`, by outputs for `ard`."""
    layers = [layer for layer in model.modules() if isinstance(layer, bl.layers.Linear)]
    parameters = [(layer.weight.mean(), layer.weight.log_std(), layer.bias) for layer in layers]

    def drawn(x: Tensor, mean: Tensor, log_std: Tensor, bias: Any) -> Tensor:
        if method == "graves":
            return F.linear(x, mean + log_std.exp() * torch.randn_like(mean), bias)
        output, variance = F.linear(x, mean, bias), F.linear(x.square(), (2 * log_std).exp())
        return output + variance.sqrt() * torch.randn_like(output)

    @torch.no_grad()
    def network(x: Tensor) -> Tensor:
        for parts in parameters[:-1]:
            x = drawn(x, *parts).relu()
        return drawn(x, *parameters[-1])

    return looping(network, x, samples)


def passes(plain: Callable[[Tensor], object], x: Tensor, count: int) -> Callable[[], object]:
    @torch.no_grad()
    def several() -> None:
        for _ in range(count):
            plain(x)

    return several


def ways(plain: nn.Module, vdp: nn.Module, x: Tensor) -> dict[str, dict[str, Callable[[], object]]]:
    """A deterministic and a moments pass, by how they run: as they are, and on CUDA as graphs."""
    networks = {"deterministic pass": plain, "moments": vdp}
    known = {"": {name: passes(network, x, 1) for name, network in networks.items()}}
    if x.is_cuda:
        tensors = {"deterministic pass": plain, "moments": MomentsNetwork(vdp).to(x.device)}
        compiled = {name: passes(torch.compile(network), x, 1) for name, network in tensors.items()}
        for way, calls in ((", as one CUDA graph", known[""]), (", compiled, as one CUDA graph", compiled)):
            known[way] = {name: Replayed(call, x.device) for name, call in calls.items()}
    return known


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    images, samples = (64, 20) if chosen.quick else (10_000, 200)
    settings = pace(chosen, 15)
    plain = bl.models.mlp(LENET).to(chosen.device).eval()
    models = {name: bl.mlp(LENET, method=name).to(chosen.device).eval() for name in (*METHODS, "vdp")}
    x = torch.randn(images, LENET[0], device=chosen.device)
    part = samples // 10
    calls = {f"{part} deterministic passes": passes(plain, x, part)}
    calls |= {name: predicting(models[name], x, samples) for name in METHODS}
    for name in METHODS:
        predicting(models[name], x[:8], samples)()
    many = interleaved(calls, **pace(chosen, 2) | {"warmup": 0, "turn_seconds": 0.0})
    few: dict[str, Any] = {}
    for rows in (1, 4, 16, 32):
        for name in METHODS:
            calls = {"loop": looping(models[name], x[:rows], samples)}
            calls["loop in plain torch"] = by_hand(models[name], x[:rows], samples, name)
            calls["predict"] = predicting(models[name], x[:rows], samples)
            few[f"{name}, {rows}"] = as_dicts(interleaved(calls, **settings))
    convolutional = bl.models.lenet5().to(chosen.device).eval()
    bayesian = bl.bayesianize_(bl.models.lenet5(), estimator=bl.moments).to(chosen.device).eval()
    moments: dict[str, Any] = {}
    for name, det, vdp, batch in (
        ("LeNet-300-100", plain, models["vdp"], x[:1]),
        ("LeNet-300-100", plain, models["vdp"], x),
        ("LeNet-5", convolutional, bayesian, x[:512].reshape(-1, 1, 28, 28)),
    ):
        for way, calls in ways(det, vdp, batch).items():
            if not way:
                calls["moments, whole prediction"] = predicting(vdp, batch, samples, "moments")
            moments[f"{name}, {len(batch)}{way}"] = as_dicts(interleaved(calls, **settings))
    return {
        "what": "prediction",
        "network": LENET,
        "samples": samples,
        "images": images,
        "timed_passes": part,
        "many": as_dicts(many),
        "few": few,
        "moments": moments,
    }


if __name__ == "__main__":
    run(__doc__, measure)
