"""Scores of the terminal: in the unit of the target, and in digits that say something."""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest

import bayeslim as bl
from bayeslim.cli import main
from bayeslim.cli.prune import in_unit_of
from bayeslim.data.target import Target
from bayeslim.pruning.curve import CurvePoint, shown
from bayeslim.runs import Run

Output = pytest.CaptureFixture[str]


def test_the_pruning_curve_is_in_the_unit_of_the_target(
    tmp_path: Path, capsys: Output, regression_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    folder = Path(shutil.copytree(regression_run, tmp_path / "run"))
    assert main(["prune", str(folder), "--samples", "0"]) == 0
    said = capsys.readouterr().out
    run = Run(folder)
    x, y = run.splits().validation
    target = run.preprocessing.target
    prices = y.double()[:, 0].numpy() * target.std + target.mean
    facts = run.pruning()
    assert any(point["sparsity"] == 0 for point in facts["curve"])
    for point in facts["curve"]:
        model = run.model("trained")
        bl.prune_(model, threshold=point["threshold"])
        prediction = bl.predict(model, x, method="mean")
        mean = prediction.mean.double()[:, 0].numpy() * target.std + target.mean
        std = prediction.std.double()[:, 0].numpy() * target.std
        errors = prices - mean
        nll = np.mean(0.5 * (errors / std) ** 2 + np.log(std) + 0.5 * math.log(2 * math.pi))
        assert point["scores"]["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-5)  # of float32
        assert point["scores"]["nll"] == pytest.approx(nll, rel=1e-5)
        assert shown(point["scores"]["rmse"]) in said and shown(point["random"]["rmse"]) in said
    chosen = next(point for point in facts["curve"] if point["threshold"] == facts["threshold"])
    assert chosen["scores"]["rmse"] == pytest.approx(facts["test"]["after"]["rmse"], rel=1)  # not 1 against 100 000


def test_points_of_classes_stay_and_rises_do_not_depend_on_the_unit() -> None:
    point = CurvePoint(3.0, 0.5, {"nll": 1.0, "rmse": 2.0}, 0.25, 0.125, None, {})
    moved = in_unit_of(Target("y", None, 7.0, math.e), point)
    assert moved.scores == pytest.approx({"nll": 2.0, "rmse": 2 * math.e}) and moved.random is None
    assert (moved.nll_rise, moved.nll_rise_error) == (0.25, 0.125)
    classes = CurvePoint(3.0, 0.5, {"nll": 1.0, "accuracy": 0.5}, 0.25, 0.125, None, {})
    assert in_unit_of(Target("y", ("a", "b")), classes) == classes


@pytest.mark.parametrize(
    ("score", "text"),
    [
        (0.94071, "0.9407"),
        (0.0, "0.0000"),
        (-3.25, "-3.2500"),
        (99999.5, "99999.5000"),
        (1.2345678e-6, "1.235e-06"),
        (-4.2e-4, "-0.00042"),
        (1.23456e30, "1.235e+30"),
        (math.nan, "nan"),
        (math.inf, "inf"),
    ],
)
def test_scores_keep_four_digits_at_any_scale(score: float, text: str) -> None:
    assert shown(score) == text
    if math.isfinite(score):
        assert float(text) == pytest.approx(score, rel=5e-4)
