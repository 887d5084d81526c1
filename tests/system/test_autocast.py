"""Mixed precision: gradients stay finite and small variances survive float16."""

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

import bayeslim as bl
from bayeslim.gaussian import Gaussian
from bayeslim.posteriors import KTied, MatrixNormal, MeanField
from contracts.cases import each
from contracts.members import POSTERIORS
from contracts.statistics import assert_within
from system.matrix import ESTIMATORS, KINDS, SAMPLING, example, layer

TINY = {
    "MeanField": functools.partial(MeanField, scale=1e-4),
    "MeanField-bounded": functools.partial(MeanField, scale=1e-4, max_scale=1e-3),
    "KTied": functools.partial(KTied, k=2, scale=1e-4),
    "MatrixNormal": functools.partial(MatrixNormal, scale=1e-4),
}
"""Standard deviations whose squares (1e-8) are below the smallest number of float16 (6e-8)."""


def tiny(kind: str, posterior: str) -> bl.layers.BayesLayer:
    torch.manual_seed(0)
    build: Any = KINDS[kind][0]
    return build(4, 6, **KINDS[kind][1], posterior=TINY[posterior], bias=False, estimator=bl.moments)


def exact_variance(module: bl.layers.BayesLayer, x: Tensor) -> Tensor:
    """In float64: for weights without correlation `op(x^2, variance)`."""
    variance = module.weight.variance().double().detach()
    return module.op(x.double().square(), variance)


@each("kind", KINDS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_stay_finite(kind: str, estimator: str, dtype: torch.dtype) -> None:
    module, x = layer(kind, estimator=ESTIMATORS[estimator]), example(kind)
    with torch.autocast("cpu", dtype):
        result: Any = module(x)
        loss = result.loc.sum() + result.variance.sum() if isinstance(result, Gaussian) else result.sum()
    (loss.float() + module.kl()).backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None and parameter.grad.dtype == torch.float32, name
        assert bool(parameter.grad.isfinite().all()), name
    mean = result.loc if isinstance(result, Gaussian) else result
    assert mean.dtype == dtype


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("estimator", ["weight_sample", "local_reparam"])
def test_every_posterior_has_finite_gradients_in_bfloat16(posterior: str, estimator: str) -> None:
    module = layer("Conv2d", posterior=POSTERIORS[posterior], estimator=ESTIMATORS[estimator])
    with torch.autocast("cpu", torch.bfloat16):
        loss = module(example("Conv2d")).sum()
    loss.float().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in module.parameters())


@each("kind", KINDS)
@pytest.mark.parametrize("posterior", TINY)
def test_propagated_variances_survive_float16(kind: str, posterior: str) -> None:
    """Within 1 % at a standard deviation of 1e-4; the naive path is off by a quarter or underflows."""
    module, x = tiny(kind, posterior), example(kind)
    with torch.autocast("cpu", torch.float16), torch.no_grad():
        found = module(x)
    assert isinstance(found, Gaussian)
    assert torch.allclose(found.variance.double(), exact_variance(module, x), rtol=0.01, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_drawn_outputs_have_the_right_variance_in_float16(kind: str) -> None:
    """Around a mean of zero, where float16 itself can show such small outputs."""
    module, x = tiny(kind, "MeanField"), example(kind)
    assert isinstance(module.weight, MeanField)
    with torch.no_grad():
        module.weight.loc.zero_()
    with torch.autocast("cpu", torch.float16), torch.no_grad(), bl.using(module, bl.local_reparam):
        torch.manual_seed(0)
        draws = torch.stack([module(x) for _ in range(1000)]).double()
    variance = exact_variance(module, x)
    seen = variance > 0  # output padding adds positions that no weight reaches
    assert (draws[:, ~seen].abs() < 1e-6).all()
    ratio = draws[:, seen].square() / variance[seen]
    # Every ratio is chi-squared with one degree of freedom: variance 2. All elements are independent.
    assert_within(ratio.mean() - 1, (2 / ratio.numel()) ** 0.5 + 1e-3)


def test_half_precision_parameters_keep_their_variances() -> None:
    """A network converted by `.half()` states its variances in float32."""
    torch.manual_seed(0)
    module = bl.layers.Linear(4, 6, posterior=TINY["MeanField"], bias=False, estimator=bl.moments).half()
    x = example("Linear").half()
    found: Any = module(x)
    assert found.variance.dtype == torch.float32
    assert torch.allclose(found.variance.double(), exact_variance(module, x), rtol=0.01, atol=0)
    assert module.kl().dtype == torch.float32


@pytest.mark.xfail(
    strict=True,
    reason="autocast rounds the sampled weight to float16 before the product: a spacing of 2.4e-4 at 0.5 "
    "drowns a standard deviation of 1e-4; use local_reparam or larger scales",
)
def test_sampled_weights_have_the_right_variance_in_float16() -> None:
    torch.manual_seed(0)
    module = bl.layers.Linear(1, 20_000, posterior=TINY["MeanField"], bias=False, estimator=bl.weight_sample)
    assert isinstance(module.weight, MeanField)
    with torch.no_grad():
        module.weight.loc.fill_(0.5 + 2**-12)
    with torch.autocast("cpu", torch.float16), torch.no_grad():
        draws = module(torch.ones(1, 1)).double()
    ratio = (draws - module.weight.loc.double().T).square() / 1e-8
    assert_within(ratio.mean() - 1, (2 / 20_000) ** 0.5)


@pytest.mark.parametrize("estimator", SAMPLING)
def test_sampling_estimators_agree_with_float32_in_bfloat16(estimator: str) -> None:
    """Moments of 4000 outputs against the closed form, up to the rounding of bfloat16."""
    torch.manual_seed(0)
    module = bl.layers.Linear(
        4, 4000, posterior=functools.partial(MeanField, scale=0.3), bias=False, estimator=SAMPLING[estimator]
    )
    assert isinstance(module.weight, MeanField)
    with torch.no_grad():
        module.weight.loc.fill_(0.25)
    x = example("Linear")
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        draws = module(x).double()
    variance = 0.09 * x.double().square().sum(1)
    mean = 0.25 * x.double().sum(1)
    assert_within(draws.mean(1) - mean, (variance / 4000).sqrt() + 2**-9)
    assert_within(draws.var(1) - variance, variance * (2 / 4000) ** 0.5 + 2**-8 * variance)
