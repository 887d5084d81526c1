"""Networks trained side by side end as if each had been trained by itself."""

import copy
import math
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import bayeslim as bl
from bayeslim.likelihoods import Gaussian
from bayeslim.likelihoods.base import likelihood_of
from bayeslim.methods import METHODS
from bayeslim.posteriors import MeanField
from bayeslim.priors import ARD, GammaARD
from bayeslim.schedules import Progress, constant, constant_then_linear, linear, warmup_linear
from bayeslim.training import replay, stack
from bayeslim.training.many import fit_many
from bayeslim.training.stack import Objective, Stack, check_alike
from training.problems import blobs, digits, distance, equal, line, small, state

SETTINGS: dict[str, Any] = {"likelihood": bl.Categorical(), "epochs": 3, "batch_size": 16}
EVERY_WAY = pytest.mark.parametrize("few_weights", [0, 10**9], ids=["one by one", "at once"])


class FixedNoise(MeanField):
    """A mean field whose draws are always the same, so that a network meets the same noise alone and in a stack."""

    noise: Tensor

    def __init__(self, init: Tensor) -> None:
        super().__init__(init, scale=0.2)
        self.register_buffer("noise", torch.randn_like(init))

    def rsample(self) -> Tensor:
        return self.loc + self.log_scale.exp() * self.noise


