"""Networks trained side by side end as if each had been trained by itself."""

import copy
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.likelihoods import Gaussian
from bayeslim.likelihoods.base import likelihood_of
from bayeslim.methods import METHODS
from bayeslim.priors import ARD
from bayeslim.schedules import constant, constant_then_linear, linear, warmup_linear
from bayeslim.training import stack
from bayeslim.training.many import fit_many
from bayeslim.training.stack import Objective, Stack
from training.problems import blobs, digits, distance, equal, line, small, state
from training.stacks import EVERY_WAY, SETTINGS, FixedNoise, noisy, plain


def convolutional(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    net.append(nn.Linear(36, 10))
    return bl.bayesianize_(net, posterior=FixedNoise, prior=ARD(), estimator=bl.weight_sample)


def alone(models: Sequence[nn.Module], data: Any, per_network: Sequence[dict[str, Any]], **options: Any) -> list[Any]:
    """The histories of `bl.fit` on each network, seeds counted from 0."""
    return [
        bl.fit(model, data, **(SETTINGS | options | own), seed=seed)
        for seed, (model, own) in enumerate(zip(models, per_network, strict=True))
    ]


@EVERY_WAY
def test_plain_networks_end_as_after_separate_fits(monkeypatch: pytest.MonkeyPatch, few_weights: int) -> None:
    """Three rates, a schedule, batches of 16, 16 and 11 rows, running statistics."""
    monkeypatch.setattr(stack, "FEW_WEIGHTS", few_weights)
    together = [plain(seed) for seed in range(3)]
    apart = copy.deepcopy(together)
    rates, data = [1e-3, 1e-2, 3e-2], blobs(43)
    histories = fit_many(together, data, lr=rates, lr_schedule=constant_then_linear(0.2), seeds=range(3), **SETTINGS)
    expected = alone(apart, data, [{"lr": rate} for rate in rates], lr_schedule=constant_then_linear(0.2))
    for k in range(3):
        assert distance(together[k], apart[k]) < 1e-5
        assert histories[k]["energy"] == pytest.approx(expected[k]["energy"], rel=1e-5)
        assert histories[k]["lr"] == pytest.approx(expected[k]["lr"], rel=1e-6)
    assert distance(together[0], together[1]) > 0.1


@EVERY_WAY
@pytest.mark.parametrize("scaling", ["elbo", "dissertation"])
def test_bayesian_networks_end_as_after_separate_fits(
    monkeypatch: pytest.MonkeyPatch, few_weights: int, scaling: Any
) -> None:
    """The same noise for each, KL weights and schedules of their own, scales with another learning rate."""
    monkeypatch.setattr(stack, "FEW_WEIGHTS", few_weights)
    together = [noisy(seed) for seed in range(3)]
    apart = copy.deepcopy(together)
    weights, plans = [0.5, 1.0, 4.0], [linear(), warmup_linear(1, 2), constant(0.3)]
    common: dict[str, Any] = {"scale_lr": 1e-2, "kl_scaling": scaling}
    histories = fit_many(
        together, blobs(43), kl_weight=weights, kl_schedule=plans, seeds=range(3), **(SETTINGS | common)
    )
    own = [{"kl_schedule": lambda now, k=k: weights[k] * plans[k](now)} for k in range(3)]
    expected = alone(apart, blobs(43), own, **common)
    for k in range(3):
        assert distance(together[k], apart[k]) < 1e-5
        for ours, theirs in zip(histories[k].records, expected[k].records, strict=True):
            assert ours.keys() == theirs.keys()
            assert (ours["epoch"], ours["phase"]) == (theirs["epoch"], theirs["phase"])
            assert ours["sparsity"] == pytest.approx(theirs["sparsity"])
            for name in ("energy", "nll", "kl", "beta", "lr"):
                assert ours[name] == pytest.approx(theirs[name], rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_a_stack_of_one_is_fit(method: str) -> None:
    """Every prior, posterior and estimator, with their own noise: the same draws in the same order."""
    together, apart = small(3, method), small(3, method)
    options: dict[str, Any] = SETTINGS | {"epochs": 4, "pretrain_epochs": 1, "kl_schedule": warmup_linear(1, 2)}
    (history,) = fit_many([together], blobs(43), seeds=[5], **options)
    expected = bl.fit(apart, blobs(43), seed=5, **options)
    assert distance(together, apart) < 1e-5
    assert history["phase"] == expected["phase"] == ["pretrain", "bayes", "bayes", "bayes"]
    for name in ("energy", "nll", "kl", "beta"):
        assert history[name] == pytest.approx(expected[name], rel=1e-5)


@EVERY_WAY
@pytest.mark.parametrize(("build", "inputs"), [(noisy, 3), (convolutional, 64)])
def test_gradients_are_those_of_each_network(
    monkeypatch: pytest.MonkeyPatch, few_weights: int, build: Callable[[int], nn.Module], inputs: int
) -> None:
    monkeypatch.setattr(stack, "FEW_WEIGHTS", few_weights)
    models = [build(seed) for seed in range(3)]
    apart = copy.deepcopy(models)
    x, y, beta = torch.randn(3, 7, inputs), torch.arange(21).view(3, 7) % 3, torch.tensor([0.0, 1.0, 5.0])
    joint = Stack([Objective(model, bl.Categorical(), num_data=50) for model in models])
    result = joint.set_gradients_(x, y, beta)
    assert joint.vectorised == bool(few_weights)
    for k, (model, single) in enumerate(zip(models, apart, strict=True)):
        own = bl.nelbo(single, x[k], y[k], likelihood=bl.Categorical(), num_data=50, beta=beta[k])
        own.loss.backward()
        for ours, theirs in zip(result, own, strict=True):
            torch.testing.assert_close(ours[k], theirs, rtol=1e-5, atol=1e-6)
        for parameter, reference in zip(model.parameters(), single.parameters(), strict=True):
            torch.testing.assert_close(parameter.grad, reference.grad, rtol=1e-4, atol=1e-5)


@EVERY_WAY
@pytest.mark.parametrize("estimator", [bl.weight_sample, bl.local_reparam])
def test_noise_is_independent_between_networks(
    monkeypatch: pytest.MonkeyPatch, few_weights: int, estimator: Callable[..., Any]
) -> None:
    """Equal networks with equal batches part ways by their noise alone."""
    monkeypatch.setattr(stack, "FEW_WEIGHTS", few_weights)
    models = [small(0) for _ in range(2)]
    with ExitStack() as switched:
        for model in models:
            switched.enter_context(bl.using(model, estimator))
        fit_many(models, blobs(), seeds=[7, 7], lr=1e-2, **SETTINGS)
    assert distance(models[0], models[1]) > 1e-3
    quiet = [small(0) for _ in range(2)]
    fit_many(quiet, blobs(), seeds=[7, 7], lr=1e-2, pretrain_epochs=3, **SETTINGS)
    assert distance(quiet[0], quiet[1]) < 1e-6


def test_runs_repeat_and_leave_the_random_state_alone() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    ends = []
    for seeds in list[Any]([[0, 1], np.arange(2), [2, 1]]):
        models = [small(0), small(1)]
        torch.set_rng_state(before)
        fit_many(models, blobs(), seeds=seeds, **SETTINGS)
        assert torch.equal(torch.get_rng_state(), before)
        ends.append([state(model) for model in models])
    assert equal(ends[0][0], ends[1][0]) and equal(ends[0][1], ends[1][1])
    assert not equal(ends[0][0], ends[2][0])


def test_seeds_are_drawn_from_torch() -> None:
    ends = []
    for seed in (3, 3, 4):
        model = plain(0)
        torch.manual_seed(seed)
        fit_many([model], blobs(), **SETTINGS)
        ends.append(state(model))
    assert equal(ends[0], ends[1]) and not equal(ends[0], ends[2])


def test_fine_tuning_keeps_pruned_weights_at_zero() -> None:
    together = [small(seed) for seed in range(2)]
    for model, amount in zip(together, (0.3, 0.6), strict=True):
        bl.prune_(model, amount=amount)
    apart, before = copy.deepcopy(together), copy.deepcopy(together)
    fit_many(together, blobs(), pretrain_epochs=3, lr=1e-2, seeds=range(2), **SETTINGS)
    alone(apart, blobs(), [{}, {}], pretrain_epochs=3, lr=1e-2)
    for model, reference, start, amount in zip(together, apart, before, (0.3, 0.6), strict=True):
        assert distance(model, reference) < 1e-5 and distance(model, start) > 0.01
        assert bl.sparsity(model) == pytest.approx(amount, abs=0.02)
        layer: Any = model[0]
        assert torch.equal(layer.weight.mean() == 0, layer.weight.mask == 0)
        assert torch.equal(layer.weight.posterior.log_scale, start.get_parameter("0.weight.posterior.log_scale"))


def test_sweep_learns_and_its_networks_are_ready_for_use(tmp_path: Path) -> None:
    """A larger KL weight gives a smaller KL; each network predicts, shrinks and is saved by itself."""
    train, test = digits()
    models = [bl.mlp([64, 32, 10], method="ard") for _ in range(3)]
    histories = fit_many(
        models,
        train,
        likelihood=bl.Categorical(),
        epochs=40,
        batch_size=100,
        lr=5e-3,
        kl_weight=[0.1, 1.0, 5.0],
        kl_schedule=warmup_linear(0, 20),
        seeds=range(3),
    )
    divergences = [history.last["kl"] for history in histories]
    assert divergences[0] > 1.5 * divergences[1] > 1.5 * 1.5 * divergences[2]
    assert [history.last["beta"] for history in histories] == pytest.approx([0.1, 1.0, 5.0])
    for number, model in enumerate(models):
        assert bl.evaluate(model, test)["accuracy"] > 0.9  # 10 classes; a linear classifier has 0.95
        assert all(tensor.untyped_storage().nbytes() == 4 * tensor.numel() for tensor in model.parameters())
        bl.save(model, tmp_path / f"{number}.safetensors")
        loaded = bl.load(tmp_path / f"{number}.safetensors")
        means = [bl.predict(network, test[0], method="mean").mean for network in (loaded, model)]
        assert torch.equal(*means)
    bl.prune_(models[2])
    assert bl.sparsity(models[2]) > 0.3
    assert bl.evaluate(bl.compact(models[2], test[0][:2]), test)["accuracy"] > 0.9


def test_each_network_learns_a_noise_of_its_own() -> None:
    together = [small(seed, outputs=2) for seed in range(2)]
    for model in together:
        model[0] = nn.Linear(3, 8)
        model[2] = nn.Linear(8, 2)
    apart = copy.deepcopy(together)
    given = Gaussian(0.5, learn_noise=True)
    options: dict[str, Any] = {"epochs": 3, "batch_size": 16, "lr": 0.05}
    fit_many(together, line(), likelihood=given, seeds=range(2), **options)
    for seed, (model, reference) in enumerate(zip(together, apart, strict=True)):
        own = copy.deepcopy(given)
        bl.fit(reference, line(), likelihood=own, seed=seed, **options)
        assert distance(likelihood_of(model), own) < 1e-5
        assert distance(own, given) > 0.05
    assert distance(given, Gaussian(0.5, learn_noise=True)) == 0


def test_frozen_parameters_stay() -> None:
    models = [plain(seed) for seed in range(2)]
    for model in models:
        model.get_parameter("0.weight").requires_grad_(False)
    before = [state(model) for model in models]
    fit_many(models, blobs(), seeds=range(2), **SETTINGS)
    for model, start in zip(models, before, strict=True):
        assert torch.equal(model.get_parameter("0.weight"), start["0.weight"])
        assert not torch.equal(model.get_parameter("3.weight"), start["3.weight"])
        assert not model.get_parameter("0.weight").requires_grad


class Reading(nn.Linear):
    """Reads a value in its forward pass, which no vectorised pass can."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) * (1.0 + self.bias.detach().abs().sum().item())


def test_what_cannot_be_vectorised_runs_one_by_one() -> None:
    torch.manual_seed(0)
    together = [nn.Sequential(Reading(3, 3)) for _ in range(2)]
    apart = copy.deepcopy(together)
    fit_many(together, blobs(), seeds=range(2), **SETTINGS)
    alone(apart, blobs(), [{}, {}])
    assert max(distance(a, b) for a, b in zip(together, apart, strict=True)) < 1e-5
