"""Looking up rows of a table."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from bayeslim import bayesianize_, collapse_, kl, local_reparam, mean_only, moments, using, weight_sample
from bayeslim.estimators import clipped_reparam, flipout
from bayeslim.gaussian import Gaussian
from bayeslim.layers import Embedding
from bayeslim.posteriors import MeanField
from bayeslim.priors import ARD, Normal
from contracts.members import POSTERIORS, over, perturbed
from contracts.statistics import assert_gaussian_moments, draws
from contracts.vanishing import check_vanishing

INDICES = torch.tensor([[0, 2, 2], [4, 1, 0]])


@over("padding", [None, 1])
def test_a_vanishing_scale_reproduces_the_torch_layer(padding: int | None) -> None:
    torch.manual_seed(0)
    plain = nn.Embedding(5, 4, padding_idx=padding)
    layer = Embedding.from_torch(plain, posterior=functools.partial(MeanField, scale=1e-12))
    for x in (INDICES, INDICES[0], INDICES[0, 0]):
        torch.testing.assert_close(layer(x), plain(x), rtol=1e-6, atol=1e-6)
    assert torch.equal(layer.to_torch()(INDICES), plain(INDICES))


@over("padding", [None, 1, -1])
def test_conversion_and_back(padding: int | None) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Embedding(5, 4, padding_idx=padding))
    for x in (INDICES, INDICES[0], INDICES[0, 0]):
        check_vanishing(plain, x)
        check_vanishing(plain, x, estimator=local_reparam)


@over("estimator", [weight_sample, local_reparam, clipped_reparam, mean_only, moments])
def test_padding_gives_zeros_without_noise(estimator: Callable[..., Any]) -> None:
    torch.manual_seed(1)
    layer = Embedding(5, 4, padding_idx=2, estimator=estimator)
    with torch.no_grad():
        layer.weight.get_parameter("loc").add_(1.0)  # also where the posterior's row has moved
    output: Any = layer(INDICES)
    if isinstance(output, Gaussian):
        assert torch.equal(output.variance[INDICES == 2], torch.zeros(2, 4))
        assert bool((output.variance[INDICES != 2] > 0).all())
        output = output.loc
    assert torch.equal(output[INDICES == 2], torch.zeros(2, 4))
    assert bool((output[INDICES != 2] != 0).all())
    output.square().sum().backward()
    for parameter in layer.parameters():
        assert parameter.grad is None or not parameter.grad[2].any()


def test_a_padding_row_that_the_prior_moved_is_zero_again_after_collapsing() -> None:
    torch.manual_seed(1)
    model: Any = bayesianize_(nn.Sequential(nn.Embedding(5, 4, padding_idx=2)), prior=Normal(0.5, 0.1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    kl(model).backward()
    optimizer.step()
    with using(model, mean_only):
        expected = model(INDICES)
    assert bool(model[0].weight.loc[2].any())
    assert torch.equal(collapse_(model)(INDICES), expected)


@over("posterior", POSTERIORS)
@over("estimator", [weight_sample, local_reparam])
def test_rows_have_the_moments_of_their_posterior(posterior: str, estimator: Callable[..., Any]) -> None:
    layer = Embedding(5, 4, padding_idx=1, dtype=torch.float64, estimator=estimator)
    layer.weight = perturbed(posterior, (5, 4))
    mean, variance = (part.detach().clone() for part in (layer.weight.mean(), layer.weight.variance()))
    mean[1] = variance[1] = 0.0
    samples = draws(lambda: layer(INDICES), 4000, seed=2)
    assert_gaussian_moments(samples, mean[INDICES], variance[INDICES])


def test_a_repeated_token_is_one_vector_where_weights_are_drawn() -> None:
    torch.manual_seed(3)
    layer, x = Embedding(5, 4, posterior=functools.partial(MeanField, scale=0.3)), torch.tensor([[3, 1, 3], [0, 3, 0]])
    with using(layer, weight_sample):
        rows = layer(x)[x == 3]
        assert torch.equal(rows, rows[:1].expand(3, 4))
    rows = layer(x)[x == 3]  # by local reparameterisation every place has noise of its own
    assert len({tuple(row.tolist()) for row in rows}) == 3


@over("posterior", POSTERIORS)
def test_every_posterior_trains(posterior: str) -> None:
    torch.manual_seed(2)
    layer = Embedding(5, 4, posterior=POSTERIORS[posterior], prior=ARD())
    (layer(INDICES).square().sum() + layer.kl()).backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in layer.parameters())


def test_flipout_is_refused() -> None:
    message = r"EmbeddingOp takes indices: use weight_sample or local_reparam"
    with pytest.raises(TypeError, match=message):
        Embedding(5, 4, estimator=flipout)
    layer = Embedding(5, 4)
    with pytest.raises(TypeError, match=message), using(layer, flipout):
        pass
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 4))
    with pytest.raises(TypeError, match=message):
        bayesianize_(model, estimator=flipout)
    assert type(model[0]) is nn.Embedding
    bayesianize_(model, overrides={"1": {"estimator": flipout}})


@over("option", [{"max_norm": 1.0}, {"scale_grad_by_freq": True}, {"sparse": True}])
def test_options_without_a_counterpart_are_refused(option: dict[str, bool | float]) -> None:
    with pytest.raises(ValueError, match=rf"an nn.Embedding with `{next(iter(option))}` cannot be converted"):
        Embedding.from_torch(nn.Embedding(5, 4, **option))  # pyright: ignore[reportArgumentType]


def test_a_padding_row_that_is_not_zero_is_refused() -> None:
    plain = nn.Embedding(5, 4, padding_idx=1)
    with torch.no_grad():
        plain.weight[1] = 1.0
    with pytest.raises(ValueError, match="row 1 of the nn.Embedding is padding but not zero"):
        Embedding.from_torch(plain)


def test_without_storage_the_padding_row_is_taken_for_zero() -> None:
    plain = nn.Embedding(5, 4, padding_idx=1, device="meta")
    layer = Embedding.from_torch(plain)
    assert layer.weight.mean().is_meta and layer.to_torch().weight.is_meta
