"""Full covariances against dense formulas, quadrature and sampled networks."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.full_covariance import JointGaussian, full_covariance
from bayeslim.posteriors import KTied, MatrixNormal, MeanField
from bayeslim.pruning import MAGNITUDE
from contracts.cases import each
from contracts.dense import bias_map, bilinear_map, covariance
from contracts.statistics import assert_covariance, assert_mean


@pytest.fixture(autouse=True)
def double_precision() -> Any:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def spread_(model: nn.Module, low: float = 0.1, high: float = 0.5, seed: int = 0) -> nn.Module:
    """Give every weight and bias another mean and standard deviation."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, MeanField):
            shape = module.loc.shape
            module.loc.data = 0.5 * torch.randn(shape, generator=generator)
            module.set_scale_(low + (high - low) * torch.rand(shape, generator=generator))
    return model


def uncertain(*shape: int, groups: int = 1, seed: int = 1, scale: float = 1.0) -> JointGaussian:
    """One example with a random mean and a random covariance."""
    generator = torch.Generator().manual_seed(seed)
    size = math.prod(shape) // groups
    factor = scale * torch.randn(1, groups, size, size, generator=generator) / math.sqrt(size)
    return JointGaussian(torch.randn(1, *shape, generator=generator), factor @ factor.mT)


def draw_inputs(x: JointGaussian, count: int, seed: int = 2) -> Tensor:
    factor = torch.linalg.cholesky(x.covariance[0])
    noise = torch.randn(count, len(factor), generator=torch.Generator().manual_seed(seed))
    return (x.mean.flatten(1) + noise @ factor.T).view(count, *x.shape[1:])


def sampled(model: nn.Module, inputs: Tensor, seed: int = 3) -> Tensor:
    """Outputs of the network, with new weights for every input."""
    torch.manual_seed(seed)
    with torch.no_grad(), bl.using(model, bl.weight_sample):
        return torch.vmap(lambda x: model(x[None])[0], randomness="different")(inputs)


def dense_covariance(layer: Any, x: JointGaussian) -> Tensor:
    """All moments written out for `y = sum_iw T[:, i, w] x_i W_w`, with `T` the map as a tensor."""
    tensor = bilinear_map(layer.op, tuple(x.shape), tuple(layer.weight.mean().shape))
    fixed = tensor @ layer.weight.mean().flatten()
    by_weight = torch.einsum("oiw,i->ow", tensor, x.mean.flatten())
    variance = layer.weight.variance().flatten()
    result = fixed @ x.covariance[0] @ fixed.T + (by_weight * variance) @ by_weight.T
    result = result + torch.einsum("oiw,w,ij,pjw->op", tensor, variance, x.covariance[0], tensor)
    if isinstance(layer.bias, bl.posteriors.Posterior):
        matrix = bias_map(layer.op, x.mean, tuple(layer.weight.mean().shape))
        result = result + matrix @ covariance(layer.bias) @ matrix.T
    return result


LAYERS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "linear": (lambda: bl.layers.Linear(4, 3, bias_posterior=MeanField), (4,)),
    "linear, certain bias": (lambda: bl.layers.Linear(4, 3), (4,)),
    "tied": (lambda: bl.layers.Linear(4, 3, posterior=lambda init: KTied(init, k=2, scale=0.3)), (4,)),
    "conv": (lambda: bl.layers.Conv2d(2, 3, 2, bias_posterior=MeanField), (2, 3, 3)),
    "padded": (lambda: bl.layers.Conv2d(2, 2, 3, padding=1), (2, 3, 2)),
    "same": (lambda: bl.layers.Conv2d(1, 2, (1, 3), dilation=2, padding="same"), (1, 3, 3)),
    "strided": (lambda: bl.layers.Conv2d(1, 2, 2, stride=2, padding=1, bias=False), (1, 4, 3)),
    "dilated": (lambda: bl.layers.Conv2d(1, 2, 2, dilation=2), (1, 4, 3)),
    "grouped": (lambda: bl.layers.Conv2d(4, 6, 2, groups=2), (4, 2, 3)),
    "circular": (lambda: bl.layers.Conv2d(1, 2, 3, padding=1, padding_mode="circular"), (1, 3, 3)),
    "reflect": (lambda: bl.layers.Conv2d(1, 2, 3, padding=1, padding_mode="reflect"), (1, 3, 3)),
    "replicate": (lambda: bl.layers.Conv2d(1, 2, 3, padding=1, padding_mode="replicate"), (1, 3, 3)),
    "one dimension": (lambda: bl.layers.Conv1d(2, 3, 2), (2, 5)),
    "transposed": (lambda: bl.layers.ConvTranspose2d(2, 3, 3, stride=2, padding=1, output_padding=1), (2, 2, 2)),
}


