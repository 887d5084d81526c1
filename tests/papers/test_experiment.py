"""Experiments of many runs, by one without networks: the loop over what is left, joined records, the command line."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest
import torch

from bayeslim_papers.command import command, parser_of
from bayeslim_papers.experiment import SILENT, Experiment, Log, Member, Options, run, seeds_together


@dataclass(frozen=True)
class Sums(Experiment):
    """Sums."""

    name: ClassVar[str] = "sums"
    root: ClassVar[str] = "a number"
    by: ClassVar[tuple[str, ...]] = ("letter",)
    choices: ClassVar[tuple[str, ...]] = ("terms", "seeds")
    technical: ClassVar[tuple[str, ...]] = ("fast",)
    checkpoints: ClassVar[bool] = True
    options: ClassVar[Options] = {
        "terms": {"choices": (1, 2, 3)},
        "seeds": {"flags": ("--seeds", "--parts")},
        "scale": {},
        "fast": {"action": "store_true"},
    }

    seeds: tuple[int, ...] = (0, 1)
    terms: tuple[int, ...] = (1, 2)
    scale: int = 10
    fast: bool = False

    def load(self, root: Path | None, device: str) -> Any:
        return int((root or Path()).name)

    @classmethod
    def quick(cls, root: Path | None, device: str) -> tuple[Self, Any]:
        return cls(scale=100), 7

    def variants(self) -> list[tuple[str]]:
        return [("_abc"[term],) for term in self.terms]

    def measured(self, variant: str, seed: int, data: Any, log: Log = SILENT) -> dict[str, Any]:
        log.say(f"in {log.folder and log.folder.name}")
        return {"sum": self.scale * "_abc".index(variant) + seed + data, "seconds": 2.0}


def runs(record: dict[str, Any]) -> list[tuple[str, int, int]]:
    return [(one["letter"], one["seed"], one["sum"]) for one in record["runs"]]


def test_all_variants_of_a_seed_come_before_the_next(tmp_path: Path) -> None:
    said: list[str] = []
    sizes: list[int] = []
    record = run(Sums(), 7, save=lambda it: sizes.append(len(it["runs"])), log=Log(said.append, tmp_path))
    assert runs(record) == [("a", 0, 17), ("b", 0, 27), ("a", 1, 18), ("b", 1, 28)] and sizes == [1, 2, 3, 4]
    assert said[:2] == ["sums a seed 0: in sums-a-seed-0", "sums a seed 0: seconds 2"] and len(said) == 8
    assert record["experiment"] == "sums" and record["device"] == "cpu" and record["torch"] == torch.__version__
    assert record["config"] == {"seeds": [0, 1], "terms": [1, 2], "scale": 10, "fast": False}


def test_what_is_measured_together() -> None:
    class Pairs(Sums):
        def stacks(self, left: Any) -> Any:
            return seeds_together(left)

        def measured_together(self, members: Any, data: Any, log: Any = SILENT) -> list[Any]:
            asked.append(list(members))
            return [{"sum": seed} for _, seed in members]

        def beside(self, record: Any, data: Any) -> dict[str, Any]:
            return {"count": len(record["runs"])}

        def kept(self, one: Any) -> bool:
            return one["sum"] >= 0

    asked: list[list[Member]] = []
    record = run(Pairs(), 7)
    assert asked == [[(("a",), 0), (("a",), 1)], [(("b",), 0), (("b",), 1)]]
    assert runs(record) == [("a", 0, 0), ("a", 1, 1), ("b", 0, 0), ("b", 1, 1)] and record["count"] == 4
    record["runs"][1]["sum"] = -1
    assert runs(run(Pairs(), 7, earlier=record))[3:] == [("a", 1, 1)] and asked[2:] == [[(("a",), 1)]]


def test_runs_of_an_earlier_record_are_kept() -> None:
    earlier = run(Sums(seeds=(1,)), 7)
    earlier["runs"][0]["sum"] = -1
    sizes: list[int] = []
    record = run(Sums(terms=(2, 3, 1), fast=True), 7, earlier=earlier, save=lambda it: sizes.append(len(it["runs"])))
    assert sizes == [3, 4, 5, 6]
    assert runs(record) == [("a", 1, -1), ("b", 1, 28), ("b", 0, 27), ("c", 0, 37), ("a", 0, 17), ("c", 1, 38)]
    assert record["config"] == {"seeds": [1, 0], "terms": [1, 2, 3], "scale": 10, "fast": True}


def test_records_of_other_settings_or_experiments_do_not_mix() -> None:
    record = run(Sums(), 7)
    with pytest.raises(ValueError, match="`scale` is 10 in one and 11 in another; write them to different files"):
        run(replace(Sums(), scale=11), 7, earlier=record)
    with pytest.raises(ValueError, match="`experiment` is sums in one and products in another"):
        Sums.merged([record, record | {"experiment": "products"}])
    early = {key: value for key, value in record.items() if key != "experiment"}
    assert Sums.merged([early, record])["runs"] == record["runs"]


def test_of_a_run_that_is_in_two_records_the_last_counts() -> None:
    record = run(Sums(seeds=(0,)), 7)
    other = record | {"runs": [one | {"sum": 0} for one in record["runs"][1:]]}
    assert runs(Sums.merged([record, other])) == [("a", 0, 17), ("b", 0, 0)]


def test_unknown_choices_are_refused() -> None:
    with pytest.raises(ValueError, match="`terms` has no 4: choose from 1, 2, 3"):
        Sums(terms=(1, 4))


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is given replaces the settings, quick ones too; a file is gone on from, and several are joined."""

    def called(*arguments: str) -> str:
        command(Sums, lambda record: f"{runs(record)}")(list(arguments))
        return capsys.readouterr().out

    files = [str(tmp_path / name) for name in ("first.json", "second.json", "both.json")]
    assert "sums a seed 1: seconds 2" in called("--quick", "--terms", "1", "--out", files[0])
    assert "sums a" not in called("--quick", "--terms", "1", "2", "--out", files[0])
    assert "('c', 0, 305)" in called("--root", "5", "--scale", "100", "--terms", "3", "--out", files[1])
    shown = called("--merge", *files[:2], "--out", files[2])
    joined = json.loads(Path(files[2]).read_text())
    assert shown.replace("\n", "") == f"{runs(joined)}" and len(joined["runs"]) == 6
    assert joined["config"] == {"seeds": [0, 1], "terms": [1, 2, 3], "scale": 100, "fast": False}


