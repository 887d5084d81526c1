"""Schedules against the tables and formulas they are named after."""

import doctest
import math
from collections.abc import Callable

import pytest
import torch

from bayeslim import schedules
from bayeslim.schedules import (
    Progress,
    Schedule,
    constant,
    constant_then_linear,
    cosine_cycles,
    linear,
    sampling_epochs,
    staircase,
    warmup_linear,
)
from contracts.cases import each


def by_epoch(schedule: Schedule, epochs: int, steps_per_epoch: int = 7) -> list[float]:
    """The value of every epoch; fails if it changes within one."""
    values = []
    for epoch in range(epochs):
        steps = range(epoch * steps_per_epoch, (epoch + 1) * steps_per_epoch)
        seen = {schedule(Progress(step, steps_per_epoch, epochs)) for step in steps}
        assert len(seen) == 1, epoch
        values.append(seen.pop())
    return values


def by_step(schedule: Schedule, epochs: int, steps_per_epoch: int) -> list[float]:
    total = epochs * steps_per_epoch
    return [schedule(Progress(step, steps_per_epoch, epochs)) for step in range(total)]


def test_docstring_examples() -> None:
    assert doctest.testmod(schedules).failed == 0


def test_progress_counts_epochs_and_the_part_that_is_done() -> None:
    now = Progress(step=23, steps_per_epoch=5, epochs=10)
    assert (now.epoch, now.fraction) == (4, 0.46)
    later = now.since(3)
    assert (later.step, later.epochs, later.epoch) == (8, 7, 1)
    assert later.fraction == pytest.approx(8 / 35)
    assert now.since(0) == now


def test_constant() -> None:
    assert by_epoch(constant(), 3) == [1.0] * 3
    assert by_epoch(constant(0.25), 2) == [0.25] * 2


def test_warmup_linear_is_rw_linear_of_sparse_vd() -> None:
    def rw_linear(epoch: int) -> float:
        if epoch < 5:
            return 0.0
        return (epoch - 5) / 15 if epoch < 20 else 1.0

    assert by_epoch(warmup_linear(5, 15), 40) == pytest.approx([rw_linear(e) for e in range(40)])


