"""The Sparse VD experiment on made-up images, at a tiny size."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import bayeslim as bl
from bayeslim_papers.experiment import Log, run
from bayeslim_papers.sparse_vd import command, training
from bayeslim_papers.sparse_vd.command import SparseVd
from bayeslim_papers.sparse_vd.recipes import (
    USUAL,
)
from bayeslim_papers.sparse_vd.results import table
from bayeslim_papers.sparse_vd.training import train_lenets
from bayeslim_papers.sparse_vd.views import Data
from papers.sparse_vd_cases import CONFIG, images

WEIGHTS = 266_200


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return run(CONFIG, images())


def test_the_record(record: dict[str, Any]) -> None:
    assert record == json.loads(json.dumps(record))
    assert {"config", "settings", "recipes", "device", "torch", "paper", "goal", "tolerance", "runs"} < set(record)
    assert record["recipes"]["ard-4"]["ramp"] == 4 and record["recipes"]["ard-4"]["epochs"] == 4
    assert record["settings"]["images"] == [200, 100]
    assert {one["recipe"]: one["networks_at_once"] for one in record["runs"]} == {
        "molchanov": 1,
        "ard-4": 2,
        "ard-4-first": 2,
    }
    for one in record["runs"]:
        for finish in USUAL:
            if "failed" in one[finish]:
                continue
            result = one[finish]
            assert result["dense"]["weights"] == WEIGHTS >= result["compacted"]["weights"]
            assert result["compression"] == pytest.approx(WEIGHTS / result["dense"]["nonzero"])
            parts = zip((235_200, 30_000, 1_000), result["sparsity"].values(), strict=True)
            assert sum(size * (1 - part) for size, part in parts) == pytest.approx(result["dense"]["nonzero"])


def test_networks_learn(record: dict[str, Any]) -> None:
    errors = {one["recipe"]: one["tuned"]["error"] for one in record["runs"]}
    assert errors["ard-4"] < 20 and errors["ard-4-first"] < 20, errors


def test_results_are_saved_and_not_computed_again(record: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    config = dataclasses.replace(CONFIG, recipes=("ard-4", "svd-4"), finishes=("pruned",), epochs=1)
    saved: list[int] = []
    first = run(config, images(), save=lambda found: saved.append(len(found["runs"])))
    assert saved == [1, 2]
    asked: list[tuple[int, ...]] = []

    def remembered(*args: Any, **options: Any) -> list[nn.Module]:
        asked.append(tuple(args[2]))
        return train_lenets(*args, **options)

    monkeypatch.setattr(command, "train_lenets", remembered)
    more = dataclasses.replace(config, recipes=("ard-4",), seeds=(3, 5))
    second = run(more, images(), earlier=json.loads(json.dumps(first)))
    assert asked == [(5,)]
    assert second["runs"][:2] == first["runs"]
    assert [(one["recipe"], one["seed"]) for one in second["runs"]] == [("ard-4", 3), ("svd-4", 3), ("ard-4", 5)]
    assert second["config"]["seeds"] == [3, 5] and list(second["recipes"]) == ["ard-4", "svd-4"]
    with pytest.raises(ValueError, match="`epochs` is 4 in one and 1 in another"):
        run(config, images(), earlier=record)


def test_stacks_hold_what_fits_together() -> None:
    config = SparseVd(recipes=("ard", "ard-3", "ard-4", "ard-4-clip", "svd"), seeds=(0, 1), together=3)
    left = [((name,), seed) for seed in config.seeds for name in config.recipes]
    found = config.stacks([member for member in left if member != (("ard-3",), 0)])
    assert [[(names[0], seed) for names, seed in part] for part in found] == [
        [("ard", 0), ("ard", 1)],
        [("ard-3", 1), ("ard-4", 0), ("ard-4", 1)],
        [("ard-4-clip", 0), ("ard-4-clip", 1)],
        [("svd", 0), ("svd", 1)],
    ]
    assert [len(part) for part in dataclasses.replace(config, together=2).stacks(left)] == [2, 2, 2, 2, 2]


def test_merging_counts_a_run_once(record: dict[str, Any]) -> None:
    other = record | {"runs": [record["runs"][0] | {"seed": 9}, record["runs"][1]]}
    assert [one["seed"] for one in SparseVd.merged([record, other])["runs"]] == [3, 3, 3, 9]


def test_records_from_before_a_setting_can_be_joined(record: dict[str, Any]) -> None:
    early = {name: {key: own[key] for key in own if key != "vary"} for name, own in record["recipes"].items()}
    assert SparseVd.merged([record | {"recipes": early}, record])["recipes"] == record["recipes"]
    varied = {name: own | {"vary": True} for name, own in record["recipes"].items()}
    with pytest.raises(ValueError, match="`molchanov` is .* in one and .* in another"):
        SparseVd.merged([record | {"recipes": early}, record | {"recipes": varied}])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"network": "lenet-9"}, "`network` has no 'lenet-9': choose from lenet-300-100, lenet-5, vgg"),
        ({"recipes": ("ard-7",)}, "`recipes` has no 'ard-7': choose from molchanov"),
        ({"finishes": ("shiny",)}, "`finishes` has no 'shiny': choose from pruned"),
        ({"network": "vgg", "recipes": ("p2-ard",)}, "`finishes` that tune are for the LeNets"),
    ],
)
def test_bad_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SparseVd(**options)


def result(error: float, compression: float) -> dict[str, Any]:
    sizes = {"weights": 100, "mean_bytes": 1000}, {"weights": 20, "mean_bytes": 500}
    scores = {"error": error, "sampled_error": error + 1, "compression": compression}
    return scores | {"sparsity": {"1": 0.5, "3": 0.25}, "dense": sizes[0], "compacted": sizes[1]}


def made(*pairs: tuple[float, float], recipe: str = "molchanov") -> dict[str, Any]:
    runs = [{"recipe": recipe, "seed": k, "trained": result(2, 1), "pruned": result(*p)} for k, p in enumerate(pairs)]
    paper = {"molchanov": {"source": "x", "finish": "pruned", "error": 1.92, "compression": 68}}
    goal = {"error": 1.6, "compression": 100}
    tolerance = {"error": 0.1, "compression": 0.1}
    return {"runs": runs, "finishes": {"pruned": {}}, "paper": paper, "goal": goal, "tolerance": tolerance}


def test_table_over_seeds() -> None:
    rows = table(made((2.0, 60), (2.02, 66))).splitlines()
    assert len({row.count("|") for row in rows[:4]}) == 1
    assert rows[3] == (
        "| molchanov | pruned | 2 | 2.01 ± 0.014 | 3.01 ± 0.014 | 63 ± 4.2 | 50.0-25.0 | 5 | 2 "
        "| 1.92 % at 68: reached |"
    )
    assert "not met" in rows[-1]


@pytest.mark.parametrize("pair", [(2.03, 80), (1.5, 61)])
def test_table_says_what_was_missed(pair: tuple[float, float]) -> None:
    assert "1.92 % at 68: missed" in table(made(pair))


@pytest.mark.parametrize(("pair", "met"), [((1.6, 100), True), ((1.61, 200), False), ((1.0, 99), False)])
def test_table_judges_the_goal(pair: tuple[float, float], met: bool) -> None:
    text = table(made(pair, recipe="ours"))
    assert ("met by ours (pruned, 1 seeds)" in text) == met and ("not met" in text) != met


def test_table_of_a_deep_network_has_the_range_of_its_layers() -> None:
    deep = result(1.0, 10.0) | {"sparsity": {str(layer): 0.1 * layer for layer in range(8)}}
    runs = [{"recipe": "p2-ard", "seed": 0, "pruned": deep, "trained": {"error": 1.0, "sampled_error": 1.0}}]
    record = {"runs": runs, "finishes": ["pruned"], "paper": {}, "goal": None, "tolerance": {}}
    assert "| 0.0 to 70.0 in 8 layers |" in table(record)


def test_table_names_failures() -> None:
    record = made((1.0, 100), (1.0, 100))
    record["runs"][0]["pruned"] = {"failed": "layer '5' is empty"}
    text = table(record)
    assert "- molchanov, pruned: layer '5' is empty" in text and "| molchanov | pruned | 1 |" in text


def test_table_of_a_run(record: dict[str, Any]) -> None:
    assert table(record).count("| ard-4 |") >= 5


def test_kept_networks_are_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = dataclasses.replace(CONFIG, recipes=("ard-4", "ard-5"), epochs=1, finishes=("pruned",))
    data = images(counts=(60, 20))
    first = run(small, data, log=Log(folder=tmp_path))
    assert {file.name for file in tmp_path.iterdir()} == {"ard-4-3.safetensors", "ard-5-3.safetensors"}
    monkeypatch.setattr(training, "fit_many", lambda *args, **options: pytest.fail("trained again"))
    again = run(small, data, log=Log(folder=tmp_path))
    assert [one["pruned"] for one in again["runs"]] == [one["pruned"] for one in first["runs"]]
    with pytest.raises(ValueError, match="trained with another epochs, ramp: choose another folder"):
        run(dataclasses.replace(small, epochs=2), data, log=Log(folder=tmp_path))


def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def few(network: str, root: Path | None, device: str, counts: Any) -> tuple[Data, Data]:
        assert counts == (500, 100)
        return images(counts=(40, 20))

    monkeypatch.setattr(command, "load_images", few)
    files = [tmp_path / f"{recipe}.json" for recipe in ("ard-4", "svd-4")]
    for file in [*files, files[1]]:  # the last time there is nothing left to do
        command.main(["--quick", "--recipes", file.stem, "--finishes", "pruned", "--out", str(file)])
    both = tmp_path / "both.json"
    command.main(["--merge", *map(str, files), "--out", str(both)])
    assert [one["recipe"] for one in json.loads(both.read_text())["runs"]] == ["ard-4", "svd-4"]
    shown = capsys.readouterr().out
    assert shown.count("svd-4 seed 0:") == 1 and "| svd-4 | pruned | 1 |" in shown


def test_vgg(tmp_path: Path) -> None:
    finishes = ("pruned", "magnitude")
    names = ("molchanov", "gamma-0.51")
    few: dict[str, Any] = {"epochs": 2, "batch_size": 10, "samples": 2}
    config = SparseVd(network="vgg", recipes=names, seeds=(0,), finishes=finishes, width=1 / 32, **few)
    record = run(config, images(3, 32, (20, 10)), log=Log(folder=tmp_path))
    assert [one["networks_at_once"] for one in record["runs"]] == [1, 1]
    weights = sum(p.numel() for p in bl.models.vgg_like(width=1 / 32).parameters() if p.ndim > 1)
    assert all(one["magnitude"]["dense"]["weights"] == weights for one in record["runs"])
    folders = {str(file.parent.relative_to(tmp_path)) for file in tmp_path.rglob("checkpoint.safetensors")}
    assert folders == {"molchanov-0", "molchanov-0/dense", "gamma-0.51-0"}
    assert "| gamma-0.51 | magnitude | 1 |" in table(record)
