"""The VDP++ experiments with a ResNet and a transformer, small and on made-up images."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.gaussian import Gaussian
from bayeslim_papers import experiment
from bayeslim_papers.vdp import images
from bayeslim_papers.vdp.images import Vdp, VdpCifar, VdpImagenet, VdpVit, cifar
from bayeslim_papers.vdp.results import images as table
from papers.stand_in import StandIn, Stopped, values

KINDS: list[type[Vdp]] = [VdpCifar, VdpVit, VdpImagenet]


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.name)
def record(request: pytest.FixtureRequest) -> dict[str, Any]:
    return experiment.run(*request.param.quick(None, "cpu"))


def test_the_record(record: dict[str, Any]) -> None:
    methods = ["det", "bbb", "vdp"] if record["experiment"] == "vdp-cifar" else ["det", "vdp"]
    assert [run["method"] for run in record["runs"]] == record["config"]["methods"] == methods
    for run in record["runs"]:
        assert [point["snr"] for point in run["noise"]] == [-6, -3, 1, 5, 10, 20, 40]
        assert [point["fraction"] for point in run["pruned"]] == [0.5, 0.9]
        assert run["epochs"] == record["config"]["epochs"] and run["epoch_seconds"] > 0
        assert all(point["variance"] == 0 for point in run["noise"]) == (run["method"] == "det")
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_the_networks_learn(record: dict[str, Any]) -> None:
    """Far above the quarter that guessing gives, and hardly worse with next to no noise, which 40 dB is."""
    for run in record["runs"]:
        assert run["accuracy"] > 60 and run["losses"][-1] < run["losses"][0]
        assert abs(run["noise"][-1]["accuracy"] - run["accuracy"]) < 10
        assert run["noise"][0]["accuracy"] <= run["accuracy"]


@pytest.mark.parametrize("kind", KINDS)
def test_all_methods_start_from_the_same_means(kind: type[Vdp]) -> None:
    small, data = kind.quick(None, "cpu")
    x = data.test.plain()[0][:8]
    networks: dict[str, nn.Module] = {}
    for method in ("det", "bbb", "vdp"):
        torch.manual_seed(0)
        networks[method] = small.build(method).eval()
    expected = networks["det"](x)
    for method in ("bbb", "vdp"):
        with bl.using(networks[method], bl.mean_only):
            torch.testing.assert_close(networks[method](x), expected)
    assert isinstance(networks["bbb"](x), Tensor) and isinstance(networks["vdp"](x), Gaussian)


def test_every_block_of_the_transformer_makes_variance() -> None:
    """Without the variance of its weights a block's output is surer, block by block."""
    small, data = VdpVit.quick(None, "cpu")
    small = replace(small, depth=3)
    x = data.test.plain()[0][:4]
    torch.manual_seed(0)
    model = small.build("vdp").eval()
    with torch.no_grad():
        before = model(x).variance.mean().item()
        for number in range(3):
            for module in model.get_submodule(f"layers.{number}").modules():
                if isinstance(module, bl.layers.BayesLayer):
                    module.weight.log_scale.fill_(-20.0)  # pyright: ignore[reportCallIssue]
            after = model(x).variance.mean().item()
            assert 0 < after < 0.99 * before
            before = after


@pytest.mark.parametrize(("std", "expected"), [(0.0, (2 / 27) ** 0.5), (0.3, 0.3)])
def test_the_prior(std: float, expected: float) -> None:
    model = replace(VdpCifar.quick(None, "cpu")[0], prior_std=std).build("vdp")
    stem = model.get_submodule("stem")
    assert isinstance(stem, bl.layers.BayesLayer)
    mean, variance = torch.zeros(2, 3, 3, 3), torch.full((2, 3, 3, 3), expected**2)
    torch.testing.assert_close(stem.prior.kl(mean, variance), torch.zeros_like(mean), rtol=0, atol=1e-6)


