"""What all Bayesian layers share."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch

from bayeslim.divergence import kl_divergence
from bayeslim.layers import BayesLayer, Conv2d, Linear
from bayeslim.layers.initial import he_normal
from bayeslim.posteriors import MatrixNormal, MeanField
from bayeslim.priors import ARD, GammaARD, LogUniform, Normal
from contracts.members import ESTIMATORS, LAYERS, OPS, SAMPLERS, fresh, layer, over


def snapshot(module: torch.nn.Module) -> dict[str, Any]:
    """Everything on a module and its children, by identity; tensors also by value and version."""
    result: dict[str, Any] = {}
    for name, child in module.named_modules():
        for key, value in vars(child).items():
            inner = value if isinstance(value, dict) else {"": value}
            result |= {f"{name}.{key}.{entry}": id(item) for entry, item in inner.items()}
    for name, tensor in module.state_dict().items():
        result[f"{name} value"] = (tensor.tolist(), tensor._version)
    return result


@over("estimator", ESTIMATORS)
@over("case", ["linear", "conv2d"])
def test_forward_and_kl_write_nothing_on_the_module(case: str, estimator: str) -> None:
    net = layer(case, "KTied-2", estimator)
    before = snapshot(net)
    net(OPS[case].input())
    net.kl()
    assert snapshot(net) == before


@over("estimator", SAMPLERS)
def test_sampling_does_not_depend_on_the_training_flag(estimator: str) -> None:
    net, x = layer("linear", "MeanField", estimator), OPS["linear"].input()
    outputs = []
    for mode in (True, False):
        torch.manual_seed(0)
        outputs.append(net.train(mode)(x))
    assert torch.equal(*outputs)
    assert not torch.equal(net(x), net(x))


def test_kl_adds_weight_and_bias_each_with_its_prior() -> None:
    torch.manual_seed(1)
    net = Linear(3, 2, prior=ARD(), bias_posterior=MeanField, bias_prior=Normal(0.0, 0.1))
    assert isinstance(net.bias, MeanField)
    expected = kl_divergence(net.weight, ARD()) + kl_divergence(net.bias, Normal(0.0, 0.1))
    torch.testing.assert_close(net.kl(), expected)
    assert [type(p) for _, p in net.posteriors_and_priors()] == [ARD, Normal]


def test_a_bias_takes_the_prior_of_the_weight_by_default() -> None:
    net = Linear(3, 2, prior=GammaARD(0.6, 1e-3), bias_posterior=MeanField)
    assert net.bias_prior.config() == net.prior.config()
    assert net.bias_prior is not net.prior


def test_a_point_bias_has_no_kl_and_no_bias_no_parameter() -> None:
    with_bias, without = Linear(3, 2), Linear(3, 2, bias=False)
    without.load_state_dict({k: v for k, v in with_bias.state_dict().items() if k != "bias"})
    torch.testing.assert_close(with_bias.kl(), without.kl())
    assert without.bias is None
    assert {name for name, _ in with_bias.named_parameters()} == {"weight.loc", "weight.log_scale", "bias"}


def test_priors_are_copied() -> None:
    prior = Normal(torch.zeros(2, 3), torch.ones(2, 3))
    first, second = (Linear(3, 2, prior=prior) for _ in range(2))
    assert first.prior is not second.prior
    assert isinstance(first.prior.mean, torch.Tensor)
    first.prior.mean.fill_(9.0)
    assert torch.equal(torch.as_tensor(prior.mean), torch.zeros(2, 3))


def test_defaults() -> None:
    net = Linear(3, 2)
    assert isinstance(net.weight, MeanField)
    assert isinstance(net.prior, Normal)
    assert net.prior.config() == {"mean": 0.0, "std": 1.0}
    assert net.estimator is ESTIMATORS["local_reparam"]


@over("kind", LAYERS)
def test_repr_says_what_it_is(kind: type[BayesLayer]) -> None:
    sizes = (3, 2) if kind is Linear else (3, 2, 2)
    text = repr(fresh(kind, *sizes, prior=LogUniform(), estimator=ESTIMATORS["weight_sample"]))
    for part in (kind.__name__, "shape=(2, 3", "estimator=weight_sample", "MeanField", "fit='molchanov'"):
        assert part in text
    assert ("LinearOp()" if kind is Linear else "stride=(1,") in text


def test_deepcopy_and_state_round_trip() -> None:
    net = Conv2d(2, 3, 2, posterior=MatrixNormal, bias_posterior=MeanField)
    other = Conv2d(2, 3, 2, posterior=MatrixNormal, bias_posterior=MeanField)
    other.load_state_dict(net.state_dict(), strict=True)
    x = torch.randn(1, 2, 3, 3, generator=torch.Generator().manual_seed(2))
    outputs = []
    for twin in (net, other, copy.deepcopy(net)):
        torch.manual_seed(3)
        outputs.append(twin(x))
        torch.testing.assert_close(twin.kl(), net.kl(), rtol=0, atol=0)
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2])


def test_a_posterior_that_cannot_hold_a_bias_says_so() -> None:
    with pytest.raises(ValueError, match=r"got shape \(2,\).*use MeanField for biases"):
        Linear(3, 2, bias_posterior=MatrixNormal)


def test_he_normal_draws_two_over_fan_in() -> None:
    torch.manual_seed(4)
    for shape, fan_in in (((200, 50), 50), ((100, 5, 2, 5), 50)):
        weight = he_normal(*shape)
        count = weight.numel()
        assert weight.square().mean().item() == pytest.approx(2 / fan_in, rel=5 * math.sqrt(2 / count))
        assert weight.mean().item() == pytest.approx(0, abs=5 * math.sqrt(2 / fan_in / count))
    assert he_normal(2, 3, dtype=torch.float64).dtype == torch.float64


def test_fresh_layers_start_with_he_means_and_zero_bias() -> None:
    torch.manual_seed(5)
    net = Linear(100, 200)
    torch.manual_seed(5)
    assert torch.equal(net.weight.mean(), he_normal(200, 100))
    assert isinstance(net.bias, torch.nn.Parameter)
    assert torch.equal(net.bias, torch.zeros(200))
