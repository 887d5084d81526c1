"""Parameter groups: what is decayed, and at which rate each part learns."""

import functools
from typing import Any

import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim.likelihoods import Gaussian
from bayeslim.optim.param_groups import merged, param_groups
from bayeslim.priors import Normal, Prior
from contracts.cases import each
from contracts.members import LAYERS, POSTERIORS


class LearnedPrior(Prior):
    """A prior with parameters of its own, one of them a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.log_std = nn.Parameter(torch.zeros(4, 3))
        self.shift = nn.Parameter(torch.zeros(()))

    def kl(self, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        return Normal(0.0, 1.0).kl(mean - self.shift, variance) * torch.exp(self.log_std)

    def config(self) -> dict[str, Any]:
        return {}


def mixed() -> nn.Sequential:
    """Plain and Bayesian layers, a posterior over a bias, a norm and a prior that learns."""
    return nn.Sequential(
        nn.Linear(5, 3),
        nn.LayerNorm(3),
        bl.layers.Linear(3, 4, prior=LearnedPrior(), bias_posterior=bl.posteriors.MeanField, bias_prior=Normal()),
        nn.Conv1d(4, 4, 1),
    )


def names(model: nn.Module, groups: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Names of the parameters of each group; fails if one is missing or in two."""
    known = {parameter: name for name, parameter in model.named_parameters()}
    found = {group["name"]: sorted(known[p] for p in group["params"]) for group in groups}
    assert sorted(name for group in found.values() for name in group) == sorted(known.values())
    return found


def test_every_parameter_is_in_its_group() -> None:
    model = mixed()
    assert names(model, bl.param_groups(model)) == {
        "weights": ["0.weight", "3.weight"],
        "plain": ["0.bias", "1.bias", "1.weight", "2.prior.log_std", "2.prior.shift", "3.bias"],
        "means": ["2.bias.loc", "2.weight.loc"],
        "scales": ["2.bias.log_scale", "2.weight.log_scale"],
    }


@each("posterior", POSTERIORS)
@each("kind", LAYERS)
def test_scales_of_every_posterior_and_layer(posterior: str, kind: type[bl.layers.BayesLayer]) -> None:
    options: dict[str, Any] = {} if kind is bl.layers.Linear else {"kernel_size": 2}
    build: Any = kind
    layer: bl.layers.BayesLayer = build(4, 4, **options, posterior=POSTERIORS[posterior])
    found = names(layer, bl.param_groups(layer))
    assert found["means"] == ["weight.loc"]
    assert found["scales"] == sorted(f"weight.{name}" for name in layer.weight.scale_parameters)
    assert found["plain"] == ["bias"] and "weights" not in found


def test_rates_and_decay() -> None:
    groups = {g["name"]: g for g in bl.param_groups(mixed(), lr=0.1, scale_lr=0.5, weight_decay=0.2)}
    assert {name: group["lr"] for name, group in groups.items()} == {
        "weights": 0.1,
        "plain": 0.1,
        "means": 0.1,
        "scales": 0.5,
    }
    assert {name: group["weight_decay"] for name, group in groups.items()} == {
        "weights": 0.2,
        "plain": 0.0,
        "means": 0.0,
        "scales": 0.0,
    }


def test_defaults_leave_the_rate_to_the_optimiser() -> None:
    groups = bl.param_groups(mixed())
    assert not any("lr" in group for group in groups)
    optimizer = torch.optim.AdamW(groups, lr=0.3)
    assert all(group["lr"] == 0.3 and group["weight_decay"] == 0 for group in optimizer.param_groups)
    only_scales = {g["name"]: g.get("lr") for g in bl.param_groups(mixed(), scale_lr=0.7)}
    assert only_scales == {"weights": None, "plain": None, "means": None, "scales": 0.7}


def test_no_decay_given_leaves_the_optimisers_own_to_plain_weights() -> None:
    optimizer = torch.optim.AdamW(bl.param_groups(mixed(), weight_decay=None), weight_decay=0.25)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.25, 0.0, 0.0, 0.0]


def test_a_step_of_adamw_decays_plain_weights_only() -> None:
    """Without a gradient only decay moves a parameter."""
    model = mixed()
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    optimizer = torch.optim.AdamW(bl.param_groups(model, lr=0.1, weight_decay=0.5))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, value in model.named_parameters():
        factor = 1 - 0.1 * 0.5 if name in ("0.weight", "3.weight") else 1.0
        assert torch.allclose(value, before[name] * factor, rtol=1e-6, atol=0), name


def test_shared_and_frozen_parameters() -> None:
    shared = bl.layers.Linear(3, 3)
    model = nn.Sequential(shared, nn.ReLU(), shared, nn.Linear(3, 3))
    plain = model[3]
    assert isinstance(plain, nn.Linear)
    plain.weight.requires_grad_(False)
    groups = bl.param_groups(model)
    assert [group["name"] for group in groups] == ["plain", "means", "scales"]
    members = [p for group in groups for p in group["params"]]
    assert len(members) == len({id(p) for p in members}) == 4
    torch.optim.SGD(groups, lr=0.1)  # torch itself refuses a parameter that is listed twice


def test_empty_groups_are_absent() -> None:
    assert [g["name"] for g in bl.param_groups(nn.Linear(2, 2))] == ["weights", "plain"]
    assert [g["name"] for g in bl.param_groups(Gaussian(learn_noise=True))] == ["plain"]
    assert bl.param_groups(nn.ReLU()) == []


def test_negative_decay_is_refused() -> None:
    with pytest.raises(ValueError, match="`weight_decay` must not be negative, got -0.1"):
        bl.param_groups(nn.Linear(2, 2), weight_decay=-0.1)


def test_fit_passes_its_rates_on() -> None:
    seen: list[dict[str, Any]] = []

    def spy(groups: list[dict[str, Any]], **options: Any) -> torch.optim.Optimizer:
        seen.extend({key: value for key, value in group.items() if key != "params"} for group in groups)
        return torch.optim.AdamW(groups, **options)

    model = nn.Sequential(nn.Linear(3, 3), bl.layers.Linear(3, 2))
    data = torch.randn(8, 3), torch.randint(2, (8,))
    own = functools.partial(spy, lr=0.05, weight_decay=0.1)
    history = bl.fit(model, data, likelihood=bl.Categorical(), epochs=1, optimizer=own, scale_lr=0.2, seed=0)
    assert history["lr"] == [0.05]
    # What a group leaves open is the optimiser's own.
    assert [(group["name"], group.get("lr"), group.get("weight_decay")) for group in seen] == [
        ("weights", None, None),
        ("plain", None, 0.0),
        ("means", None, 0.0),
        ("scales", 0.2, 0.0),
    ]


def test_groups_that_differ_in_name_alone_are_merged() -> None:
    model = bl.mlp([3, 4, 2], method="ard")
    (only,) = merged(param_groups(model))
    assert only["name"] == "plain, means, scales" and len(only["params"]) == 6
    flat = [parameter for group in param_groups(model) for parameter in group["params"]]
    assert all(a is b for a, b in zip(only["params"], flat, strict=True))
    apart = merged(param_groups(model, lr=0.1, scale_lr=0.2))
    assert [(group["name"], group["lr"]) for group in apart] == [("plain, means", 0.1), ("scales", 0.2)]
