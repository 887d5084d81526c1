"""Pictures, axes and words of the page."""

import base64
import io
import math

import numpy as np
import pytest
import torch
from PIL import Image
from tests.report.conftest import Case

from bayeslim.report.pictures import PALETTE, class_map, input_picture, png_address, ramp
from bayeslim.report.svg import Chart, ticks
from bayeslim.report.units import in_target_unit, number
from bayeslim.report.words import kibibytes, percent, score_rows, summary


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


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (1, 60, [20, 40, 60]), (-0.5, 0.5, [-0.4, -0.2, 0, 0.2, 0.4]), (3, 3, [3])],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


@pytest.mark.parametrize("scale", [1e-7, 0.013, 1.0, 37.0, 1e6])
def test_ticks_stay_inside_and_are_few(scale: float) -> None:
    for low in np.linspace(-scale, scale, 7):
        found = ticks(low, low + 1.7 * scale)
        assert 2 <= len(found) <= 6 and found[0] >= low - 1e-6 * scale and found[-1] <= low + 1.7001 * scale


def test_places_are_linear_or_logarithmic() -> None:
    chart = Chart("", (0, 10), (0, 4), "", "")
    assert chart.px(5) == pytest.approx((chart.px(0) + chart.px(10)) / 2, abs=0.01)
    assert chart.py(4) < chart.py(0)
    chart = Chart("", (1, 100), (0, 4), "", "", log_x=True)
    assert chart.px(10) == pytest.approx((chart.px(1) + chart.px(100)) / 2, abs=0.01)


def test_lines_leave_gaps_out_and_points_alone_are_dots() -> None:
    chart = Chart("", (0, 2), (0, 2), "", "")
    chart.line([0, 1, 2], [1, math.nan, 2], 0)
    assert chart.marks[0].count(",") == 2
    chart.line([0, 1], [1, math.nan], 0)
    chart.line([0, 1], [math.nan, math.nan], 0)
    assert len(chart.marks) == 2 and "<circle" in chart.marks[1]


@pytest.mark.parametrize("values", [(2.0, 2.0), (0.0, 0.0), (math.nan, 1.0)])
def test_axes_of_a_single_value_have_a_range(values: tuple[float, float]) -> None:
    chart = Chart("", (0, 1), values, "", "")
    assert chart.y_range[0] < chart.y_range[1] and "nan" not in chart.markup()


def test_chart_escapes_all_its_texts() -> None:
    hostile = '"><script>&'
    chart = Chart(hostile, (0, 1), (0, 1), hostile, hostile)
    chart.dots([0], [0], 0, [hostile])
    chart.x_ticks = [(0, hostile)]
    markup = chart.markup()
    assert "<script" not in markup and markup.count("&lt;script&gt;") == 5


def test_numbers_as_people_read_them() -> None:
    assert number(1234567.0) == "1\N{NARROW NO-BREAK SPACE}234\N{NARROW NO-BREAK SPACE}567"
    shown = {0.123456: "0.1235", 42: "42", -3.5: "\N{MINUS SIGN}3.5", math.inf: "\N{EN DASH}", 2.5e12: "2.5e12"}
    assert [number(value) for value in shown] == list(shown.values())
    assert percent(0.98765) == "98.8\N{NO-BREAK SPACE}%"
    assert (kibibytes(2048), kibibytes(3 * 1024**2)) == ("2.0 KiB", "3.00 MiB")


def test_units_of_scores(curve: Case) -> None:
    from bayeslim.likelihoods import Categorical, Gaussian

    assert in_target_unit({"nll": 1.0, "accuracy": 0.5}, Categorical(), 9.0) == {"nll": 1.0, "accuracy": 0.5}
    assert in_target_unit({"rmse": 2.0, "coverage95": 0.9}, Gaussian(), 3.0) == {"rmse": 6.0, "coverage95": 0.9}


def test_summary_states_the_scores(moons: Case, curve: Case) -> None:
    said = " ".join(summary(moons.content))
    assert percent(moons.content.scores["accuracy"]) in said and "1200" in said
    assert moons.content.pruning is not None
    assert number(moons.content.pruning.weights) in said
    said = " ".join(summary(curve.content))
    assert number(curve.content.scores["rmse"]) in said and "of price" in said
    assert percent(curve.content.scores["coverage95"]) in said
    assert [row[0] for row in score_rows(curve.content)] == ["Negative log-likelihood", "RMSE", "Coverage"]