@each("name", LAYERS)
@each("certain", [True, False])
def test_weights_and_inputs_written_out(name: str, certain: bool) -> None:
    build, shape = LAYERS[name]
    layer = spread_(build())
    x = uncertain(*shape, scale=0.0 if certain else 1.0)
    found = full_covariance(layer, x.mean if certain else x)
    torch.testing.assert_close(found.covariance[0], dense_covariance(layer, x), rtol=1e-10, atol=1e-12)
    with bl.using(layer, bl.mean_only):
        torch.testing.assert_close(found.mean, layer(x.mean))


@pytest.mark.parametrize("name", ["conv", "padded", "grouped", "transposed"])
def test_channels_apart_are_the_diagonal_blocks(name: str) -> None:
    build, shape = LAYERS[name]
    layer = spread_(build())
    x = uncertain(*shape, groups=shape[0])
    full, apart = (full_covariance(layer, x, within=cast(Any, within)) for within in ("all", "channel"))
    channels = apart.shape[1]
    size = apart.mean[0, 0].numel()
    assert apart.blocks.shape == (1, channels, size, size)
    whole = full.covariance[0].view(channels, size, channels, size)
    for channel in range(channels):
        torch.testing.assert_close(apart.blocks[0, channel], whole[channel, :, channel])
    # From a certain input channels are independent, so nothing is lost.
    first = full_covariance(layer, x.mean), full_covariance(layer, x.mean, within="channel")
    torch.testing.assert_close(first[0].covariance, first[1].covariance)
    torch.testing.assert_close(first[0].variance, first[1].variance)


@pytest.mark.parametrize("name", ["linear", "conv"])
def test_sampled_weights_and_inputs(name: str) -> None:
    build, shape = LAYERS[name]
    layer, x = spread_(build()), uncertain(*shape)
    found = full_covariance(layer, x)
    samples = sampled(layer, draw_inputs(x, 120_000))
    assert_mean(samples, found.mean[0])
    assert_covariance(samples, found.mean[0], found.covariance[0])


def test_variances_agree_with_the_moments_estimator() -> None:
    layer = spread_(bl.layers.Linear(5, 3, bias_posterior=MeanField))
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    with bl.using(layer, bl.moments):
        expected = layer(x)
    found = full_covariance(layer, x).marginals()
    torch.testing.assert_close(found.loc, expected.loc)
    torch.testing.assert_close(found.variance, expected.variance)
    diagonal = JointGaussian(x, torch.diag_embed(x.square() + 1)[:, None])  # independent inputs
    with bl.using(layer, bl.moments):
        expected = layer(bl.Gaussian(x, x.square() + 1))
    torch.testing.assert_close(full_covariance(layer, diagonal).variance, expected.variance)


