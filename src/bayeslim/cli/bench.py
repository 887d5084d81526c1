"""`bayeslim bench`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from bayeslim.cli.parsing import call

if TYPE_CHECKING:
    from torch import nn

__all__ = ["command", "main"]


def main(args: list[str]) -> None:
    """Parse and measure."""
    call(command, "bench", args)


def command(
    *, sizes: tuple[int, ...] = (784, 300, 100, 10), batch_size: int = 256, rounds: int = 30, device: str = "auto"
) -> None:
    """Measure what a training step of each method costs on this machine, against the plain network.

    All take turns; the ratio is the median over rounds.

    Args:
        sizes: widths of the network, from input to output.
        batch_size: rows per step.
        rounds: measurements per method.
        device: auto, cpu, cuda, ...
    """
    import torch
    from rich.console import Console
    from rich.table import Table

    from bayeslim import methods, models
    from bayeslim.likelihoods import Categorical
    from bayeslim.named_models import resolved_device
    from bayeslim.optim.param_groups import param_groups
    from bayeslim.randomness import seeded
    from bayeslim.training.step import Stepper

    if rounds < 1 or batch_size < 1:
        raise ValueError(f"--rounds and --batch-size must be at least 1, got {rounds} and {batch_size}")
    place = resolved_device(device)

    def stepping(model: nn.Module) -> Callable[[], None]:
        model.to(place)
        x = torch.randn(batch_size, sizes[0], device=place)
        y = torch.randint(0, sizes[-1], (batch_size,), device=place)
        stepper = Stepper(model, Categorical(), torch.optim.Adam(param_groups(model), 1e-3, fused=True), 60_000)

        def step() -> None:
            stepper.step([(x, y)], 1.0, 1.0)
            stepper.epoch_summary()  # also waits for the device

        return step

    with seeded(0):
        steps = {"plain": stepping(models.mlp(sizes))}
        steps |= {name: stepping(methods.mlp(sizes, method=name)) for name in methods.METHODS}
        times: dict[str, list[float]] = {name: [] for name in steps}
        for turn in range(rounds + 3):
            for name, step in steps.items():
                start = time.perf_counter()
                step()
                if turn > 2:  # the first three only warm up
                    times[name].append(time.perf_counter() - start)
    table = Table("method", "ms per step", "against plain", title=f"{'-'.join(map(str, sizes))}, {place}")
    for name, own in times.items():
        ratio = statistics.median(mine / plain for mine, plain in zip(own, times["plain"], strict=True))
        table.add_row(name, f"{1000 * statistics.median(own):.2f}", f"{ratio:.2f}")
    Console().print(table)
