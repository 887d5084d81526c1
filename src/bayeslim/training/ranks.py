"""This process as one of several, the ranks, that train one network together by data parallelism."""

from __future__ import annotations

import atexit
import functools
import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bayeslim.divergence import is_sharded
from bayeslim.predictive.inputs import device_of
from bayeslim.training.elbo import Nelbo
from bayeslim.training.interrupts import StopRequest

__all__ = ["Ranks", "join", "weighted"]

T = TypeVar("T")
LAUNCHER_LOOKS = 1.0
"""Seconds that survivors wait for the launcher to see the rank that ended first, so that it is named as the cause."""


@dataclass(frozen=True)
class Ranks:
    r"""Which of `count` processes this is, and what they agree upon.

    torch averages the gradients of the ranks, also those of a sharded network. Rank `r` has `n_r` of the `n` examples
    of a global batch, and weighs their mean nll `l_r` by `count n_r / n`, so that the average

        (1 / count) sum_r (count n_r / n) l_r + beta KL / num_data  =  (1 / n) sum_i nll_i + beta KL / num_data

    is the loss of the whole batch with the KL counted once, however unequal the parts are.

    Args:
        index: of this process; 0 is the one that writes files.
        count: of all processes; with 1 every method returns at once.
        group: carries small messages between them, through the CPU.

    Example:
        >>> ranks = join()
        >>> if ranks.first:
        ...     bl.save(model, "net.safetensors")
    """

    index: int = 0
    count: int = 1
    group: dist.ProcessGroup | None = None

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and shows progress."""
        return self.index == 0

    def part(self, size: int) -> tuple[slice, float]:
        """The rows of a global batch of `size` rows that are this rank's, and the weight of their mean.

        A rank for which no row is left takes the first one with weight 0: all must take part in every step.
        """
        start, stop = size * self.index // self.count, size * (self.index + 1) // self.count
        rows = slice(start, stop) if stop > start else slice(0, 1)
        return rows, self.count * (stop - start) / size

    def parallel(self, objective: Callable[..., Nelbo], *modules: nn.Module) -> Callable[..., Nelbo]:
        """`objective` with gradients averaged over all ranks; `modules` hold its parameters, rank 0's to begin with.

        A sharded network averages by itself, and `average_` what is not a part of it.
        """
        if self.count == 1:
            return objective
        if any(map(is_sharded, modules)):
            for module in modules:
                for parameter in () if is_sharded(module) else module.parameters():
                    dist.broadcast(parameter.detach(), src=0)
            return objective
        # Without noise the scales get no gradient: torch then finds them, and leaves it None as in a single process.
        return DistributedDataParallel(_Objective(objective, *modules), find_unused_parameters=True)

    def average_(self, module: nn.Module) -> None:
        """Give all ranks the mean of their gradients of a module's parameters."""
        for parameter in module.parameters() if self.count > 1 else ():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
                parameter.grad /= self.count

    def least(self, values: list[float]) -> list[float]:
        """The least of each value over all ranks."""
        return values if self.count == 1 else self._reduced(values, dist.ReduceOp.MIN).tolist()

    def means(self, values: list[float]) -> list[float]:
        """The mean of each value over all ranks."""
        if self.count == 1:
            return values
        return (self._reduced(values, dist.ReduceOp.SUM) / self.count).tolist()

    def from_first(self, function: Callable[[], T]) -> T:
        """What `function` gives on rank 0, or the error it raises, on every rank; the others do not call it."""
        if self.count == 1:
            return function()
        answer: list[Any] = [None, None]
        if self.first:
            try:
                answer[0] = function()
            except Exception as error:
                answer[1] = error
        dist.broadcast_object_list(answer, src=0, group=self.group)
        if answer[1] is not None:
            raise answer[1]
        return answer[0]

    def checker(self, stop: StopRequest) -> Callable[[], None]:
        """What to call after every step: `stop.check` after the same step on all ranks, whichever got the signal.

        The ranks tell each other while the next step is computed, so that none waits; they then stop after that.
        """
        if self.count == 1:
            return stop.check
        told: list[tuple[Tensor, Any]] = []

        def check() -> None:
            if told:
                signal, message = told.pop()
                message.wait()
                if signal:
                    stop.signal = int(signal)
                    stop.check()
            signal = torch.tensor(stop.signal or 0)
            told.append((signal, dist.all_reduce(signal, dist.ReduceOp.MAX, self.group, async_op=True)))

        return check

    def align_(self, *modules: nn.Module) -> None:
        """Give all ranks the buffers of rank 0, e.g. batch statistics, and make sure that the parameters agree.

        Sharded parameters do so by themselves: there is one of each.

        Raises:
            RuntimeError: if the parameters of the ranks are not the same.
        """
        if self.count == 1:
            return
        whole = nn.ModuleList(modules)
        for buffer in whole.buffers():
            dist.broadcast(buffer, src=0)
        alike = [
            parameter.detach() for module in modules if not is_sharded(module) for parameter in module.parameters()
        ]
        total = sum(parameter.double().sum().item() for parameter in alike)
        least, most = self._reduced([-total, total], dist.ReduceOp.MAX).tolist()
        if most != -least:
            raise RuntimeError(
                f"the parameters of the {self.count} ranks have come apart (their sums lie in [{-least}, {most}]): the "
                "optimiser or `after_epoch` does not do the same on all of them; give a sampler one seed everywhere"
            )

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Say what it means when the connection to another rank breaks.

        Raises:
            ConnectionError: instead of what the backend raises.
        """
        try:
            yield
        except RuntimeError as error:
            if self.count == 1 or not _is_broken_connection(error):
                raise
            time.sleep(LAUNCHER_LOOKS)
            words, *_ = str(error).split("\n")
            raise ConnectionError(
                f"rank {self.index} of {self.count} lost its connection: another rank has ended, and its own message "
                "or the launcher's summary says which and why. A checkpoint holds the finished epochs: start all "
                f"processes again, and resume ({words})"
            ) from error

    def _reduced(self, values: list[float], operation: Any) -> Tensor:
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, operation, group=self.group)
        return tensor


class _Objective(nn.Module):
    """A function of a batch as a module, whose parameters are those of `modules`."""

    def __init__(self, function: Callable[..., Nelbo], *modules: nn.Module) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(modules)
        # torch warns where it looks for unused parameters and finds none.
        self.unused = nn.Parameter(torch.zeros((), device=device_of(self.parts)))

    def forward(self, *args: Any, **options: Any) -> Nelbo:
        return self.function(*args, **options)


def weighted(result: Nelbo, weight: float) -> Nelbo:
    """The objective with its nll weighted, and its KL not; see `Ranks`."""
    return Nelbo(result.loss + (weight - 1) * result.nll, weight * result.nll, result.kl, result.beta)


def join() -> Ranks:
    """The ranks of this run: joins the others where torchrun started this process, else those of the process group.

    The group is gloo on the CPU and nccl on CUDA, where "cuda" then means the device of torchrun's LOCAL_RANK; one
    that was started already is taken as it is. Without either, or alone, this process is the only rank.

    Returns:
        This process's place among them.

    Example:
        >>> join().count  # outside torchrun
        1
    """
    if not dist.is_available():
        return Ranks()
    if not dist.is_initialized() and dist.is_torchelastic_launched() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group()
        atexit.register(_leave)
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return Ranks()
    return Ranks(dist.get_rank(), dist.get_world_size(), _messages(dist.group.WORLD))


@functools.cache
def _messages(world: dist.ProcessGroup) -> Any:
    """A group for messages through the CPU, which wait for no accelerator."""
    return dist.new_group(backend="gloo")


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
        _messages.cache_clear()
        gc.collect()  # what still holds a group would end its threads while the interpreter ends, which can abort


def _is_broken_connection(error: RuntimeError) -> bool:
    """Whether a backend says so: torch has a type for nccl's errors, gloo's are known by their words."""
    return isinstance(error, dist.DistError) or "gloo" in str(error)
