"""Arguments of the wrong kind are refused before training begins; integers of other libraries are not."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

import bayeslim as bl
from bayeslim.checks.counts import check_counts, plain_integer
from bayeslim.optim import SGHMC, SGLD, CVAdam, SpikeAndSlab
from training.problems import blobs, equal, small, state

X, Y = blobs()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"after_epoch": [print, print]}, r"`after_epoch` must be one function of \(model, .* got list: call several"),
        ({"optimizer": torch.optim.SGD(small().parameters())}, r"`optimizer` must be a function .* got SGD: pass e\.g"),
        ({"optimizer": "adam"}, "`optimizer` must be a function that makes one for the parameter groups, got str"),
    ],
)
def test_functions(options: dict[str, Any], message: str) -> None:
    model = small()
    before = state(model)
    with pytest.raises(TypeError, match=message):
        bl.fit(model, (X, Y), likelihood=bl.Categorical(), epochs=1, **options)
    assert equal(model, before)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (bl.Snapshots(small(), []), r"got Snapshots: train the network that they are of, snapshots\.model;"),
        (3, "got int"),
    ],
)
def test_only_networks_are_trained(model: Any, message: str) -> None:
    with pytest.raises(TypeError, match=rf"`model` must be a network \(nn\.Module\), {message}"):
        bl.fit(model, (X, Y), likelihood=bl.Categorical(), epochs=1)


@pytest.mark.parametrize("kind", [SGLD, SGHMC, CVAdam])
def test_samplers_of_another_number_of_examples(kind: Any, tmp_path: Path) -> None:
    """Their noise would be that of another posterior."""
    model, folder = bl.models.mlp([3, 8, 3]), tmp_path / "run"
    before, fit = state(model), partial(bl.fit, model, likelihood=bl.Categorical(), epochs=1)
    message = rf"`num_data`=16 of the optimiser {kind.__name__} contradicts .* 48 examples: pass it num_data=48, and"
    with pytest.raises(ValueError, match=message):
        fit((X, Y), optimizer=partial(kind, num_data=16, lr=0.01), checkpoint=folder)
    with pytest.raises(ValueError, match=message):  # in one of the groups
        fit((X, Y), optimizer=lambda groups: kind([*groups[:-1], groups[-1] | {"num_data": 16}], num_data=48, lr=0.01))
    pruner = SpikeAndSlab(model)
    with pytest.raises(ValueError, match=message):
        fit((X, Y), optimizer=lambda groups: pruner.attach(kind(groups, num_data=16, lr=0.01)))
    loader = DataLoader(TensorDataset(X, Y), 8, sampler=WeightedRandomSampler([1.0] * 48, 16))
    with pytest.raises(ValueError, match=message):
        fit(loader, num_data=48, optimizer=partial(kind, num_data=16, lr=0.01))
    assert equal(model, before) and not folder.exists()
    fit(loader, num_data=48, optimizer=partial(kind, num_data=48, lr=0.01))
    assert not equal(model, before)


@pytest.mark.parametrize("kind", [np.int64, np.uint8, torch.tensor])
def test_integers_of_other_libraries(kind: Any, tmp_path: Path) -> None:
    names = {"epochs": 2, "accumulate": 1, "samples": 1, "keep": 2, "batch_size": 8, "seed": 3, "num_data": len(X)}
    histories: list[bl.History] = []
    for folder, change in (("plain", int), ("other", kind)):
        options = {name: change(value) for name, value in names.items()}
        more: dict[str, Any] = {"checkpoint": tmp_path / folder, "validation": (X, Y), "patience": change(2)}
        histories.append(bl.fit(small(), TensorDataset(X, Y), likelihood=bl.Categorical(), **options, **more))
    assert histories[0].records == histories[1].records


def test_what_is_no_integer_stays() -> None:
    for value in (None, True, 0.5, "3", np.float64(3)):
        assert plain_integer(value) is value
    assert type(plain_integer(np.int64(3))) is int and check_counts(epochs=np.int64(3), samples=1) == [3, 1]  # pyright: ignore[reportArgumentType]
    for wrong in (0, True, 1.0, np.int64(-1), np.True_):
        with pytest.raises(ValueError, match="`epochs` must be a positive integer, got"):
            check_counts(epochs=wrong)  # pyright: ignore[reportArgumentType]
