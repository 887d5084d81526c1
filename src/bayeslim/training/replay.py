"""Run the same work on fixed tensors again and again, as a CUDA graph where there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["Replayed", "ReplayedUpdates", "allow_plain_steps_"]

WARM_UP = 3
"""Runs of a function before it is captured as a CUDA graph, as torch advises."""


def allow_plain_steps_(optimizer: torch.optim.Optimizer) -> None:
    """Keep torch from warning of the few plain steps of a capturable optimiser that come before the capture."""
    optimizer._warned_capturable_if_run_uncaptured = True  # pyright: ignore[reportAttributeAccessIssue]


class Replayed:
    """A function of fixed tensors that runs as one CUDA graph after `WARM_UP` plain runs; elsewhere as it is.

    The plain runs count: each call is one run, whichever way. Noise differs from call to call, and is that of plain
    runs, since a graph goes on in the state of torch's generator.

    Example:
        >>> update = Replayed(lambda: weights.sub_(0.1 * gradients), weights.device)
        >>> update()
    """

    def __init__(self, function: Callable[[], Any], device: torch.device) -> None:
        self.function, self.device = function, device
        self.runs = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.result: Any = None

    def __call__(self) -> Any:
        """Run once and return what the function returned: the same tensors after every run but the first ones."""
        self.runs += 1
        if self.device.type != "cuda":
            self.result = self.function()
        elif self.runs <= WARM_UP:
            current, side = torch.cuda.current_stream(self.device), torch.cuda.Stream(self.device)
            side.wait_stream(current)
            with torch.cuda.stream(side):
                self.result = self.function()
            current.wait_stream(side)
        else:
            if self.graph is None:
                self.graph = torch.cuda.CUDAGraph()
                with torch.cuda.device(self.device), torch.cuda.graph(self.graph):
                    self.result = self.function()
            self.graph.replay()
        return self.result


class ReplayedUpdates:
    """A function of tensors, replayed for every shape of them: they are copied to the places that its graph reads.

    Args:
        update: takes the tensors and returns one; the keywords distinguish kinds of updates.
        device: where the tensors lie.

    Example:
        >>> updates = ReplayedUpdates(update, torch.device("cuda"))
        >>> losses = updates(x, y, kl=True)
    """

    def __init__(self, update: Callable[..., Tensor], device: torch.device) -> None:
        self.update, self.device = update, device
        self.kinds: dict[Any, tuple[list[Tensor], Replayed]] = {}

    def __call__(self, *given: Tensor, **kind: bool | str) -> Tensor:
        """Update once; what is returned is not overwritten by the next call."""
        key = (*((tensor.shape, tensor.dtype) for tensor in given), *kind.items())
        if key not in self.kinds:
            own = [torch.empty_like(tensor) for tensor in given]
            self.kinds[key] = own, Replayed(lambda: self.update(*own, **kind), self.device)
        own, replayed = self.kinds[key]
        for place, tensor in zip(own, given, strict=True):
            place.copy_(tensor)
        return replayed().clone()

    def forget(self) -> None:
        """Capture anew from now on, since what the graphs hold may have changed."""
        self.kinds.clear()
