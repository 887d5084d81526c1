"""Cost of a step of the samplers relative to torch's fused Adam, on this machine.

    python benchmarks/optimizer_step.py --out results/optimizer_step.json

The step alone, gradients fixed, on LeNet-300-100 and on a network of ten million weights. All optimisers run in
one process, interleaved; the ratio is the median over rounds of the round's ratio to fused Adam. State memory is
counted in bytes per parameter. `noise` is what drawing one standard normal per weight takes by itself.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.optim import SGHMC, SGLD, CVAdam

NETWORKS = {"lenet-300-100": [784, 300, 100, 10], "ten million": [784, 2400, 2400, 1000]}
COUNT = 60_000


def parameters(sizes: list[int], device: str) -> list[nn.Parameter]:
    """The parameters of a fresh network, with gradients."""
    found = list(bl.models.mlp(sizes).to(device).parameters())
    for parameter in found:
        parameter.grad = 1e-3 * torch.randn_like(parameter)
    return found


def optimizers(sizes: list[int], device: str) -> dict[str, Any]:
    make: dict[str, Callable[[list[nn.Parameter]], Any]] = {
        "adam": lambda p: torch.optim.Adam(p, 1e-3, fused=True),
        "cv_adam": lambda p: CVAdam(p, num_data=COUNT, lr=0.01),
        "cv_adam, tau frozen": lambda p: CVAdam(p, num_data=COUNT, lr=0.01, eta=0.0),
        "cv_adam, temperature 0": lambda p: CVAdam(p, num_data=COUNT, lr=0.01, temperature=0.0),
        "sghmc": lambda p: SGHMC(p, num_data=COUNT, lr=0.01),
        "sgld": lambda p: SGLD(p, num_data=COUNT, lr=0.01),
    }
    return {name: build(parameters(sizes, device)) for name, build in make.items()}


def state_bytes(optimizer: torch.optim.Optimizer) -> float:
    """Bytes of state per parameter, counters aside."""
    tensors = [t for state in optimizer.state.values() for t in state.values() if isinstance(t, Tensor) and t.ndim]
    count = sum(p.numel() for group in optimizer.param_groups for p in group["params"])
    return sum(t.numel() * t.element_size() for t in tensors) / count


def measure(sizes: list[int], rounds: int, device: str) -> dict[str, Any]:
    chosen = optimizers(sizes, device)
    count = sum(p.numel() for p in parameters(sizes, "cpu"))
    steps = {name: optimizer.step for name, optimizer in chosen.items()}
    steps["noise"] = torch.empty(count, device=device).normal_
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    repeats = max(1, 1_000_000 // count)
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(-3, rounds):
        for name, step in steps.items():
            wait()
            start = time.perf_counter()
            for _ in range(repeats):
                step()
            wait()
            if number >= 0:
                times[name].append((time.perf_counter() - start) / repeats)
    ratios = {
        name: statistics.median(own / adam for own, adam in zip(values, times["adam"], strict=True))
        for name, values in times.items()
    }
    return {
        "weights": count,
        "adam_ms": 1e3 * statistics.median(times["adam"]),
        "ratio": ratios,
        "state_bytes_per_weight": {name: state_bytes(optimizer) for name, optimizer in chosen.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None, help="JSON file to write")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    chosen = parser.parse_args()
    torch.manual_seed(0)
    record = {
        "what": "optimiser step, ratio to fused Adam",
        "networks": {name: measure(sizes, chosen.rounds, chosen.device) for name, sizes in NETWORKS.items()},
        "device": chosen.device,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }
    text = json.dumps(record, indent=2)
    print(text)
    if chosen.out is not None:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
