"""What computations cost beside each other: time in turns, and peak memory."""

from __future__ import annotations

import gc
import itertools
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

__all__ = ["Timing", "allocations", "interleaved", "peak_memory"]

T = TypeVar("T")
Call = Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """The time of one call, and against the first of those measured together."""

    seconds: float
    """Median over rounds."""
    ratio: float
    """Median over rounds of its time divided by the first call's in the same round."""
    ratio_low: float
    """Lower quartile of these ratios."""
    ratio_high: float
    """Upper quartile of these ratios."""


def interleaved(
    calls: Mapping[str, Call],
    *,
    rounds: int = 30,
    warmup: int = 3,
    turn_seconds: float = 0.02,
    device: torch.device | str = "cpu",
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    r"""Time several computations in turns, so that all meet the same machine.

    Every round gives every call a turn; `ratio = median_r t_r / b_r`, `t_r` the time of a call in round `r` and `b_r`
    that of the first call. A turn repeats a short call until about `turn_seconds` have passed and divides by the count.
    On CUDA the device's own events measure, and every turn waits for the device.

    Args:
        calls: what to run, by name; the first is what the others are compared with.
        rounds: turns of every call that count, at least 1.
        warmup: calls before, which do not count.
        turn_seconds: the least time of a turn; 0 makes it one call.
        device: where the calls run.
        clock: seconds, read before and after a turn where the device has no events.

    Returns:
        A `Timing` per name, in the order given.

    Raises:
        ValueError: without calls or rounds.

    Example:
        >>> x = torch.ones(512, 512)
        >>> interleaved({"one": lambda: x @ x, "two": lambda: x @ x @ x})["two"].ratio
        2.01
    """
    if not calls or rounds < 1:
        raise ValueError(f"`calls` and `rounds` must not be empty, got {len(calls)} calls and {rounds} rounds")
    place = torch.device(device)
    repeats: dict[str, int] = {}
    for name, call in calls.items():
        for _ in range(warmup):
            call()
        once = _turn(call, 1, place, clock) if turn_seconds else 1.0
        repeats[name] = max(1, round(turn_seconds / max(once, 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(_turn(call, repeats[name], place, clock))
    first = next(iter(times.values()))
    return {name: _timing(own, first) for name, own in times.items()}


def peak_memory(build: Callable[[], Call], device: torch.device | str = "cpu") -> tuple[Call, int]:
    """Build a computation, run it, and say how much memory it had at its peak.

    Everything counts that torch allocates from the start of `build` on: parameters, optimiser state, gradients, what is
    saved for backward, buffers. On CUDA this is `max_memory_allocated`, on the CPU the highest sum of the allocations
    and releases that torch's profiler sees.

    Args:
        build: makes the computation, e.g. a network with its optimiser and a function that takes one step.
        device: where it runs.

    Returns:
        What `build` returned, and bytes.

    Example:
        >>> peak_memory(lambda: lambda: torch.zeros(1000))[1]
        4000
    """
    place = torch.device(device)
    gc.collect()  # garbage of before would be released meanwhile
    if place.type == "cuda":
        one = torch.ones(1, 1, device=place, requires_grad=True)
        (one @ one).backward()  # cuBLAS keeps 32 MiB from its first product on, in both passes
        before = torch.cuda.memory_allocated(place)
        call = build()
        call()
        torch.cuda.reset_peak_memory_stats(place)
        for _ in range(4):  # a CUDA graph is captured among these (after three plain runs); replays allocate nothing
            call()
        torch.cuda.synchronize(place)
        return call, torch.cuda.max_memory_allocated(place) - before
    call, sizes = allocations(lambda: _called_twice(build))
    return call, max(itertools.accumulate(sizes, initial=0))


def allocations(run: Callable[[], T]) -> tuple[T, list[int]]:
    """Run something on the CPU and list what torch allocates (positive) and releases (negative) meanwhile, in bytes.

    Example:
        >>> allocations(lambda: torch.zeros(1000))[1]
        [4000]
    """
    from torch.profiler import ProfilerActivity, profile

    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler reports its own start and end otherwise
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        result = run()
    inner: Any = recorded.profiler
    events = [event for event in inner.kineto_results.events() if event.name() == "[memory]"]
    return result, [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]


def _called_twice(build: Callable[[], Call]) -> Call:
    """The first call also makes the optimiser's state."""
    call = build()
    call()
    call()
    return call


def _turn(call: Call, repeats: int, device: torch.device, clock: Callable[[], float]) -> float:
    """Seconds per call over `repeats` of them."""
    if device.type == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(device)
        start.record()
        for _ in range(repeats):
            call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3 / repeats
    begin = clock()
    for _ in range(repeats):
        call()
    return (clock() - begin) / repeats


def _timing(own: list[float], first: list[float]) -> Timing:
    ratios = [mine / base for mine, base in zip(own, first, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    return Timing(statistics.median(own), middle, low, high)