@each(
    ("plain", "shape"),
    [
        (nn.Linear(4, 3), (4,)),
        (nn.Conv2d(2, 4, 2, padding=1, groups=2), (2, 2, 3)),
        (nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect"), (1, 3, 3)),
        (nn.AvgPool2d(2, padding=1), (2, 3, 4)),
        (nn.AdaptiveAvgPool2d(1), (2, 3, 2)),
        (nn.AvgPool1d(2), (2, 6)),
        (nn.BatchNorm2d(2), (2, 2, 2)),
        (nn.BatchNorm1d(4), (4,)),
        (nn.BatchNorm1d(4, affine=False), (4,)),
        (nn.Flatten(), (2, 2, 2)),
        (nn.Dropout(0.5), (3,)),
        (nn.Identity(), (3,)),
    ],
)
@each("by_channel", [False, True])
def test_plain_linear_layers(plain: nn.Module, shape: tuple[int, ...], by_channel: bool) -> None:
    plain = plain.double()
    for module in plain.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.running_mean, module.running_var = torch.linspace(-1, 1, shape[0]), torch.linspace(0.5, 2, shape[0])
    x = uncertain(*shape, groups=shape[0] if by_channel else 1)
    found = full_covariance(plain, x, within="channel" if by_channel else "all")
    jacobian = torch.autograd.functional.jacobian(lambda z: plain.eval()(z), x.mean)
    matrix = cast(Tensor, jacobian).reshape(-1, x.mean.numel())
    expected = matrix @ x.covariance[0] @ matrix.T
    if by_channel:  # what is dropped between channels does not count
        expected = expected * (found.covariance[0] != 0)
    torch.testing.assert_close(found.covariance[0], expected)
    torch.testing.assert_close(found.mean, plain.eval()(x.mean))


def rectified_covariance(x: JointGaussian) -> Tensor:
    """By Price's theorem: `P_i P_j C_ij + s_i s_j integral_0^rho (rho - r) phi_2(z_i, z_j; r) dr`."""
    mean, cov = x.mean[0].numpy(), x.covariance[0].numpy()
    std = np.sqrt(np.diag(cov))
    z = mean / std
    result = np.zeros_like(cov)
    for i, j in np.ndindex(*cov.shape):
        rho = cov[i, j] / std[i] / std[j]

        def density(r: float, i: int = i, j: int = j, rho: float = float(rho)) -> float:
            exponent = (z[i] ** 2 - 2 * r * z[i] * z[j] + z[j] ** 2) / (2 * (1 - r * r))
            return (rho - r) * math.exp(-exponent) / (2 * math.pi * math.sqrt(1 - r * r))

        bound = min(rho, 1 - 1e-12) if i == j else rho
        second = quad(density, 0, bound, epsabs=1e-12, limit=200)[0]
        result[i, j] = norm.cdf(z[i]) * norm.cdf(z[j]) * cov[i, j] + std[i] * std[j] * second
    return torch.tensor(result)


@pytest.mark.parametrize("seed", range(4))
def test_rectified_pairs_within_the_stated_error(seed: int) -> None:
    x = uncertain(5, seed=seed)
    found = full_covariance(nn.ReLU(), x).covariance[0]
    expected = rectified_covariance(x)
    std = x.variance[0].sqrt()
    scale = std[:, None] * std
    bound = 0.0019 * (x.covariance[0] / scale).abs() ** 9 * scale
    assert bool(((found - expected).abs() <= bound + 1e-9).all())
    torch.testing.assert_close(found.diagonal(), expected.diagonal(), rtol=1e-5, atol=1e-8)


def test_first_order_of_the_series_is_steins_lemma() -> None:
    x = uncertain(4, scale=1e-3, seed=2)
    x = JointGaussian(torch.tensor([[-1e-3, 2e-3, 0.0, 1e-3]]), x.blocks)
    weak = JointGaussian(x.mean, x.blocks * (1e-3 + (1 - 1e-3) * torch.eye(4)))  # correlations below 1e-3
    found = full_covariance(nn.ReLU(), weak).covariance[0]
    active = 0.5 * torch.erfc(-weak.mean[0] / (2 * weak.variance[0]).sqrt())
    stein = active[:, None] * active * weak.covariance[0]
    off = ~torch.eye(4, dtype=torch.bool)
    torch.testing.assert_close(found[off], stein[off], rtol=1e-2, atol=0)


@pytest.mark.parametrize(
    ("layer", "tolerance"),
    [
        (nn.Tanh(), 1e-5),
        (nn.Sigmoid(), 1e-6),
        (nn.Softplus(), 1e-6),
        (nn.GELU(), 1e-6),
        (nn.SiLU(), 1e-6),
        (nn.ELU(), 5e-3),
        (nn.ELU(0.5), 5e-3),
        (nn.SELU(), 5e-3),
        (nn.LeakyReLU(0.3), 1e-3),
        (nn.LeakyReLU(1.0), 1e-12),
    ],
    ids=str,
)
def test_activations_against_two_dimensional_quadrature(layer: nn.Module, tolerance: float) -> None:
    mean, cov = torch.tensor([[0.3, -0.4]]), torch.tensor([[0.8, 0.45], [0.45, 0.5]])
    found = full_covariance(layer, JointGaussian(mean, cov[None, None]))
    nodes, weights = (torch.tensor(v) for v in np.polynomial.hermite_e.hermegauss(180))
    grid = torch.cartesian_prod(nodes, nodes) @ torch.linalg.cholesky(cov).T + mean
    weight = torch.outer(weights, weights).flatten() / (2 * math.pi)
    values = layer(grid)
    expected_mean = weight @ values
    centred = values - expected_mean
    torch.testing.assert_close(found.mean[0], expected_mean, rtol=0, atol=tolerance)
    torch.testing.assert_close(found.covariance[0], (weight[:, None] * centred).T @ centred, rtol=0, atol=tolerance)


@pytest.mark.parametrize("layer", [nn.ReLU(), nn.ReLU(inplace=True), nn.Tanh(), nn.SELU()], ids=str)
def test_taylor_is_the_linearisation(layer: nn.Module) -> None:
    x = uncertain(4)
    before = x.mean.clone()
    found = full_covariance(layer, x, mode="taylor")
    assert torch.equal(x.mean, before)
    slope = torch.autograd.functional.jacobian(lambda z: layer(z.clone()), x.mean[0])
    torch.testing.assert_close(found.mean, layer(x.mean.clone()))
    torch.testing.assert_close(found.covariance[0], slope @ x.covariance[0] @ cast(Tensor, slope).T)


def test_softmax_with_its_full_jacobian() -> None:
    x = uncertain(4)
    found = full_covariance(nn.Softmax(-1), x)
    jacobian = torch.autograd.functional.jacobian(lambda z: z.softmax(-1), x.mean[0])
    torch.testing.assert_close(found.covariance[0], jacobian @ x.covariance[0] @ cast(Tensor, jacobian).T)
    torch.testing.assert_close(found.covariance.sum(-1), torch.zeros(1, 4))  # probabilities sum to one


@pytest.mark.parametrize("groups", [1, 2])
def test_max_pool_selects_the_largest_means(groups: int) -> None:
    x = uncertain(2, 4, 5, groups=groups)
    found = full_covariance(nn.MaxPool2d(2, padding=1), x)
    pooled = nn.MaxPool2d(2, padding=1)(x.mean)
    chosen = [int((x.mean.flatten() == value).nonzero()) for value in pooled.flatten()]
    assert torch.equal(found.mean, pooled)
    assert torch.equal(found.covariance[0], x.covariance[0][chosen][:, chosen])


def network() -> nn.Sequential:
    """Convolution, pooling and two linear layers, all uncertain."""
    plain = nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2)),
        nn.Flatten(),
        nn.Linear(8, 5),
        nn.Tanh(),
        nn.Linear(5, 3),
    )
    return cast(nn.Sequential, spread_(bl.bayesianize_(plain), 0.05, 0.15))