def plain(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    # No bias before the normalisation: its gradient is rounding error, which Adam turns into full steps.
    return nn.Sequential(nn.Linear(3, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def noisy(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return bl.mlp([3, 8, 3], posterior=FixedNoise, estimator=bl.weight_sample, bias_posterior=FixedNoise)


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
@pytest.mark.parametrize("build", [noisy, plain])
def test_compiled_losses_and_gradients_are_the_plain_ones(
    monkeypatch: pytest.MonkeyPatch, few_weights: int, build: Callable[[int], nn.Module]
) -> None:
    """Also after a change of phase, which compiles anew; running statistics advance as well."""
    monkeypatch.setattr(stack, "FEW_WEIGHTS", few_weights)
    x, y, beta = torch.randn(2, 7, 3), torch.arange(14).view(2, 7) % 3, torch.tensor([0.5, 2.0])
    ends: list[list[Tensor]] = []
    for compile in (False, True):
        models = [build(seed) for seed in range(2)]
        joint = Stack([Objective(model, bl.Categorical(), num_data=50) for model in models], compile=compile)
        found: list[Tensor] = []
        for kl in (True, False):
            with bl.using(nn.ModuleList(models), bl.mean_only) if not kl else nullcontext():
                found += joint.set_gradients_(x, y, beta, kl)
            found += [p.grad for model in models for p in model.parameters() if p.grad is not None]
        assert joint.vectorised == bool(few_weights)
        ends.append([*found, *(tensor for model in models for tensor in model.state_dict().values())])
    torch.testing.assert_close(ends[1], ends[0], rtol=1e-4, atol=1e-5, equal_nan=True)  # the KL of no use


def test_compiled_networks_draw_noise_of_their_own() -> None:
    models = [small(0) for _ in range(2)]
    fit_many(models, blobs(), seeds=[7, 7], lr=1e-2, compile=True, **SETTINGS)
    assert distance(models[0], models[1]) > 1e-3


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


def test_the_hook_sees_the_networks_as_they_are_and_may_change_values() -> None:
    models, seen = [plain(seed) for seed in range(2)], list[tuple[int, int, float]]()

    def hook(networks: Sequence[nn.Module], progress: Progress) -> None:
        assert all(network is model for network, model in zip(networks, models, strict=True))
        seen.append((progress.step, progress.epoch, networks[1].get_parameter("3.bias")[0].item()))
        with torch.no_grad():
            networks[1].get_parameter("3.bias").fill_(100.0 * len(seen))

    fit_many(models, blobs(), after_epoch=hook, seeds=range(2), **SETTINGS)
    assert [part[:2] for part in seen] == [(2, 0), (5, 1), (8, 2)]
    assert seen[1][2] == pytest.approx(100, abs=0.1) and seen[2][2] == pytest.approx(200, abs=0.1)
    assert models[1].get_parameter("3.bias")[0].item() == 300
    assert abs(models[0].get_parameter("3.bias")[0].item()) < 10


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_the_networks_with_their_last_step(number: int) -> None:
    models = [plain(seed) for seed in range(2)]
    reached: list[dict[str, Tensor]] = []

    def hook(networks: Sequence[nn.Module], progress: Progress) -> None:
        reached.append(state(networks[1]))
        if progress.epoch == 1:
            os.kill(os.getpid(), number)

    with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit):
        fit_many(models, blobs(), after_epoch=hook, seeds=range(2), **SETTINGS)
    assert len(reached) == 2
    # One step of Adam after the second epoch: no parameter moves by more than the learning rate.
    moved = max((value - reached[1][name]).abs().max().item() for name, value in models[1].named_parameters())
    assert 0 < moved < 1.1e-3
    assert all(part.untyped_storage().nbytes() == 4 * part.numel() for part in models[1].parameters())


def test_one_network_diverges_and_the_others_go_on() -> None:
    models = [plain(seed) for seed in range(3)]
    reference = copy.deepcopy(models[0])
    with pytest.warns(RuntimeWarning, match="network 1 has diverged in epoch 0: lower `lr`") as caught:
        histories = fit_many(models, blobs(), lr=[1e-3, 1e38, 1e-3], seeds=range(3), **SETTINGS)
    assert len(caught) == 1
    bl.fit(reference, blobs(), seed=0, **SETTINGS)
    assert distance(models[0], reference) < 1e-5
    assert not math.isfinite(histories[1].last["energy"]) and math.isfinite(histories[2].last["energy"])


def test_a_bayesian_network_without_sound_weights_has_no_sparsity() -> None:
    """Which weights are noise cannot be said then; the others are recorded as ever."""
    models = [small(method="ard", seed=seed) for seed in (0, 1)]
    with torch.no_grad():
        next(models[1].parameters()).fill_(math.nan)
    with pytest.warns(RuntimeWarning, match="network 1 has diverged in epoch 0"):
        histories = fit_many(models, blobs(), likelihood=bl.Categorical(), epochs=1, seeds=(0, 1), progress=False)
    assert histories[1].last["sparsity"] == {} and set(histories[0].last["sparsity"]) == {"0", "2"}


def test_all_networks_diverge() -> None:
    with (
        pytest.warns(RuntimeWarning, match="diverged"),
        pytest.raises(FloatingPointError, match="all 2 networks have diverged by epoch 0"),
    ):
        fit_many([plain(0), plain(1)], blobs(), lr=1e38, **SETTINGS)


def gamma(a: float) -> nn.Module:
    return bl.mlp([3, 4, 3], method="gamma", prior=GammaARD(a=a))


def pruned() -> nn.Module:
    model = small()
    bl.prune_(model, amount=0.5)
    return model


def sampling() -> nn.Module:
    return bl.mlp([3, 8, 3], estimator=bl.weight_sample)


def frozen() -> nn.Module:
    model = small()
    model.get_parameter("0.bias").requires_grad_(False)
    return model


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (small(), bl.mlp([3, 9, 3]), r"0\.bias is trained \(8,\) .* in models\[0\] but trained \(9,\)"),
        (
            small(),
            small(method="molchanov"),
            r"the type of 0\.prior is ARD in models\[0\] but LogUniform in models\[1\]",
        ),
        (gamma(0.51), gamma(0.6), r"0\.prior\.a is 0\.51 in models\[0\] but 0\.6"),
        (small(), small().double(), r"0\.bias is .*float32 on cpu in models\[0\] but .*float64"),
        (small(), pruned(), r"the type of 0\.weight is MeanField in models\[0\] but Masked"),
        (small(), frozen(), r"0\.bias is trained .* in models\[0\] but fixed"),
        (small(), sampling(), r"0\.estimator is local_reparam in models\[0\] but weight_sample"),
        (nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3)), "the type of the network is Linear"),
        (nn.Linear(3, 3), nn.Linear(3, 3, bias=False), r"bias is .* in models\[0\] but absent"),
    ],
)
def test_networks_that_differ_are_refused(first: nn.Module, second: nn.Module, message: str) -> None:
    with pytest.raises(ValueError, match=f"`models` must be of one architecture: {message}"):
        check_alike([first, second])
    with pytest.raises(ValueError, match="one architecture"):
        fit_many([first, second], blobs(), **SETTINGS)


