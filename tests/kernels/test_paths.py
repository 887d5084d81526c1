"""Every fast path against the definitions in plain operations: values, gradients, and where it stays away."""

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import bayeslim as bl
from bayeslim import kernels
from bayeslim.divergence import kl_divergence
from bayeslim.kernels import NormalPrior, collecting, reference
from bayeslim.kernels.eager_cpu import _exp
from bayeslim.layers.base import named_posteriors
from bayeslim.masks import Masked
from bayeslim.ops import LinearOp
from bayeslim.posteriors import KTied, MatrixNormal, MeanField, Multiplicative
from bayeslim.posteriors.base import Posterior
from bayeslim.posteriors.mean_field import LOG_OF_NOTHING
from bayeslim.priors import HeNormal, Normal, Prior
from bayeslim.training import Nelbo
from contracts.cases import each

Make = Callable[[Tensor], Posterior]


def masked(make: Make, weight: Tensor) -> Posterior:
    mask = torch.ones_like(weight)
    mask.view(-1)[::3] = 0
    return Masked(make(weight), mask)


POSTERIORS: dict[str, Make] = {
    "mean-field": partial(MeanField, scale=0.3),
    "bounded": partial(MeanField, scale=0.3, max_scale=0.4),
    "tied": partial(KTied, k=1, scale=0.3),
    "masked": partial(masked, partial(MeanField, scale=0.3)),
    "masked, tied": partial(masked, partial(KTied, k=1, scale=0.3)),
    "no facts": partial(Multiplicative, alpha=0.2),
}
KERNELS = ["draw_weight", "weight_variance", "draw_by_weight", "draw_by_output", "output_moments", "propagate"]
LEAVE = ("mean-field", "bounded", "tied", "masked")
"""Posteriors whose fast paths leave a KL ..."""
LIMITED = {"tied": ("draw_weight", "draw_by_weight"), "masked": tuple(KERNELS[2:])}
"""... which these do in some kernels alone."""
SHAPES = [((1, 1), (1, 1)), ((5, 7), (3, 7)), ((4, 3), (2, 3, 3)), ((17, 33), (65, 33))]
"""Of the weight and of the input."""


