"""`bayeslim bench`."""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["command"]


def command(
    *,
    sizes: tuple[int, ...] = (784, 300, 100, 10),
    batch_size: int = 256,
    rounds: int = 30,
    device: str = "auto",
    compile: bool = False,
    bf16: bool = False,
    out: Path | None = None,
) -> None:
    """Measure what a training step of each method costs on this machine, against the deterministic network.

    All take turns; the ratio is the median over rounds, with its quartiles. Memory is the peak of torch's allocations.

    Args:
        sizes: widths of the network, from input to output.
        batch_size: rows per step.
        rounds: measurements per method.
        device: auto, cpu, cuda, ...
        compile: compile every network, the deterministic one too.
        bf16: run the forward pass in bfloat16.
        out: JSON file to write besides.
    """
    import torch
    from rich.console import Console
    from rich.table import Table

    from bayeslim.machine import machine
    from bayeslim.named_models import resolved_device
    from bayeslim.step_costs import as_record, step_costs
    from bayeslim.storage import write_atomically

    if rounds < 1 or batch_size < 1:
        raise ValueError(f"--rounds and --batch-size must be at least 1, got {rounds} and {batch_size}")
    if len(sizes) < 2 or min(sizes) < 1:
        raise ValueError(f"--sizes must be at least two positive widths, got {sizes}: pass e.g. --sizes 784 300 10")
    place = resolved_device(device)
    dtype = torch.bfloat16 if bf16 else None
    found = step_costs(sizes, batch_size, rounds=rounds, device=place, compile=compile, autocast=dtype)
    title = f"{'-'.join(map(str, sizes))}, batch {batch_size}, {place}"
    table = Table("method", "ms per step", "against deterministic", "quartiles", "peak memory", title=title)
    for name, cost in found.items():
        time = cost.time
        spread = f"{time.ratio_low:.2f}-{time.ratio_high:.2f}"
        table.add_row(name, f"{1e3 * time.seconds:.2f}", f"{time.ratio:.2f}", spread, f"{cost.memory_ratio:.2f}")
    Console().print(table)
    settings = {"network": list(sizes), "batch": batch_size, "compile": compile, "bf16": bf16}
    if out is not None:
        record = {**machine(place), **settings, "steps": as_record(found)}
        write_atomically(out, (json.dumps(record, indent=1) + "\n").encode())
