"""The table in the documentation is the one in the results."""

import json
from pathlib import Path
from typing import Any

import pytest

from bayeslim.sklearn import BayesianMLPClassifier, BayesianMLPRegressor

ROOT = Path(__file__).parent.parent.parent
RECORD: dict[str, Any] = json.loads((ROOT / "results" / "sklearn_comparison.json").read_text())


def row(name: str, found: dict[str, Any]) -> str:
    """A line of the table."""
    numbers = [found[key] for key in ("rmse", "accuracy", "nll", "coverage95", "ece", "fit_seconds") if key in found]
    digits = [2, 2, 3, 1] if "rmse" in found else [3, 3, 3, 1]
    cells = [
        f"{value:.{places}f}" if isinstance(value, float) else f"{value['mean']:.{places}f} ± {value['std']:.{places}f}"
        for value, places in zip(numbers, digits, strict=True)
    ]
    return f"| {name} | {' | '.join(cells)} |"


@pytest.mark.parametrize("data", ["concrete", "breast cancer"])
def test_documented_table_is_the_measured_one(data: str) -> None:
    page = (ROOT / "docs" / "sklearn.md").read_text()
    lines = [row(name, found) for name, found in RECORD[data].items()]
    assert len(lines) >= 3
    assert "\n".join(lines) in page


@pytest.mark.parametrize("kind", [BayesianMLPClassifier, BayesianMLPRegressor])
def test_measured_with_the_default_settings(kind: Any) -> None:
    own = json.loads(json.dumps(kind().get_params()))
    assert {name: value for name, value in own.items() if name != "random_state"} == RECORD["defaults"]


def test_record_says_how_it_was_made() -> None:
    assert RECORD["command"] == f"python benchmarks/sklearn_comparison.py --seed {RECORD['seed']}"
    assert {"python", "torch", "scikit-learn", "numpy"} <= set(RECORD["versions"])
