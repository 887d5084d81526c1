"""Experiments of many runs, by one without networks: the loop over what is left, joined records, the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import pytest
import torch

from bayeslim_papers.command import carry_out, resumable_parser
from bayeslim_papers.experiment import Experiment, run
from bayeslim_papers.training import Say, silent

DATA = SimpleNamespace(device=torch.device("cpu"), number=7)


@dataclass(frozen=True)
class Sums(Experiment):
    """A run is a sum."""

    name: ClassVar[str] = "sums"
    kind: ClassVar[str] = "experiment"
    by: ClassVar[str] = "letter"
    choices: ClassVar[tuple[str, ...]] = ("terms", "seeds")
    technical: ClassVar[tuple[str, ...]] = ("fast",)

    seeds: tuple[int, ...] = (0, 1)
    terms: tuple[int, ...] = (1, 2)
    scale: int = 10
    fast: bool = False

    def load(self, root: Path | None, device: str) -> Any:
        return SimpleNamespace(device=torch.device(device), number=int((root or Path()).name))

    @classmethod
    def quick(cls, device: str) -> tuple[Self, Any]:
        return cls(scale=100), DATA

    def variants(self) -> dict[str, int]:
        return {"_abc"[term]: term for term in self.terms}

    def measured(
        self, term: int, seed: int, data: Any, folder: Path | None = None, say: Say = silent
    ) -> dict[str, Any]:
        say(f"in {folder and folder.name}")
        return {"sum": self.scale * term + seed + data.number, "seconds": 2.0}

    def headline(self, found: Mapping[str, Any]) -> str:
        return f"sum {found['sum']}"


def runs(record: dict[str, Any]) -> list[tuple[str, int, int]]:
    return [(one["letter"], one["seed"], one["sum"]) for one in record["runs"]]


def test_all_variants_of_a_seed_come_before_the_next(tmp_path: Path) -> None:
    said: list[str] = []
    sizes: list[int] = []
    record = run(Sums(), DATA, save=lambda it: sizes.append(len(it["runs"])), checkpoints=tmp_path, say=said.append)
    assert runs(record) == [("a", 0, 17), ("b", 0, 27), ("a", 1, 18), ("b", 1, 28)] and sizes == [1, 2, 3, 4]
    assert said[:2] == ["sums a seed 0: in sums-a-0", "sums a seed 0: sum 17 in 2 s"] and len(said) == 8
    assert record["experiment"] == "sums" and record["device"] == "cpu" and record["torch"] == torch.__version__
    assert record["config"] == {"seeds": [0, 1], "terms": [1, 2], "scale": 10, "fast": False}


def test_runs_of_an_earlier_record_are_kept() -> None:
    earlier = run(Sums(seeds=(1,)), DATA)
    earlier["runs"][0]["sum"] = -1
    sizes: list[int] = []
    record = run(Sums(terms=(2, 3, 1), fast=True), DATA, earlier=earlier, save=lambda it: sizes.append(len(it["runs"])))
    assert sizes == [3, 4, 5, 6]
    assert runs(record) == [("a", 1, -1), ("b", 1, 28), ("b", 0, 27), ("c", 0, 37), ("a", 0, 17), ("c", 1, 38)]
    assert record["config"] == {"seeds": [1, 0], "terms": [1, 2, 3], "scale": 10, "fast": True}


def test_records_of_other_settings_or_experiments_do_not_mix() -> None:
    record = run(Sums(), DATA)
    assert Sums().comparable() == {"scale": 10}
    with pytest.raises(ValueError, match="`scale` is 10 in one and 11 in another; write them to different files"):
        run(replace(Sums(), scale=11), DATA, earlier=record)
    with pytest.raises(ValueError, match="`experiment` is sums in one and products in another"):
        Sums.merged([record, record | {"experiment": "products"}])


def test_of_a_run_that_is_in_two_records_the_last_counts() -> None:
    record = run(Sums(seeds=(0,)), DATA)
    other = record | {"runs": [one | {"sum": 0} for one in record["runs"][1:]]}
    assert runs(Sums.merged([record, other])) == [("a", 0, 17), ("b", 0, 0)]


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is given replaces the settings, quick ones too; a file is gone on from, and several are joined."""
    parser = resumable_parser("Sums.", root="a number")
    parser.add_argument("--terms", type=int, nargs="+")
    parser.add_argument("--scale", type=int)

    def command(*arguments: str) -> str:
        carry_out(Sums, parser.parse_args(arguments), lambda record: f"{runs(record)}")
        return capsys.readouterr().out

    files = [str(tmp_path / name) for name in ("first.json", "second.json", "both.json")]
    assert "sums a seed 1: sum 108 in 2 s" in command("--quick", "--terms", "1", "--out", files[0])
    assert "sums a" not in command("--quick", "--terms", "1", "2", "--out", files[0])
    assert "sums c seed 0: sum 305" in command("--root", "5", "--scale", "100", "--terms", "3", "--out", files[1])
    shown = command("--merge", *files[:2], "--out", files[2])
    joined = json.loads(Path(files[2]).read_text())
    assert shown.replace("\n", "") == f"{runs(joined)}" and len(joined["runs"]) == 6
    assert joined["config"] == {"seeds": [0, 1], "terms": [1, 2, 3], "scale": 100, "fast": False}
