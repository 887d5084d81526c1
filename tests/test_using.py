"""Switching the estimator of a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim import flipout, local_reparam, mean_only, using, weight_sample
from bayeslim.estimators import clipped_reparam
from bayeslim.layers import BayesLayer, Linear
from bayeslim.posteriors import MatrixNormal, MeanField


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        Linear(3, 4, estimator=weight_sample), nn.Sequential(nn.ReLU(), Linear(4, 2, estimator=local_reparam))
    )


def estimators(model: nn.Module) -> list[object]:
    return [module.estimator for module in model.modules() if isinstance(module, BayesLayer)]


def test_the_estimator_is_switched_inside_and_restored_after() -> None:
    model, x = network(), torch.ones(2, 3)
    with using(model, mean_only) as inside:
        assert inside is model
        assert estimators(model) == [mean_only, mean_only]
        assert torch.equal(model(x), model(x))
    assert estimators(model) == [weight_sample, local_reparam]
    assert not torch.equal(model(x), model(x))


def test_an_exception_restores_as_well() -> None:
    model = network()
    with pytest.raises(RuntimeError, match="inside"), using(model, mean_only):
        raise RuntimeError("inside")
    assert estimators(model) == [weight_sample, local_reparam]


def test_blocks_nest() -> None:
    model = network()
    with using(model, mean_only):
        with using(model, flipout):
            assert estimators(model) == [flipout, flipout]
        assert estimators(model) == [mean_only, mean_only]
    assert estimators(model) == [weight_sample, local_reparam]


def test_a_refused_pair_switches_nothing() -> None:
    """Also when the refused layer comes after one that could be switched."""
    model = nn.Sequential(Linear(3, 3), Linear(3, 3, posterior=MatrixNormal))
    with pytest.raises(TypeError, match="flipout needs a factorised posterior"), using(model, flipout):
        pytest.fail("the block must not run")
    assert estimators(model) == [local_reparam, local_reparam]


@pytest.mark.parametrize("posterior", [MatrixNormal, MeanField])
def test_estimators_are_refused_as_at_construction(posterior: Any) -> None:
    """By the same words, whatever the network held before; names are refused too, also where no layer is Bayesian."""
    choices: list[Any] = [flipout, clipped_reparam, "flipout", "clipped_reparam", "flipuot", None, ["flipout"]]
    for estimator in choices:
        message = refusal(lambda estimator=estimator: Linear(3, 3, posterior=posterior, estimator=estimator))
        assert (message is None) == (callable(estimator) and posterior is MeanField)
        model = nn.Sequential(Linear(3, 3), nn.ReLU(), Linear(3, 3, posterior=posterior))
        assert refusal(lambda estimator=estimator, model=model: using(model, estimator).__enter__()) == message
        if message is not None:
            assert estimators(model) == [local_reparam, local_reparam]
        if not callable(estimator):
            assert refusal(lambda estimator=estimator: using(nn.Linear(2, 2), estimator).__enter__()) == message


def refusal(call: Callable[[], object]) -> str | None:
    """What the TypeError says, if there is one."""
    try:
        call()
    except TypeError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("flipout", r"bl\.flipout, the function itself"),
        ("clipped_reparam", r"bayeslim\.estimators\.clipped_reparam, the function itself"),
        ("flipuot", r"bl\.local_reparam"),
    ],
)
def test_names_of_estimators_are_no_estimators(name: Any, advice: str) -> None:
    model = network()
    with pytest.raises(TypeError, match=rf"`estimator` must be a function, got '{name}': pass e\.g\. {advice}$"):
        using(model, name).__enter__()
    with pytest.raises(TypeError, match=r"`estimator` must be a function"):
        bl.predict(model, torch.ones(2, 3), likelihood=bl.Categorical(), estimator=name)
    assert estimators(model) == [weight_sample, local_reparam]


def test_the_training_flag_is_left_alone() -> None:
    model = network().eval()
    with using(model, mean_only):
        assert not model.training
    assert not model.training


def test_a_network_without_bayesian_layers_is_fine() -> None:
    model = nn.Linear(2, 2)
    with using(model, mean_only):
        model(torch.zeros(1, 2))
