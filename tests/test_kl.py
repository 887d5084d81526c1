"""The KL of a whole network."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim import kl, named_kl
from bayeslim.divergence import kl_divergence
from bayeslim.layers import Conv2d, Linear
from bayeslim.masks import Masked
from bayeslim.posteriors import KTied, MatrixNormal, MeanField, Multiplicative
from bayeslim.priors import ARD, GammaARD, HeNormal, LogUniform, Normal, ScaleMixture, StudentT
from contracts.members import POSTERIORS, over


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        Conv2d(1, 2, 2, prior=LogUniform()),
        nn.Flatten(),
        nn.Linear(8, 4),
        nn.Sequential(Linear(4, 3, prior=ARD(), bias_posterior=MeanField), nn.ReLU()),
        Linear(3, 2),
    )


def test_the_kl_is_the_sum_over_layers() -> None:
    model = network()
    parts = named_kl(model)
    assert list(parts) == ["0", "3.0", "4"]
    for name, value in parts.items():
        layer = model.get_submodule(name)
        assert isinstance(layer, Linear | Conv2d)
        torch.testing.assert_close(value, layer.kl())
    torch.testing.assert_close(kl(model), torch.stack(list(parts.values())).sum())


def test_a_shared_layer_and_a_shared_posterior_count_once() -> None:
    torch.manual_seed(1)
    first, second = Linear(3, 3), Linear(3, 3)
    once = first.kl()
    torch.testing.assert_close(kl(nn.Sequential(first, nn.ReLU(), first)), once)
    second.weight = first.weight
    model = nn.Sequential(first, second)
    torch.testing.assert_close(kl(model), once)
    assert list(named_kl(model)) == ["0"]


def test_a_posterior_shared_in_part_counts_the_rest() -> None:
    torch.manual_seed(2)
    first, second = (Linear(3, 3, bias_posterior=MeanField) for _ in range(2))
    second.weight = first.weight
    parts = named_kl(nn.Sequential(first, second))
    torch.testing.assert_close(parts["0"], first.kl())
    own = second.bias_prior.kl(second.bias.mean(), second.bias.variance()).sum()  # pyright: ignore
    torch.testing.assert_close(parts["1"], own)


@over("model", [nn.Linear(2, 2), nn.Sequential(), nn.ReLU()])
def test_no_bayesian_layer_means_zero(model: nn.Module) -> None:
    assert kl(model).item() == 0
    assert kl(model).shape == ()
    assert named_kl(model) == {}


def test_zero_has_the_dtype_of_the_network() -> None:
    assert kl(nn.Linear(2, 2).double()).dtype == torch.float64


@over("dtype", [torch.bfloat16, torch.float16])
@over("name", POSTERIORS)
def test_half_networks_have_a_float32_kl_with_gradients(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    model = nn.Sequential(Linear(8, 6, posterior=POSTERIORS[name]), nn.ReLU()).to(dtype)
    value = kl(model)
    assert value.dtype == torch.float32
    value.backward()
    for parameter, tensor in model.named_parameters():
        if "weight" in parameter:
            assert tensor.grad is not None
            assert tensor.grad.dtype == (dtype if parameter.endswith("loc") else torch.float32)
            assert bool(tensor.grad.isfinite().all())


def test_a_float16_network_is_close_to_its_float32_self() -> None:
    """Rounding of the means: `eps` of float16. Scales stay as they are."""
    torch.manual_seed(4)
    model = nn.Sequential(Linear(64, 64, prior=ARD()), Linear(64, 8))
    reference = kl(model).item()
    half = kl(model.half()).item()
    assert abs(half - reference) < reference * 10 * torch.finfo(torch.float16).eps


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("posterior", [MeanField, Multiplicative, KTied, MatrixNormal])
def test_kl_is_a_number_at_extreme_scales(posterior: Any, dtype: torch.dtype) -> None:
    priors = [Normal(), HeNormal(), LogUniform(), ARD(), GammaARD(), StudentT(), ScaleMixture()]
    for mean, scale in itertools.product((1e-30, 1e-10, 1.0, 1e10, 1e30), repeat=2):
        if posterior is Multiplicative and mean * scale**0.5 > 1e38:
            continue  # a standard deviation that float32 cannot hold
        name = "alpha" if posterior is Multiplicative else "scale"
        q = posterior(torch.full((3, 2), mean).to(dtype), **{name: scale})
        for prior in priors:
            q.zero_grad()
            divergence = kl_divergence(q, prior)
            assert not divergence.isnan(), (mean, scale, prior)
            if divergence.isfinite():
                divergence.backward()
                assert not any(p.grad is not None and p.grad.isnan().any() for p in q.parameters()), (
                    mean,
                    scale,
                    prior,
                )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("posterior", [MeanField, Multiplicative, KTied])
def test_pruned_weights_do_not_make_the_kl_nan(posterior: Any, dtype: torch.dtype) -> None:
    """As above, with pruned weights and in all types: numbers, and finite gradients wherever the KL is finite."""
    mask = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    priors = [Normal(), Normal(torch.zeros(3, 2)), HeNormal(), LogUniform(), ARD(), GammaARD(), StudentT()]
    for mean, scale in itertools.product((1e-30, 1e-10, 1.0, 1e10, 1e25, 1e30), repeat=2):
        if mean > torch.finfo(dtype).max or (posterior is Multiplicative and mean * scale**0.5 > 1e38):
            continue
        name = "alpha" if posterior is Multiplicative else "scale"
        q = Masked(posterior(torch.full((3, 2), mean).to(dtype), **{name: scale}), mask)
        for prior in [*priors, ScaleMixture()]:
            q.zero_grad()
            divergence = kl_divergence(q, prior)
            divergence.backward()
            gradients = [p.grad for p in q.parameters() if p.grad is not None]
            assert not divergence.isnan(), (mean, scale, prior)
            assert not any(bool(gradient.isnan().any()) for gradient in gradients), (mean, scale, prior)


def test_of_layers_that_share_a_posterior_the_first_ones_prior_counts() -> None:
    torch.manual_seed(4)
    first, second = (Linear(3, 3, prior=Normal(0, std), estimator=bl.weight_sample) for std in (1.0, 0.1))
    second.weight = first.weight
    model, once = nn.Sequential(first, second), first.kl()
    torch.testing.assert_close(kl(model), once)
    x, y = torch.randn(2, 3), torch.tensor([0, 1])
    torch.testing.assert_close(bl.nelbo(model, x, y, likelihood=bl.Categorical(), num_data=2).kl, once)
