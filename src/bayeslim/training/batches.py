"""Training data in any of its usual forms, as batches in a reproducible order."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler, RandomSampler, Sampler

from bayeslim.checks.counts import check_counts, check_num_data
from bayeslim.gaussian import Gaussian
from bayeslim.likelihoods.base import Likelihood
from bayeslim.predictive.inputs import as_tensor, device_of, float_type_of, pair_of, per_example, refusal
from bayeslim.runtime.modes import evaluation_mode
from bayeslim.runtime.seeds import seeded
from bayeslim.runtime.threads import TURN
from bayeslim.training.ranks import Ranks

__all__ = ["Batch", "Batches", "make_batches", "single_rows_explained"]


Batch = tuple[Tensor, Tensor] | tuple[Tensor, Tensor, float, int]
"""Inputs and targets; where several processes have unequal parts also the weight of their mean nll, and the rows of the
batch over all processes; see `Ranks`."""


class Batches:
    """Iterates `(x, y)` on the model's device; the order depends on torch's random state alone.

    Args:
        source: tensors (x, y) held in memory, or a loader.
        batch_size: examples per batch, over all ranks; 0 where a loader does not tell.
        num_data: size of the training set.
        model: where it says which device and floating type to use.
        likelihood: checks the targets.
        ranks: each gets its own part of every batch.
    """

    def __init__(
        self,
        source: tuple[Tensor, Tensor] | DataLoader[Any],
        batch_size: int,
        num_data: int,
        model: nn.Module,
        likelihood: Likelihood,
        ranks: Ranks,
    ) -> None:
        self.source, self.batch_size, self.num_data = source, batch_size, num_data
        self.model, self.likelihood, self.ranks = model, likelihood, ranks
        self.output_shape: torch.Size | None = None
        in_memory = isinstance(source, tuple)
        self.count = math.ceil(num_data / batch_size) if in_memory else _length(source)
        if in_memory:
            x, y = source
            self._learn_output_shape(x[:2])
            self.source = x, likelihood.check_targets(y, self.output_shape)

    def __len__(self) -> int:
        """Number of batches per epoch."""
        return self.count

    def begin(self, epoch: int) -> None:
        """Tell a DistributedSampler which epoch it is, since its order depends on that alone."""
        sampler = None if isinstance(self.source, tuple) else _sampler(self.source)
        if isinstance(sampler, DistributedSampler):
            sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[Batch]:
        """One epoch, shuffled (a loader shuffles as its owner decided)."""
        device = device_of(self.model)
        for x, y, weight, rows in self._in_memory() if isinstance(self.source, tuple) else self._loaded():
            pair = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            yield pair if weight == 1.0 else (*pair, weight, rows)

    def _in_memory(self) -> Iterator[tuple[Tensor, Tensor, float, int]]:
        assert isinstance(self.source, tuple)
        x, y = self.source
        with TURN:
            order = torch.randperm(len(x))
        for index in order.split(self.batch_size):
            rows, weight = self.ranks.part(len(index))
            own = index[rows]
            yield x[own], y[own], weight, len(index)

    def _loaded(self) -> Iterator[tuple[Tensor, Tensor, float, int]]:
        assert isinstance(self.source, DataLoader)
        dtype = float_type_of(self.model)
        with TURN:
            for owner in (self.source, getattr(self.source, "sampler", None)):
                # A generator of the loader's own would remember earlier epochs, which a resumed run has not seen.
                if isinstance(generator := getattr(owner, "generator", None), torch.Generator):
                    generator.manual_seed(int(torch.randint(2**62, ())))
        shared = self.source.batch_sampler if isinstance(self.source.batch_sampler, _OwnParts) else None
        for number, batch in enumerate(_in_turn(self.source)):
            x, y = (as_tensor(name, part, dtype) for name, part in zip("xy", pair_of(batch), strict=True))
            if self.output_shape is None:
                self._learn_output_shape(x[:2])
            weight, rows = (1.0, 0) if shared is None else shared.weight(number)
            yield x, self.likelihood.check_targets(y, self.output_shape), weight, rows

    def _learn_output_shape(self, x: Tensor) -> None:
        """Run two examples through the network, to fail early and with a message."""
        try:
            with torch.no_grad(), evaluation_mode(self.model), seeded(0):
                output = self.model(x.to(device_of(self.model)))
        except (RuntimeError, TypeError, IndexError, ValueError) as error:
            raise refusal(x, error) from error
        self.output_shape = per_example(output.loc if isinstance(output, Gaussian) else output).shape


def _in_turn(loader: DataLoader[Any]) -> Iterator[Any]:
    """The batches of a loader; those that are made in this thread, where the data set may draw, in a turn each."""
    with TURN:
        batches, end = iter(loader), object()
    turn = nullcontext() if loader.num_workers else TURN
    while True:
        with turn:
            batch = next(batches, end)
        if batch is end:
            return
        yield batch


@contextmanager
def single_rows_explained() -> Iterator[None]:
    """Say what to do when BatchNorm refuses to normalise one row, which the last batch of an epoch may be."""
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise ValueError(
            "BatchNorm cannot normalise a batch of one row: choose another `batch_size`, so that the last batch has "
            "more, or a loader with drop_last=True"
        ) from error


class _OwnParts(Sampler[list[int]]):
    """This rank's part of every batch of a shuffled data set."""

    def __init__(self, data: Any, batch_size: int, ranks: Ranks) -> None:
        self.whole, self.size, self.ranks = BatchSampler(RandomSampler(data), batch_size, False), len(data), ranks

    def __len__(self) -> int:
        return len(self.whole)

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self.whole:
            yield batch[self.ranks.part(len(batch))[0]]

    def weight(self, number: int) -> tuple[float, int]:
        """Of this rank's part of one batch, and the rows of the whole one."""
        rows = min(self.whole.batch_size, self.size - number * self.whole.batch_size)
        return self.ranks.part(rows)[1], rows


