"""Looking up rows of a table."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

from bayeslim import weight_sample
from bayeslim.estimators import flipout
from bayeslim.layers import Embedding
from bayeslim.posteriors import MeanField
from bayeslim.priors import ARD
from contracts.members import POSTERIORS, over

INDICES = torch.tensor([[0, 2, 2], [4, 1, 0]])


@over("padding", [None, 1])
def test_a_vanishing_scale_reproduces_the_torch_layer(padding: int | None) -> None:
    torch.manual_seed(0)
    plain = nn.Embedding(5, 4, padding_idx=padding)
    layer = Embedding.from_torch(plain, posterior=functools.partial(MeanField, scale=1e-12))
    for x in (INDICES, INDICES[0], INDICES[0, 0]):
        torch.testing.assert_close(layer(x), plain(x), rtol=1e-6, atol=1e-6)
    assert torch.equal(layer.to_torch()(INDICES), plain(INDICES))


def test_padding_gives_zeros_without_noise() -> None:
    torch.manual_seed(1)
    layer = Embedding(5, 4, padding_idx=2, estimator=weight_sample)
    output = layer(INDICES)
    assert torch.equal(output[INDICES == 2], torch.zeros(2, 4))
    assert bool((output[INDICES != 2] != 0).all())


@over("posterior", POSTERIORS)
def test_every_posterior_trains(posterior: str) -> None:
    torch.manual_seed(2)
    layer = Embedding(5, 4, posterior=POSTERIORS[posterior], prior=ARD())
    (layer(INDICES).square().sum() + layer.kl()).backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in layer.parameters())


def test_flipout_is_refused() -> None:
    with pytest.raises(TypeError, match=r"EmbeddingOp takes indices: use weight_sample or local_reparam"):
        Embedding(5, 4, estimator=flipout)


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
