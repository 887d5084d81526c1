"""Counts may be integers of any library; everything else is refused, truth values too."""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.checks.counts import check_counts, check_num_data, plain_integer
from bayeslim.export import sample_networks
from bayeslim.optim import SGHMC, SGLD, CVAdam
from bayeslim.runtime.seeds import check_seed
from bayeslim.training.batches import make_batches
from contracts.cases import each

INTEGERS = pytest.mark.parametrize("kind", [int, np.int64, np.uint8, torch.tensor])
WRONG: list[Any] = [0, -5, 6.0, True, np.True_, torch.tensor(True), "6", None, np.float64(6), np.array([6, 6])]
NOT_COUNTS = pytest.mark.parametrize("wrong", WRONG, ids=repr)
MESSAGE = r"`num_data` must be the positive number of training examples, got .*: pass e\.g\. len\(dataset\)"


@INTEGERS
def test_integers_of_any_library_are_plain_here(kind: Any) -> None:
    found = [plain_integer(kind(6)), *check_counts(samples=kind(6)), check_num_data(kind(6)), check_seed(kind(6))]
    assert found == [6] * 4 and all(type(number) is int for number in found)


def test_truth_values_are_no_integers() -> None:
    for value in (True, np.True_, torch.tensor(True)):
        assert plain_integer(value) is value
        with pytest.raises(ValueError, match="`seed` must be an integer"):
            check_seed(value)  # pyright: ignore[reportArgumentType]


@NOT_COUNTS
def test_what_is_no_count_is_named(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"`samples` must be a positive integer, got .*: pass e\.g\. 1"):
        check_counts(samples=wrong)
    with pytest.raises(ValueError, match=MESSAGE):
        check_num_data(wrong)


@pytest.mark.parametrize("sampler", [SGLD, SGHMC, CVAdam])
@INTEGERS
def test_samplers(sampler: Any, kind: Any) -> None:
    """Of the optimiser and of a group: the same steps, and a state that JSON takes."""

    def moved(change: Any) -> Tensor:
        weights = [nn.Parameter(torch.ones(4)) for _ in range(2)]
        groups = [{"params": weights[:1]}, {"params": weights[1:], "num_data": change(20)}]
        optimizer = sampler(groups, num_data=change(10), lr=0.1)
        for weight in weights:
            weight.grad = torch.ones(4)
        optimizer.step()
        kept = json.loads(json.dumps(optimizer.state_dict()["param_groups"]))
        assert [group["num_data"] for group in kept] == [10, 20]
        return torch.cat([weight.detach() for weight in weights])

    assert torch.equal(moved(int), moved(kind))


@each("sampler", [SGLD, SGHMC, CVAdam])
@NOT_COUNTS
def test_samplers_refuse_what_is_no_count(sampler: Any, wrong: Any) -> None:
    with pytest.raises(ValueError, match=MESSAGE):
        sampler([nn.Parameter(torch.ones(2))], num_data=wrong, lr=0.1)


@INTEGERS
def test_the_objective(kind: Any) -> None:
    model, x, y = bl.mlp([3, 4, 2]), torch.ones(6, 3), torch.zeros(6, dtype=torch.int64)
    losses: list[Tensor] = []
    for change in (int, kind):
        torch.manual_seed(0)
        losses.append(bl.nelbo(model, x, y, likelihood=bl.Categorical(), num_data=change(6)).loss)
    assert torch.equal(*losses)
    assert make_batches((x, y), 2, kind(6), model, bl.Categorical()).num_data == 6


@NOT_COUNTS
def test_the_objective_refuses_what_is_no_count(wrong: Any) -> None:
    model, x, y = bl.mlp([3, 4, 2]), torch.ones(6, 3), torch.zeros(6, dtype=torch.int64)
    with pytest.raises(ValueError, match=MESSAGE):
        bl.nelbo(model, x, y, likelihood=bl.Categorical(), num_data=wrong)
    if wrong is not None:
        with pytest.raises(ValueError, match=MESSAGE):
            make_batches((x, y), 2, wrong, model, bl.Categorical())


@INTEGERS
def test_exported_samples(kind: Any) -> None:
    assert len(sample_networks(bl.mlp([3, 2]), kind(6))) == 6


@pytest.mark.parametrize("wrong", [2.5, "2", True])
def test_samples_and_batches_that_are_no_counts(wrong: Any) -> None:
    model, x, y = bl.mlp([3, 4, 2]), torch.ones(6, 3), torch.zeros(6, dtype=torch.int64)
    own: dict[str, Any] = {"likelihood": bl.Categorical()}
    for call in (bl.predict, lambda model, x, **more: bl.nelbo(model, x, y, num_data=6, **more)):
        with pytest.raises(ValueError, match=f"`samples` must be a positive integer, got {wrong!r}"):
            call(model, x, samples=wrong, **own)
    with pytest.raises(ValueError, match=f"`samples` must be an integer, got {wrong!r}: 0 uses the posterior mean"):
        bl.evaluate(model, (x, y), samples=wrong, **own)
    train = functools.partial(bl.fit, model, (x, y), epochs=1, validation=(x, y), **own)
    with pytest.raises(ValueError, match=f"`validation_samples` must be an integer, got {wrong!r}"):
        train(validation_samples=wrong)
    with pytest.raises(ValueError, match=rf"`pretrain_epochs` must lie in \[0, epochs=1\], got {wrong!r}"):
        train(pretrain_epochs=wrong)
    for call in (
        lambda **more: bl.predict(model, x, **more),
        lambda **more: bl.evaluate(model, (x, y), **more),
        lambda **more: bl.fit(model, (x, y), epochs=1, **more),
    ):
        with pytest.raises(ValueError, match=f"`batch_size` must be a positive integer, got {wrong!r}"):
            call(batch_size=wrong, **own)