def test_warmup_linear_without_warmup_or_ramp() -> None:
    assert by_epoch(warmup_linear(0, 4), 6) == [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
    assert by_epoch(warmup_linear(2, 0), 4) == [0.0, 0.0, 1.0, 1.0]
    assert by_epoch(warmup_linear(1, 2, final=3.0), 4) == [0.0, 0.0, 1.5, 3.0]


def test_linear_is_the_dissertations_annealing() -> None:
    """Epochs counted from 1 out of E: the weight is e / E, and the last epoch has the whole KL."""
    assert by_epoch(linear(), 10) == pytest.approx([e / 10 for e in range(1, 11)])
    assert by_epoch(linear(warmup=2), 6) == pytest.approx([0, 0, 1 / 4, 2 / 4, 3 / 4, 1])
    assert by_epoch(linear(final=0.5), 2) == [0.25, 0.5]
    assert by_epoch(linear(warmup=9), 3) == [0.0] * 3


def test_staircase_is_the_k_tied_papers_annealing() -> None:
    for rate in (5e-5, 5e-6):
        values = by_step(staircase(rate), epochs=60, steps_per_epoch=49)
        expected = [min(1.0, rate * 100 * (t // 100)) for t in range(60 * 49)]
        assert values == pytest.approx(expected)
    # 300 epochs of 49 steps end at 0.735, as worked out for the paper's MLP.
    assert staircase(5e-5)(Progress(300 * 49, 49, 300)) == pytest.approx(0.735)
    assert staircase(1.0, every=1)(Progress(5, 1, 10)) == 1.0


def test_constant_then_linear_is_the_learning_rate_of_sparse_vd() -> None:
    """Constant to epoch 100, then linear to 0 at epoch 200, step by step."""
    values = by_step(constant_then_linear(0.5), epochs=200, steps_per_epoch=3)
    expected = [1.0 if step < 300 else 1 - (step - 300) / 300 for step in range(600)]
    assert values == pytest.approx(expected)
    falling = by_step(constant_then_linear(0.0), epochs=4, steps_per_epoch=5)
    assert falling == pytest.approx([1 - step / 20 for step in range(20)])


def restarts(rates: list[float]) -> list[int]:
    return [step for step in range(1, len(rates)) if rates[step] >= rates[step - 1]]


@pytest.mark.parametrize("cycles", [1, 4])
def test_cosine_cycles_match_torch(cycles: int) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    reference = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=60 // cycles)
    expected = []
    for _ in range(60):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        reference.step()
    assert by_step(cosine_cycles(cycles), epochs=10, steps_per_epoch=6) == pytest.approx(expected, abs=1e-12)


@each("total", [50, 100, 101, 999, 1000])
@each("cycles", [1, 3, 7, 12])
def test_cosine_cycles_end_low_even_if_they_do_not_divide_the_run(total: int, cycles: int) -> None:
    """A restart in the last few steps would throw away what the run has found."""
    values = by_step(cosine_cycles(cycles), epochs=1, steps_per_epoch=total)
    starts = [0, *restarts(values)]
    assert len(starts) == cycles
    lengths = {b - a for a, b in zip(starts, [*starts[1:], total], strict=True)}
    assert lengths <= {total // cycles, math.ceil(total / cycles)}
    assert values[0] == 1.0
    assert values[-1] < 0.25


def test_cosine_cycles_with_more_cycles_than_steps() -> None:
    assert by_step(cosine_cycles(9), epochs=2, steps_per_epoch=2) == [1.0] * 4


def test_sampling_epochs_are_the_last_of_each_cycle() -> None:
    """Four cycles of 50 epochs: 47 to 49 and so on, not those that drift off the ends (46-48, 95-97, ...)."""
    samples = sampling_epochs(4, 3)
    chosen = [epoch for epoch in range(200) if samples(Progress(7 * epoch + 6, 7, 200))]
    assert chosen == [47, 48, 49, 97, 98, 99, 147, 148, 149, 197, 198, 199]
    assert [epoch for epoch in range(200) if samples(Progress(7 * epoch, 7, 200))] == chosen


@each("per_cycle", [1, 3])
@each("steps_per_epoch", [1, 4, 391])
@each(("epochs", "cycles"), [(10, 3), (7, 2), (5, 1), (3, 3), (30, 4), (50, 4), (50, 7), (10, 4)])
def test_sampling_epochs_are_those_before_a_restart(
    epochs: int, cycles: int, steps_per_epoch: int, per_cycle: int
) -> None:
    """Snapshots follow epochs; the last before the rate jumps up are wanted, wherever cycles and epochs meet."""
    rate = by_step(cosine_cycles(cycles), epochs=epochs, steps_per_epoch=steps_per_epoch)
    ends = [*restarts(rate), len(rate)]
    in_cycle: dict[int, list[int]] = {}
    for epoch in range(epochs):
        done = (epoch + 1) * steps_per_epoch
        in_cycle.setdefault(next(end for end in ends if end >= done), []).append(epoch)
    wanted = [epoch for own in in_cycle.values() for epoch in own[-per_cycle:]]
    samples = sampling_epochs(cycles, per_cycle)
    assert [e for e in range(epochs) if samples(Progress(e * steps_per_epoch, steps_per_epoch, epochs))] == wanted


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: sampling_epochs(0, 1), "`cycles` and `per_cycle` must be at least 1, got 0 and 1"),
        (lambda: sampling_epochs(1, 0), "`cycles` and `per_cycle` must be at least 1, got 1 and 0"),
        (lambda: warmup_linear(-1, 2), "`warmup` and `ramp` must not be negative, got -1 and 2"),
        (lambda: warmup_linear(1, -2), "`warmup` and `ramp` must not be negative"),
        (lambda: linear(-1), "`warmup` must be finite and not negative, got -1"),
        (lambda: staircase(0.0), "`rate` must be positive"),
        (lambda: staircase(1e-5, every=0), "`every` at least 1"),
        (lambda: constant_then_linear(1.0), r"`hold` must lie in \[0, 1\), got 1.0: pass e.g. 0.5"),
        (lambda: constant_then_linear(-0.1), "`hold` must lie in"),
        (lambda: cosine_cycles(0), "`cycles` must be at least 1, got 0"),
    ],
)
def test_errors(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
