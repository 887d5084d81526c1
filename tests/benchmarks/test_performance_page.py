"""The page of the documentation is the one that the committed records give."""

import copy
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def writer() -> Any:
    return import_module("performance_page")


@pytest.fixture
def records(writer: Any) -> Any:
    return writer.load(ROOT / "results")


def test_committed_page_is_the_generated_one(writer: Any, records: Any) -> None:
    assert (ROOT / "docs" / "performance.md").read_text() == writer.page(records)
    assert (ROOT / "docs" / "assets" / "performance.svg").exists()


def test_without_records_the_goals_stand_alone(writer: Any) -> None:
    page = writer.page({})
    table = import_module("performance_goals")
    assert page.count("not measured yet") == len(table.STEP_GOALS) + len(table.MEMORY_GOALS)
    assert "## Training step" not in page and "![" not in page


def test_a_goal_is_met_up_to_its_value(writer: Any, records: Any) -> None:
    for value, told in ((1.8, "1.8, met"), (1.81, "1.8, not met")):
        changed = copy.deepcopy(records)
        changed["train_step"]["steps"]["eager"]["graves"]["ratio"] = value
        line = next(line for line in writer.goals(changed).splitlines() if "weight_sample, eager" in line)
        plain = changed["train_step"]["steps"]["eager"]["deterministic"]["seconds"]
        limit = writer.step_seconds(changed["train_step"], "graves") / plain
        assert f"| {told} |" in line
        assert line.endswith(f"| {limit:.2f} | {value / limit:.2f} |")


def test_speed_against_the_loop_is_the_inverse_ratio(writer: Any, records: Any) -> None:
    changed = copy.deepcopy(records)
    changed["predict"]["few"]["ard, 1"]["predict"]["ratio"] = 0.05
    line = next(line for line in writer.goals(changed).splitlines() if "1 image, ard" in line)
    assert "| 20.0x | 10x, met |" in line


def test_a_prediction_of_many_is_scaled_to_all_passes(writer: Any, records: Any) -> None:
    changed = copy.deepcopy(records)
    record = changed["predict"]
    record["many"]["ard"] |= {"ratio": 12.0, "ratio_low": 11.0, "ratio_high": 13.0}
    assert record["samples"] == 10 * record["timed_passes"]
    assert "1.20 [1.10, 1.30] | 1.1, not met" in writer.goals(changed)


def test_tables_have_equal_rows(writer: Any, records: Any) -> None:
    count = 0
    for line in writer.page(records).splitlines():
        if line.startswith("|"):
            count = count or line.count("|")
            assert line.count("|") == count, line
        else:
            count = 0


def test_figure_is_drawn_from_the_records(writer: Any, records: Any, tmp_path: Path) -> None:
    writer.write(records, tmp_path)
    assert (tmp_path / "performance.png").stat().st_size > 10_000
    drawn = (tmp_path / "performance.svg").read_text()
    assert all(name in drawn for name in ("graves, flipout", "limit", "eager"))
