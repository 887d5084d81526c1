"""The training loop: it learns, says what happened and depends on its seed alone."""

import json
import math
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim.likelihoods import Gaussian
from training.problems import blobs, digits, equal, line, small, state

CLASSES = bl.Categorical()


@pytest.mark.parametrize("method", bl.METHODS)
def test_every_method_learns_digits(method: str) -> None:
    (train, test), seed = digits(), 0
    torch.manual_seed(seed)
    model = bl.mlp([64, 50, 10], method=method)
    history = bl.fit(
        model,
        train,
        likelihood=bl.Categorical(),
        epochs=15,
        batch_size=100,
        lr=5e-3,
        kl_schedule=bl.schedules.warmup_linear(3, 10),
        seed=seed,
    )
    assert history["nll"][-1] < 0.5 * history["nll"][0]
    scores = bl.evaluate(model, test, samples=50)
    assert scores["accuracy"] > 0.9, scores


def test_annealing_makes_digits_sparse_without_losing_them() -> None:
    train, test = digits()
    torch.manual_seed(0)
    model = bl.mlp([64, 50, 10], method="molchanov")
    history = bl.fit(
        model,
        train,
        likelihood=bl.Categorical(),
        epochs=60,
        lr=1e-2,
        lr_schedule=bl.schedules.constant_then_linear(0.5),
        kl_schedule=bl.schedules.warmup_linear(5, 15),
        validation=test,
        seed=0,
    )
    assert history.last["validation_accuracy"] > 0.92
    assert bl.sparsity(model) > 0.7
    assert history.last["sparsity"] == bl.named_sparsity(model)


def test_learned_noise_is_the_noise_of_the_data() -> None:
    """The standard error of a log standard deviation from n residuals is `1 / sqrt(2 n)`."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 3, generator=generator)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5]]) + 0.3 * torch.randn(2000, 1, generator=generator)
    torch.manual_seed(0)
    likelihood = Gaussian(noise=1.0, learn_noise=True)
    bl.fit(
        bl.mlp([3, 1], method="graves"),
        (x, y),
        likelihood=likelihood,
        epochs=40,
        lr=0.05,
        lr_schedule=bl.schedules.constant_then_linear(0.3),
        seed=0,
    )
    assert abs(likelihood.log_noise.item() - math.log(0.3)) < 5 / math.sqrt(2 * 2000)


def test_history_columns_and_file(tmp_path: Path) -> None:
    model, train, test = small(), blobs(48), blobs(30, seed=1)
    history = bl.fit(
        model,
        train,
        likelihood=CLASSES,
        epochs=4,
        batch_size=16,
        pretrain_epochs=1,
        kl_schedule=bl.schedules.warmup_linear(1, 2),
        lr=0.01,
        lr_schedule=bl.schedules.constant_then_linear(0.5),
        validation=test,
        checkpoint=tmp_path / "run",
        seed=0,
    )
    assert len(history) == 4 and history.last is history.records[-1]
    assert history["epoch"] == [0, 1, 2, 3]
    assert history["phase"] == ["pretrain", "bayes", "bayes", "bayes"]
    assert history["beta"] == [0.0, 0.0, 0.0, 0.5]  # counted from the end of pre-training
    # The factor of the last of three steps in each epoch: (1 - fraction) / (1 - hold).
    fractions = [(3 * epoch + 2) / 12 for epoch in range(4)]
    assert history["lr"] == pytest.approx([0.01 * min(1.0, (1 - f) / 0.5) for f in fractions])
    for energy, nll, kl, beta in zip(*(history[n] for n in ("energy", "nll", "kl", "beta")), strict=True):
        assert energy == pytest.approx(nll + beta * kl / 48, rel=1e-5)
    assert set(history.last) == {
        "epoch", "phase", "energy", "nll", "kl", "beta", "lr", "sparsity",
        "validation_nll", "validation_accuracy", "validation_ece", "validation_brier",
    }  # fmt: skip
    assert history.last["sparsity"].keys() == {"0", "2"}
    expected = bl.evaluate(model, test, samples=0)
    assert {name: history.last[f"validation_{name}"] for name in expected} == expected
    lines = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == history.records
    with pytest.raises(KeyError, match="no column 'loss': there are epoch, phase"):
        history["loss"]


def test_validation_may_sample() -> None:
    model, test = small(), blobs(30, seed=1)
    history = bl.fit(model, blobs(), likelihood=CLASSES, epochs=1, validation=test, validation_samples=7, seed=0)
    assert history.last["validation_nll"] == bl.evaluate(model, test, samples=7)["nll"]


def test_the_seed_decides_everything() -> None:
    runs = {}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        model = small(method="graves")
        torch.manual_seed(hash(name) % 1000)  # whatever the global state is
        torch.randn(3)
        bl.fit(model, blobs(), likelihood=CLASSES, epochs=2, batch_size=16, seed=seed)
        runs[name] = state(model)
    assert equal(runs["a"], runs["b"]) and not equal(runs["a"], runs["c"])


def test_the_global_random_state_is_left_alone() -> None:
    model = small(method="graves")
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # pyright: ignore
    bl.fit(model, blobs(), likelihood=CLASSES, epochs=2, validation=blobs(9), validation_samples=3, seed=0)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)  # pyright: ignore


def test_without_a_seed_one_is_drawn_from_the_global_state() -> None:
    results = []
    for seed in (5, 5, 6):
        model = small(method="graves")
        torch.manual_seed(seed)
        bl.fit(model, blobs(), likelihood=CLASSES, epochs=1)
        results.append(state(model))
    assert equal(results[0], results[1]) and not equal(results[0], results[2])


def test_networks_of_any_kind_train() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(16, 10),
    )
    bl.bayesianize_(model, prior=bl.priors.ARD())
    train, _ = digits()
    history = bl.fit(
        model, train, likelihood=bl.Categorical(), epochs=4, lr=0.02, kl_schedule=bl.schedules.constant(0.1), seed=0
    )
    assert history["nll"][-1] < 0.6 * history["nll"][0]
    assert model.training and bl.predict(model, train[0][:5], samples=3, seed=0).mean.shape == (5, 10)


def test_a_run_outside_the_main_thread_works() -> None:
    result: list[bl.History] = []
    thread = threading.Thread(
        target=lambda: result.append(bl.fit(small(), blobs(), likelihood=CLASSES, epochs=1, seed=0))
    )
    thread.start()
    thread.join()
    assert len(result[0]) == 1


def test_nothing_is_printed_without_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    bl.fit(small(), blobs(), likelihood=CLASSES, epochs=1, seed=0)
    assert capfd.readouterr() == ("", "")


def test_the_likelihood_is_remembered_and_its_device_follows() -> None:
    model, likelihood = small(outputs=2), Gaussian(0.3, learn_noise=True)
    bl.fit(model, line(), likelihood=likelihood, epochs=1, device="cpu", seed=0)
    assert bl.predict(model, line()[0]).likelihood is likelihood
