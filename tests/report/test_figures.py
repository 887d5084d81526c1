"""Figures: what they draw, that texts do not overlap, and that files repeat."""

import dataclasses
import importlib.util
import xml.etree.ElementTree
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from tests.report.conftest import Case

from bayeslim.analysis import figures
from bayeslim.report import write_figures
from bayeslim.report.drawing import draw_figures


def texts_of(figure: Figure) -> list[Text]:
    """The texts that are seen once the figure is laid out."""
    FigureCanvasAgg(figure).draw()
    found = [text for legend in figure.legends for text in legend.get_texts()]
    for axes in figure.axes:
        if axes.get_visible() and axes.axison:
            found += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
            for axis in (axes.xaxis, axes.yaxis):
                low, high = sorted(axis.get_view_interval())
                ticks = zip(axis.get_majorticklocs(), axis.get_ticklabels(), strict=True)
                found += [label for place, label in ticks if low <= place <= high]
    return [text for text in found if text.get_text().strip()]


@pytest.mark.parametrize("name", ["moons", "curve", "pictures"])
def test_texts_do_not_overlap(name: str, request: pytest.FixtureRequest) -> None:
    case: Case = request.getfixturevalue(name)
    for title, (figure,) in draw_figures(case.content).items():
        boxes = [(text.get_text(), text.get_window_extent()) for text in texts_of(figure)]
        assert boxes
        for (one, first), (other, second) in combinations(boxes, 2):
            shared = (
                min(first.x1, second.x1) - max(first.x0, second.x0),
                min(first.y1, second.y1) - max(first.y0, second.y0),
            )
            assert min(shared) <= 1, f"{title}: {one!r} overlaps {other!r}"


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("moons", {"reliability", "entropies", "boundaries"}),
        ("curve", {"band", "observed", "coverage"}),
        ("pictures", {"reliability", "entropies", "certain", "doubtful"}),
    ],
)
def test_every_figure_that_applies_is_written(
    name: str, own: set[str], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    case: Case = request.getfixturevalue(name)
    formats = ("pdf", "svg") if name == "curve" else ("svg",)
    files = write_figures(case.content, tmp_path / "figures", formats)
    common = {"training", "sparsity", "pruning_curve", "pruning_bars", "spectra", "deviations", "draws"}
    assert {(file.stem, file.suffix) for file in files} == {
        (stem, kind) for stem in common | own for kind in map(".{}".format, formats)
    }
    assert all(file.read_bytes().startswith((b"%PDF", b"<?xml")) for file in files)


def test_same_content_gives_the_same_files(pictures: Case, tmp_path: Path) -> None:
    content = dataclasses.replace(pictures.content, training=None, reliability=None, entropies=None, certain=[])
    first, second = (write_figures(content, tmp_path / name) for name in "ab")
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]


def test_names_in_figures_are_not_read_as_mathematics(curve: Case, tmp_path: Path) -> None:
    content = dataclasses.replace(curve.content, features=["cost $ and $\\frac"], target="a_long " * 30 + "$^{")
    (band,) = [file for file in write_figures(content, tmp_path, ("svg",)) if file.stem == "band"]
    assert "cost $ and $\\frac" in band.read_text()


def test_draws_shows_mean_and_deviation() -> None:
    errors = np.array([[3.0, 5.0, 4.0], [2.0, 2.5, 3.0]])
    figure = figures.draws([1, 10], {"sampled": errors, "moments": errors - 1})
    bars: Any = figure.axes[0].containers
    assert len(bars) == 2
    line, _, (segments,) = bars[0]
    assert line.get_ydata().tolist() == [4.0, 2.5]
    ends = [segment[:, 1].tolist() for segment in segments.get_segments()]
    assert np.asarray(ends) == pytest.approx(np.array([[3.0, 5.0], [2.0, 3.0]]))


def test_pruning_bars_have_error_bars_for_several_runs() -> None:
    figure = figures.pruning_bars({"none": [0.98, 0.96], "principled": [0.97, 0.97], "random": [0.4, 0.6]}, "accuracy")
    axes: Any = figure.axes[0]
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([0.97, 0.97, 0.5])
    assert len(axes.collections) == 1  # the error bars
    assert [text.get_text() for text in axes.texts] == ["0.97", "0.97", "0.5"]


def test_boundary_line_lies_at_one_half() -> None:
    right = np.tile(np.linspace(0, 1, 21), (5, 1))
    maps = {"frequentist": np.stack([1 - right, right], -1), "Bayesian": np.full((5, 21, 2), 0.5)}
    figure = figures.boundaries(maps, (0, 1, 0, 1), [(0.2, 0.3, 0), (0.8, 0.1, 1)])
    (line,) = figure.axes[0].collections
    assert np.asarray(line.get_paths()[0].vertices)[:, 0] == pytest.approx(0.5)
    assert not figure.axes[1].collections


def test_users_settings_do_not_leak_in_or_out(tmp_path: Path) -> None:
    import matplotlib

    plain = figures.save(figures.coverage([0.5], [0.4]), tmp_path / "a.svg").read_bytes()
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        assert figures.save(figures.coverage([0.5], [0.4]), tmp_path / "b.svg").read_bytes() == plain
        assert matplotlib.rcParams["font.size"] == 30


def test_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`path` must end in one of .*pdf.*, got 'a.docx': try .pdf"):
        figures.save(figures.coverage([0.5], [0.5]), tmp_path / "a.docx")


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install bayeslim\[report\]"):
        figures.coverage([0.5], [0.5])


@pytest.mark.parametrize("name", [r"$\frac{$", "_hidden", "\x1b[31m\ud800", "<b>&"])
def test_layers_of_any_name_are_drawn(name: str, tmp_path: Path) -> None:
    drawn = (
        figures.sparsity([1, 2], {name: [0.1, 0.9]}),
        figures.spectra({name: ([0.4, 0.3], [0.98, 0.01])}),
        figures.scale_maps({name: [[0.1, 0.2], [0.1, 0.3]]}),
        figures.training([1, 2], {name: [1.0, 0.5]}),
        figures.entropies([0.0, 0.5, 1.0], {f"a {name}": [9, 1]}),
        figures.pruning_bars({name: [0.98]}, name),
    )
    for index, figure in enumerate(drawn):
        path = figures.save(figure, tmp_path / f"{index}.svg")
        texts = "".join(xml.etree.ElementTree.parse(path).getroot().itertext())
        assert name.encode("unicode_escape").decode().replace(r"\\", "\\") in texts
