"""The demonstration at a tiny size, through its command line."""

import json
from pathlib import Path

import pytest
import torch

import bayeslim as bl
from bayeslim.experiments import demo


def test_quick_demo_writes_a_report_that_loads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo.main(["--quick", "--out", str(tmp_path / "report")])
    folder = tmp_path / "report"
    assert {file.name for file in folder.iterdir()} == {
        "report.md",
        "doubts.png",
        "result.json",
        "network.safetensors",
    }
    record = json.loads((folder / "result.json").read_text())
    assert record["result"]["bayesian"]["accuracy"] > 0.8  # learned something in nine epochs
    assert str(folder / "report.md") in capsys.readouterr().out.replace("\n", "")
    model = bl.load(folder / "network.safetensors")
    prediction = bl.predict(model, torch.rand(3, 64), samples=7, seed=0)
    torch.testing.assert_close(prediction.mean.sum(1), torch.ones(3))


def test_doubts_are_the_most_uncertain() -> None:
    config = demo.Config(pretrain_epochs=1, epochs=1, ramp=1, samples=5)
    result, model, doubts = demo.run(config, progress=False)
    _, (x, _) = demo._digits(config.test_part, config.seed)
    entropy = bl.predict(model, x, samples=5, seed=config.seed).entropy
    assert [doubt.entropy for doubt in doubts] == pytest.approx(entropy.sort(descending=True).values[:5].tolist())
    assert set(result.sparsity_per_layer) == {"0", "2", "4"}
