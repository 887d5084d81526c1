"""Outputs drawn jointly have the distribution that drawn weights give them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bayeslim as bl
from bayeslim.layers import Linear
from bayeslim.masks import Masked
from bayeslim.posteriors import KTied, MeanField, Multiplicative
from bayeslim.posteriors.base import Posterior
from bayeslim.predictive.draws import JointOutputs, Unplanned, pays
from contracts.statistics import assert_covariance, assert_mean, draws

MeanField03 = functools.partial(MeanField, scale=0.3)


def pruned(init: Tensor) -> Masked:
    """One weight of the first output stays, all of the second are pruned, the rest stay."""
    mask = torch.ones_like(init)
    mask[0, 1:] = mask[1] = 0
    return Masked(MeanField(init, scale=0.3), mask)


POSTERIORS = {
    "mean field": MeanField03,
    "multiplicative": functools.partial(Multiplicative, alpha=0.5),
    "k-tied": functools.partial(KTied, k=2, scale=0.3),
    "pruned": pruned,
}
BIASES: dict[str, dict[str, Any]] = {
    "no bias": {"bias": False},
    "point": {},
    "posterior": {"bias_posterior": MeanField03},
}


def linear(posterior: Callable[..., Any] = MeanField03, seed: int = 0, **options: Any) -> Linear:
    """4 features, 3 outputs, scales that differ from weight to weight, float64."""
    torch.manual_seed(seed)
    layer = Linear(4, 3, posterior=posterior, estimator=bl.weight_sample, **options).double()
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if "log_" in name:
                parameter += 0.5 * torch.randn_like(parameter)
    return layer


def inputs(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def joint(layer: Linear, x: Tensor, count: int = 1) -> tuple[JointOutputs, Tensor]:
    """What draws the outputs for `x`, and the outputs of so many networks side by side."""
    outputs = JointOutputs(layer, x.shape[:-1].numel())

    def run(noise: Tensor) -> Tensor:
        outputs.hold(noise)
        return outputs(layer.weight, layer.op, x, layer.bias)

    return outputs, torch.vmap(run)(outputs.draw(count))


@torch.no_grad()
def single(layer: Linear, x: Tensor) -> Tensor:
    """The outputs of one network by itself."""
    outputs = JointOutputs(layer, x.shape[:-1].numel())
    outputs.hold(outputs.draw(1)[0])
    return outputs(layer.weight, layer.op, x, layer.bias)


def exact_moments(layer: Linear, x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (N, out) and covariance (N out, N out), from the covariance of all weights as one vector."""
    rows, out = len(x), len(layer.weight.mean())
    mean, _ = layer.mean_tensors()
    jacobian = torch.stack([torch.kron(torch.eye(out, dtype=x.dtype), row) for row in x]).flatten(0, 1)
    covariance = jacobian @ layer.weight.variance().flatten().diag() @ jacobian.T
    mean = x @ mean.T
    if isinstance(layer.bias, Posterior):
        mean = mean + layer.bias.mean()
        covariance = covariance + torch.kron(torch.ones(rows, rows, dtype=x.dtype), layer.bias.variance().diag())
    elif layer.bias is not None:
        mean = mean + layer.bias
    return mean.detach(), covariance.detach()


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("rows", [1, 3, 6])  # 6 vectors of 4 features depend on each other
def test_factors_give_the_exact_covariance(posterior: str, bias: str, rows: int) -> None:
    layer, x = linear(POSTERIORS[posterior], **BIASES[bias]), inputs(rows, 4)
    found, _ = joint(layer, x)
    mean, covariance = exact_moments(layer, x)
    torch.testing.assert_close(found.mean, mean)
    blocks = covariance.view(rows, 3, rows, 3).diagonal(dim1=1, dim2=3).permute(2, 0, 1)
    torch.testing.assert_close(found.factors @ found.factors.mT, blocks)


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("posterior", POSTERIORS)
def test_draws_have_the_joint_distribution_of_drawn_weights(posterior: str, bias: str) -> None:
    """All covariances over examples and outputs, side by side and one by one; the last example repeats the first."""
    layer, x = linear(POSTERIORS[posterior], **BIASES[bias]), inputs(3, 4)[[0, 1, 2, 0]]
    mean, covariance = exact_moments(layer, x)
    torch.manual_seed(2)
    many = joint(layer, x, 20_000)[1]
    for samples in (many, draws(lambda: single(layer, x), 20_000, seed=3), draws(lambda: layer(x), 20_000, seed=4)):
        assert samples.shape == (20_000, 4, 3)
        assert_mean(samples, mean)
        assert_covariance(samples, mean, covariance)
        torch.testing.assert_close(samples[:, 3], samples[:, 0])


