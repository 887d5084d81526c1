"""Time in turns and peak memory."""

import itertools
from collections.abc import Callable

import pytest
import torch

from bayeslim.machine import machine
from bayeslim.runtime.timing import allocations, interleaved, peak_memory


class Clock:
    """A clock that only calls advance."""

    def __init__(self) -> None:
        self.now = 0.0

    def read(self) -> float:
        return self.now

    def taking(self, *seconds: float) -> Callable[[], None]:
        """A call that takes these times in turn."""
        times = itertools.cycle(seconds)

        def call() -> None:
            self.now += next(times)

        return call


def test_ratios_and_medians_are_those_of_the_clock() -> None:
    clock = Clock()
    calls = {"one": clock.taking(1.0), "three": clock.taking(3.0)}
    found = interleaved(calls, rounds=4, turn_seconds=0.0, clock=clock.read)
    assert (found["one"].seconds, found["one"].ratio) == (1.0, 1.0)
    assert (found["three"].seconds, found["three"].ratio) == (3.0, 3.0)
    assert list(found) == ["one", "three"]


def test_a_machine_that_slows_down_for_a_while_leaves_the_ratio_alone() -> None:
    clock, slow = Clock(), itertools.chain([1.0] * 4, itertools.repeat(7.0))
    speed = 1.0

    def base() -> None:
        nonlocal speed
        speed = next(slow)
        clock.now += speed

    def twice() -> None:
        clock.now += 2 * speed

    found = interleaved({"base": base, "twice": twice}, rounds=9, warmup=0, turn_seconds=0.0, clock=clock.read)
    assert found["twice"].ratio == found["twice"].ratio_low == found["twice"].ratio_high == 2.0


def test_the_spread_is_the_quartiles_of_the_rounds() -> None:
    clock = Clock()
    calls = {"base": clock.taking(1.0), "other": clock.taking(1.0, 2.0, 3.0, 4.0, 5.0)}
    found = interleaved(calls, rounds=5, warmup=0, turn_seconds=0.0, clock=clock.read)["other"]
    assert (found.ratio_low, found.ratio, found.ratio_high) == (2.0, 3.0, 4.0)


def test_short_calls_are_repeated_and_divided() -> None:
    clock, count = Clock(), 0

    def short() -> None:
        nonlocal count
        count += 1
        clock.now += 0.001

    found = interleaved({"short": short}, rounds=2, warmup=3, turn_seconds=0.02, clock=clock.read)
    assert count == 3 + 1 + 2 * 20
    assert found["short"].seconds == pytest.approx(0.001)


def test_warm_up_does_not_count() -> None:
    clock, first = Clock(), iter([100.0])

    def call() -> None:
        clock.now += next(first, 1.0)

    assert interleaved({"call": call}, rounds=1, warmup=1, turn_seconds=0.0, clock=clock.read)["call"].seconds == 1.0


@pytest.mark.parametrize(("calls", "rounds"), [({}, 1), ({"a": lambda: None}, 0)])
def test_nothing_to_measure_is_refused(calls: dict[str, Callable[[], None]], rounds: int) -> None:
    with pytest.raises(ValueError, match=f"got {len(calls)} calls and {rounds} rounds"):
        interleaved(calls, rounds=rounds)


def test_allocations_are_those_of_torch() -> None:
    kept, sizes = allocations(lambda: torch.zeros(1000).add_(torch.ones(500).repeat(2)))
    assert kept.shape == (1000,)
    assert {4000, 2000} <= set(sizes) and sum(sizes) == 4000


def test_peak_counts_what_is_built_and_what_a_call_needs_for_a_while() -> None:
    def build() -> Callable[[], None]:
        held = torch.zeros(10_000)

        def call() -> None:
            extra = torch.zeros(30_000)
            assert len(extra) + len(held) == 40_000

        return call

    call, size = peak_memory(build)
    assert size == 4 * 40_000
    call()


def test_peak_of_a_training_step_is_its_four_tensors() -> None:
    weight_bytes = 4 * 1000 * 1000

    def build() -> Callable[[], None]:
        weight = torch.nn.Parameter(torch.zeros(1000, 1000))
        optimizer = torch.optim.Adam([weight], fused=True)

        def call() -> None:
            optimizer.zero_grad()
            weight.sum().backward()
            optimizer.step()

        return call

    size = peak_memory(build)[1]  # weight, gradient, two averages
    assert 4 * weight_bytes <= size <= 4.01 * weight_bytes


def test_the_machine_is_described() -> None:
    found = machine()
    assert found["device"] == "cpu" and found["cpu"] and found["threads"] == torch.get_num_threads()
    assert found["versions"]["torch"] == torch.__version__