def make_batches(
    data: Any,
    batch_size: int,
    num_data: int | None,
    model: nn.Module,
    likelihood: Likelihood,
    ranks: Ranks = Ranks(),  # noqa: B008 (it cannot change)
) -> Batches:
    """Turn (x, y), a Dataset or a DataLoader into `Batches`, and find the size of the training set.

    Raises:
        ValueError: if the data are empty, do not fit each other, the network or the likelihood, or if
            `num_data` contradicts them or is needed and missing.
    """
    num_data = None if num_data is None else check_num_data(num_data)
    (batch_size,) = check_counts(batch_size=batch_size)
    if isinstance(data, DataLoader | Dataset):
        size = _dataset_size(data)
        _check_size(num_data, size)
        if size is None and num_data is None:
            raise ValueError(
                "`num_data` cannot be inferred from this loader: pass the size of the training set it draws from"
            )
        if isinstance(data, DataLoader):
            _check_distributed(data, ranks)
            loader, batch_size = data, ranks.count * (data.batch_size or 0)
        elif ranks.count == 1:
            loader = DataLoader(data, batch_size, shuffle=True)
        else:
            loader = DataLoader(data, batch_sampler=_OwnParts(data, batch_size, ranks))
        return Batches(loader, batch_size, num_data or size or 0, model, likelihood, ranks)
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise TypeError(
            f"`data` must be (x, y), a Dataset or a DataLoader, got {type(data).__name__}: pass e.g. (x, y)"
        )
    dtype = float_type_of(model)
    x, y = (as_tensor(name, part, dtype) for name, part in zip("xy", pair_of(data), strict=True))
    if len(x) != len(y):
        raise ValueError(f"`data` has {len(x)} inputs and {len(y)} targets: they must agree")
    _check_size(num_data, len(x))
    return Batches((x, y), batch_size, len(x), model, likelihood, ranks)


def _dataset_size(data: Any) -> int | None:
    """Number of examples; None where unknown, as when a sampler picks some of them or repeats them."""
    dataset: Any = data.dataset if isinstance(data, DataLoader) else data
    try:
        size = len(dataset)
    except TypeError:
        return None
    if size == 0:
        raise ValueError("`data` is empty: it must have at least one example")
    if isinstance(data, DataLoader) and isinstance(_sampler(data), DistributedSampler):
        return size  # of which this process gets its part
    sampled = operator.length_hint(data.sampler, size) if isinstance(data, DataLoader) else size
    return size if sampled == size else None


def _sampler(loader: DataLoader[Any]) -> Any:
    """What chooses the examples of a loader, if anything does."""
    return getattr(loader.batch_sampler, "sampler", None) or getattr(loader, "sampler", None)


def _check_distributed(loader: DataLoader[Any], ranks: Ranks) -> None:
    """Raise unless every rank gets examples of its own, as many as any other."""
    sampler = _sampler(loader)
    if ranks.count == 1:
        return
    if not isinstance(sampler, DistributedSampler):
        raise ValueError(
            f"`data` is a loader with a {type(sampler).__name__}, which gives all {ranks.count} processes the same "
            "examples: make it with sampler=torch.utils.data.DistributedSampler(dataset), or pass the dataset itself"
        )
    if (sampler.rank, sampler.num_replicas) != (ranks.index, ranks.count):
        raise ValueError(
            f"the DistributedSampler of `data` is for process {sampler.rank} of {sampler.num_replicas}, this is "
            f"{ranks.index} of {ranks.count}: leave out its `rank` and `num_replicas`"
        )


def _check_size(num_data: int | None, size: int | None) -> None:
    if num_data is not None and size is not None and num_data != size:
        raise ValueError(f"`num_data`={num_data} contradicts the data, which has {size} examples: leave it out")


def _length(loader: Any) -> int:
    try:
        return len(loader)
    except TypeError:
        raise ValueError(
            "`data` is a loader without a length, which schedules and progress need: wrap it in one that has __len__"
        ) from None
