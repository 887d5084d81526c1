"""Turning plain networks into Bayesian ones."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from bayeslim import bayesianize_, kl, layers, mean_only, using, weight_sample
from bayeslim.convert import CONVERTERS
from bayeslim.posteriors import KTied, MatrixNormal, MeanField
from bayeslim.priors import ARD, Normal
from contracts.members import INDEX_LAYERS, LAYERS


class Branches(nn.Module):
    """A network whose layers are nested and shared."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU())
        self.heads = nn.ModuleDict({"a": nn.Linear(8, 8), "b": nn.Linear(8, 3)})
        self.again = self.heads["a"]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.stem(x).flatten(1)
        return self.heads["b"](self.again(self.heads["a"](hidden).relu()))


def trained() -> tuple[Branches, torch.Tensor]:
    torch.manual_seed(0)
    return Branches().eval(), torch.randn(3, 1, 4, 4)


def test_every_layer_is_replaced_and_the_means_are_the_weights() -> None:
    model, x = trained()
    before = model(x)
    assert bayesianize_(model) is model
    assert type(model.stem[0]) is layers.Conv2d
    assert type(model.stem[1]) is nn.BatchNorm2d
    assert type(model.heads["b"]) is layers.Linear
    with using(model, mean_only):
        torch.testing.assert_close(model(x), before, rtol=0, atol=0)


def test_a_module_in_two_places_stays_one_module() -> None:
    model, _ = trained()
    bayesianize_(model)
    assert type(model.again) is layers.Linear
    assert model.again is model.heads["a"]


def test_only_exact_types_are_converted() -> None:
    class Custom(nn.Linear):
        """Its forward may do anything, so it is left alone."""

    model = bayesianize_(nn.Sequential(Custom(2, 2), nn.Linear(2, 4)))
    assert isinstance(model, nn.Sequential)
    assert [type(child) for child in model] == [Custom, layers.Linear]


def test_where_chooses_by_name_and_module() -> None:
    model, _ = trained()
    seen: list[tuple[str, str]] = []

    def where(name: str, module: nn.Module) -> bool:
        seen.append((name, type(module).__name__))
        return name != "heads.b"

    bayesianize_(model, where=where)
    assert seen == [("stem.0", "Conv2d"), ("heads.a", "Linear"), ("heads.b", "Linear"), ("again", "Linear")]
    assert type(model.heads["b"]) is nn.Linear
    assert type(model.heads["a"]) is layers.Linear


def test_nothing_to_convert_is_an_error_that_says_what_was_seen() -> None:
    for model, where in (
        (nn.Sequential(nn.ReLU(), nn.LayerNorm(2)), lambda name, module: True),
        (nn.Sequential(nn.ReLU(), nn.LayerNorm(2), nn.Linear(2, 2)), lambda name, module: False),
    ):
        message = r"no layer of `model` was converted: it holds LayerNorm, .*ReLU.*convertible are Linear, Conv1d"
        with pytest.raises(ValueError, match=message):
            bayesianize_(model, where=where)


def test_a_converted_network_has_nothing_left_to_convert() -> None:
    model = bayesianize_(nn.Sequential(nn.Linear(2, 2)))
    with pytest.raises(ValueError, match=r"it holds .*Linear.*MeanField"):
        bayesianize_(model)


def test_the_training_flag_of_every_layer_is_kept() -> None:
    model, _ = trained()
    model.train()
    model.heads["a"].eval()
    bayesianize_(model)
    assert model.heads["b"].training
    assert not model.heads["a"].training
    assert all(not module.training for module in model.heads["a"].modules())


