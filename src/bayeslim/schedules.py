"""Schedules for the KL weight and the learning rate: functions of training progress alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from bayeslim.checks.numbers import check_number

__all__ = [
    "Progress",
    "Schedule",
    "check_value",
    "checked",
    "constant",
    "constant_then_linear",
    "cosine_cycles",
    "linear",
    "sampling_epochs",
    "staircase",
    "warmup_linear",
]


@dataclass(frozen=True)
class Progress:
    """Where training is: `step` optimiser steps done out of `epochs * steps_per_epoch`."""

    step: int
    steps_per_epoch: int
    epochs: int

    @property
    def epoch(self) -> int:
        """The current epoch, counted from 0."""
        return self.step // self.steps_per_epoch

    @property
    def fraction(self) -> float:
        """The part of the run that is done, in [0, 1)."""
        return self.step / (self.steps_per_epoch * self.epochs)

    def since(self, epoch: int) -> Progress:
        """The progress of the part of the run that begins at `epoch`."""
        return Progress(self.step - epoch * self.steps_per_epoch, self.steps_per_epoch, self.epochs - epoch)


Schedule = Callable[[Progress], float]
"""Maps progress to a factor; keeps no state, so a resumed run sees the same values."""


def constant(value: float = 1.0) -> Schedule:
    """The same value throughout.

    Example:
        >>> constant(0.5)(Progress(step=7, steps_per_epoch=10, epochs=2))
        0.5
    """
    return lambda progress: value


def checked(name: str, schedule: Schedule | None) -> Schedule:
    """The schedule that an argument of this name gives, `constant()` for None.

    Raises:
        TypeError: if it is not a function.

    Example:
        >>> checked("kl_schedule", None)(Progress(step=7, steps_per_epoch=10, epochs=2))
        1.0
    """
    if schedule is not None and not callable(schedule):
        raise TypeError(f"`{name}` must be a schedule, got {schedule!r}: pass e.g. bl.schedules.constant(0.3)")
    return constant() if schedule is None else schedule


def check_value(name: str, value: float) -> float:
    """The value that a schedule gave, if it is finite and not negative; an error otherwise.

    Args:
        name: of the argument that the schedule was given as.
        value: what it returned.

    Raises:
        TypeError: if it is no number.
        ValueError: if it is one, but negative or not finite.

    Example:
        >>> check_value("kl_schedule", 0.5)
        0.5
    """
    try:
        sound = 0 <= value < math.inf
    except (TypeError, ValueError, RuntimeError):  # None and text; arrays and tensors of several numbers
        raise TypeError(f"`{name}` gave {value!r}: it must return a number, e.g. 1.0") from None
    if not sound:
        raise ValueError(f"`{name}` gave {value}: it must be finite and not negative")
    return value


def warmup_linear(warmup: int, ramp: int, final: float = 1.0) -> Schedule:
    """0 for `warmup` epochs, then linear to `final` over `ramp` epochs, then `final`.

    `warmup_linear(5, 15)` is the official Sparse VD schedule: `(epoch - 5) / 15` in between.

    Args:
        warmup: epochs at 0.
        ramp: epochs of the ramp.
        final: last value.

    Example:
        >>> warmup_linear(5, 15)(Progress(step=8, steps_per_epoch=1, epochs=100))
        0.2
    """
    if warmup < 0 or ramp < 0:
        raise ValueError(f"`warmup` and `ramp` must not be negative, got {warmup} and {ramp}")

    def value(progress: Progress) -> float:
        past = progress.epoch - warmup
        return final * (float(past >= 0) if ramp == 0 else min(1.0, max(0.0, past / ramp)))

    return value


def linear(warmup: int = 0, final: float = 1.0) -> Schedule:
    """0 for `warmup` epochs, then linear so that the last epoch reaches `final`.

    The dissertation's annealing: with `e` counted from 0, `(e + 1 - warmup) / (epochs - warmup)`. A run of no more than
    `warmup` epochs stays at 0.

    Args:
        warmup: epochs at 0.
        final: value of the last epoch.

    Example:
        >>> linear()(Progress(step=4, steps_per_epoch=1, epochs=10))
        0.5
    """
    check_number("warmup", warmup, "[0, inf)", "pass e.g. 5")

    def value(progress: Progress) -> float:
        span = max(1, progress.epochs - warmup)
        return final * min(1.0, max(0.0, (progress.epoch + 1 - warmup) / span))

    return value


def staircase(rate: float, every: int = 100) -> Schedule:
    """`min(1, rate * every * floor(step / every))`, by optimiser steps: the k-tied paper's annealing.

    Args:
        rate: growth per step (5e-5 and 5e-6 in the paper).
        every: steps per stair.

    Example:
        >>> staircase(5e-5)(Progress(step=250, steps_per_epoch=10, epochs=100))
        0.01
    """
    if rate <= 0 or every < 1:
        raise ValueError(f"`rate` must be positive and `every` at least 1, got {rate} and {every}")
    return lambda progress: min(1.0, rate * every * (progress.step // every))


def constant_then_linear(hold: float = 0.5) -> Schedule:
    """1 for the first `hold` of the run, then linear to 0: the learning rate of Sparse VD.

    Sparsity appears mainly while the learning rate decays, since gradient noise hides it.

    Args:
        hold: part of the run at 1, in [0, 1).

    Example:
        >>> constant_then_linear(0.5)(Progress(step=75, steps_per_epoch=1, epochs=100))
        0.5
    """
    check_number("hold", hold, "[0, 1)", "pass e.g. 0.5")
    return lambda progress: min(1.0, (1 - progress.fraction) / (1 - hold))


def cosine_cycles(cycles: int = 1) -> Schedule:
    r"""`(1 + cos(pi t / L)) / 2` over `cycles` cycles of `L` steps (Zhang et al. 2020).

    `L` is not rounded: where `cycles` does not divide the steps some cycles have one more than others, and the run
    ends at the end of the last one. With more cycles than steps every step begins one: the value is 1 throughout.

    Args:
        cycles: number of cycles; 1 is plain cosine decay.

    Example:
        >>> cosine_cycles(4)(Progress(step=0, steps_per_epoch=1, epochs=100))
        1.0
    """
    if cycles < 1:
        raise ValueError(f"`cycles` must be at least 1, got {cycles}")

    def value(progress: Progress) -> float:
        steps = progress.steps_per_epoch * progress.epochs
        return 0.5 * (1 + math.cos(math.pi * (progress.step * min(cycles, steps) % steps) / steps))

    return value


def sampling_epochs(cycles: int, per_cycle: int = 3) -> Callable[[Progress], bool]:
    r"""Whether an epoch belongs to the sampling phase: the last `per_cycle` epochs of each of `cycles` cycles.

    Cycles are those of `cosine_cycles`. An epoch belongs to the cycle of its last step, after which a snapshot is
    taken; with `n` epochs left that end before the restart it samples if `n < per_cycle`. Of four cycles of 50 epochs
    these are 47 to 49, counted from 0, and so on (Zhang et al. 2020); the rest of a cycle explores.

    Args:
        cycles: number of cycles.
        per_cycle: epochs, and thus snapshots, at the end of each.

    Example:
        >>> sampling_epochs(4, 3)(Progress(step=47, steps_per_epoch=1, epochs=200))
        True
    """
    if cycles < 1 or per_cycle < 1:
        raise ValueError(f"`cycles` and `per_cycle` must be at least 1, got {cycles} and {per_cycle}")

    def samples(progress: Progress) -> bool:
        done, steps = (progress.epoch + 1) * progress.steps_per_epoch, progress.steps_per_epoch * progress.epochs
        restart = math.ceil(((done - 1) * cycles // steps + 1) * steps / cycles)
        return restart // progress.steps_per_epoch - (progress.epoch + 1) < per_cycle

    return samples
