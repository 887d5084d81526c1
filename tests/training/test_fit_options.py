"""Every option of the training loop does what it says."""

import functools
import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim.likelihoods import Gaussian
from bayeslim.posteriors import MeanField
from training.problems import blobs, digits, distance, equal, line, small, state

CLASSES = bl.Categorical()


def test_pretraining_is_plain_training_and_leaves_the_scales_alone() -> None:
    """Means after pre-training equal a plain network trained by the same loop, bit for bit."""
    torch.manual_seed(0)
    plain = bl.models.mlp([3, 8, 3])
    model = bl.mlp([3, 8, 3], init=plain)
    scales = {name: value for name, value in state(model).items() if "log_scale" in name}
    options: dict[str, Any] = {"likelihood": CLASSES, "lr": 0.01, "seed": 3, "batch_size": 16}
    bl.fit(plain, blobs(), epochs=5, **options)
    bl.fit(model, blobs(), epochs=5, pretrain_epochs=5, **options)
    after = state(model)
    assert equal({n: after[n] for n in scales}, scales)
    for name, value in plain.state_dict().items():
        assert torch.equal(value, after[name.replace("weight", "weight.loc")]), name
    bl.fit(model, blobs(), epochs=7, pretrain_epochs=5, **options)
    assert all(not torch.equal(state(model)[name], value) for name, value in scales.items())


def test_a_warm_up_without_kl_keeps_the_noise_on() -> None:
    model = small()
    before = state(model)
    schedule = bl.schedules.warmup_linear(2, 2)
    history = bl.fit(model, blobs(), likelihood=CLASSES, epochs=2, kl_schedule=schedule, seed=0)
    assert history["beta"] == [0.0, 0.0] and history["phase"] == ["bayes", "bayes"]
    assert history["energy"] == history["nll"]
    assert all(not torch.equal(value, before[name]) for name, value in state(model).items())


@pytest.mark.parametrize("estimator", [None, bl.mean_only])
def test_accumulating_batches_equals_one_large_batch(estimator: Any) -> None:
    """The KL is added once per step, not once per batch."""
    results = []
    for batch_size, accumulate in ((8, 3), (24, 1)):
        torch.manual_seed(0)
        model = bl.models.mlp([3, 8, 3])
        if estimator is not None:
            bl.bayesianize_(model, estimator=estimator)
        history = bl.fit(
            model,
            blobs(48),
            likelihood=CLASSES,
            epochs=3,
            batch_size=batch_size,
            accumulate=accumulate,
            optimizer=functools.partial(torch.optim.SGD, lr=0.5),
            seed=0,
        )
        results.append((state(model), history["energy"], history["lr"]))
    assert distance(results[0][0], results[1][0]) < 1e-6
    # Energies are averaged over rows, so they agree as well.
    assert results[0][1] == pytest.approx(results[1][1], rel=1e-5)


def test_schedules_count_steps_not_batches() -> None:
    """Six batches in groups of three are two steps per epoch, and the run ends at the end of its schedule."""
    seen: list[bl.schedules.Progress] = []

    def watch(progress: bl.schedules.Progress) -> float:
        seen.append(progress)
        return 1.0

    bl.fit(small(), blobs(48), likelihood=CLASSES, epochs=3, batch_size=8, accumulate=3, lr_schedule=watch, seed=0)
    assert [now.step for now in seen] == list(range(6)) and {now.steps_per_epoch for now in seen} == {2}
    assert [now.epoch for now in seen] == [0, 0, 1, 1, 2, 2] and seen[-1].fraction == 5 / 6


