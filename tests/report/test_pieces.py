"""Pictures, axes and words of the page."""

import base64
import html
import io
import math
import re

import numpy as np
import torch
from PIL import Image
from tests.report.conftest import Case

from bayeslim.analysis import figures
from bayeslim.analysis.figures.pictures import PALETTE, class_map, input_picture, png_address, ramp
from bayeslim.data.target import in_own_unit
from bayeslim.report.inline_svg import inline_svg
from bayeslim.report.words import kibibytes, number, percent, score_rows, summary


def test_png_holds_the_pixels() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    kind, content = png_address(pixels).split(",")
    assert kind == "data:image/png;base64"
    decoded = Image.open(io.BytesIO(base64.b64decode(content)))
    assert decoded.mode == "RGB" and (np.asarray(decoded) == pixels).all()


def test_ramp_darkens_and_bears_nan() -> None:
    colours = ramp(np.array([[0.0, 0.3, 0.6, 1.0, math.nan, 7.0]])).astype(int).sum(-1)[0]
    assert (np.diff(colours[:4]) < 0).all() and colours[4] == colours[0] and colours[5] == colours[3]


def test_class_map_is_white_where_all_are_equal() -> None:
    colours = class_map(np.array([[[1 / 3, 1 / 3, 1 / 3], [0.0, 1.0, 0.0]]]))
    assert colours[0, 0].tolist() == [255, 255, 255]
    sure = [int(PALETTE[1][start : start + 2], 16) for start in (1, 3, 5)]
    assert colours[0, 1].tolist() == [round(0.75 * part + 0.25 * 255) for part in sure]


def test_input_pictures() -> None:
    grey = input_picture(torch.tensor([[[0.0, 1.0]]]))
    assert grey.tolist() == [[[255] * 3, [0] * 3]]  # ink is dark
    colour = input_picture(torch.tensor([[[-1.0]], [[0.0]], [[1.0]]]))  # standardised: stretched to its range
    assert colour.tolist() == [[[0, 128, 255]]]


def test_a_figure_in_a_page_follows_its_colours_and_says_its_tips() -> None:
    """Whatever its texts hold; and its ids are its own."""
    hostile = '"><script>& $x$'
    figure = figures.sparsity([1, 2], {hostile: [0.1, 0.9]})
    markup = inline_svg(figure, hostile, (4, 3), "a")
    assert "<script" not in markup and "http" not in markup and "<style" not in markup
    assert "var(--c0)" in markup and "var(--soft)" in markup and "#0072b2" not in markup
    assert f"<title>layer {html.escape(hostile, quote=False)}</title>" in markup
    assert all(name.startswith("a-") for name in re.findall(r' id="([^"]*)"', markup))
    targets = set(re.findall(r'(?:url\(|")#([^)"]*)', markup))
    assert targets and targets <= set(re.findall(r' id="([^"]*)"', markup))


def test_numbers_as_people_read_them() -> None:
    assert number(1234567.0) == "1\N{NARROW NO-BREAK SPACE}234\N{NARROW NO-BREAK SPACE}567"
    shown = {0.123456: "0.1235", 42: "42", -3.5: "\N{MINUS SIGN}3.5", math.inf: "\N{EN DASH}", 2.5e12: "2.5e12"}
    assert [number(value) for value in shown] == list(shown.values())
    assert percent(0.98765) == "98.8\N{NO-BREAK SPACE}%"
    assert (kibibytes(2048), kibibytes(3 * 1024**2)) == ("2.0 KiB", "3.00 MiB")


def test_units_of_scores() -> None:
    assert in_own_unit({"nll": 1.0, "accuracy": 0.5}, 9.0) == {"nll": 1.0, "accuracy": 0.5}
    assert in_own_unit({"rmse": 2.0, "coverage95": 0.9}, 3.0) == {"rmse": 6.0, "coverage95": 0.9}


def test_summary_states_the_scores(moons: Case, curve: Case) -> None:
    said = " ".join(summary(moons.content))
    assert percent(moons.content.scores["accuracy"]) in said and "1200" in said
    assert moons.content.pruning is not None
    assert number(moons.content.pruning.weights) in said
    said = " ".join(summary(curve.content))
    assert number(curve.content.scores["rmse"]) in said and "of price" in said
    assert percent(curve.content.scores["coverage95"]) in said
    assert [row[0] for row in score_rows(curve.content)] == ["Negative log-likelihood", "RMSE", "Coverage"]
