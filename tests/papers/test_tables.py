"""Numbers over the runs of a record."""

import pytest

from bayeslim_papers.tables import at, by, by_method, highest, lowest, markdown, spread

RECORD = {
    "runs": [
        {"method": "a", "seed": 0, "scores": [{"at": 0.5, "value": 2.0}, {"at": 0.9, "value": 5.0}]},
        {"method": "b", "seed": 0},
        {"method": "a", "seed": 1, "scores": [{"at": 0.5, "value": 4.0}, {"at": 0.9, "value": 1.0}]},
    ]
}


def test_paths() -> None:
    run = RECORD["runs"][0]
    assert at(run, "seed") == 0 and at(run, "scores/-1/value") == 5.0
    assert at(run, "scores/at=0.9/value") == 5.0 and at(run, "scores/*/value") == 3.5


def test_averages_are_by_method_of_the_runs_that_have_the_number() -> None:
    assert by(RECORD, "scores/at=0.5/value") == {"a": 3.0}
    assert by(RECORD["runs"], "scores/0/value", scale=100, seed=1) == {"a": 400.0}
    assert by(RECORD, "seed", "method") == {"a": 0.5, "b": 0.0} == by(RECORD, "seed")
    with pytest.raises(KeyError, match="missing"):
        by(RECORD, "missing/0")


def test_the_least_and_the_greatest() -> None:
    values = {"a": 1.0, "b": 3.0, "c": 0.5}
    assert (lowest(values), highest(values)) == ("c", "b")
    assert (lowest(values, ["a", "b"]), highest(values, ["a", "c"])) == ("a", "a")


def test_groups_spreads_and_tables() -> None:
    assert [len(runs) for runs in by_method(RECORD).values()] == [2, 1] and list(by_method(RECORD, seed=1)) == ["a"]
    assert (spread([3.0]), spread([94.0, 95.0])) == ("3", "94.5 ± 0.71")
    assert markdown(["x", "y"], [["1", "2"]]) == "| x | y |\n|---|---|\n| 1 | 2 |"
