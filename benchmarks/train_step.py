"""Cost of a training step of every method relative to the deterministic network.

    python benchmarks/train_step.py --compile --out results/train_step.json
    python benchmarks/train_step.py --net mlp4096 --device cuda --compile --out results/train_step_cuda.json

Forward, KL, backward and fused Adam on both sides; LeNet-300-100 with batch 256, or three layers of 4096 with batch
4096 in bfloat16. On CUDA also as one CUDA graph each (`fit(cuda_graph=True)`). All networks take turns in one process;
a ratio is the median over rounds of the round's ratio to the deterministic network in the same mode. Compiled, that is
`torch.compile` and torch's fused Adam; on a CPU `fit` compiles Adam with the rest, for the deterministic network too
("one graph"). Memory is the peak of torch's allocations. `speeds` is what the machine can do.
"""

import argparse
import itertools
from typing import Any

import torch
from harness import LENET, run
from speeds import speeds

from bayeslim.step_costs import ONE_GRAPH, OUR_PRODUCTS, as_record, step_costs

NETS: dict[str, tuple[list[int], int, torch.dtype | None]] = {
    "lenet-300-100": (LENET, 256, None),
    "mlp4096": ([4096] * 4, 4096, torch.bfloat16),
    "tiny": ([8, 16, 4], 8, None),
}
COMPILED = ["deterministic", OUR_PRODUCTS, "graves", "graves, local_reparam", "ard", "k-tied", "vdp"]
"""One network per kind of graph: compiling takes longer than measuring."""


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    sizes, batch, autocast = NETS["tiny" if chosen.quick else chosen.net]
    rounds = 2 if chosen.quick else 40
    settings: dict[str, Any] = {"rounds": rounds, "device": chosen.device, "autocast": autocast}
    modes = {"eager": as_record(step_costs(sizes, batch, **settings))}
    on_cuda = torch.device(chosen.device).type == "cuda"
    if on_cuda:
        modes["graph"] = as_record(step_costs(sizes, batch, cuda_graph=True, **settings))
    if chosen.compile:
        names = ["deterministic", "graves"] if chosen.quick else COMPILED + [ONE_GRAPH] * (not on_cuda)
        for mode, graph in [("compiled", False), ("compiled graph", True)][: 1 + on_cuda]:
            costs = step_costs(sizes, batch, names=names, compile=True, cuda_graph=graph, **settings)
            modes[mode] = as_record(costs)
    weights = sum(a * b for a, b in itertools.pairwise(sizes))
    dtype = autocast or torch.float32
    return {
        "what": "training step, ratio to the deterministic network in the same mode",
        "network": sizes,
        "batch": batch,
        "autocast": str(dtype).removeprefix("torch."),
        "rounds": rounds,
        "steps": modes,
        "speeds": speeds(batch, sizes[0], sizes[1], weights, device=chosen.device, dtype=dtype, rounds=rounds),
    }


if __name__ == "__main__":
    run(
        __doc__,
        measure,
        net={"choices": list(NETS), "default": "lenet-300-100"},
        compile={"action": "store_true", "help": "also compiled"},
    )
