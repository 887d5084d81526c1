"""Interrupted in the middle of an epoch and resumed: the same result in every configuration."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset

import bayeslim as bl
from bayeslim.likelihoods import Gaussian
from bayeslim.schedules import Progress
from bayeslim.storage import read_tensors, write_tensors
from training.problems import blobs, equal, line, small, state


class Interruption(Exception):
    """Stands for whatever ends a run: it comes from a schedule or from the data."""


def interrupted_at(step: int) -> Callable[[Progress], float]:
    def schedule(progress: Progress) -> float:
        if progress.step == step:
            raise Interruption
        return 1.0 - 0.5 * progress.fraction

    return schedule


def noisy_network(outputs: int) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, outputs))
    bl.bayesianize_(model, estimator=bl.weight_sample)
    return model


class Slowing(torch.optim.SGD):
    """Takes smaller and smaller steps, and counts them in a plain number."""

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                count = self.state[parameter].setdefault("count", 0)
                self.state[parameter]["count"] = count + 1
                if parameter.grad is not None:
                    parameter.grad.div_(1 + count)
        super().step(closure)


def own_generator() -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(99)
    return DataLoader(TensorDataset(*blobs()), 16, shuffle=True, generator=generator)


def sampler_with_generator() -> DataLoader[Any]:
    dataset = TensorDataset(*blobs())
    sampler = RandomSampler(dataset, generator=torch.Generator().manual_seed(99))
    return DataLoader(dataset, 16, sampler=sampler)


CASES: dict[str, dict[str, Any]] = {
    "pair": {},
    "loader": {"data": lambda: DataLoader(TensorDataset(*blobs()), 16, shuffle=True)},
    "loader with a generator of its own": {"data": own_generator},
    "sampler with a generator of its own": {"data": sampler_with_generator},
    "learned noise": {"data": line, "outputs": 2, "likelihood": lambda: Gaussian(learn_noise=True)},
    "accumulation": {"batch_size": 8, "accumulate": 3, "steps": 2},
    "several samples": {"samples": 3},
    "pre-training": {"pretrain_epochs": 2, "kl_schedule": bl.schedules.warmup_linear(1, 2)},
    "early stopping": {"validation": blobs(12, seed=1), "validation_samples": 2, "patience": 3, "lr": 0.3},
    "bfloat16": {"autocast": torch.bfloat16},
    "float16": {"autocast": torch.float16},
    "float16 that overflows": {
        "autocast": torch.float16,
        "data": line,
        "outputs": 2,
        "likelihood": lambda: Gaussian(0.05),
    },
    "momentum": {"optimizer": functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)},
    "no momentum": {"optimizer": functools.partial(torch.optim.SGD, lr=0.1)},
    "amsgrad": {"optimizer": functools.partial(torch.optim.AdamW, lr=0.01, amsgrad=True, weight_decay=0.1)},
    "rmsprop": {"optimizer": functools.partial(torch.optim.RMSprop, lr=0.01, centered=True)},
    "numbers in the state": {"optimizer": functools.partial(Slowing, lr=0.1)},
    "adagrad": {"optimizer": functools.partial(torch.optim.Adagrad, lr=0.01)},
    "clipping and rates": {"clip_norm": 0.5, "scale_lr": 0.1},
}


@pytest.mark.parametrize("name", CASES)
def test_resuming_equals_never_stopping(tmp_path: Path, name: str) -> None:
    """Interrupted twice: in the middle of an epoch and at the first step of another."""
    case = {"batch_size": 16, "epochs": 5, "seed": 3, "lr": 0.02} | CASES[name]
    data = case.pop("data", blobs)
    outputs, steps = case.pop("outputs", 3), case.pop("steps", 3)
    likelihood = case.pop("likelihood", bl.Categorical)

    def run(folder: Path, stop: int) -> tuple[dict[str, Tensor], dict[str, Tensor], list[Any]]:
        model, chosen = noisy_network(outputs), likelihood()
        schedule = interrupted_at(stop)
        history = bl.fit(model, data(), likelihood=chosen, lr_schedule=schedule, checkpoint=folder, resume=True, **case)
        return state(model), state(chosen), history.records

    whole = run(tmp_path / "whole", stop=-1)
    for stop in (steps + 1, 3 * steps):
        with pytest.raises(Interruption):
            run(tmp_path / "parts", stop)
    resumed = run(tmp_path / "parts", stop=-1)
    assert equal(resumed[0], whole[0]) and equal(resumed[1], whole[1])
    assert resumed[2] == whole[2]


class Failing(Dataset[Any]):
    """Data that stop coming after `reads` examples."""

    def __init__(self, reads: int) -> None:
        self.x, self.y = blobs()
        self.reads = reads

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        self.reads -= 1
        if self.reads == 0:
            raise Interruption
        return self.x[index], self.y[index]


def test_data_that_fail_can_be_read_again(tmp_path: Path) -> None:
    options: dict[str, Any] = {"likelihood": bl.Categorical(), "epochs": 4, "batch_size": 16, "seed": 0}
    whole = noisy_network(3)
    bl.fit(whole, Failing(10**9), **options)
    for reads in (48 * 1 + 20, 48 * 2 + 5):
        with pytest.raises(Interruption):
            bl.fit(noisy_network(3), Failing(reads), checkpoint=tmp_path, resume=True, **options)
    resumed = noisy_network(3)
    history = bl.fit(resumed, Failing(10**9), checkpoint=tmp_path, resume=True, **options)
    assert equal(resumed, whole) and history["epoch"] == [0, 1, 2, 3]


def test_a_run_can_be_made_longer(tmp_path: Path) -> None:
    options: dict[str, Any] = {"likelihood": bl.Categorical(), "batch_size": 16, "seed": 0}
    whole, grown = small(method="graves"), small(method="graves")
    bl.fit(whole, blobs(), epochs=5, **options)
    bl.fit(grown, blobs(), epochs=2, checkpoint=tmp_path, **options)
    history = bl.fit(small(seed=8, method="graves"), blobs(), epochs=2, checkpoint=tmp_path, resume=True, **options)
    assert len(history) == 2  # done already: nothing happens
    bl.fit(grown, blobs(), epochs=5, checkpoint=tmp_path, resume=True, **options)
    assert equal(whole, grown)


def test_resuming_a_finished_run_loads_its_result(tmp_path: Path) -> None:
    options: dict[str, Any] = {"likelihood": bl.Categorical(), "epochs": 6, "lr": 0.3, "seed": 0}
    options |= {"validation": blobs(12, seed=1), "patience": 2, "checkpoint": tmp_path}
    first, second = small(), small(seed=7)
    history = bl.fit(first, blobs(), **options)
    again = bl.fit(second, blobs(), resume=True, **options)
    assert again.records == history.records and equal(first, second)


def test_going_on_without_patience_does_not_go_back_to_an_earlier_best(tmp_path: Path) -> None:
    options: dict[str, Any] = {"likelihood": bl.Categorical(), "batch_size": 16, "lr": 0.3, "seed": 0}
    whole, grown = small(), small()
    bl.fit(whole, blobs(), epochs=4, **options)
    stopping = {"validation": blobs(12, seed=1), "patience": 9}
    bl.fit(grown, blobs(), epochs=2, checkpoint=tmp_path, **options, **stopping)
    bl.fit(grown, blobs(), epochs=4, checkpoint=tmp_path, resume=True, **options)
    assert equal(grown, whole)


def test_estimators_come_back_after_an_interruption() -> None:
    model = small(method="graves")
    with pytest.raises(Interruption):
        bl.fit(
            model,
            blobs(),
            likelihood=bl.Categorical(),
            epochs=2,
            pretrain_epochs=2,
            lr_schedule=interrupted_at(0),
            seed=0,
        )
    estimators = [m.estimator for m in model.modules() if isinstance(m, bl.layers.BayesLayer)]
    assert estimators == [bl.weight_sample] * 2


class OwnPrior(bl.priors.Normal):
    """A prior that bayeslim cannot describe but by its name."""

    def config(self) -> dict[str, Any]:
        return {"itself": self}


class OwnGaussian(Gaussian):
    """Ditto, of a likelihood."""


def chosen(**options: Any) -> nn.Module:
    torch.manual_seed(0)
    return bl.bayesianize_(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)), **options)


def runs(model: nn.Module, folder: Path, epochs: int, likelihood: Any = None) -> None:
    likelihood = Gaussian(0.3) if likelihood is None else likelihood
    bl.fit(model, line(), likelihood=likelihood, epochs=epochs, seed=0, checkpoint=folder, resume=True)


@pytest.mark.parametrize(
    ("options", "likelihood", "message"),
    [
        ({}, lambda: Gaussian(0.3, learn_noise=True), r"likelihood Gaussian\(.*\), now Gaussian\(learn_noise=True"),
        ({}, lambda: OwnGaussian(0.3), r"likelihood Gaussian\(.*\), now OwnGaussian\("),
        ({"prior": bl.priors.ARD()}, None, r"0 weight prior Normal\(mean=0.0, std=1.0\), now ARD\(\)"),
        ({"prior": bl.priors.Normal(0, 0.1)}, None, r"0 weight prior Normal\(.*std=1.0\), now Normal\(.*std=0.1\)"),
        ({"prior": OwnPrior()}, None, r"0 weight prior Normal\(.*\), now OwnPrior[;.]"),
        (
            {"posterior": functools.partial(bl.posteriors.MeanField, scale=0.01, max_scale=0.02)},
            None,
            r"0 weight posterior MeanField\(\), now MeanField\(.*max_scale=0.02",
        ),
        ({"estimator": bl.weight_sample}, None, r"0 estimator local_reparam\(\), now weight_sample\(\)"),
    ],
)
def test_a_run_that_would_go_on_with_something_else_is_refused(
    tmp_path: Path, options: dict[str, Any], likelihood: Callable[[], Any] | None, message: str
) -> None:
    runs(chosen(), tmp_path, 1)
    other = chosen(**options)
    before = state(other)
    with pytest.raises(ValueError, match=f"started differently: .*{message}.*or choose another folder"):
        runs(other, tmp_path, 2, likelihood and likelihood())
    assert equal(other, before)
    runs(chosen(), tmp_path, 2)


def test_what_changes_in_a_run_does_not_keep_it_from_going_on(tmp_path: Path) -> None:
    """Masks are part of the state, own classes are known by name, and learned noise is no setting."""
    likelihood = Gaussian(0.3, learn_noise=True)
    model, other = chosen(prior=OwnPrior()), chosen(prior=OwnPrior())
    bl.prune_(model, amount=0.2)
    bl.prune_(other, amount=0.5)
    runs(model, tmp_path, 1, likelihood)
    runs(model, tmp_path, 2, likelihood)
    runs(other, tmp_path, 3, Gaussian(0.1, learn_noise=True))


def test_a_checkpoint_of_old_that_does_not_tell_is_resumed(tmp_path: Path) -> None:
    runs(chosen(), tmp_path, 1)
    file = tmp_path / "checkpoint.safetensors"
    tensors, facts = read_tensors(file)
    settings = {name: value for name, value in facts["settings"].items() if name != "chosen"}
    write_tensors(file, tensors, facts | {"settings": settings})
    runs(chosen(estimator=bl.weight_sample), tmp_path, 2)
    write_tensors(file, tensors, facts | {"settings": settings | {"chosen": [3]}})
    with pytest.raises(ValueError, match="lacks a valid settings"):
        runs(chosen(), tmp_path, 2)
    for odd in (3, None, "text", [], ["Normal"], {"Normal": 1}):
        write_tensors(file, tensors, facts | {"settings": settings | {"chosen": {"0 weight prior": odd}}})
        with pytest.raises(ValueError, match="started differently: 0 weight prior"):
            runs(chosen(), tmp_path, 2)
        with pytest.raises(ValueError, match="started differently: 0 weight prior"):
            runs(chosen(prior=OwnPrior()), tmp_path, 2)
