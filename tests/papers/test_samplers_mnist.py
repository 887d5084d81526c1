"""The samplers experiment on made-up images, at a tiny size."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import bayeslim as bl
from bayeslim.predictive import Snapshots
from bayeslim_papers import experiment
from bayeslim_papers.samplers import cycles, mnist
from bayeslim_papers.samplers.mnist import METHODS, PRUNED, SamplersMnist, table
from papers.stand_in import StandIn, Stopped, values

CONFIG = SamplersMnist(epochs=4, batch_size=16, members=2, samples=5)
WEIGHTS = 430_500
NETWORKS = {"ensemble": 2, "cvadam": 4, "vi": 5, "mc-dropout": 5}


def images() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Ten noisy patterns."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randn(10, 1, 28, 28, generator=generator)

    def part(count: int) -> tuple[Tensor, Tensor]:
        y = torch.arange(count) % 10
        return patterns[y] + 0.3 * torch.randn(count, 1, 28, 28, generator=generator), y

    return part(100), part(40)


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return experiment.run(CONFIG, images())


def test_the_record(record: dict[str, Any]) -> None:
    assert set(record) == {"experiment", "config", "device", "torch", "paper", "runs"}
    assert record["config"] == json.loads(json.dumps(dataclasses.asdict(CONFIG)))
    assert [run["method"] for run in record["runs"]] == list(CONFIG.methods) == list(METHODS)
    for run in record["runs"]:
        assert set(run["single"]) == {"accuracy", "nll", "ece"} <= set(run)
        assert run["networks"] == NETWORKS.get(run["method"], 1)
        assert run["dense"]["weights"] == WEIGHTS
        assert run["compacted"]["weights"] <= WEIGHTS
    json.dumps(record)


def test_networks_learn(record: dict[str, Any]) -> None:
    scores = {run["method"]: run["accuracy"] for run in record["runs"]}
    assert min(scores[name] for name in ("sgd", "ensemble", "cvadam", "mc-dropout")) > 80, scores
    assert scores["vi"] > 50, scores  # four epochs are few for it


def test_sparsity_is_what_was_asked_for(record: dict[str, Any]) -> None:
    found = {run["method"]: run["sparsity"] for run in record["runs"]}
    for name, pruning in PRUNED.items():
        assert 0 <= found[name] - pruning.sparsity < (0.05 if name.endswith("units") else 1e-4), (name, found[name])
    assert 0 <= found["sm-95"] - 0.95 < 0.02  # a grown weight may still be zero
    assert found["sgd"] == found["cvadam"] == 0


def test_the_smaller_network_is_smaller(record: dict[str, Any]) -> None:
    sizes = {run["method"]: run["compacted"]["mean_bytes"] for run in record["runs"]}
    assert sizes["dfp-90-units"] < 0.5 * sizes["sgd"]


def test_snapshots_of_a_pruned_network_share_one_mask() -> None:
    config = dataclasses.replace(CONFIG, cycles=2, per_cycle=2)
    for name in ("dfp-95", "dpf-95"):
        whole, single = METHODS[name](config, images()[0], 0)
        assert isinstance(whole, Snapshots) and len(whole) == 2
        for weight in ("0.weight", "3.weight", "7.weight", "9.weight"):
            masks = [whole[index][weight] == 0 for index in range(2)]
            assert torch.equal(masks[0], masks[1])
            assert torch.equal(masks[1], single.get_parameter(weight) == 0)
            assert not torch.equal(whole[0][weight], whole[1][weight])


def test_vi_prunes_what_is_noise() -> None:
    whole, single = METHODS["vi"](CONFIG, images()[0], 0)
    assert not isinstance(whole, Snapshots)
    zeros = sum(int((p == 0).sum()) for p in single.parameters() if p.ndim > 1)
    assert zeros / WEIGHTS == pytest.approx(bl.sparsity(whole), abs=1e-9)


def test_table_over_seeds(record: dict[str, Any]) -> None:
    run = record["runs"][0]
    other = run | {"accuracy": run["accuracy"] - 2, "seed": 1}
    rows = table({"runs": [run, other, record["runs"][2]]}).splitlines()
    assert len(rows) == 4 and len({row.count("|") for row in rows}) == 1
    assert f"| sgd | 1 | {run['accuracy'] - 1:.4g} ± 1.4 |" in rows[2]
    assert rows[3].startswith("| cvadam | 4 |")


def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(SamplersMnist, "load", lambda self, root, device: images())
    files = [tmp_path / "results" / f"{method}.json" for method in ("sgd", "sm-95")]
    for file in files:
        mnist.main(["--quick", "--methods", file.stem, "--out", str(file)])
    both = tmp_path / "both.json"
    mnist.main(["--merge", *map(str, files), "--out", str(both)])
    assert [run["method"] for run in json.loads(both.read_text())["runs"]] == ["sgd", "sm-95"]
    assert "| sm-95 | 1 |" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.parametrize("name", ["cvadam", *PRUNED])
def test_networks_are_sampled_by_the_settings(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cold CV-Adam in four cycles, with the masks of the settings."""
    stand_in, made = StandIn(), []

    def remembered(*arguments: Any, **options: Any) -> Any:
        made.append(options)
        return original(*arguments, **options)

    original = cycles.SpikeAndSlab
    monkeypatch.setattr(cycles, "SpikeAndSlab", remembered)
    monkeypatch.setattr(bl, "fit", stand_in)
    with pytest.raises(Stopped):
        METHODS[name](SamplersMnist(), (torch.zeros(8, 1, 28, 28), torch.zeros(8, dtype=torch.long)), 0)
    options = stand_in.calls[0]
    assert values(options["lr_schedule"], 20, (0, 5, 10, 15)) == pytest.approx([1.0] * 4)
    assert (options["epochs"], options["batch_size"]) == (20, 128)
    group = options["optimizer"](bl.param_groups(stand_in.arguments[0])).param_groups[0]
    assert (group["temperature"], group["lr"], group["num_data"]) == ("cold", 0.3, 8)
    assert len(made) == (name in PRUNED)
    if made:
        asked = ("spike_decay", "soft_threshold", "hard_threshold", "warm_up", "feedback_until")
        assert [made[0][key] for key in asked] == [1e-3, 1e-4, 0.0, 2, 15]