def test_a_perceptron_against_sampled_networks() -> None:
    """Exact layers and near-Gaussian sums: within 3 % of the scale for 100 000 sampled networks."""
    model = spread_(bl.mlp([3, 16, 16, 2]).double(), 0.05, 0.2)
    x = torch.tensor([[0.5, -1.0, 0.8]])
    samples = sampled(model, x.expand(100_000, -1))
    expected = torch.cov(samples.T)
    exact, taylor = (full_covariance(model, x, mode=cast(Any, mode)) for mode in ("exact", "taylor"))
    scale = expected.diagonal().sqrt()
    error, taylor_error = (
        ((found.covariance[0] - expected) / (scale[:, None] * scale)).abs().max().item() for found in (exact, taylor)
    )
    assert error < 0.03
    assert error < taylor_error
    assert ((exact.mean[0] - samples.mean(0)) / scale).abs().max().item() < 0.03


def test_correlations_that_variances_alone_miss() -> None:
    """One uncertain kernel shifts all positions at once: their average stays uncertain."""
    model = spread_(bl.bayesianize_(nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.AdaptiveAvgPool2d(1))))
    x = torch.ones(1, 1, 6, 6)
    kernel = cast(Any, model)[0].weight.variance().flatten()
    torch.testing.assert_close(full_covariance(model, x).variance.flatten(), kernel)


