"""`bayesianize_` says what is wrong with an argument, and what to pass."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim.posteriors import KTied, MatrixNormal, MeanField, Multiplicative
from contracts.members import over


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "prior class": ({"prior": bl.priors.Normal}, r"`prior` is the class Normal: pass an instance.*priors\.Normal\(\)"),
    "prior without options": (
        {"prior": bl.priors.ARD},
        r"`prior` is the class ARD: pass an instance of it.*or a function",
    ),
    "bias prior class": ({"bias_prior": bl.priors.Normal}, r"`bias_prior` is the class Normal: pass an instance"),
    "prior name": ({"prior": "ard"}, r"`prior` must be a prior or a function .* got 'ard': pass e\.g\. bl\.priors"),
    "bias prior name": ({"bias_prior": "ard"}, r"`bias_prior` must be a prior or a function .* got 'ard'"),
    "prior that builds none": ({"prior": lambda weight: 1.0}, r"`prior` must be or return a Prior, got 1\.0"),
    "estimator name": ({"estimator": "flipout"}, r"`estimator` must be a function, got 'flipout': pass e\.g\. bl\."),
    "posterior name": ({"posterior": "k-tied"}, r"`posterior` must build a posterior from a weight, got 'k-tied'"),
    "posterior instance": ({"posterior": MeanField(torch.ones(4, 3))}, r"`posterior` must build .* pass e\.g\. bl\."),
    "bias posterior name": ({"bias_posterior": "k-tied"}, r"`posterior` must build a posterior .* got 'k-tied'"),
    "posterior that builds none": ({"posterior": lambda weight: weight}, r"`posterior` must return a Posterior"),
    "where name": ({"where": "f1"}, r"`where` must be a function .* got 'f1': pass e\.g\. lambda name, module"),
    "overrides list": ({"overrides": ["0"]}, r"`overrides` must map names of layers .*pass e\.g\. \{\"head\""),
    "overrides without names": (
        {"overrides": {"0": bl.priors.ARD()}},
        r"`overrides\['0'\]` must map some of posterior",
    ),
    "overrides misspelt": ({"overrides": {"0": {"priro": None}}}, r"`overrides\['0'\]` must map .* got \{'priro'"),
    "overrides with a class": ({"overrides": {"0": {"prior": bl.priors.ARD}}}, r"`prior` is the class ARD"),
}


@over("case", WRONG)
def test_wrong_kinds_are_refused_and_the_network_stays(case: str) -> None:
    options, message = WRONG[case]
    model = net()
    with pytest.raises(TypeError, match=message):
        bl.bayesianize_(model, **options)
    assert [type(child) for child in model] == [nn.Linear, nn.ReLU, nn.Linear]


@over("model", ["net", nn.Linear, None])
def test_what_is_no_network_is_refused(model: Any) -> None:
    with pytest.raises(TypeError, match=r"`model` must be a network \(nn\.Module\), got .*: (read|pass) "):
        bl.bayesianize_(model)


def test_fresh_layers_look_too() -> None:
    with pytest.raises(TypeError, match=r"`prior` is the class Normal"):
        bl.layers.Linear(3, 2, prior=bl.priors.Normal)
    with pytest.raises(TypeError, match=r"`estimator` must be a function"):
        bl.layers.Conv2d(3, 2, 1, estimator="flipout")


def centred(weight: torch.Tensor) -> bl.priors.Normal:
    return bl.priors.Normal(weight, 0.5)


@over("prior", [centred, functools.partial(bl.priors.Normal, std=0.5), lambda weight: centred(weight)])
def test_what_builds_priors_still_does(prior: Any) -> None:
    model: Any = bl.bayesianize_(net(), prior=prior)
    assert torch.equal(model[0].prior.mean, model[0].weight.mean())


def test_a_network_that_is_converted_in_part_can_be_finished() -> None:
    model = bl.bayesianize_(net(), where=lambda name, module: name == "0")
    with pytest.raises(ValueError, match=r"no layer of `model` was converted: it holds .*`where` must accept"):
        bl.bayesianize_(model, where=lambda name, module: False)
    bl.bayesianize_(model)
    assert len(list(bl.named_kl(model))) == 2


@over("kind", [nn.Linear, nn.LSTM, nn.MultiheadAttention])
def test_complex_weights_are_refused(kind: Any) -> None:
    plain = kind(4, 2, dtype=torch.complex64)
    with pytest.raises(TypeError, match=r"`weight` must hold real floating-point numbers, got torch\.complex64: conv"):
        bl.bayesianize_(plain)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors is a no-op")
@over("posterior", [MatrixNormal, functools.partial(KTied, k=1)])
def test_layers_without_outputs_are_refused_where_the_posterior_cannot(posterior: Any) -> None:
    with pytest.raises(
        ValueError, match=r"a layer without weights, of shape \(0, 3\), .*MeanField, or leave the layer"
    ):
        bl.bayesianize_(nn.Linear(3, 0), posterior=posterior)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors is a no-op")
@over("posterior", [MeanField, Multiplicative])
@over("sizes", [(3, 0), (0, 3)])
def test_layers_without_weights_convert_where_the_posterior_can(sizes: tuple[int, int], posterior: Any) -> None:
    layer = bl.bayesianize_(nn.Linear(*sizes), posterior=posterior)
    assert layer(torch.ones(2, sizes[0])).shape == (2, sizes[1])
    assert bl.kl(layer).item() == 0