def call(kernel: str, q: Posterior, x: Tensor, variance: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    """A kernel with a seed of its own."""
    torch.manual_seed(3)
    if kernel in ("draw_weight", "weight_variance"):
        return (q.rsample() if kernel == "draw_weight" else q.variance(),)
    inputs = (x, variance) if kernel == "propagate" else (x,)
    found = getattr(kernels, kernel)(q, LinearOp(), *inputs, bias)
    return found if isinstance(found, tuple) else (found,)


def judged(outputs: tuple[Tensor, ...], divergence: Tensor) -> Tensor:
    """A number that depends on all of it."""
    return sum((part.sin() * (1 + part)).sum() for part in outputs) + 0.3 * divergence.sin()  # pyright: ignore


@each("prior", [NormalPrior(0.0, 1.0), NormalPrior(0.2, 0.7)])
@each("name", POSTERIORS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_values_and_gradients_are_those_of_the_reference(kernel: str, name: str, prior: NormalPrior) -> None:
    for weight_shape, shape in SHAPES:
        for dtype in (torch.float32, torch.float64):
            torch.manual_seed(0)
            q = POSTERIORS[name](torch.randn(weight_shape, dtype=dtype))
            x, variance = torch.randn(shape, dtype=dtype), torch.rand(shape, dtype=dtype)
            leaves = [x, variance, torch.randn(weight_shape[0], dtype=dtype), *q.parameters()]
            for leaf in leaves:
                leaf.requires_grad_()
            results: list[tuple[Tensor, ...]] = []
            for way in ("fast", "reference"):
                known: dict[object, Tensor] = {}
                with collecting({q: prior}, known, x):
                    if way == "fast":
                        outputs = call(kernel, q, *leaves[:3])
                    else:
                        with reference():
                            outputs = call(kernel, q, *leaves[:3])
                left = bool(known)
                may = name in LEAVE and (name not in LIMITED or kernel in LIMITED[name])
                assert left is (way == "fast" and may), (kernel, name)
                divergence = known[q] if left else kl_divergence(q, Normal(*prior))
                slopes = torch.autograd.grad(judged(outputs, divergence), leaves, allow_unused=True)
                results.append((*outputs, divergence, *(s for s in slopes if s is not None)))
            rounding = 4e-5 if dtype == torch.float32 else 1e-12
            for fast, plain in zip(*results, strict=True):
                torch.testing.assert_close(fast, plain, rtol=0, atol=rounding * (1 + plain.abs().max().item()))


@pytest.mark.parametrize("kernel", KERNELS)
def test_derivatives_by_finite_differences(kernel: str) -> None:
    torch.manual_seed(1)
    tensors = [torch.randn(shape, dtype=torch.float64) for shape in ((4, 3), (4, 3), (2, 3), (4,))]
    variance = torch.rand(2, 3, dtype=torch.float64)
    q: Any = MeanField(tensors[0])

    def value(loc: Tensor, log_std: Tensor, x: Tensor, bias: Tensor, v: Tensor) -> Tensor:
        del q.loc, q.log_scale
        q.loc, q.log_scale, known = loc, log_std, {}
        with collecting({q: NormalPrior(0.1, 0.5)}, known, x):
            outputs = call(kernel, q, x, v, bias)
        return judged(outputs, known[q])

    del q._parameters["loc"], q._parameters["log_scale"]
    q.loc, q.log_scale = tensors[:2]
    assert torch.autograd.gradcheck(value, [t.requires_grad_() for t in (*tensors, variance)])


@pytest.mark.parametrize("kernel", ["draw_by_weight", "draw_by_output"])
def test_draws_have_the_moments_of_their_definition(kernel: str) -> None:
    torch.manual_seed(0)
    count, (loc, x) = 200_000, torch.randn(2, 1, 4)
    q = MeanField(loc.repeat(count, 1) if kernel == "draw_by_weight" else loc.repeat(3, 1), scale=0.4)
    rows = x if kernel == "draw_by_weight" else x.repeat(count, 1)
    with collecting({}, {}, x):
        (output,) = call(kernel, q, rows, rows, torch.zeros(len(q.mean())))
    draws = output.flatten()
    mean, std = (x * loc).sum().item(), (x.square() * 0.16).sum().sqrt().item()
    assert abs(draws.mean() - mean) < 5 * std / math.sqrt(draws.numel())
    assert abs(draws.var() / std**2 - 1) < 5 * math.sqrt(2 / draws.numel())


WAYS: dict[str, dict[str, Any]] = {
    "weights": {"estimator": bl.weight_sample},
    "weights, tied": {"estimator": bl.weight_sample, "posterior": KTied},
    "weights, of a convolution": {"estimator": bl.weight_sample},
    "outputs": {"estimator": bl.local_reparam},
    "outputs, of a convolution": {"estimator": bl.local_reparam},
    "moments": {"estimator": bl.moments},
    "bias": {"estimator": bl.weight_sample, "bias_posterior": MeanField},
}


def network(way: str = "weights", prior: Prior | None = None, dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(0)
    first = [nn.Linear(6, 4)]
    if "convolution" in way:
        first = [nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 2, 2), nn.Flatten()]
    layers = nn.Sequential(*first, nn.Tanh(), nn.Linear(4, 3)).to(dtype)
    return bl.bayesianize_(layers, prior=prior, **WAYS[way])


def objective(model: nn.Module, samples: int = 1, dtype: torch.dtype = torch.float64, run: Any = bl.nelbo) -> Nelbo:
    torch.manual_seed(2)
    x, y = torch.randn(7, 6, dtype=dtype), torch.arange(7) % 3
    return run(model, x, y, likelihood=bl.Categorical(), num_data=50, beta=torch.tensor(0.7), samples=samples)


@each("prior", [Normal(), Normal(0.3, 0.2), HeNormal(), bl.priors.ARD()])
@pytest.mark.parametrize("way", WAYS)
def test_the_objective_is_that_of_the_reference(way: str, prior: Prior) -> None:
    for samples in (1, 2):
        for pruned in (False, True):
            fast = network(way, prior)
            if pruned:
                bl.prune_(fast, amount=0.3, criterion=bl.pruning.MAGNITUDE)
            plain = copy.deepcopy(fast)
            found = objective(fast, samples)
            found.loss.backward()
            with reference():
                expected = objective(plain, samples)
                expected.loss.backward()
            torch.testing.assert_close(found[:3], expected[:3])
            torch.testing.assert_close(found.kl, bl.kl(plain))
            for own, other in zip(fast.parameters(), plain.parameters(), strict=True):
                torch.testing.assert_close(own.grad, other.grad)


def ways(model: nn.Module, run: Callable[[], object]) -> set[str]:
    """The paths by which layers are computed while `run` runs."""
    notes: list[Any] = []
    kernels.NOTES.append(notes)
    try:
        run()
    finally:
        kernels.NOTES.pop()
    return {way for *_, way, _ in notes}


class Repeated(nn.Module):
    """Computes its activations again in the backward pass."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.inner, x, use_reentrant=False)  # pyright: ignore[reportReturnType]


def test_surroundings_decide_which_way_is_taken() -> None:
    model = network(dtype=torch.float32)
    single = partial(objective, dtype=torch.float32)
    x = torch.randn(7, 6)
    assert ways(model, lambda: single(model)) == {"eager_cpu"}
    assert ways(model, lambda: model(x)) == {"reference"}
    assert ways(model, lambda: single(Repeated(model))) == {"reference"}
    with torch.autocast("cpu", torch.bfloat16):
        assert ways(model, lambda: single(model)) == {"reference"}
    with torch.no_grad():
        assert ways(model, lambda: single(model)) == {"reference"}
    with collecting({}, {}, x):
        each = torch.vmap(model, randomness="different")
        assert ways(model, lambda: each(x[None])) == {"reference"}
        assert ways(model, lambda: torch.jit.trace(model, x, check_trace=False)) == {"reference"}
    torch.compiler.reset()  # other tests may have compiled it as often as torch allows
    compiled = torch.compile(bl.nelbo, backend="aot_eager", fullgraph=True)
    assert ways(model, lambda: single(model, run=compiled)) <= {"reference"}
    half = network(dtype=torch.bfloat16)
    assert ways(half, lambda: objective(half, dtype=torch.bfloat16)) == {"reference"}


def test_ways_of_other_surroundings_compute_the_same() -> None:
    """Under checkpointing, compiled and exported: losses, gradients and moments."""
    plain = network("moments", Normal(0.3, 0.2))
    x = torch.randn(7, 6, dtype=torch.float64)
    expected = objective(plain)
    expected.loss.backward()
    for change in ("checkpoint", "compile"):
        model = copy.deepcopy(plain)
        model.zero_grad()
        if change == "checkpoint":
            model = network("weights", Normal(0.3, 0.2))
            twin = copy.deepcopy(model)
            expected = objective(twin)
            expected.loss.backward()
            found = objective(Repeated(model))
            slopes = [p.grad for p in twin.parameters()]
        else:
            kl = torch.compile(bl.kl, backend="aot_eager", fullgraph=True)(model)
            torch.testing.assert_close(kl, bl.kl(model))
            continue
        found.loss.backward()
        torch.testing.assert_close(found.loss, expected.loss)
        torch.testing.assert_close([p.grad for p in model.parameters()], slopes)
    with bl.using(plain, bl.mean_only):
        exported = torch.export.export(plain, (x,)).module()
    torch.testing.assert_close(exported(x), bl.collapse_(copy.deepcopy(plain))(x))


def test_second_derivatives_are_refused_inside_an_objective_and_right_outside() -> None:
    for way in ("weights", "outputs", "moments"):
        model = network(way)
        with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
            torch.autograd.grad(objective(model).loss, list(model.parameters()), create_graph=True)
    model = network("weights")
    bias = dict(model.named_parameters())["2.bias"]
    (slope,) = torch.autograd.grad(model(torch.randn(7, 6).double()).square().sum(), bias, create_graph=True)
    (second,) = torch.autograd.grad(slope.sum(), bias)
    torch.testing.assert_close(second, torch.full_like(bias, 14.0))


def test_the_first_use_alone_leaves_a_kl() -> None:
    q, stranger = MeanField(torch.zeros(2, 2)), MeanField(torch.zeros(2, 2))
    known: dict[object, Tensor] = {}
    with collecting({q: NormalPrior(0.0, 1.0)}, known, q.mean()):
        q.rsample()
        first = known[q]
        q.rsample()
        stranger.rsample()
    assert known == {q: first}
    q.rsample()
    assert known == {q: first}


def test_only_normal_priors_are_collected() -> None:
    model = nn.ModuleList(
        bl.layers.Linear(4, 3, prior=prior, posterior=posterior)
        for prior in (Normal(0.0, 2.0), bl.priors.ARD(), Normal(torch.zeros(3, 4)))
        for posterior in (MeanField, KTied, MatrixNormal)
    )
    found = [prior.as_normal(q) for _, q, prior in named_posteriors(model)]
    assert found == [(0.0, 2.0)] * 3 + [None] * 6


def test_a_graph_that_is_kept_can_be_used_again() -> None:
    for way in WAYS:
        model = network(way)
        loss, parameters = objective(model).loss, list(model.parameters())
        first = [slope.clone() for slope in torch.autograd.grad(loss, parameters, retain_graph=True)]
        torch.testing.assert_close(list(torch.autograd.grad(loss, parameters)), first)


@pytest.mark.parametrize("kernel", ["draw_by_weight", "draw_by_output"])
def test_weights_without_noise_have_finite_gradients(kernel: str) -> None:
    q = MeanField(torch.randn(3, 4, dtype=torch.float64))
    q.set_scale_(0.0)
    x = torch.randn(2, 4, dtype=torch.float64)
    with collecting({}, {}, x):
        (output,) = call(kernel, q, x, x, torch.zeros(3, dtype=torch.float64))
    output.sum().backward()
    torch.testing.assert_close(output, x @ q.loc.T, atol=1e-7, rtol=1e-7)
    assert q.log_scale.grad is not None and not q.log_scale.grad.any()


def test_a_huge_scale_of_a_pruned_weight_does_no_harm() -> None:
    q = MeanField(torch.randn(3, 4))
    q.set_scale_(torch.full((3, 4), 1e38))
    pruned = Masked(q, torch.zeros(3, 4))
    with collecting({}, {}, q.loc):
        for kernel in KERNELS[2:]:
            outputs = call(kernel, pruned, torch.ones(2, 4), torch.ones(2, 4), torch.zeros(3))
            sum(part.sum() for part in outputs).backward()  # pyright: ignore[reportAttributeAccessIssue]
            assert all(part.abs().max() < 1e-6 for part in outputs)
    assert q.log_scale.grad is not None and not q.log_scale.grad.any()


def test_inputs_of_a_wrong_width_are_named() -> None:
    for way in ("weights", "outputs", "moments"):
        with pytest.raises(RuntimeError, match=r"shapes cannot be multiplied \(7x6 and 5x3\)"):
            model = bl.bayesianize_(nn.Sequential(nn.Linear(5, 3).double()), **WAYS[way])
            objective(model)


def test_an_explanation_names_every_layer_and_the_reasons() -> None:
    model = network("outputs, of a convolution", dtype=torch.float32)
    found = kernels.explain(model, torch.randn(7, 6))
    assert [(choice.posterior, choice.way) for choice in found if choice.kernel == "draw_by_output"] == [
        ("1.weight", "reference"),
        ("4.weight", "eager_cpu"),
    ]
    assert "not eager_cpu: it is for linear layers" in str(found)
    own = kernels.explain(bl.layers.Linear(4, 3, posterior=Multiplicative), torch.randn(2, 4))
    assert "states no facts" in str(own) and not kernels.NOTES
    assert "no layer" in str(kernels.explain(nn.Linear(2, 2), torch.randn(1, 2)))


def test_the_environment_switches_fast_paths_off() -> None:
    import subprocess
    import sys

    code = "import bayeslim as bl, torch; print(bl.kernels.explain(bl.mlp([4, 8, 2]), torch.randn(16, 4)))"
    run = partial(subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, check=True)
    import os

    assert "eager_cpu" not in run(env=os.environ | {"BAYESLIM_KERNELS": "reference"}).stdout
    assert "eager_cpu" in run(env=os.environ | {"BAYESLIM_KERNELS": ""}).stdout


@pytest.mark.parametrize("times", [1.0, 2.0])
def test_powers_of_two_are_exponentials_to_a_millionth(times: float) -> None:
    """In float32 between deviations of 1e-6 and 1e2; to rounding in float64, and 0 for a deviation of 0."""
    log = torch.linspace(-14, 4.6, 10_001)
    exact = (times * log.double()).exp()
    assert (_exp(log, times).double() / exact - 1).abs().max().item() < times * 1e-6
    assert (_exp(log.double(), times) / exact - 1).abs().max().item() < 1e-14
    assert _exp(torch.tensor([LOG_OF_NOTHING], dtype=torch.float64), times).item() == 0
