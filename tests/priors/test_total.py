"""Sums of KLs with closed slopes against the elementwise KL and its derivatives."""

import pytest
import torch
from torch import Tensor

from bayeslim.priors import ARD, GammaARD, HeNormal, LogUniform, Normal, Prior, ScaleMixture, StudentT
from contracts.cases import each

PRIORS: dict[str, Prior] = {
    "normal": Normal(),
    "shifted": Normal(0.4, 0.3),
    "tensor": Normal(torch.linspace(-1, 1, 12, dtype=torch.float64).view(3, 4), 0.5),
    "he": HeNormal(),
    "ard": ARD(),
    "gamma": GammaARD(),
    "broad-gamma": GammaARD(2.0, 0.1),
    "molchanov": LogUniform(),
    "kingma": LogUniform("kingma"),
    "student": StudentT(),
    "mixture": ScaleMixture(),
}


CLOSED = ["normal", "ard", "gamma", "broad-gamma", "molchanov", "kingma"]
"""Those whose slopes are written out."""


def parameters() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(3, 4, dtype=torch.float64, generator=generator)
    log_std = torch.randn(3, 4, dtype=torch.float64, generator=generator) - 1
    return mean.requires_grad_(), log_std.requires_grad_()


@pytest.mark.parametrize("name", PRIORS)
def test_value_and_slopes(name: str) -> None:
    prior, (mean, log_std) = PRIORS[name], parameters()
    found, expected = prior.total(mean, log_std), prior.kl(mean, (2 * log_std).exp()).sum()
    torch.testing.assert_close(found, expected)
    slopes = torch.autograd.grad(3 * found, (mean, log_std))
    torch.testing.assert_close(slopes, torch.autograd.grad(3 * expected, (mean, log_std)))


@pytest.mark.parametrize("name", ["normal", "shifted", "he", "mixture"])
def test_value_and_slopes_in_compiled_code(name: str) -> None:
    """Which sums normal priors in one loop."""
    prior, (mean, log_std) = PRIORS[name], parameters()
    found = torch.compile(prior.total, backend="aot_eager", fullgraph=True)(mean, log_std)
    expected = prior.kl(mean, (2 * log_std).exp()).sum()
    torch.testing.assert_close(found, expected)
    slopes = torch.autograd.grad(3 * found, (mean, log_std))
    torch.testing.assert_close(slopes, torch.autograd.grad(3 * expected, (mean, log_std)))


@pytest.mark.parametrize("name", CLOSED)
def test_of_many_networks_at_once(name: str) -> None:
    prior, (mean, log_std) = PRIORS[name], parameters()
    found = torch.vmap(torch.func.grad(prior.total, argnums=(0, 1)))(mean, log_std)
    alone = [torch.func.grad(prior.total, argnums=(0, 1))(m, s) for m, s in zip(mean, log_std, strict=True)]
    torch.testing.assert_close(found, tuple(torch.stack(part) for part in zip(*alone, strict=True)))


@each("name", CLOSED)
@each("log_scale", [-800.0, -69.0, 0.0, 44.0])
@each("size", [0.0, 1e-30, 1.0, 1e15])
def test_extremes_stay_finite(name: str, log_scale: float, size: float) -> None:
    mean, log_std = torch.full((2,), size, requires_grad=True), torch.full((2,), log_scale, requires_grad=True)
    total = PRIORS[name].total(mean, log_std)
    total.backward()
    assert total.isfinite() and mean.grad is not None and log_std.grad is not None
    assert mean.grad.isfinite().all() and log_std.grad.isfinite().all()


@pytest.mark.parametrize("name", CLOSED)
def test_second_derivatives_are_refused_not_wrong(name: str) -> None:
    mean, log_std = parameters()
    with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
        torch.autograd.grad(PRIORS[name].total(mean, log_std), log_std, create_graph=True)


@pytest.mark.parametrize("name", CLOSED)
def test_hessians_by_function_transforms(name: str) -> None:
    prior, (mean, log_std) = PRIORS[name], parameters()
    found, expected = (
        torch.func.hessian(function, argnums=(0, 1))(mean[0], log_std[0])
        for function in (prior.total, lambda m, s: prior.kl(m, (2 * s).exp()).sum())
    )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", ["ard", "molchanov", "kingma"])
def test_no_slope_where_means_count_as_the_smallest_one(name: str) -> None:
    mean = torch.tensor([5e-9, -1e-12, 0.0, 2e-8], dtype=torch.float64, requires_grad=True)
    log_std = torch.full((4,), -19.0, dtype=torch.float64)
    found = torch.autograd.grad(PRIORS[name].total(mean, log_std), mean)
    expected = torch.autograd.grad(PRIORS[name].kl(mean, (2 * log_std).exp()).sum(), mean)
    torch.testing.assert_close(found, expected)
    assert found[0][:3].abs().max() == 0 and found[0][3] != 0