@pytest.mark.parametrize(
    ("words", "seeds"),
    [
        (["5"], [0, 1, 2, 3, 4]),
        (["1"], [0]),
        (["7-7"], [7]),
        (["3-5"], [3, 4, 5]),
        (["10", "0", "1"], [10, 0, 1]),
        (["10", "0-2"], [10, 0, 1, 2]),
    ],
)
def test_seeds_say_how_many_or_which(words: list[str], seeds: list[int]) -> None:
    for flag in ("--seeds", "--parts"):
        assert parser_of(Sums).parse_args([flag, *words]).seeds == seeds


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["0"], "--seeds 0 asks for none: pass 1 for seed 0 alone"),
        (["5-3"], "asks for none"),
        (["1", "1"], "asks for one twice"),
        (["0-3", "2"], "asks for one twice"),
        (["x"], "--seeds x: pass how many, or several numbers, or ranges such as 3-5"),
        (["3-"], "pass how many"),
        (["\u0665"], "pass how many"),  # a five that is not ASCII
        (["9" * 5000], "pass how many"),
        (["1" + 12 * "0"], "asks for more than 10000"),
        (["0-9999999999999"], "asks for more than 10000"),
    ],
)
def test_bad_seeds(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parser_of(Sums).parse_args(["--seeds", *words])
    assert message in capsys.readouterr().err
