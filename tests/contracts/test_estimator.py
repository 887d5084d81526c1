"""What every estimator promises about the distribution of a layer's output."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from bayeslim import layers, using
from bayeslim.estimators import flipout, independent_draws, local_reparam, moments, weight_sample
from bayeslim.gaussian import Gaussian
from bayeslim.ops import ConvOp, LinearOp
from contracts.cases import each
from contracts.dense import bilinear_map, covariance, noise_map, output_covariance, weight_map
from contracts.members import (
    DETERMINISTIC,
    ESTIMATORS,
    INDEX_OPS,
    OPS,
    POSTERIORS,
    SAMPLERS,
    VALID_SAMPLERS,
    bias_posterior,
    layer,
    over,
    perturbed,
)
from contracts.statistics import assert_covariance, assert_gaussian_moments, assert_moments, draws

DRAWS = 20_000
SAMPLED_OPS = ["linear", "linear-tokens", "conv2d-groups", "transposed2d"]


def output_moments(case: str, posterior: str) -> tuple[Tensor, Tensor]:
    """Mean and full covariance of the output of `layer(case, posterior, ...)`, dense."""
    op, x = OPS[case].op, OPS[case].input()
    q, bias = perturbed(posterior, OPS[case].weight), bias_posterior(OPS[case].weight[0])
    mean = op(x, q.mean(), bias.mean())
    return mean.detach(), output_covariance(op, x, q, bias).detach()


def same_example(case: str, outputs: int) -> Tensor:
    """Which pairs of outputs belong to the same example: (outputs, outputs)."""
    batch = OPS[case].x[0]
    example = torch.arange(batch).repeat_interleave(outputs // batch)
    return (example[:, None] == example).double()


@each("case", OPS)
@over("posterior", POSTERIORS)
def test_one_weight_gives_the_exact_joint_distribution(posterior: str, case: str) -> None:
    x, net = OPS[case].input(), layer(case, posterior, "weight_sample")
    drawn, matrix = noise_map(lambda: net(x))
    mean, full = output_moments(case, posterior)
    torch.testing.assert_close(drawn, mean.flatten(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(matrix @ matrix.T, full, rtol=1e-10, atol=1e-12)


@each("case", OPS)
@over("posterior", POSTERIORS)
def test_local_reparameterisation_gives_exact_independent_marginals(posterior: str, case: str) -> None:
    x, net = OPS[case].input(), layer(case, posterior, "local_reparam")
    drawn, matrix = noise_map(lambda: net(x))
    mean, full = output_moments(case, posterior)
    torch.testing.assert_close(drawn, mean.flatten(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(matrix, full.diagonal().sqrt().diag(), rtol=1e-10, atol=1e-12)


@each("case", SAMPLED_OPS)
@pytest.mark.parametrize(("posterior", "sampler"), VALID_SAMPLERS)
def test_sampled_mean_variance_and_covariance(posterior: str, sampler: str, case: str) -> None:
    """Covariances: all right for one weight; none for local noise; else within an example, as for flipout."""
    x, net = OPS[case].input(), layer(case, posterior, sampler)
    samples = draws(lambda: net(x), DRAWS, seed=7)
    mean, full = output_moments(case, posterior)
    assert_gaussian_moments(samples, mean, full.diagonal().reshape(mean.shape))
    kept = {"weight_sample": torch.ones_like(full), "local_reparam": torch.eye(len(full))}
    assert_covariance(samples, mean, full * kept.get(sampler, same_example(case, len(full))))


@over("case", ["linear", "linear-tokens", "conv2d", "conv2d-groups", "transposed2d"])
def test_the_covariances_that_estimators_drop_are_not_zero(case: str) -> None:
    """Else the test above could not tell the estimators apart."""
    _, full = output_moments(case, "MeanField")
    other = full * (1 - torch.eye(len(full)))
    within = other * same_example(case, len(full))
    if OPS[case].x[0] > 1:
        assert (other - within).abs().max().item() > 0.05
    if case != "linear":
        assert within.abs().max().item() > 0.05


@each("case", OPS)
@over("posterior", POSTERIORS)
@each("estimator", DETERMINISTIC)
def test_closed_form_of_a_fixed_input(estimator: str, posterior: str, case: str) -> None:
    mean, full = output_moments(case, posterior)
    output = layer(case, posterior, estimator)(OPS[case].input())
    if isinstance(output, Gaussian):
        torch.testing.assert_close(output.variance.flatten(), full.diagonal(), rtol=1e-10, atol=1e-12)
        output = output.loc
    torch.testing.assert_close(output, mean, rtol=1e-12, atol=1e-12)


@each("case", OPS)
@over("posterior", POSTERIORS)
def test_moments_of_a_gaussian_input_are_exact(posterior: str, case: str) -> None:
    """`y_o = x^T T_o w + b_o`: second moments of independent `x` and `w` give the variance."""
    op, shape = OPS[case].op, OPS[case].weight
    q, bias = perturbed(posterior, shape), bias_posterior(shape[0])
    x = Gaussian(OPS[case].input(), OPS[case].input(1).square())
    tensor = bilinear_map(op, OPS[case].x, shape)
    m, w = x.loc.flatten(), q.mean().flatten()
    inputs = m.outer(m) + x.variance.flatten().diag()
    weights = w.outer(w) + covariance(q)
    second = torch.einsum("oij,ik,okl,jl->o", tensor, inputs, tensor, weights)
    from_bias = op.per_channel(bias.variance()).expand_as(op(x.loc, q.mean()))
    expected = second - torch.einsum("oij,i,j->o", tensor, m, w).square() + from_bias.flatten()
    output = moments(q, op, x, bias)
    torch.testing.assert_close(output.variance.flatten(), expected, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(output.loc, op(x.loc, q.mean(), bias.mean()), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("posterior", "case"), [(name, "linear") for name in POSTERIORS] + [("KTied-2", "conv1d")])
def test_moments_of_a_gaussian_input_by_monte_carlo(posterior: str, case: str) -> None:
    op, shape = OPS[case].op, OPS[case].weight
    q, bias = perturbed(posterior, shape), bias_posterior(shape[0])
    x = Gaussian(OPS[case].input(), OPS[case].input(1).square())
    samples = draws(lambda: op(x.rsample(), q.rsample(), bias.rsample()), 100_000, seed=8)
    expected = moments(q, op, x, bias)
    assert_moments(samples, expected.loc.detach(), expected.variance.detach())


@over("mode", ["reflect", "replicate", "circular"])
def test_moments_refuse_an_uncertain_input_that_padding_repeats(mode: str) -> None:
    """Exact for a fixed input. For a Gaussian one the window `x1 x0 x1` would count `x1` as two inputs."""
    op = ConvOp(1, (1,), (1,), (1,), padding_mode=mode)
    q = perturbed("MeanField", (2, 1, 3))
    length = 2 if mode == "circular" else 4  # a circle of 2, which a kernel of 3 goes around
    x = Gaussian(torch.zeros(1, 1, length).double(), torch.ones(1, 1, length).double())
    with pytest.raises(TypeError, match="other borders repeat inputs"):
        moments(q, op, x, None)


@over("bias", ["none", "point"])
@over("estimator", [*SAMPLERS, *DETERMINISTIC])
def test_a_bias_without_posterior_shifts_the_output_and_adds_no_noise(estimator: str, bias: str) -> None:
    case = OPS["conv2d-groups"]
    q, x = perturbed("MeanField", case.weight), case.input()
    shift = torch.arange(4.0, dtype=torch.float64) if bias == "point" else None
    outputs = []
    for value in (None, shift):
        torch.manual_seed(9)
        outputs.append(ESTIMATORS[estimator](q, case.op, x, value))
    if isinstance(outputs[0], Gaussian):
        assert torch.equal(outputs[0].variance, outputs[1].variance)
        outputs = [output.loc for output in outputs]
    added = torch.zeros(4).double() if shift is None else shift
    expected = case.op.per_channel(added).expand_as(outputs[0])
    torch.testing.assert_close(outputs[1] - outputs[0], expected, rtol=0, atol=1e-12)


@over("case", INDEX_OPS)
@over("posterior", POSTERIORS)
def test_looked_up_rows_have_the_distribution_of_the_table(posterior: str, case: str) -> None:
    op, x, q = INDEX_OPS[case].op, INDEX_OPS[case].input(), perturbed(posterior, INDEX_OPS[case].weight)
    mean, full = op(x, q.mean()), output_covariance(op, x, q)
    drawn, matrix = noise_map(lambda: weight_sample(q, op, x, None))
    assert torch.equal(drawn, mean.flatten())
    torch.testing.assert_close(matrix @ matrix.T, full, rtol=1e-10, atol=1e-12)
    _, local = noise_map(lambda: local_reparam(q, op, x, None))
    torch.testing.assert_close(local, full.diagonal().sqrt().diag(), rtol=1e-9, atol=1e-7)  # atol: the floor
    closed = moments(q, op, x, None)
    torch.testing.assert_close(closed.variance.flatten(), full.diagonal(), rtol=1e-10, atol=1e-12)
    with pytest.raises(TypeError, match=r"flipout needs"):
        flipout(q, op, x, None)
    outputs = []
    for estimator in (independent_draws, weight_sample):  # equal indices must get equal rows
        torch.manual_seed(10)
        outputs.append(estimator(q, op, x, None))
    assert torch.equal(*outputs)


def test_flipout_refuses_a_correlated_posterior_everywhere() -> None:
    message = r"flipout needs a factorised posterior, got MatrixNormal .*use weight_sample or local_reparam"
    with pytest.raises(TypeError, match=message):
        layers.Linear(3, 2, posterior=POSTERIORS["MatrixNormal"], estimator=flipout)
    net = layers.Linear(3, 2, posterior=POSTERIORS["MatrixNormal"], estimator=weight_sample)
    with pytest.raises(TypeError, match=message), using(net, flipout):
        pytest.fail("the block must not run")
    assert net.estimator is weight_sample
    with pytest.raises(TypeError, match=message):
        flipout(net.weight, LinearOp(), torch.zeros(1, 3), None)


def test_flipout_would_be_biased_there() -> None:
    """Why it refuses: independent signs keep only the diagonal of the input covariance."""
    case = OPS["linear"]
    q = perturbed("MatrixNormal", case.weight)
    matrix = weight_map(case.op, case.input(), case.weight)
    diagonal = (matrix.square() @ q.variance().flatten()).sum()
    exact = output_covariance(case.op, case.input(), q).diagonal().sum()
    assert not math.isclose(diagonal.item(), exact.item(), rel_tol=0.1)


@over("case", OPS)
def test_independent_draws_choose_by_the_axes_of_the_input(case: str) -> None:
    op, x, q = OPS[case].op, OPS[case].input(), perturbed("MeanField", OPS[case].weight)
    chosen = local_reparam if case == "linear" else weight_sample
    outputs = []
    for estimator in (independent_draws, chosen):
        torch.manual_seed(10)
        outputs.append(estimator(q, op, x, None))
    assert torch.equal(*outputs)


@over("sampler", SAMPLERS)
def test_an_input_of_zeros_has_finite_gradients(sampler: str) -> None:
    """The output variance is 0 there, and the square root has no slope at 0."""
    case = OPS["linear"]
    q = perturbed("MeanField", case.weight)
    SAMPLERS[sampler](q, case.op, torch.zeros(case.x).double(), None).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in q.parameters())


@over("sampler", SAMPLERS)
def test_every_forward_draws_fresh_noise_and_a_seed_repeats_it(sampler: str) -> None:
    net, x = layer("conv2d", "MeanField", sampler), OPS["conv2d"].input()
    torch.manual_seed(11)
    first, second = net(x), net(x)
    torch.manual_seed(11)
    assert torch.equal(net(x), first)
    assert not torch.equal(first, second)


@over("dtype", [torch.float16, torch.bfloat16])
def test_local_noise_of_half_layers_does_not_underflow(dtype: torch.dtype) -> None:
    """A scale of 1e-4 on 64 unit inputs: the output std is 8e-4, its square 0 in float16."""
    net = layers.Linear(64, 1, bias=False, estimator=local_reparam).to(dtype)
    with torch.no_grad():
        net.weight.get_parameter("loc").zero_()
        net.weight.get_parameter("log_scale").fill_(math.log(1e-4))
    torch.manual_seed(12)
    count = 20_000
    with torch.no_grad():
        sampled = net(torch.ones(count, 64, dtype=dtype)).double().square().mean().item()
    scale = net.weight.get_parameter("log_scale").double().exp().mean().item()
    rounding = 0.02  # three roundings to bfloat16
    assert sampled == pytest.approx(64 * scale**2, rel=5 * math.sqrt(2 / count) + rounding)
