"""Rows so far from those of training that a network overflows in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from bayeslim.cli.answers import Answers
from bayeslim.data.cells import BadRow
from bayeslim.data.columns import NumberColumn, TableInputs
from bayeslim.data.preprocessing import Inputs, Preprocessing
from bayeslim.data.problems import Splits
from bayeslim.named_models import likelihood_for
from bayeslim.predictive import predict

__all__ = ["overflow_explained", "refuse_far_rows", "refuse_held_out", "refuse_overflow"]

FAR = 1e6
"""Prepared inputs, which are about 1 in training, from which on a row is tried."""
SAMPLES = 2
"""Posterior samples of a trial: the squares of their differences overflow first."""


def refuse_overflow(found: Answers, x: Tensor, inputs: Inputs, before: int) -> None:
    """Raise ValueError, with the row, if an answer is not a finite number.

    Args:
        found: the answers of some rows.
        x: their prepared inputs.
        inputs: how they were prepared.
        before: rows of the file before them.

    Example:
        >>> refuse_overflow(answers(bl.predict(model, x), target), x, run.preprocessing.inputs, 0)
    """
    finite = np.ones(len(x), np.bool_)
    for column in found.values():
        if column.dtype.kind == "f":
            finite &= np.isfinite(column)
    if not finite.all():
        row = int(finite.argmin())
        raise BadRow("", before + row, _overflow(x[row], inputs))


def refuse_far_rows(model: nn.Module, x: Tensor, preprocessing: Preprocessing, part: str | None) -> None:
    """Raise ValueError, with the row, if the network overflows in one that is far from those of training.

    Args:
        model: trained or not.
        x: prepared inputs; only rows that are far are tried.
        preprocessing: how they were prepared.
        part: of the run's own data, which are shuffled; None for a file, whose rows have numbers.

    Example:
        >>> refuse_far_rows(run.model(), run.splits().test[0], run.preprocessing, "test")
    """
    far = (x.flatten(1).abs().amax(1) > FAR).nonzero().flatten() if x.is_floating_point() else ()
    if len(far):
        likelihood = likelihood_for(preprocessing)
        found = predict(model, x[far], samples=SAMPLES, likelihood=likelihood, keep_samples=False, seed=0)
        bad = ~torch.cat([found.mean, found.total], 1).isfinite().all(1).cpu()
        if bad.any():
            row = int(far[bad][0])
            problem = _overflow(x[row], preprocessing.inputs)
            raise BadRow("", row, problem) if part is None else ValueError(f"a {part} row: {problem}")


def refuse_held_out(model: nn.Module, splits: Splits, preprocessing: Preprocessing) -> None:
    """`refuse_far_rows` of the validation and test rows.

    Example:
        >>> refuse_held_out(run.model(), run.splits(), run.preprocessing)
    """
    for part in ("validation", "test"):
        refuse_far_rows(model, getattr(splits, part)[0], preprocessing, part)


@contextmanager
def overflow_explained(refuse: Callable[[], None]) -> Iterator[None]:
    """Let `refuse` look for a row that overflows after a ValueError, which may only say that a score is not finite.

    Args:
        refuse: raises the better ValueError, or nothing if there is no such row.

    Example:
        >>> with overflow_explained(lambda: refuse_far_rows(model, x, run.preprocessing, None)):
        ...     run.scores(model, (x, y), samples=100)
    """
    try:
        yield
    except ValueError:
        refuse()
        raise


def _overflow(row: Tensor, inputs: Inputs) -> str:
    """What to say of one row of prepared inputs."""
    why = ""
    if row.is_floating_point():
        values = row.flatten()
        largest = int(values.abs().argmax())
        why = f": its prepared inputs reach {values[largest].abs().item():.2g}, in training about 1"
        if isinstance(inputs, TableInputs):
            column = [column for column in inputs.columns for _ in range(column.width)][largest]
            if isinstance(column, NumberColumn):
                why += f" (column {column.name!r} holds {values[largest].item() * column.std + column.mean:.4g})"
    return f"the network overflows, its answer is not a finite number{why}; correct the row, or leave it out"
