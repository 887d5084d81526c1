"""The report of a training run in its folder."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from bayeslim.data.columns import NumberColumn, TableInputs
from bayeslim.data.image_inputs import ImageInputs
from bayeslim.data.preprocessing import Preprocessing
from bayeslim.data.text_inputs import PAD, TextInputs
from bayeslim.report.collecting import collect, shuffled_features
from bayeslim.report.content import Content, Names, Origin
from bayeslim.report.drawing import write_figures
from bayeslim.report.page import page
from bayeslim.report.words import number
from bayeslim.storage import write_atomically

if TYPE_CHECKING:
    from bayeslim.runs import Run

__all__ = ["collect_run", "names_of", "write_report"]


def write_report(run: Run, path: Path, figures: Path | None = None) -> Path:
    """Write the page of a run, and its figures for papers where asked for.

    Args:
        run: a finished run.
        path: the HTML file; written atomically.
        figures: a folder for the figures, as PDF and SVG (needs matplotlib); None writes none.

    Returns:
        `path`.

    Raises:
        FileNotFoundError: if the run is not finished.
        ModuleNotFoundError: if figures are asked for without matplotlib.

    Example:
        >>> write_report(Run(Path("runs/a")), Path("runs/a/report.html"))
    """
    content = collect_run(run)
    if figures is not None:
        write_figures(content, figures)
    write_atomically(path, page(content).encode())
    return path


def collect_run(run: Run) -> Content:
    """Measure what the report of a run says about its trained network.

    The threshold is that of `bayeslim prune` where it was called, else the recommended one.

    Example:
        >>> collect_run(Run(Path("runs/a"))).scores
    """
    model, splits = run.model("trained"), run.splits()
    x = splits.test[0]
    settings = {field.name: getattr(run.config, field.name) for field in dataclasses.fields(run.config)}
    return collect(
        model,
        splits.train,
        splits.test,
        validation=splits.validation,
        history=run.history(),
        unfamiliar=shuffled_features(x, run.config.seed) if x.is_floating_point() and x[0].numel() > 1 else None,
        names=names_of(run.preprocessing, f"{run.config.model} on {Path(run.config.data).name} ({run.config.method})"),
        origin=Origin(
            run.command,
            run.config.seed,
            run.versions,
            {name: str(value) for name, value in settings.items() if name != "seed" and value is not None},
        ),
        threshold=run.pruning().get("threshold"),
    )


def names_of(preprocessing: Preprocessing, title: str) -> Names:
    """Names and units out of the way data were prepared.

    Args:
        preprocessing: of a run.
        title: of the report.

    Example:
        >>> names_of(run.preprocessing, "my run").classes
        ('cat', 'dog')
    """
    inputs, target = preprocessing.inputs, preprocessing.target
    names = Names(
        title=title,
        target=target.name,
        classes=target.classes,
        target_scale=(target.mean, target.std),
        unfamiliar="the test inputs, every feature shuffled among them",
    )
    if isinstance(inputs, ImageInputs):
        return dataclasses.replace(names, image_shape=inputs.shape)
    if isinstance(inputs, TextInputs):
        return dataclasses.replace(names, describe=lambda row: [("text", _text(inputs, row))])
    features: list[str] = []
    scales: list[tuple[float, float]] = []
    for column in inputs.columns:
        if isinstance(column, NumberColumn):
            features.append(column.name)
            scales.append((column.mean, column.std))
        else:
            features += [f"{column.name}={value}" for value in column.values]
            scales += [(0.0, 1.0)] * column.width
    return dataclasses.replace(
        names,
        features=tuple(features),
        feature_scales=tuple(scales),
        describe=lambda row: _cells(inputs, row),
    )


def _cells(inputs: TableInputs, row: Tensor) -> list[tuple[str, str]]:
    """A prepared row as the cells of the table it came from."""
    found: list[tuple[str, str]] = []
    start = 0
    for column in inputs.columns:
        part = row[start : start + column.width]
        start += column.width
        if isinstance(column, NumberColumn):
            found.append((column.name, number(part.item() * column.std + column.mean)))
        else:
            known = part.nonzero().flatten().tolist()
            found.append((column.name, column.values[known[0]] if known else "(unknown)"))
    return found


def _text(inputs: TextInputs, row: Tensor) -> str:
    """The words of a prepared text; those outside the vocabulary as a question mark."""
    words = ("", "?", *inputs.words)
    return " ".join(words[int(token)] for token in row if int(token) != PAD)
