"""The CNN, LSTM and ResNet parts of the k-tied experiment."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.data import TextData
from bayeslim.data.images import ImageData
from bayeslim.models.resnet import PreActivationBlock
from bayeslim.posteriors import KTied, MeanField
from bayeslim.schedules import Progress
from bayeslim_papers import experiment
from bayeslim_papers.experiment import SILENT
from bayeslim_papers.k_tied import imdb
from bayeslim_papers.k_tied.cifar import Cifar10, Cifar100
from bayeslim_papers.k_tied.command import PARTS, main
from bayeslim_papers.k_tied.imdb import Imdb, made_texts
from bayeslim_papers.k_tied.paper import PAPER
from bayeslim_papers.k_tied.part import Part
from bayeslim_papers.k_tied.resnet import MAX_SCALE, Resnet, linear_by_steps, mean_fields, saved
from bayeslim_papers.k_tied.results import table


def narrow_cnn(classes: int = 100) -> nn.Sequential:
    """The layers of `cnn_k_tied`, a tenth as wide."""
    layers = [nn.Conv2d(3, 4, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 5, padding=2), nn.ReLU()]
    return nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 16), nn.ReLU(), nn.Linear(16, classes))


def narrow_resnet(classes: int = 10) -> nn.Sequential:
    """One block of the ResNet, whose running averages keep pace with few steps."""
    block = PreActivationBlock(4, 8, stride=2)
    for module in block.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.5
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), block, nn.ReLU(), nn.AvgPool2d(16), nn.Flatten(), nn.Linear(8, classes)
    )


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bl.models, "cnn_k_tied", narrow_cnn)
    monkeypatch.setattr(bl.models, "resnet_k_tied", narrow_resnet)


def check(record: dict[str, Any], part: Part) -> None:
    """The record is complete and shows that the networks learn."""
    assert record["part"] == part.name and record["paper"] == json.loads(json.dumps(PAPER[part.name]))
    names = {"mean-field" if k == 0 else f"{k}-tied" for k in part.ranks}
    assert {(run["posterior"], run["seed"]) for run in record["runs"]} == {(n, s) for n in names for s in part.seeds}
    for run in record["runs"]:
        assert list(run["annealed"]) == ["nelbo", *part.metrics]
        assert run["steps"] > 0 and run["step_milliseconds"] > 0 and run["precision"] == "float32"
        assert run["annealed"]["accuracy"] > 90  # of two or four classes
        assert run["annealed"]["nelbo"] > run["annealed"]["nll"]
        assert ("truncated" in run) == (run["posterior"] == "mean-field")
        if "truncated" in run:
            assert list(run["truncated"]) == [f"rank {rank}" for rank in part.cuts]
            assert len({scores["nelbo"] for scores in run["truncated"].values()} | {run["annealed"]["nelbo"]}) > 2
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    for name in names:
        assert f"| {name} |" in table(record)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "imdb", "resnet"])
def test_small_networks_learn(name: str, narrow: None) -> None:
    part, data = PARTS[name].quick(None, "cpu")
    if name in ("cifar10", "cifar100"):
        part = dataclasses.replace(part, epochs=20, lr=0.01)
    if name == "resnet":
        part = dataclasses.replace(part, epochs=15, lr=0.02, ramp=1000)
    record = experiment.run(part, data)
    check(record, part)
    for run in record["runs"]:
        assert run["validation"].keys() == run["annealed"].keys() and run["validation"] != run["annealed"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cifar10", "cifar100", "resnet"])
def test_the_quick_form_of_the_papers_networks(name: str, tmp_path: Path) -> None:
    main(["--part", name, "--quick", "--out", str(tmp_path / "record.json")])
    check(json.loads((tmp_path / "record.json").read_text()), PARTS[name].quick(None, "cpu")[0])


@pytest.mark.parametrize("k", [0, 2])
def test_the_cnn_ties_its_dense_kernels_alone(k: int) -> None:
    layers = [layer for layer in Cifar100().build(k).modules() if isinstance(layer, bl.layers.BayesLayer)]
    assert [type(layer.weight) for layer in layers] == [MeanField] * 2 + [KTied if k else MeanField] * 2
    for layer in layers:
        assert isinstance(layer.bias, MeanField) and not layer.bias.mean().any()
        assert layer.prior.config() == {"mean": 0.0, "std": 0.2} and layer.estimator is bl.weight_sample
        assert layer.weight.variance().sqrt().mean().item() == pytest.approx(0.01, rel=0.05)
        weight = layer.weight.mean()
        # The standard deviation of a sample of n normal numbers is known to 1 / sqrt(2 n).
        tolerance = 5 / math.sqrt(2 * weight.numel())
        assert weight.std().item() == pytest.approx(math.sqrt(2 / weight[0].numel()), rel=tolerance)


@pytest.mark.parametrize(
    ("part", "k", "expected"),
    [
        (Cifar100(), 0, 4_405_320),
        (Cifar100(), 2, 2_267_408),
        (Imdb(), 0, 2_822_913),
        (Imdb(), 3, 2_695_681),
        (Resnet(), 0, 9_814_026),
    ],
)
def test_parameters_are_those_of_the_paper(part: Part, k: int, expected: int) -> None:
    assert part.parameters(part.build(k)) == expected


def test_tied_scales_of_the_resnet_would_save_what_table_5_says() -> None:
    model = Resnet().build(0)
    assert [9_814_026 - saved(model, k) for k in (1, 2, 3)] == [4_929_711, 4_946_964, 4_964_217]
    assert saved(bl.mlp([784, 10]), 1) == 7840 - 794


def test_the_lstm_starts_as_keras_does() -> None:
    model = Imdb().build(2)
    state = dict(model.named_parameters())
    embedding = state["embedding.weight"]
    assert 0.0499 < embedding.abs().max().item() <= 0.05
    gates = [bias for name, bias in state.items() if bias.shape == (512,) and name.endswith("bias")]
    assert len(gates) == 1
    assert torch.equal(gates[0].view(4, 128).T, torch.tensor([0.0, 1.0, 0.0, 0.0]).expand(128, 4))
    kinds = [type(layer.weight) for layer in model.modules() if isinstance(layer, bl.layers.BayesLayer)]
    assert kinds == [KTied, KTied, MeanField]  # the head has one row


def test_the_resnet_starts_as_tensorflow_probability_does() -> None:
    torch.manual_seed(0)
    layers = mean_fields(Resnet().build(0))
    means = torch.cat([layer.loc.detach().flatten() for layer in layers])
    logs = torch.cat([layer.log_scale.detach().flatten() for layer in layers])
    error = 5 / math.sqrt(len(means))
    assert means.std().item() == pytest.approx(0.1, rel=error)
    assert means.mean().item() == pytest.approx(0.0, abs=0.1 * error)
    # softplus(r) = exp(r) but for a factor of 1 - exp(r) / 2, 6e-5 here
    assert logs.mean().item() == pytest.approx(-9.0, abs=0.1 * error + 1e-4)
    assert logs.std().item() == pytest.approx(0.1, rel=error + 1e-3)


def test_scales_of_the_resnet_stay_below_their_bound(narrow: None) -> None:
    part, data = Resnet.quick(None, "cpu")
    part = dataclasses.replace(part, raw_scale=-2.0, lr=0.1, epochs=3)
    torch.manual_seed(0)
    model = part.build(0)
    part.fit_(model, 0, 0, data, SILENT)
    scales = torch.cat([layer.variance().sqrt().flatten() for layer in mean_fields(model)])
    assert math.log(1.2) == MAX_SCALE
    assert scales.max().item() == pytest.approx(MAX_SCALE, rel=1e-5)
    assert (scales > 0.99 * MAX_SCALE).float().mean().item() > 0.5


def test_the_resnet_is_mean_field_alone() -> None:
    with pytest.raises(ValueError, match=r"`ranks` of the residual network must be \(0,\), mean-field, got \(0, 2\)"):
        Resnet(ranks=(0, 2))


def test_annealing_by_steps() -> None:
    weights = [linear_by_steps(50)(Progress(step, 4, 700)) for step in (0, 1, 100, 200, 2000)]
    assert weights == [0.0, 1 / 200, 0.5, 1.0, 1.0]


def images(split: str, root: Path | None = None) -> ImageData:
    """Training images are 0, 1, 2, ...; labels likewise."""
    count = 10_003 if split == "train" else 5
    x = torch.arange(count, dtype=torch.float32)[:, None, None, None].expand(count, 3, 2, 2)
    return ImageData(x, torch.arange(count), ("one",))


def test_the_last_images_are_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bl.data, "cifar10", images)
    splits = Cifar10().load(None, "cpu")
    assert splits.validation is not None
    assert (
        splits.train[1].tolist() == [0, 1, 2] and splits.validation[1][0] == 3 and len(splits.validation[1]) == 10_000
    )
    assert splits.test[0][:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4]


def test_the_resnet_holds_nothing_out_and_centres(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bl.data, "cifar10", images)
    splits = Resnet().load(None, "cpu")
    assert splits.validation is None and len(splits.train[0]) == 10_003
    assert splits.train[0].mean().item() == pytest.approx(0, abs=1e-2)
    assert splits.test[0][0, 0, 0, 0].item() == pytest.approx(-5001)


def test_reviews_are_shuffled_and_padded_in_front(monkeypatch: pytest.MonkeyPatch) -> None:
    def reviews(split: str, root: Path | None = None) -> TextData:
        labels = torch.tensor([0] * 20 + [1] * 20)
        texts = tuple("good film" if y else "so bad a film" for y in labels)
        return TextData(texts, labels, 1 + 9 * labels)

    monkeypatch.setattr(bl.data, "imdb", reviews)
    monkeypatch.setattr(imdb, "HELD_OUT", 10)
    splits = Imdb(vocabulary=6, length=3).load(None, "cpu")
    assert splits.validation is not None
    assert len(splits.train[1]) == 30 and len(splits.validation[1]) == 10
    assert 0 < splits.validation[1].sum() < 10  # both labels: the order is random
    for x, y in (splits.train, splits.validation, splits.test):
        assert x.shape[1] == 3 and bool((x[:, -1] == 2).all())  # film, the most frequent word
        assert bool(((x[:, 0] == 0) == (y == 1)).all())  # two words and a pad


def test_made_texts_have_words_of_both_halves() -> None:
    words, labels = made_texts(20, 6, (400, 1, 1), "cpu").train

    def upper(label: int) -> Tensor:
        return (words[labels == label] >= 10).float().mean()

    assert upper(0).item() == pytest.approx(0.1, abs=0.05) and upper(1).item() == pytest.approx(0.9, abs=0.05)
    assert words.min() >= 0 and words.max() < 20