def test_a_refused_pair_leaves_the_network_untouched() -> None:
    """The second layer cannot have rank 3."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    with pytest.raises(ValueError, match="`k` must be between 1 and"):
        bayesianize_(model, posterior=functools.partial(KTied, k=3))
    assert [type(child) for child in model] == [nn.Linear, nn.Linear]


def test_every_option_reaches_the_layers() -> None:
    model, _ = trained()
    bayesianize_(
        model,
        posterior=MatrixNormal,
        prior=ARD(),
        estimator=weight_sample,
        bias_posterior=functools.partial(MeanField, scale=0.3),
        bias_prior=Normal(0.0, 2.0),
    )
    for layer in (model.stem[0], model.heads["a"], model.heads["b"]):
        assert isinstance(layer, layers.BayesLayer)
        assert isinstance(layer.weight, MatrixNormal)
        assert isinstance(layer.prior, ARD)
        assert layer.estimator is weight_sample
        assert isinstance(layer.bias, MeanField)
        torch.testing.assert_close(layer.bias.variance(), torch.full_like(layer.bias.mean(), 0.09))
        assert layer.bias_prior.config() == {"mean": 0.0, "std": 2.0}


def test_dtype_is_kept() -> None:
    model = bayesianize_(nn.Sequential(nn.Linear(2, 2)).double())
    assert all(parameter.dtype == torch.float64 for parameter in model.parameters())


def test_every_kind_has_a_converter() -> None:
    assert {*LAYERS.values(), *INDEX_LAYERS.values()} <= set(CONVERTERS)


def test_tied_weights_become_one_posterior() -> None:
    torch.manual_seed(1)
    table, head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
    head.weight = table.weight
    model = bayesianize_(nn.Sequential(table, head))
    assert isinstance(model, nn.Sequential)
    first, second = model
    assert isinstance(first, layers.Embedding)
    assert isinstance(second, layers.Linear)
    assert first.weight is second.weight
    torch.testing.assert_close(kl(model), first.kl())


def test_a_weight_tied_to_a_layer_that_stays_is_refused() -> None:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    model = nn.Sequential(first, second)
    with pytest.raises(ValueError, match=r"layers '0', '1' share a parameter"):
        bayesianize_(model, where=lambda name, module: name == "0")
    assert [type(child) for child in model] == [nn.Linear, nn.Linear]


def test_computed_and_missing_weights_are_refused() -> None:
    normed = parametrizations.weight_norm(nn.Linear(3, 3))
    with pytest.raises(ValueError, match=r"the weight of layer '0' is computed from other parameters"):
        bayesianize_(nn.Sequential(normed))
    with pytest.raises(ValueError, match=r"has no shape yet: run one batch through the network"):
        bayesianize_(nn.Sequential(nn.Linear(2, 2), nn.LazyLinear(3)))


def test_overrides_change_single_layers() -> None:
    model, _ = trained()
    bayesianize_(model, prior=ARD(), overrides={"heads.b": {"prior": Normal(0.0, 0.1), "posterior": MatrixNormal}})
    first, second = model.heads["a"], model.heads["b"]
    assert isinstance(first, layers.Linear)
    assert isinstance(second, layers.Linear)
    assert isinstance(first.prior, ARD)
    assert second.prior.config() == {"mean": 0.0, "std": 0.1}
    assert isinstance(second.weight, MatrixNormal)
    with pytest.raises(ValueError, match=r"`overrides` names no layer of `model`: heads.c"):
        bayesianize_(trained()[0], overrides={"heads.c": {}})


def test_a_prior_can_be_built_from_the_weight() -> None:
    model = bayesianize_(nn.Linear(3, 2), prior=lambda weight: Normal(weight, 1.0))
    assert isinstance(model, layers.Linear)
    expected = Normal(0.0, 1.0).kl(torch.zeros(2, 3), model.weight.variance()).sum()
    torch.testing.assert_close(model.kl(), expected)


def test_hooks_and_frozen_parameters_are_kept() -> None:
    calls: list[str] = []
    layer = nn.Linear(3, 2).requires_grad_(False)
    layer.register_forward_hook(lambda module, args, output: calls.append(type(module).__name__))
    model = bayesianize_(nn.Sequential(layer, nn.Linear(2, 2)))
    model(torch.zeros(1, 3))
    assert calls == ["Linear"]
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert frozen == {"0.weight.loc", "0.weight.log_scale", "0.bias"}