@pytest.mark.parametrize("mode", ["exact", "taylor"])
@pytest.mark.parametrize("within", ["all", "channel"])
def test_examples_of_a_batch_do_not_mix(mode: Any, within: Any) -> None:
    plain = nn.Sequential(
        *(nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(3, 2, 2), nn.SELU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(2, 3), nn.Softmax(-1)),
    )
    model = spread_(bl.bayesianize_(plain))
    x = torch.randn(3, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    together = full_covariance(model, x, mode=mode, within=within)
    for index in range(3):
        alone = full_covariance(model, x[index : index + 1], mode=mode, within=within)
        torch.testing.assert_close(together.mean[index], alone.mean[0])
        torch.testing.assert_close(together.covariance[index], alone.covariance[0])


@pytest.mark.parametrize("mode", ["exact", "taylor"])
@pytest.mark.parametrize("within", ["all", "channel"])
def test_covariances_are_positive_and_gradients_finite(mode: Any, within: Any) -> None:
    model = network()
    x = torch.randn(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    x[0] = 0.0  # the kernel sees nothing: features without variance
    found = full_covariance(model, x, mode=mode, within=within)
    assert found.shape == (3, 3) and found.covariance.shape == (3, 3, 3)
    torch.testing.assert_close(found.covariance, found.covariance.mT)
    values = torch.linalg.eigvalsh(found.covariance)
    assert bool((values > -1e-12 * values.max()).all())
    (found.mean.sum() + found.covariance.square().sum()).backward()
    for name, parameter in model.named_parameters():
        if "prior" not in name:
            assert parameter.grad is not None and bool(parameter.grad.isfinite().all()), name
            assert bool((parameter.grad != 0).any()), name


@pytest.mark.parametrize("mode", ["exact", "taylor"])
def test_gradients_are_right(mode: Any) -> None:
    model = network()
    x = torch.randn(1, 1, 4, 4, generator=torch.Generator().manual_seed(1), requires_grad=True)
    layer = cast(Any, model)[0][0].weight

    def outputs(x: Tensor, loc: Tensor, log_scale: Tensor) -> tuple[Tensor, Tensor]:
        changed = {"0.0.weight.loc": loc, "0.0.weight.log_scale": log_scale}
        with torch.nn.utils.stateless._reparametrize_module(model, changed):
            found = full_covariance(model, x, mode=mode)
            return found.mean, found.covariance

    assert torch.autograd.gradcheck(outputs, (x, layer.loc, layer.log_scale))


def test_float32_and_pruned_units() -> None:
    model = network().float()
    bl.prune_(model, MAGNITUDE, amount=0.6, scope="layer")
    x = torch.randn(2, 1, 4, 4, dtype=torch.float32, generator=torch.Generator().manual_seed(2))
    found = full_covariance(model, x)
    assert found.covariance.dtype == torch.float32
    expected = full_covariance(model.double(), x.double())
    torch.testing.assert_close(found.covariance.double(), expected.covariance, rtol=1e-4, atol=1e-7)


def test_modes_and_estimators_come_back() -> None:
    model = network()
    before = [(m.training, getattr(m, "estimator", None)) for m in model.modules()]
    full_covariance(model, torch.zeros(1, 1, 4, 4))
    assert [(m.training, getattr(m, "estimator", None)) for m in model.modules()] == before


def test_memory_is_guarded_before_anything_is_allocated() -> None:
    model = bl.bayesianize_(nn.Sequential(nn.Conv2d(1, 64, 3, padding=1), nn.ReLU())).double()
    x = torch.zeros(4, 1, 256, 256)
    # The covariance of 64 x 256 x 256 features would take 140 terabytes.
    with pytest.raises(MemoryError, match="not even one of them fits, raise `memory_limit`, or pass within='channel'"):
        full_covariance(model, x)
    small = bl.mlp([3, 10, 2]).double()
    # Covariances 10^2 (layer), 10^2 (ReLU), 2^2 + 2 x 10 (layer), 7 copies, 8 bytes.
    each = 7 * 8 * (100 + 100 + 24)
    match = f"covariances of 7 examples need about {7 * each:,} bytes, .* is {5 * each:,}: pass at most 5 at a time"
    with pytest.raises(MemoryError, match=match):
        full_covariance(small, torch.zeros(7, 3), memory_limit=5 * each)
    assert full_covariance(small, torch.zeros(5, 3), memory_limit=5 * each).shape == (5, 2)
    with torch.no_grad():  # a layer's input and output are all that is kept
        assert full_covariance(small, torch.zeros(5, 3), memory_limit=5 * 3 * 8 * 200).shape == (5, 2)
        with pytest.raises(MemoryError, match="pass at most 4 at a time"):
            full_covariance(small, torch.zeros(5, 3), memory_limit=5 * 3 * 8 * 200 - 1)


def test_joint_gaussian() -> None:
    x = uncertain(2, 3, groups=2)
    assert repr(x) == "JointGaussian(shape=(1, 2, 3), blocks=(1, 2, 3, 3))"
    assert torch.equal(x.variance.flatten(), x.covariance[0].diagonal())
    assert torch.equal(x.covariance[0], torch.block_diag(*x.blocks[0]))
    assert torch.equal(x.marginals().variance, x.variance)
    with pytest.raises(
        ValueError, match=r"`blocks` must have the shape \(1, G, d, d\) with G d = 6 .* got \(1, 2, 2, 2\)"
    ):
        JointGaussian(x.mean, torch.zeros(1, 2, 2, 2))
    with pytest.raises(ValueError, match=r"got \(1, 6, 6\)"):
        JointGaussian(x.mean, torch.zeros(1, 6, 6))


class Odd(nn.Sequential):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) + input


def test_errors() -> None:
    x, linear = torch.zeros(2, 3), spread_(bl.layers.Linear(3, 3))
    with pytest.raises(TypeError, match="no rule for `LayerNorm` at '1.0': it takes .* method='moments'"):
        full_covariance(nn.Sequential(linear, nn.Sequential(nn.LayerNorm(3))), x)
    with pytest.raises(TypeError, match="no rule for `Odd`: it takes"):
        full_covariance(Odd(linear), x)
    with pytest.raises(ValueError, match="`mode` must be 'exact' or 'taylor', got 'fast'"):
        full_covariance(linear, x, mode=cast(Any, "fast"))
    with pytest.raises(ValueError, match="`within` must be 'all' or 'channel', got 'map'"):
        full_covariance(linear, x, within=cast(Any, "map"))
    with pytest.raises(ValueError, match="no Bayesian layer and `x` is certain"):
        full_covariance(nn.Linear(3, 3), x)
    with pytest.raises(ValueError, match=r"one vector per example, got inputs of shape \(2, 4, 3\): put nn.Flatten"):
        full_covariance(linear, torch.zeros(2, 4, 3))
    correlated = bl.layers.Linear(3, 3, posterior=MatrixNormal)
    with pytest.raises(
        TypeError, match="needs factorised posteriors, got MatrixNormal: build the layers with MeanField"
    ):
        full_covariance(correlated, x)
    with pytest.raises(ValueError, match="needs running statistics, got BatchNorm1d"):
        full_covariance(nn.Sequential(linear, nn.BatchNorm1d(3, track_running_stats=False)), x)
    with pytest.raises(
        ValueError, match=r"flattens each example to one vector, but .* makes \(2, 3\) \(6,\): use nn.Flatten"
    ):
        full_covariance(nn.Sequential(linear, nn.Flatten(0)), x)
    with pytest.raises(ValueError, match=r"softmax needs inputs \(B, classes\) and dim=-1, got .* dim=0"):
        full_covariance(nn.Sequential(linear, nn.Softmax(0)), x)
