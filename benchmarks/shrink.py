"""A network that is really smaller and faster: bytes, multiply-adds and latency before and after pruning.

    python benchmarks/shrink.py --root DATA --out results/shrink.json            # trains on the CPU first (minutes)
    python benchmarks/shrink.py --root DATA --networks lenet300.safetensors lenet5.safetensors --out results/shrink.json

For LeNet-300-100 and LeNet-5-Caffe on MNIST (ARD): the unpruned Bayesian network against pruned, compacted, stored as
`.slim` in 16 bits and run as a plain network with sparse layers where they measure faster; test accuracy and
calibration of both; principled against random pruning at the same counts. Then a small ResNet with half its channels
pruned: compacted equals masked. All in one process, latencies interleaved and as medians.
"""

import argparse
import copy
import tempfile
from pathlib import Path
from typing import Any

import torch
from harness import run
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.export import load_slim, save_slim
from bayeslim.pruning import MAGNITUDE, compact, footprint, prune_, random_like, sparsify_, sparsity
from bayeslim.runtime.timing import interleaved

Data = tuple[Tensor, Tensor]


def load(root: Path | None) -> tuple[Data, Data]:
    """MNIST minus the mean training image."""
    train, test = (bl.data.mnist(split, root=root) for split in ("train", "test"))
    centre = train.x.mean(0)
    return (train.x - centre, train.y), (test.x - centre, test.y)


def train(model: nn.Module, data: Data, epochs: int, beta: float, device: str) -> nn.Module:
    """ARD with the KL ramped over the first half and the learning rate falling over the second."""
    torch.manual_seed(0)
    bl.bayesianize_(model, prior=bl.priors.ARD())
    bl.fit(
        model,
        data,
        likelihood=bl.Categorical(),
        epochs=epochs,
        kl_schedule=bl.schedules.warmup_linear(2, epochs // 2, beta),
        lr_schedule=bl.schedules.constant_then_linear(0.5),
        seed=0,
        device=device,
    )
    return model.cpu()


@torch.no_grad()
def latency(models: dict[str, nn.Module], x: Tensor, rounds: int = 60) -> dict[str, float]:
    """Median milliseconds of each model on `x`, interleaved."""
    found = interleaved({name: (lambda m=model: m(x)) for name, model in models.items()}, rounds=rounds, warmup=5)
    return {name: 1e3 * timing.seconds for name, timing in found.items()}


def shrink(model: nn.Module, test: Data, samples: int, sampled: int) -> dict[str, Any]:
    """Prune at log alpha 3, compact, store and run; everything beside the unpruned network.

    Scores by posterior samples are taken on the first `sampled` test images, those of mean weights on all.
    """
    x, _ = test
    part = (test[0][:sampled], test[1][:sampled])
    pruned = copy.deepcopy(model)
    prune_(pruned)
    small = compact(pruned.eval(), x[:8])
    with bl.using(pruned, bl.mean_only), bl.using(small, bl.mean_only), torch.no_grad():
        difference = (pruned(x[:1000]) - small(x[:1000])).abs().max().item()
    dense = bl.collapse_(copy.deepcopy(model)).eval()
    with tempfile.TemporaryDirectory() as folder:
        bl.export.export_torch(model, Path(folder) / "dense.safetensors")
        dense_bytes = (Path(folder) / "dense.safetensors").stat().st_size
        slim_bytes = save_slim(small, Path(folder) / "small.slim.safetensors")
        stored = load_slim(Path(folder) / "small.slim.safetensors")
    quick = copy.deepcopy(stored)
    choice = sparsify_(quick, x[:1000])
    networks = {"dense": dense, "compacted": stored, "compacted, sparse": quick}
    times = {f"batch {n}": latency(networks, x[:n]) for n in (1, 1000)}
    likelihood = bl.Categorical()
    before, after = footprint(model, x[:1]), footprint(small, x[:1])
    return {
        "sparsity": sparsity(pruned, threshold=1e9),
        "images scored by samples": sampled,
        "compacted equals masked to": difference,
        "bytes": {"dense float32": dense_bytes, "slim 16 bit": slim_bytes, "ratio": dense_bytes / slim_bytes},
        "multiply-adds": {"before": before.multiply_adds, "after": after.multiply_adds},
        "parameters": {"before": before.parameters, "after": after.parameters},
        "milliseconds": times,
        "sparse layers": choice,
        "unpruned": bl.evaluate(model, part, samples=samples, likelihood=likelihood),
        "pruned and compacted": bl.evaluate(small, part, samples=samples, likelihood=likelihood),
        "slim file, mean weights": bl.evaluate(stored, test, samples=0, likelihood=likelihood),
        "unpruned, mean weights": bl.evaluate(model, test, samples=0, likelihood=likelihood),
        "random pruning, same counts": bl.evaluate(random_like(pruned), part, samples=samples, likelihood=likelihood),
    }


def shrink_resnet(samples: int = 8) -> dict[str, Any]:
    """An untrained ResNet-18 of width 16 with half of its output channels pruned by magnitude."""
    torch.manual_seed(0)
    model = bl.bayesianize_(bl.models.resnet18(width=16)).eval()
    x = torch.randn(samples, 3, 32, 32)
    prune_(model, MAGNITUDE, amount=0.5, structure="output", scope="layer", where=lambda name, _: "linear" not in name)
    small = compact(model, x)
    with bl.using(model, bl.mean_only), bl.using(small, bl.mean_only), torch.no_grad():
        difference = (model(x) - small(x)).abs().max().item()
        times = latency({"masked": model, "compacted": small}, x, rounds=20)
    before, after = footprint(model, x[:1]), footprint(small, x[:1])
    return {
        "compacted equals masked to": difference,
        "multiply-adds": {"before": before.multiply_adds, "after": after.multiply_adds},
        "parameters": {"before": before.parameters, "after": after.parameters},
        f"milliseconds, batch {samples}": times,
    }


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    training, test = load(chosen.root)
    names = {"LeNet-300-100": bl.models.lenet_300_100, "LeNet-5-Caffe": bl.models.lenet5_caffe}
    epochs = 1 if chosen.quick else chosen.epochs
    record: dict[str, Any] = {"beta": chosen.beta}
    for index, (name, build) in enumerate(names.items()):
        if chosen.networks:
            model = bl.load(chosen.networks[index])
        else:
            model = train(build(), training, epochs, chosen.beta, chosen.device)
        convolutional = any(isinstance(m, nn.MaxPool2d) for m in model.modules())
        record[name] = shrink(model, test, chosen.samples, 1000 if convolutional else len(test[1]))
    record["ResNet-18, width 16"] = shrink_resnet()
    return record


if __name__ == "__main__":
    run(
        __doc__,
        measure,
        root={"type": Path, "default": None, "help": "folder that holds mnist/"},
        networks={"type": Path, "nargs": 2, "default": None, "help": "trained LeNet-300-100 and LeNet-5 files"},
        epochs={"type": int, "default": 100},
        beta={"type": float, "default": 2.0, "help": "final KL weight"},
        samples={"type": int, "default": 50},
    )
