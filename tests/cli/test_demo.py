"""The demonstration at a tiny size, through its command line."""

import json
from pathlib import Path

import pytest
import torch

import bayeslim as bl
from bayeslim.cli import demo


def test_quick_demo_writes_a_report_that_loads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo.main(["--quick", "--out", str(tmp_path / "report")])
    folder = tmp_path / "report"
    assert {file.name for file in folder.iterdir()} == {"report.html", "result.json", "network.safetensors"}
    record = json.loads((folder / "result.json").read_text())
    assert record["result"]["bayesian"]["accuracy"] > 0.8  # learned something in nine epochs
    assert str(folder / "report.html") in capsys.readouterr().out.replace("\n", "")
    model = bl.load(folder / "network.safetensors")
    prediction = bl.predict(model, torch.rand(3, 64), samples=7, seed=0)
    torch.testing.assert_close(prediction.mean.sum(1), torch.ones(3))


def test_the_report_says_what_was_measured() -> None:
    config = demo.Config(pretrain_epochs=1, epochs=1, ramp=1, samples=5)
    result, model, content = demo.run(config, progress=False)
    assert content.scores["accuracy"] == pytest.approx(result.bayesian["accuracy"])
    assert content.sparsity == result.sparsity == bl.sparsity(model)
    assert content.entropies is not None and set(content.entropies.groups) == {"right", "wrong", "unfamiliar"}
    assert set(result.sparsity_per_layer) == {"0", "2", "4"}