def test_a_last_group_of_fewer_batches_is_not_lost() -> None:
    steps: list[int] = []

    class Counting(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            steps.append(1)
            super().step(closure)

    data = blobs(40)  # five batches of eight: groups of two, two and one
    optimizer = functools.partial(Counting, lr=0.1)
    bl.fit(small(), data, likelihood=CLASSES, epochs=2, batch_size=8, accumulate=2, optimizer=optimizer, seed=0)
    assert len(steps) == 6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_learns_and_keeps_float32_parameters(dtype: torch.dtype) -> None:
    train, test = digits()
    torch.manual_seed(0)
    model = bl.mlp([64, 30, 10], method="molchanov")
    seen: set[torch.dtype] = set()
    model.register_forward_hook(lambda module, inputs, output: seen.add(output.dtype))
    bl.fit(
        model, train, likelihood=bl.Categorical(), epochs=8, lr=5e-3, autocast=dtype, batch_size=200,
        kl_schedule=bl.schedules.constant(0.1), seed=0,
    )  # fmt: skip
    assert dtype in seen
    assert all(p.dtype == torch.float32 and bool(p.isfinite().all()) for p in model.parameters())
    assert bl.evaluate(model, test, samples=0)["accuracy"] > 0.88


@pytest.mark.parametrize("autocast", [None, torch.float16])
def test_the_gradient_is_clipped_to_the_norm(autocast: torch.dtype | None) -> None:
    """Steps of rate 1 are as long as the norm; the loss scale of float16 must not count."""

    def steps(**options: Any) -> list[float]:
        model = small(method="graves")
        seen: list[torch.Tensor] = []

        def watch(progress: bl.schedules.Progress) -> float:
            seen.append(torch.cat([value.flatten() for value in state(model).values()]))
            return 1.0

        options |= {"optimizer": functools.partial(torch.optim.SGD, lr=1.0), "lr_schedule": watch}
        bl.fit(model, blobs(), likelihood=CLASSES, epochs=8, autocast=autocast, seed=0, **options)
        return [(b - a).norm().item() for a, b in itertools.pairwise(seen)]

    clipped = [length for length in steps(clip_norm=0.1) if length > 0]  # float16 skips steps that overflow
    assert len(clipped) >= 3 and clipped == pytest.approx([0.1] * len(clipped), rel=1e-3)
    assert max(steps()) > 0.2


def test_the_network_is_put_in_training_mode() -> None:
    """Also after a validation pass: batch statistics move in every epoch."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).eval()
    bl.fit(model, blobs(48), likelihood=CLASSES, epochs=3, batch_size=16, validation=blobs(9), seed=0)
    assert model.training
    assert isinstance(model[1], nn.BatchNorm1d) and model[1].num_batches_tracked == 9


def test_scales_learn_at_their_own_rate() -> None:
    """The first step of Adam is `lr` in every coordinate (up to its epsilon)."""
    model = small(method="graves")
    before = state(model)
    bl.fit(model, blobs(), likelihood=CLASSES, epochs=1, batch_size=48, lr=0.01, scale_lr=0.3, seed=0)
    for name, value in state(model).items():
        step = (value - before[name]).abs().max().item()
        assert step == pytest.approx(0.3 if "log_scale" in name else 0.01, rel=0.01), name
    frozen = small(method="graves")
    bl.fit(frozen, blobs(), likelihood=CLASSES, epochs=1, lr=0.01, scale_lr=0.0, seed=0)
    assert all(torch.equal(v, before[n]) == ("log_scale" in n) for n, v in state(frozen).items())


def test_early_stopping_goes_back_to_the_best_epoch() -> None:
    """A rate that grows until training breaks: the best epoch is in the middle."""
    likelihood = Gaussian(noise=0.5, learn_noise=True)
    model, train, test = small(outputs=2), line(48), line(200, seed=1)
    states: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def growing(progress: bl.schedules.Progress) -> float:
        if progress.step % progress.steps_per_epoch == 0 and progress.step:
            states.append((state(model), state(likelihood)))
        return 1.0 if progress.epoch < 6 else 60.0

    history = bl.fit(
        model,
        train,
        likelihood=likelihood,
        epochs=100,
        batch_size=16,
        lr=0.02,
        lr_schedule=growing,
        kl_schedule=bl.schedules.constant(0.01),
        validation=test,
        patience=3,
        seed=0,
    )
    scores = history["validation_nll"]
    best = int(np.argmin(scores))
    assert len(history) == best + 1 + 3 < 100 and best > 0
    assert equal(model, states[best][0])
    assert equal(likelihood, states[best][1])
    assert bl.evaluate(model, test, samples=0)["nll"] == pytest.approx(scores[best], rel=1e-6)


def test_the_best_epoch_is_kept_even_if_patience_lasts() -> None:
    model, test = small(), blobs(30, seed=1)
    history = bl.fit(model, blobs(), likelihood=CLASSES, epochs=6, lr=0.3, validation=test, patience=50, seed=0)
    assert len(history) == 6
    assert bl.evaluate(model, test, samples=0)["nll"] == pytest.approx(min(history["validation_nll"]), rel=1e-6)


def test_pretraining_does_not_count_for_patience() -> None:
    history = bl.fit(
        small(),
        blobs(),
        likelihood=CLASSES,
        epochs=8,
        pretrain_epochs=5,
        lr=1e-9,
        validation=blobs(30, seed=1),
        patience=1,
        kl_schedule=bl.schedules.constant(0.0),
        seed=0,
    )
    assert history["phase"][:5] == ["pretrain"] * 5 and len(history) > 5


def test_more_samples_per_step_lower_the_noise_of_the_objective() -> None:
    """The spread of the nll over epochs falls like one over the root of the samples."""

    def spread(samples: int) -> float:
        torch.manual_seed(0)
        model = bl.mlp([3, 8, 3], method="graves", init_log_variance=-1.0)
        nothing = functools.partial(torch.optim.SGD, lr=0.0)
        history = bl.fit(
            model, blobs(48), likelihood=CLASSES, epochs=80, batch_size=48, optimizer=nothing, samples=samples, seed=0
        )
        return float(np.std(history["nll"]))

    # Relative standard errors of two spreads from 80 values each: 1 / sqrt(2 * 79) each.
    assert math.log(spread(1) / spread(9)) == pytest.approx(math.log(3), abs=5 * math.sqrt(1 / 79))


def test_dissertation_scaling_reaches_the_objective() -> None:
    history = bl.fit(small(), blobs(48), likelihood=CLASSES, epochs=1, kl_scaling="dissertation", seed=0)
    assert history["energy"][0] == pytest.approx(history["nll"][0] + history["kl"][0] / 48**2, rel=1e-6)


def test_the_kl_of_epochs_without_it_is_that_of_their_end() -> None:
    model, ends = small(), []
    plan = {"epochs": 3, "pretrain_epochs": 1, "kl_schedule": lambda now: float(now.step > 4), "batch_size": 12}

    def note(network: nn.Module, *_: object) -> None:
        ends.append(bl.kl(network).item())

    history = bl.fit(model, blobs(48), likelihood=CLASSES, after_epoch=note, seed=0, **plan)
    off = [beta == 0 for beta in history["beta"]]
    assert off == [True, True, False]
    assert history["kl"][:2] == pytest.approx(ends[:2], rel=1e-6)
    assert history["kl"][2] != pytest.approx(ends[2], rel=1e-4)  # an average over steps


def test_frozen_parameters_stay() -> None:
    model = small()
    assert isinstance(model[0].weight, MeanField)
    model[0].weight.loc.requires_grad_(False)
    before = state(model)
    bl.fit(model, blobs(), likelihood=CLASSES, epochs=1, seed=0)
    moved = {name for name, value in state(model).items() if not torch.equal(value, before[name])}
    assert moved == before.keys() - {"0.weight.loc"}


@pytest.mark.parametrize("block", [torch.no_grad, torch.inference_mode])
def test_training_without_gradients_is_refused(block: Any) -> None:
    model = small()
    before = state(model)
    with block(), pytest.raises(RuntimeError, match=r"`fit` needs gradients: call it outside torch\.no_grad"):
        bl.fit(model, blobs(), likelihood=CLASSES, epochs=1)
    assert equal(model, before)
