"""Cost of a training step relative to the deterministic network, on this machine.

    python benchmarks/train_step.py --out results/train_step.json

LeNet-300-100, batch 256, forward + backward + fused Adam. All variants run in one process, interleaved; the
ratio is the median over rounds of the round's ratio to the deterministic network.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import bayeslim as bl
from bayeslim.training.step import Stepper

SIZES = [784, 300, 100, 10]


def make_step(model: nn.Module, compile: bool) -> Callable[[], None]:
    """A step of `fit` on one fixed batch."""
    x, y = torch.randn(256, 784), torch.randint(0, 10, (256,))
    optimizer = torch.optim.Adam(bl.param_groups(model), 1e-3, fused=True)
    stepper = Stepper(model, bl.Categorical(), optimizer, num_data=60_000, compile=compile)

    def step() -> None:
        stepper.step([(x, y)], 1.0, 1.0)
        stepper.seen.clear()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None, help="JSON file to write")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--steps", type=int, default=10, help="steps per round and variant")
    parser.add_argument("--compile", action="store_true", help="also compiled variants")
    chosen = parser.parse_args()
    torch.manual_seed(0)
    steps = {"deterministic": make_step(bl.models.mlp(SIZES), False)}
    for method in bl.METHODS:
        steps[method] = make_step(bl.mlp(SIZES, method=method), False)
        if chosen.compile:
            steps[f"{method} compiled"] = make_step(bl.mlp(SIZES, method=method), True)
    for step in steps.values():
        for _ in range(3):
            step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(chosen.rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            for _ in range(chosen.steps):
                step()
            times[name].append((time.perf_counter() - start) / chosen.steps)
    base = times["deterministic"]
    ratios = {
        name: statistics.median(own / det for own, det in zip(values, base, strict=True))
        for name, values in times.items()
    }
    record = {
        "what": "training step, ratio to the deterministic network",
        "network": SIZES,
        "batch": 256,
        "ratio": ratios,
        "deterministic_ms": 1e3 * statistics.median(base),
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
