"""How the Sparse VD experiment trains networks, and finishes them, on made-up images."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.estimators import clipped_reparam
from bayeslim.priors import ARD, GammaARD, LogUniform, Prior
from bayeslim.pruning.prune import bayes_layers
from bayeslim.runtime.seeds import seeded
from bayeslim.schedules import Progress
from bayeslim.training.stack import Objective, Stack
from bayeslim_papers.sparse_vd import training, views
from bayeslim_papers.sparse_vd.recipes import (
    FINISHES,
    GOALS,
    NETWORKS,
    PAPER,
    RECIPES,
    Recipe,
    Tempered,
    bayesian_,
    fresh,
)
from bayeslim_papers.sparse_vd.training import load_images, train_lenets, train_vgg, whitened
from bayeslim_papers.sparse_vd.views import Data
from papers.sparse_vd_cases import images, started


@pytest.mark.parametrize("prior", [ARD(), LogUniform(), GammaARD(0.51, 1e-8)])
def test_tempered_prior_scales_the_kl(prior: Prior) -> None:
    mean, log_std = torch.randn(5, dtype=torch.float64), torch.randn(5, dtype=torch.float64, requires_grad=True)
    tempered = Tempered(prior, 2.5)
    assert torch.allclose(tempered.kl(mean, (2 * log_std).exp()), 2.5 * prior.kl(mean, (2 * log_std).exp()))
    assert torch.allclose(tempered.total(mean, log_std), 2.5 * prior.kl(mean, (2 * log_std).exp()).sum())
    slopes = [torch.autograd.grad(p.total(mean, log_std), log_std)[0] for p in (tempered, prior)]
    assert torch.allclose(slopes[0], 2.5 * slopes[1])
    assert tempered.config() == {"prior": prior, "factor": 2.5}


def test_tempered_prior_refuses_negative_factors() -> None:
    with pytest.raises(ValueError, match="`factor` must be finite and not negative, got -1"):
        Tempered(ARD(), -1)


def test_factors_weigh_the_layers() -> None:
    with seeded(0):
        plain = fresh(NETWORKS["lenet-300-100"](), "he")
    kls = bl.named_kl(bayesian_(copy.deepcopy(plain), Recipe("ard")))
    weighted = bl.named_kl(bayesian_(plain, Recipe("ard", factors=(1.5, 1, 0.25))))
    for (name, kl), factor in zip(kls.items(), (1.5, 1, 0.25), strict=True):
        assert weighted[name].item() == pytest.approx(factor * kl.item(), rel=1e-6)


def test_factors_must_fit_the_network() -> None:
    with pytest.raises(ValueError, match="`factors` has 2 values for 3 layers"):
        bayesian_(NETWORKS["lenet-300-100"](), Recipe("ard", factors=(1, 2)))


def test_phases_shrink_with_the_epochs() -> None:
    recipe = Recipe("ard", warmup=5, ramp=280, epochs=300, pretrain=150)
    short = recipe.shortened(30)
    assert (short.warmup, short.ramp, short.pretrain, short.epochs) == (1, 28, 15, 30)
    assert recipe.shortened(None) is recipe


@pytest.mark.parametrize("network", RECIPES)
def test_every_recipe_builds_its_network(network: str) -> None:
    for name, recipe in RECIPES[network].items():
        plain = bl.models.vgg_like(width=1 / 64) if network == "vgg" else NETWORKS[network]()
        model = bayesian_(plain, recipe)
        layers = [module for module in model.modules() if isinstance(module, bl.layers.BayesLayer)]
        assert all(isinstance(layer.prior, Tempered) for layer in layers), name
        assert all(p["finish"] in FINISHES and r in RECIPES[network] for r, p in PAPER[network].items())
    assert set(GOALS) <= set(RECIPES)


@pytest.mark.parametrize("prior", ["log-uniform", "ard", "gamma"])
def test_layers_are_weighed_in_a_stack(prior: Any) -> None:
    factors = ((1, 2), (0.5, 3), ())
    with seeded(0):
        plain = [nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)) for _ in factors]
        models = [bayesian_(net, Recipe(prior, factors=own)) for net, own in zip(plain, factors, strict=True)]
    x, y, beta = torch.randn(3, 7, 6), torch.randint(4, (3, 7)), torch.tensor([1.0, 2.0, 0.5])
    members = [Objective(model, bl.Categorical(), num_data=10) for model in models]
    alone = [bl.kl(model).item() for model in models]
    found = Stack(members, vectorised=True)(x, y, beta)
    assert found.kl.tolist() == pytest.approx(alone, rel=1e-5)
    assert torch.allclose(found.loss, found.nll + beta * found.kl / 10)


def test_gamma_bounds_the_scales() -> None:
    model = started(recipe="gamma-0.51")
    posterior = next(module.weight for module in model.modules() if isinstance(module, bl.layers.BayesLayer))
    with torch.no_grad():
        next(p for name, p in posterior.named_parameters() if name == "log_scale").fill_(50.0)
    assert posterior.variance().max().item() <= math.exp(-8) * (1 + 1e-5)


def test_initial_weights() -> None:
    with seeded(0):
        he, official = (fresh(NETWORKS["lenet-5"](), init) for init in ("he", "official"))
    linear = "7.weight"  # 400 000 weights
    error = 5 / math.sqrt(2 * 400_000)  # five standard errors of an estimated deviation, relative
    assert he.get_parameter(linear).std().item() == pytest.approx(math.sqrt(2 / 800), rel=error)
    assert official.get_parameter(linear).std().item() == pytest.approx(0.01, rel=error)
    bound = math.sqrt(6 / ((20 + 50) * 25))
    convolution = official.get_parameter("3.weight").abs()
    assert 0.99 * bound < convolution.max().item() <= bound
    assert not any(p.any() for name, p in [*he.named_parameters(), *official.named_parameters()] if "bias" in name)


def test_whitening_makes_pixels_uncorrelated() -> None:
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(12, 12, generator=generator, dtype=torch.float64)
    x = (torch.randn(500, 12, generator=generator, dtype=torch.float64) @ mixing + 3).view(500, 3, 2, 2)
    white, other = whitened(x, x[:7], epsilon=0.0)
    assert torch.allclose(white.flatten(1).T.cov(correction=0), torch.eye(12, dtype=torch.float64), atol=1e-8)
    assert torch.allclose(other, white[:7])
    soft, _ = whitened(x, x, epsilon=0.5)
    variances = torch.linalg.eigvalsh(x.flatten(1).T.cov(correction=0))
    found = torch.linalg.eigvalsh(soft.flatten(1).T.cov(correction=0))
    assert torch.allclose(found, variances / (variances + 0.5))


def test_the_mean_image_is_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: dict[str, Data] = dict(zip(("train", "test"), images(), strict=True))

    def mnist(split: str, root: Path | None) -> Any:
        return SimpleNamespace(x=parts[split][0], y=parts[split][1])

    monkeypatch.setattr(bl.data, "mnist", mnist)
    (x, y), (x_test, y_test) = load_images("lenet-5", None, "cpu", (150, None))
    raw = parts["train"][0][:150]
    assert (len(y), len(y_test)) == (150, 100)
    assert torch.allclose(x, raw - raw.mean(0)) and torch.allclose(x_test, parts["test"][0] - raw.mean(0))


def test_varied_training_takes_as_many_steps_and_counts_an_image_once(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: dict[str, Any] = {}

    def remembered(models: Any, data: tuple[Tensor, Tensor], **options: Any) -> None:
        taken.update(options, data=data)

    monkeypatch.setattr(training, "fit_many", remembered)
    (x, y), _ = images()
    recipe = dataclasses.replace(RECIPES["lenet-300-100"]["ard-3-varied"], epochs=26, warmup=13, ramp=26)
    train_lenets("lenet-300-100", [recipe], [0], (x, y), 50)
    seen, labels = taken["data"]
    assert taken["epochs"] == 2  # of 13 views of every image
    torch.testing.assert_close(seen, torch.cat([views.shifted(x), views.turned(x)]))
    torch.testing.assert_close(labels.view(13, -1), y.expand(13, -1))
    assert taken["kl_weight"][0] / len(seen) == pytest.approx(3 / len(x))
    times = [Progress(step, len(seen) // 50, 2) for step in (0, len(seen) // 50)]
    assert [taken["kl_schedule"][0](now) for now in times] == [0.0, 0.0]
    assert taken["kl_schedule"][0](Progress(2, 1, 3)) == 0.5  # after one epoch of two, which are 26 of the images


def test_the_official_recipe_clips() -> None:
    for network, clip in itertools.product(("lenet-300-100", "lenet-5"), (True, False)):
        recipe = RECIPES[network]["molchanov-clip" if clip else "molchanov"]
        model = bayesian_(fresh(NETWORKS[network](), recipe.init), recipe)
        estimators = {layer.estimator for layer in bayes_layers(model).values()}
        assert estimators == {clipped_reparam if clip else bl.local_reparam}


def test_vgg_learns_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    train, test = images(3, 32, (60, 30))
    recipe = Recipe("ard", 1e-3, epochs=6, ramp=1, pretrain=2, log_variance=-15.0)
    options: dict[str, Any] = {"seed": 0, "data": train, "batch_size": 10, "width": 1 / 8}
    model = train_vgg(recipe, folder=tmp_path, **options)
    assert bl.evaluate(model, test, samples=0)["accuracy"] > 0.7
    again = train_vgg(recipe, folder=tmp_path, **options)  # all epochs are done
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())


def test_no_weight_of_the_dense_network_is_lost() -> None:
    recipe = Recipe("ard", 0.0, epochs=1, ramp=0, pretrain=1, lr=0.0, log_variance=-40.0)
    train, _ = images(3, 32, (20, 10))
    model = train_vgg(recipe, 0, train, 10, 1 / 32)
    with seeded(0):
        dense: Tensor = fresh(bl.models.vgg_like(width=1 / 32), "he").get_parameter("0.weight")
    means = model.get_parameter("0.weight.loc")
    assert (means - dense).abs().max().item() < 0.01 and not torch.equal(means, dense)