def test_values_may_differ() -> None:
    check_alike([small(0), small(1)])


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"epochs": 0}, ValueError, "`epochs` must be a positive integer, got 0"),
        ({"batch_size": 0}, ValueError, "`batch_size` must be a positive integer, got 0"),
        ({"pretrain_epochs": 4}, ValueError, r"`pretrain_epochs` must lie in \[0, epochs=3\], got 4"),
        ({"lr": [1e-3]}, ValueError, "`lr` has 1 values for 2 networks: pass one for all or one for each"),
        ({"lr": -1.0}, ValueError, "`lr` must be finite and not negative, got -1.0"),
        ({"kl_weight": [1.0, math.nan]}, ValueError, "`kl_weight` must be finite and not negative, got nan"),
        ({"kl_schedule": constant(-1.0)}, ValueError, "`kl_schedule` gave -1.0: it must be finite and not negative"),
        ({"lr_schedule": constant(math.inf)}, ValueError, "`lr_schedule` gave inf"),
        ({"kl_schedule": [constant()] * 3}, ValueError, "`kl_schedule` has 3 values for 2 networks"),
        ({"seeds": [0]}, ValueError, "`seeds` has 1 values for 2 networks"),
        ({"seeds": [0, -1]}, ValueError, "`seed` must be an integer"),
        ({"data": TensorDataset(*blobs())}, TypeError, "`data` must be .x, y., .* got TensorDataset: use bl.fit"),
        ({"data": (torch.zeros(4, 3), torch.zeros(5).long())}, ValueError, "4 inputs and 5 targets"),
        ({"models": []}, ValueError, "`models` is empty: pass at least one network"),
        ({"models": [small()] * 2}, ValueError, "`models` share parameters: build each network anew"),
        ({"models": [small().requires_grad_(False)]}, ValueError, "there is nothing to train"),
    ],
)
def test_bad_arguments_are_refused(options: dict[str, Any], kind: type[Exception], message: str) -> None:
    models = [small(0), small(1)]
    before = [state(model) for model in models]
    arguments: dict[str, Any] = {"models": models, "data": blobs()} | SETTINGS | options
    with pytest.raises(kind, match=message):
        fit_many(**arguments)
    assert all(equal(model, start) for model, start in zip(models, before, strict=True))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("method", ["ard", "graves", "k-tied"])
def test_compiled_networks_learn_on_cuda(method: str) -> None:
    """The joint draws have kernels of their own there, which no vectorised code can use."""
    models = [small(seed, method) for seed in range(3)]
    options: dict[str, Any] = SETTINGS | {"epochs": 12, "lr": 1e-2}
    histories = fit_many(models, blobs(43), seeds=range(3), device="cuda", compile=True, **options)
    assert all(history["nll"][-1] < 0.7 * history["nll"][0] for history in histories)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("method", ["ard", "graves"])
def test_a_cuda_graph_gives_what_plain_steps_give(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    ends = []
    for warm_up in (10**9, 3):
        monkeypatch.setattr(replay, "WARM_UP", warm_up)
        models = [small(seed, method) for seed in range(3)]
        options: dict[str, Any] = SETTINGS | {"epochs": 12, "pretrain_epochs": 5, "kl_weight": [0.5, 1.0, 2.0]}
        fit_many(models, blobs(43), seeds=range(3), device="cuda", **options)
        ends.append([state(model) for model in models])
    assert max(distance(a, b) for a, b in zip(*ends, strict=True)) < 1e-4


@pytest.mark.parametrize("name", ["kl_schedule", "lr_schedule"])
def test_a_number_is_no_schedule(name: str) -> None:
    wrong: dict[str, Any] = {name: 0.3}
    with pytest.raises(TypeError, match=rf"`{name}` must be a schedule, got 0\.3: pass e\.g\. bl\.schedules\.constant"):
        fit_many([plain(0)], blobs(43), **SETTINGS | wrong)