def test_the_table(record: dict[str, Any]) -> None:
    text = table(record)
    vdp = next(line for line in text.splitlines() if line.startswith("| vdp"))
    det, own = (next(run for run in record["runs"] if run["method"] == name) for name in ("det", "vdp"))
    assert f"| {own['epoch_seconds'] / det['epoch_seconds']:.2f} | - |" in vdp
    assert f"| {own['accuracy']:.4g} |" in vdp
    ratio, gap = own["epoch_seconds"] / det["epoch_seconds"], own["accuracy"] - det["accuracy"]
    assert f"An epoch of vdp over one of det: {ratio:.2f}, in the paper 2.5" in text
    assert f"Accuracy of vdp over that of det: {gap:+.2f} points" in text
    curve = [point["variance"] for point in own["noise"]]
    falls = sorted(curve, reverse=True) == curve
    assert text.splitlines()[-1].endswith(f"| {curve[-1] / max(curve):.3g} | {'yes' if falls else 'no'} |")
    with_memory = record | {"runs": [run | {"peak_bytes": 10 + place} for place, run in enumerate(record["runs"])]}
    assert "| 1.00 |" in table(with_memory) and f"| {(9 + len(record['runs'])) / 10:.2f} |" in table(with_memory)
    alone = record | {"runs": [own]}
    assert "| - | - |" in table(alone) and "An epoch of vdp" not in table(alone)


def test_seconds_that_were_not_kept_are_not_compared(record: dict[str, Any]) -> None:
    text = table(record | {"runs": [run | {"epoch_seconds": None} for run in record["runs"]]})
    assert "An epoch of vdp" not in text and "Accuracy of vdp over that of det" in text
    scores = next(line for line in text.splitlines() if line.startswith("| vdp"))
    assert scores.endswith("| - | - | - |")


@pytest.mark.parametrize(
    ("seconds", "accuracy", "slow", "bad"),
    [(3.7, 89.1, False, False), (3.8, 88.9, True, True), (1.0, 95.0, False, False)],
)
def test_what_is_beyond_the_tolerance_is_shown(
    record: dict[str, Any], seconds: float, accuracy: float, slow: bool, bad: bool
) -> None:
    numbers = {"det": {"epoch_seconds": 1.0, "accuracy": 90.0}, "vdp": {"epoch_seconds": seconds, "accuracy": accuracy}}
    text = table(record | {"runs": [run | numbers.get(run["method"], {}) for run in record["runs"]]})
    assert ("(too slow)" in text) == slow and ("(too low)" in text) == bad


@pytest.mark.parametrize("kind", KINDS)
def test_what_they_minimise(kind: type[Vdp], monkeypatch: pytest.MonkeyPatch) -> None:
    """The ELBO by Adam with amsgrad; the KL of ResNet-18 grows to a tenth over ten epochs."""
    stand_in = StandIn()
    monkeypatch.setattr(images, "train", stand_in)
    small, data = kind.quick(None, "cpu")
    full = kind()
    with pytest.raises(Stopped):
        replace(small, kl_weight=full.kl_weight, ramp=full.ramp, lr=full.lr).measured("vdp", 0, data)
    options = stand_in.calls[0]
    optimizer = options["optimizer"]([nn.Parameter(torch.zeros(1))])
    assert type(optimizer) is torch.optim.Adam
    assert (optimizer.defaults["lr"], optimizer.defaults["amsgrad"]) == (1e-3, True)
    assert isinstance(options["likelihood"], bl.Categorical)
    expected = [0.0, 0.05, 0.1] if kind is VdpCifar else [full.kl_weight] * 3
    assert values(options["kl_schedule"], 200, (0, 5, 199)) == pytest.approx(expected)


def test_weights_and_sizes_are_the_papers() -> None:
    """The authors add 0.01 KL and 1000 times the mean loss: over the ELBO's `KL / N` that is `0.01 N / 1000`."""
    assert VdpImagenet().kl_weight == pytest.approx(0.01 * 1_281_167 / 1000, rel=1e-3)
    for recipe, known in ((VdpVit(), bl.models.vit_small()), (VdpImagenet(), bl.models.vit_s16())):
        shapes = [parameter.shape for parameter in recipe.network().parameters()]
        assert shapes == [parameter.shape for parameter in known.parameters()]


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "found.json"
    cifar(["--quick", "--methods", "det", "--epochs", "1", "--kl-weight", "0.5", "--out", str(file)])
    assert json.loads(file.read_text())["config"]["kl_weight"] == 0.5
    assert "weight of the KL 0.5" in capsys.readouterr().out
