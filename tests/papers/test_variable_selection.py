"""The variable selection experiment at a tiny size."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bayeslim.feature_selection import Recipe
from bayeslim_papers import experiment
from bayeslim_papers.samplers import variable_selection
from bayeslim_papers.samplers.variable_selection import EXAMPLES, Selection, table

FEW = Recipe(epochs=4, cycles=2, batch_size=100, warm_up=1)
CONFIG = Selection(example=3, hidden=(4, 3), recipe=FEW, train_rows=300, test_rows=80, seeds=(7, 5, 6), restarts=2)


def run(config: Selection, **options: Any) -> dict[str, Any]:
    return experiment.run(config, config.load(None, "cpu"), **options)


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return run(CONFIG)


def test_the_record(record: dict[str, Any]) -> None:
    assert set(record) == {"experiment", "config", "device", "torch", "paper", "support", "runs"}
    assert record["config"] == json.loads(json.dumps(dataclasses.asdict(CONFIG))) and record["support"] == [0, 1, 2, 3]
    assert [(part["method"], part["seed"]) for part in record["runs"]] == [
        (method, seed) for method in ("DFP", "DPF") for seed in (7, 5, 6)
    ]
    for part in record["runs"]:
        losses = [restart["validation_loss"] for restart in part["restarts"]]
        assert len(losses) == 2 and losses[part["chosen"]] == min(losses)
        for restart in part["restarts"]:
            assert set(restart) == {"validation_loss", "score", "fdr", "fndr", "selected", "sparsity"}
            assert 0 <= restart["score"] <= 100
            selected = restart["selected"]
            assert restart["fdr"] == len([i for i in selected if i > 3]) / len(selected)
            assert restart["fndr"] == len({0, 1, 2, 3} - set(selected)) / (1000 - len(selected))
            zeros = 4 * (1000 - len(selected))
            assert restart["sparsity"] >= zeros / (1000 * 4 + 4 + 4 * 3 + 3 + 3 + 1) - 1e-9
    assert json.loads(json.dumps(record, allow_nan=False))["runs"] == record["runs"]


def test_a_run_goes_on_where_it_stopped(record: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[dict[str, Any]] = []
    half = record | {"runs": [one for one in record["runs"] if one["method"] == "DFP"]}
    whole = run(CONFIG, earlier=json.loads(json.dumps(half)), save=lambda found: saved.append(dict(found)))
    assert len(saved) == 1 and whole["runs"][:3] == half["runs"]
    assert [one["restarts"] for one in whole["runs"]] == [one["restarts"] for one in record["runs"]]
    monkeypatch.setattr(variable_selection, "fit_stack", lambda *args, **options: pytest.fail("trained again"))
    assert run(CONFIG, earlier=whole)["runs"] == whole["runs"]
    with pytest.raises(ValueError, match="`restarts` is 2 in one and 1 in another"):
        run(dataclasses.replace(CONFIG, restarts=1), earlier=whole)


def test_methods_of_several_records_are_joined(record: dict[str, Any], tmp_path: Path) -> None:
    files: list[str] = []
    for method in ("DFP", "DPF", "DFP"):
        files.append(str(tmp_path / f"{len(files)}.json"))
        part = record | {"runs": [one for one in record["runs"] if one["method"] == method]}
        Path(files[-1]).write_text(json.dumps(part))
    variable_selection.main(["--merge", *files, "--out", str(tmp_path / "all.json")])
    assert json.loads((tmp_path / "all.json").read_text()) == json.loads(json.dumps(record))
    other = record | {"config": record["config"] | {"seeds": [0]}}
    with pytest.raises(ValueError, match=r"`seeds` is \[7, 5, 6\] in one and \[0\] in another"):
        Selection.merged([record, other])


def test_the_quick_form_learns(tmp_path: Path) -> None:
    """A hundred epochs explain most of what no network at all would leave, by few of the inputs."""
    out = tmp_path / "record.json"
    variable_selection.main(["--quick", "--example", "1", "--out", str(out)])
    written = json.loads(out.read_text())
    assert written["config"]["seeds"] == [0, 1] and [one["seed"] for one in written["runs"]] == [0, 1, 0, 1]
    config = Selection(train_rows=1200, test_rows=200, seeds=(0, 1))
    _, y = config.load(None, "cpu").test
    for one in written["runs"]:
        only = one["restarts"][0]
        assert only["score"] < 0.6 * y[one["seed"]].square().mean().item() and len(only["selected"]) < 200


def test_data_of_seeds_differ_and_so_do_training_and_test() -> None:
    config = Selection(train_rows=64, test_rows=64, seeds=(0, 1))
    data = config.load(None, "cpu")
    (x, y), (test_x, test_y), support = data.train, data.test, data.support
    assert x.shape == (2, 64, 1000) and y.shape == (2, 64) and support == [0, 1, 2, 3, 4]
    tensors = [x[0], x[1], test_x[0], test_x[1]]
    assert all(not torch.equal(a, b) for i, a in enumerate(tensors) for b in tensors[:i])
    assert not torch.equal(y, test_y)
    _, other = dataclasses.replace(config, variant="paper").load(None, "cpu").train
    assert not torch.equal(other, y)


def test_scores_of_a_regression_are_mean_squared_errors() -> None:
    config = Selection(example=1, hidden=(3,), recipe=FEW, train_rows=300, test_rows=80, seeds=(0,), restarts=1)
    result = run(config)
    _, y = config.load(None, "cpu").test
    for part in result["runs"]:  # four epochs explain little
        assert part["restarts"][0]["score"] == pytest.approx(y.square().mean().item(), rel=0.2)


def test_the_table_shows_ours_beside_the_papers(record: dict[str, Any]) -> None:
    lines = table(record).splitlines()
    assert lines[0].startswith("| method | accuracy %")
    assert [line.split(" | ")[0] for line in lines[2:]] == [
        "| SPLBNN (paper)",
        "| SVBNN (paper)",
        "| DFP (paper)",
        "| DPF (paper)",
        "| DFP, best of 2",
        "| DFP, single",
        "| DPF, best of 2",
        "| DPF, single",
    ]
    firsts = [part["restarts"][0]["score"] for part in record["runs"][:3]]
    assert f"| {sum(firsts) / 3:.4g} |" in lines[7]
    assert "| 0/3 |" in lines[7] and "| 94.7 | 0 | 0 | 5 |" in lines[4]
    assert len({line.count("|") for line in lines}) == 1


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    small = {2: Selection(example=2, hidden=(3,), recipe=FEW, train_rows=150, test_rows=20)}
    monkeypatch.setattr(variable_selection, "EXAMPLES", small)
    out = tmp_path / "new" / "record.json"
    arguments = ["--example", "2", "--seeds", "2", "--restarts", "1", "--epochs", "2", "--out", str(out)]
    variable_selection.main(arguments)
    written = json.loads(out.read_text())
    assert written["config"]["seeds"] == [0, 1] and written["config"]["recipe"]["epochs"] == 2
    assert "| DPF, best of 1 |" in capsys.readouterr().out


@pytest.mark.slow
def test_the_support_of_example_1_is_found() -> None:
    """A third of the paper's epochs: both kinds of pruning choose x1 to x5 and predict better than the paper says."""
    config = dataclasses.replace(
        EXAMPLES[1], recipe=dataclasses.replace(EXAMPLES[1].recipe, epochs=1000), seeds=(0,), restarts=2
    )
    for part in run(config)["runs"]:
        chosen = part["restarts"][part["chosen"]]
        assert chosen["selected"] == [0, 1, 2, 3, 4] and chosen["score"] < 1.32
