"""Run the same work on fixed tensors again and again, as a CUDA graph where there is one."""

from __future__ import annotations

from collections.abc import Callable

import torch

__all__ = ["Replayed"]

WARM_UP = 3
"""Runs of a function before it is captured as a CUDA graph, as torch advises."""


class Replayed:
    """A function of fixed tensors that runs as one CUDA graph after `WARM_UP` plain runs; elsewhere as it is.

    The plain runs count: each call is one run, whichever way. Noise differs from call to call, and is that of plain
    runs, since a graph goes on in the state of torch's generator.

    Example:
        >>> update = Replayed(lambda: weights.sub_(0.1 * gradients), weights.device)
        >>> update()
    """

    def __init__(self, function: Callable[[], None], device: torch.device) -> None:
        self.function, self.device = function, device
        self.runs = 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        """Run once."""
        self.runs += 1
        if self.device.type != "cuda":
            self.function()
            return
        if self.runs <= WARM_UP:
            current, side = torch.cuda.current_stream(self.device), torch.cuda.Stream(self.device)
            side.wait_stream(current)
            with torch.cuda.stream(side):
                self.function()
            current.wait_stream(side)
            return
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.device(self.device), torch.cuda.graph(self.graph):
                self.function()
        self.graph.replay()
