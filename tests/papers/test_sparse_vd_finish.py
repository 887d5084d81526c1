"""How the Sparse VD experiment finishes trained networks, on made-up images."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.pruning.prune import bayes_layers
from bayeslim.runtime.seeds import seeded
from bayeslim_papers.sparse_vd import finish as finishing
from bayeslim_papers.sparse_vd import views
from bayeslim_papers.sparse_vd.finish import SoftLabels, finished, soft_targets, tune_
from bayeslim_papers.sparse_vd.recipes import (
    FINISHES,
    RECIPES,
    Finish,
    Recipe,
    bayesian_,
)
from bayeslim_papers.sparse_vd.training import train_lenets
from papers.sparse_vd_cases import CONFIG, images, started


def test_small_networks_are_tuned_as_a_stack() -> None:
    """On a CPU only small networks run vectorised, as all do on a GPU."""
    with seeded(0):
        models = [bayesian_(nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4)), Recipe("ard")) for _ in range(2)]
        x, y = torch.randn(40, 6), torch.randint(4, (40,))
    for amount, model in zip((0.3, 0.6), models, strict=True):
        bl.prune_(model, bl.pruning.MAGNITUDE, amount=amount)
    dead = [layer.weight.mean() == 0 for model in models for layer in bayes_layers(model).values()]
    tune_(CONFIG, Finish(tune=1), models, [0, 1], (x, y))
    tune_(CONFIG, Finish(tune=2), models, [0, 1], (x, y), [torch.rand(40, 4).softmax(1) for _ in models])
    after = [layer.weight.mean() == 0 for model in models for layer in bayes_layers(model).values()]
    assert all(torch.equal(*pair) for pair in zip(dead, after, strict=True))


def test_soft_labels() -> None:
    logits, y = torch.randn(6, 4), torch.tensor([0, 1, 2, 3, 0, 1])
    p = torch.rand(6, 4).softmax(1)
    expected = -(p * (logits - logits.logsumexp(1, keepdim=True))).sum(1)
    assert torch.allclose(SoftLabels().nll(logits, p), expected)
    one_hot = nn.functional.one_hot(y, 4).float()
    assert torch.allclose(SoftLabels().nll(logits, one_hot), bl.Categorical().nll(logits, y))
    with pytest.raises(ValueError, match=r"`y` must be probabilities \(N, classes\), got torch.int64 \(6,\)"):
        SoftLabels().check_targets(y)


def test_soft_targets_are_half_label_half_prediction() -> None:
    train, _ = images()
    targets = soft_targets(started(), train, samples=3)
    teacher = 2 * targets - nn.functional.one_hot(train[1], 10)
    assert targets.shape == (200, 10) and bool((teacher >= -1e-6).all())
    assert torch.allclose(teacher.sum(1), torch.ones(200), atol=1e-5)
    assert teacher.std() > 0


@pytest.mark.parametrize("distil", [False, True])
def test_tuning_keeps_pruned_weights_at_zero(distil: bool) -> None:
    train, test = images()
    models = [started(), started()]
    for amount, model in zip((0.8, 0.95), models, strict=True):
        bl.prune_(model, bl.pruning.MAGNITUDE, amount=amount)
    before = [copy.deepcopy(model) for model in models]
    soft = [soft_targets(model, train, 3) for model in models] if distil else None
    tune_(CONFIG, Finish(tune=1, lr=3e-3), models, [0, 1], train, soft)
    for old, new in zip(before, models, strict=True):
        for name, layer in bayes_layers(new).items():
            first = bayes_layers(old)[name].weight
            dead = first.mean() == 0
            assert bool(dead.any()) and not layer.weight.mean()[dead].any()
            assert not torch.equal(layer.weight.mean()[~dead], first.mean()[~dead])
            assert torch.equal(layer.weight.variance(), first.variance())
        scores = [bl.evaluate(model, test, samples=0, likelihood=bl.Categorical())["accuracy"] for model in (old, new)]
        assert scores[1] > scores[0] and scores[1] > 0.9


def test_one_failure_does_not_end_the_others() -> None:
    models = [started(), started()]
    with torch.no_grad():
        models[0].get_parameter("5.weight.loc").fill_(1e-9)
    config = dataclasses.replace(CONFIG, finishes=("magnitude", "tuned"), tune_epochs=1)
    lost, whole = finished(config, models, [0, 1], images())
    assert "'5' would lose all its 1000 weights" in lost["magnitude"]["failed"]
    assert "failed" in lost["tuned"] and "error" in lost["trained"]
    assert whole["magnitude"]["compression"] > 1 and "error" in whole["tuned"]


def test_finishes_differ_in_epochs_rate_noise_and_images(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[Any, ...]] = []

    def remembered(models: Any, data: tuple[Tensor, Tensor], **options: Any) -> None:
        names = ("epochs", "pretrain_epochs", "lr", "kl_weight")
        taken.append((len(data[0]), data[1].dtype.is_floating_point, *(options[name] for name in names)))

    monkeypatch.setattr(finishing, "fit_many", remembered)
    names = ("tuned", "longer", "relaxed", "shifted", "harder-shifted-distilled")
    small, data = dataclasses.replace(CONFIG, finishes=names), images()
    models = train_lenets("lenet-300-100", [RECIPES["lenet-300-100"]["ard-4"].shortened(1)], [0], data[0], 50)
    finished(small, models, [0], data)
    count = len(data[0][0])
    assert taken == [
        (count, False, 3, 3, 3e-4, 0.0),
        (count, False, 15, 15, 1e-3, 0.0),
        (count, False, 15, 0, 3e-4, 1.0),
        (9 * count, False, 2, 2, 1e-3, 0.0),
        (9 * count, True, 2, 2, 1e-3, 0.0),
    ]


def test_shifted_images_are_those_of_a_moved_pattern() -> None:
    """Drawn by hand: a pattern inside a black frame, moved, then minus the mean image as before."""
    torch.manual_seed(0)
    pattern, mean = torch.rand(2, 3, 3) + 0.1, torch.rand(1, 7, 7)
    pattern[0, 0, 0] = pattern[1, 1, 1] = 0  # every pixel is black in some image
    drawn = torch.zeros(3, 1, 7, 7)
    drawn[:2, 0, 2:5, 2:5] = pattern
    found = views.shifted(drawn - mean).view(9, 3, 1, 7, 7)
    for (down, right), copies in zip(views.SHIFTS, found, strict=True):
        moved = torch.zeros(3, 1, 7, 7)
        moved[:2, 0, 2 + down : 5 + down, 2 + right : 5 + right] = pattern
        torch.testing.assert_close(copies, moved - mean)


def test_turned_images_are_turned_about_their_centre() -> None:
    """The centre of mass of a blob moves along its circle, and no ink is lost; the mean image stays."""
    size, offset = 28, torch.tensor([6.0, 2.0])  # right and down of the centre
    axis = torch.arange(size) - (size - 1) / 2
    blob = torch.exp(-((axis[:, None] - offset[1]) ** 2 + (axis - offset[0]) ** 2) / 4)
    mean = torch.rand(1, size, size)
    images = torch.stack([blob[None], torch.zeros(1, size, size)]) - mean
    found = views.turned(images).view(4, 2, 1, size, size) + mean
    torch.testing.assert_close(found[:, 1], torch.zeros(4, 1, size, size))
    for angle, image in zip(views.TURNS, found[:, 0, 0], strict=True):
        mass = image.sum()
        place = torch.stack([(image.sum(0) * axis).sum(), (image.sum(1) * axis).sum()]) / mass
        turn = torch.rad2deg(torch.atan2(offset[1], offset[0]) - torch.atan2(place[1], place[0]))
        assert turn.item() == pytest.approx(angle, abs=0.1) and place.norm().item() == pytest.approx(40**0.5, rel=0.01)
        assert mass.item() == pytest.approx(blob.sum().item(), rel=0.01)


def test_a_finish_may_prune_to_a_compression() -> None:
    data = images(counts=(60, 20))
    model = train_lenets("lenet-300-100", [RECIPES["lenet-300-100"]["ard-4"].shortened(1)], [0], data[0], 50)[0]
    config = dataclasses.replace(CONFIG, finishes=("101", "101-varied"), tune_epochs=1)
    found = finished(config, [model], [0], data)[0]
    assert [found[name]["compression"] for name in config.finishes] == pytest.approx([101, 101], rel=1e-3)
    assert found["101"]["nll"] != found["101-varied"]["nll"]


@pytest.mark.parametrize("finish", ["shifted", "varied"])
def test_tuning_on_other_views_learns(finish: str) -> None:
    data = images()
    model = train_lenets("lenet-300-100", [RECIPES["lenet-300-100"]["ard-4"].shortened(1)], [0], data[0], 50)[0]
    before = bl.evaluate(model, data[0], samples=0, likelihood=bl.Categorical())["nll"]
    tune_(
        dataclasses.replace(CONFIG, tune_epochs=9 if finish == "shifted" else 3),
        FINISHES[finish],
        [model],
        [0],
        data[0],
    )
    assert bl.evaluate(model, data[0], samples=0, likelihood=bl.Categorical())["nll"] < 0.8 * before
