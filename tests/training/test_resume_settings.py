"""A run goes on with the objective, the batches and the optimiser that it was started with, and says what differs."""

import functools
import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayeslim as bl
from bayeslim.storage import read_tensors, write_tensors
from bayeslim.training import History
from training.problems import blobs, equal, small, state

SGD = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)
COMPARED = {
    "model", "likelihood", "num_data", "batch_size", "optimizer", "kl_scaling", "samples", "pretrain_epochs",
    "validation_samples", "clip_norm", "accumulate", "autocast", "seed",
}  # fmt: skip
MAY_CHANGE = {
    "epochs", "patience", "lr", "scale_lr", "lr_schedule", "kl_schedule", "compile", "cuda_graph", "shared_noise",
    "device", "keep", "progress", "checkpoint", "resume",
}  # fmt: skip
CANNOT_BE_COMPARED = {"data", "validation", "after_epoch"}


def run(folder: Path, epochs: int, model: nn.Module | None = None, **options: Any) -> History:
    own: dict[str, Any] = {"data": blobs(), "likelihood": bl.Categorical(), "batch_size": 16, "lr": 0.01, "seed": 0}
    return bl.fit(model or small(), epochs=epochs, checkpoint=folder, resume=True, **(own | options))


def test_every_argument_was_thought_of() -> None:
    groups = COMPARED, MAY_CHANGE, CANNOT_BE_COMPARED
    assert sorted(inspect.signature(bl.fit).parameters) == sorted(name for group in groups for name in group)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({}, {"kl_scaling": "dissertation"}, "kl_scaling=elbo, now dissertation"),
        ({}, {"pretrain_epochs": 1}, "pretrain_epochs=0, now 1"),
        ({}, {"clip_norm": 1.0}, "clip_norm=None, now 1.0"),
        ({"clip_norm": 2}, {}, "clip_norm=2.0, now None"),
        ({}, {"autocast": torch.bfloat16}, "autocast=None, now torch.bfloat16"),
        ({}, {"batch_size": 17}, "batch_size=16, now 17"),
        ({}, {"data": DataLoader(TensorDataset(*blobs()), 18)}, "batch_size=16, now 18"),
        ({"optimizer": SGD}, {"optimizer": functools.partial(SGD, momentum=0.5)}, "momentum=0.9, now 0.5"),
        ({"optimizer": SGD}, {"optimizer": functools.partial(SGD, nesterov=True)}, "nesterov=False, now True"),
        (
            {"patience": 3, "validation": blobs(12)},
            {"patience": 3, "validation": blobs(12), "validation_samples": 2},
            "validation_samples=0, now 2",
        ),
    ],
)
def test_another_run_is_refused(tmp_path: Path, first: Any, second: Any, message: str) -> None:
    run(tmp_path, 1, **first)
    model = small(seed=4)
    before = state(model)
    with pytest.raises(ValueError, match=f"was started differently: .*{message}"):
        run(tmp_path, 2, model, **second)
    assert equal(model, before)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"lr": 0.1, "lr_schedule": bl.schedules.constant(0.5), "kl_schedule": bl.schedules.constant(0.5)}),
        ({"patience": 3, "validation": blobs(12)}, {"patience": 5, "validation": blobs(12)}),
        ({}, {"patience": 5, "validation": blobs(12), "validation_samples": 2}),
        ({"optimizer": SGD}, {"optimizer": functools.partial(SGD, lr=0.2, foreach=False)}),
        ({"batch_size": 100}, {"batch_size": 128}),
        ({}, {"keep": 1, "progress": False, "shared_noise": True, "seed": None}),
    ],
)
def test_what_may_change(tmp_path: Path, first: Any, second: Any) -> None:
    run(tmp_path, 1, **first)
    assert len(run(tmp_path, 2, **second)) == 2


def test_a_checkpoint_of_old_is_compared_as_far_as_it_tells(tmp_path: Path) -> None:
    run(tmp_path, 1)
    file = tmp_path / "checkpoint.safetensors"
    tensors, facts = read_tensors(file)
    old = ("num_data", "batches", "accumulate", "samples", "optimizer", "chosen")
    write_tensors(file, tensors, facts | {"settings": {name: facts["settings"][name] for name in old}})
    with pytest.raises(ValueError, match="accumulate=1, now 2"):
        run(tmp_path, 2, accumulate=2, clip_norm=1.0)
    assert len(run(tmp_path, 2, clip_norm=1.0)) == 2


def test_a_misspelt_objective_leaves_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`kl_scaling` must be 'elbo' or 'dissertation', got 'ELBO'"):
        run(tmp_path, 1, kl_scaling="ELBO")
    assert not list(tmp_path.iterdir())