def test_inputs_of_several_axes_are_rows() -> None:
    layer, x = linear(), inputs(2, 3, 4)
    found, drawn = joint(layer, x, 7)
    assert drawn.shape == (7, 2, 3, 3)
    torch.testing.assert_close(found.mean, exact_moments(layer, x.flatten(0, 1))[0].view(2, 3, 3))
    torch.testing.assert_close(found.factors, joint(layer, x.flatten(0, 1))[0].factors)
    assert joint(layer, x[0, 0], 7)[1].shape == (7, 3)


def test_without_variance_the_outputs_are_the_mean() -> None:
    """Inputs of zeros, pruned outputs and scales of zero: exactly, and without NaN."""
    x = inputs(3, 4)
    x[1] = 0
    layer = linear(pruned)
    _, found = joint(layer, x, 50)
    assert isinstance(layer.bias, Tensor)
    assert torch.equal(found[:, 1], layer.bias.detach().expand(50, 3))
    assert torch.equal(found[:, :, 1], layer.bias[1].detach().expand(50, 3))
    assert (found[:, [0, 2]][..., [0, 2]].std(0) > 0).all()
    certain = linear()
    assert isinstance(certain.weight, MeanField)
    certain.weight.set_scale_(0.0)
    outputs, found = joint(certain, x, 50)
    assert torch.equal(found, outputs.mean.expand(50, 3, 3))


def test_means_and_factors_are_those_of_the_inputs_at_hand() -> None:
    """What networks share is computed once, and again for other inputs; a second use and other rows are noticed."""
    layer = linear()
    outputs = JointOutputs(layer, 2)
    noise = outputs.draw(1)[0]
    for x in (inputs(2, 4), inputs(2, 4), inputs(4, 4)[2:]):
        outputs.hold(noise)
        with torch.no_grad():
            outputs(layer.weight, layer.op, x, layer.bias)
        torch.testing.assert_close(outputs.factors, joint(layer, x)[0].factors)
    with pytest.raises(Unplanned):
        outputs(layer.weight, layer.op, inputs(2, 4), layer.bias)
    outputs.hold(noise)
    with pytest.raises(Unplanned):
        outputs(layer.weight, layer.op, inputs(3, 4), layer.bias)


def test_a_small_difference_between_inputs_keeps_its_variance() -> None:
    """`Var[y_2 - y_1] = sum_k d_k^2 Var[W_k]` for `x_2 = x_1 + d`, also in float32, where it is 1e-8 of `Var[y]`."""
    layer = linear(bias=False).float()
    x = torch.full((2, 4), 1.0)
    x[1, 0] += 2**-12
    assert isinstance(layer.weight, MeanField)
    layer.weight.set_scale_(0.5)
    found, _ = joint(layer, x)
    difference = (found.factors[:, 1] - found.factors[:, 0]) * 2**12
    torch.testing.assert_close(difference.square().sum(-1), torch.full((3,), 0.25), rtol=1e-3, atol=0)


def test_float16_and_autocast() -> None:
    layer, x = linear(), inputs(3, 4)
    _, covariance = exact_moments(layer, x)
    half = layer.half()
    with torch.autocast("cpu", torch.bfloat16):
        found, drawn = joint(half, x.half(), 2)
    assert found.mean.dtype == torch.bfloat16 and drawn.dtype == torch.bfloat16
    variance = covariance.diagonal().view(3, 3)
    torch.testing.assert_close(found.factors.square().sum(-1).T.double(), variance, rtol=0.02, atol=0)


@pytest.mark.parametrize(
    ("rows", "columns", "outputs", "networks", "expected"),
    [
        (1, 784, 300, 1, True),
        (32, 784, 300, 200, True),  # a first layer
        (32, 784, 300, 1, False),
        (4, 300, 100, 1, True),  # a layer behind it
        (8, 300, 100, 1, False),
        (2, 20, 2, 1, False),  # few outputs share the products of inputs
        (8, 8, 300, 10_000, False),  # as many noises as weights
        (64, 10_000, 10, 200, False),  # too much memory
        (64, 10, 10_000, 200, False),
        (0, 784, 300, 200, False),  # nothing to draw
    ],
)
def test_when_outputs_are_cheaper_than_weights(
    rows: int, columns: int, outputs: int, networks: int, expected: bool
) -> None:
    assert pays(rows, columns, outputs, networks) == expected
