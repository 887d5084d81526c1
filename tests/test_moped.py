"""Priors and posteriors centred on a trained network."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from bayeslim import Categorical, bayesianize_, fit, kl, layers, load, moped, param_groups, save
from bayeslim.posteriors import MeanField
from bayeslim.priors import Normal

DELTA, STD = 0.2, 0.5


def trained() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(2, 3, 2), nn.Flatten(), nn.ReLU(), nn.Linear(9, 4))


def converted(net: nn.Module | None = None) -> Any:
    return bayesianize_(trained() if net is None else net, **moped(DELTA, STD))


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(32, 2, 4, generator=generator)
    return x, torch.randint(4, (32,), generator=generator)


def test_scales_are_a_part_of_the_weights_and_the_prior_sits_on_them() -> None:
    plain, model = trained(), converted()
    for index in (0, 3):
        layer, weight = model[index], cast(Any, plain[index]).weight
        assert isinstance(layer.weight, MeanField) and isinstance(layer.prior, Normal)
        assert torch.equal(layer.weight.loc, weight)
        torch.testing.assert_close(layer.weight.variance().sqrt(), DELTA * weight.abs())
        assert isinstance(layer.prior.mean, Tensor) and torch.equal(layer.prior.mean, weight)
        assert layer.prior.std == STD
        assert layer.prior.mean.data_ptr() != layer.weight.loc.data_ptr()
    # At the start the means add nothing: only the widths differ.
    scale = DELTA * torch.cat([cast(Any, plain[index]).weight.flatten() for index in (0, 3)]).abs()
    expected = ((STD / scale).log() + scale.square() / (2 * STD**2) - 0.5).sum()
    torch.testing.assert_close(kl(model), expected)


def test_weights_of_zero_have_a_small_positive_scale() -> None:
    plain = nn.Linear(4, 3)
    with torch.no_grad():
        plain.weight[0, 0] = 0.0
    magnitude = plain.weight.detach().abs().mean()
    scale = converted(plain).weight.variance().sqrt()
    torch.testing.assert_close(scale[0, 0], DELTA * 1e-3 * magnitude)
    nothing = converted(nn.Linear(4, 3).requires_grad_(False))
    assert bool((nothing.weight.variance() > 0).all())
    nn.init.zeros_(plain.weight)
    torch.testing.assert_close(converted(plain).weight.variance().sqrt(), torch.full((3, 4), DELTA * 1e-3))


def test_every_kind_of_layer_takes_it() -> None:
    torch.manual_seed(2)
    net = nn.ModuleDict(
        {
            "up": nn.ConvTranspose2d(4, 6, 3, groups=2),
            "table": nn.Embedding(5, 4, padding_idx=0),
            "lstm": nn.LSTM(3, 4),
            "attention": nn.MultiheadAttention(4, 2),
        }
    )
    model = converted(net.double())
    found = [module for module in model.modules() if isinstance(module, layers.BayesLayer)]
    assert len(found) == 8
    for layer in found:
        mean: Any = layer.prior.mean
        assert torch.equal(mean, layer.weight.mean())
        assert mean.dtype == torch.float64
        ratio = (layer.weight.variance().sqrt() / mean.abs())[mean != 0]
        # The smallest weights have the floor: a thousandth of the average.
        assert bool((ratio >= DELTA * (1 - 1e-9)).all()) and ratio.median().item() == pytest.approx(DELTA)


def test_it_serves_biases_too() -> None:
    options = moped(DELTA, STD)
    layer = cast(Any, bayesianize_(nn.Linear(4, 3), **options, bias_posterior=options["posterior"]))
    assert torch.equal(layer.bias_prior.mean, layer.bias.loc)
    torch.testing.assert_close(layer.bias.variance().sqrt(), DELTA * layer.bias.loc.abs())


def test_the_prior_does_not_follow_the_posterior() -> None:
    model, plain = converted(), trained()
    optimizer = torch.optim.SGD(param_groups(model), 0.1)
    x, y = data()
    for _ in range(3):
        optimizer.zero_grad()
        (nn.functional.cross_entropy(model(x), y) + kl(model) / len(x)).backward()
        optimizer.step()
    for index in (0, 3):
        weight = cast(Any, plain[index]).weight
        assert torch.equal(model[index].prior.mean, weight)
        assert not torch.equal(model[index].weight.loc, weight)
    assert not any(parameter is model[0].prior.mean for parameter in model.parameters())


def test_the_checkpoint_holds_the_prior(tmp_path: Path) -> None:
    model, file = converted(), tmp_path / "net.safetensors"
    fit(model, data(), num_data=32, epochs=2, likelihood=Categorical(), seed=0, progress=False)
    assert {"0.prior.mean", "3.prior.mean"} <= set(model.state_dict())
    save(model, file)
    torch.manual_seed(5)
    other = copy.deepcopy(model)
    for parameter in (*other.parameters(), *other.buffers()):
        nn.init.normal_(parameter)
    built, filled = load(file), load(file, other)
    assert filled is other
    for again in (cast(Any, built), cast(Any, filled)):
        torch.testing.assert_close(kl(again), kl(model), rtol=0, atol=0)
        assert torch.equal(again[0].prior.mean, cast(Any, trained()[0]).weight)
        assert again[0].prior.std == STD


@pytest.mark.parametrize("delta", [0.0, -1.0, float("nan"), float("inf")])
def test_a_part_that_is_no_part_is_refused(delta: float) -> None:
    with pytest.raises(ValueError, match=r"`delta` must be positive, got .*: pass e.g. 0.1"):
        moped(delta)


def test_the_default_prior_has_standard_deviation_one() -> None:
    assert cast(Any, bayesianize_(nn.Linear(2, 2), **moped())).prior.std == 1.0
