"""Drawing and KL in one pass against the two apart: values, gradients, and when it keeps out of the way."""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import bayeslim as bl
from bayeslim.joint_draw import drawn, drawn_from_factors, drawn_product, exp_of, kl_alongside, spread
from bayeslim.kl import named_posteriors, normal_priors
from bayeslim.posteriors.mean_field import LOG_OF_NOTHING
from bayeslim.priors import HeNormal, Normal, Prior
from bayeslim.training import Nelbo

PRIORS = {"unit": Normal(), "shifted": Normal(0.3, 0.2), "he": HeNormal()}


WAYS: dict[str, dict[str, Any]] = {
    "drawn": {"estimator": bl.weight_sample, "posterior": bl.posteriors.MeanField},
    "drawn, tied": {"estimator": bl.weight_sample, "posterior": bl.posteriors.KTied},
    "spread": {"estimator": bl.moments, "posterior": bl.posteriors.MeanField},
}


def network(prior: Prior, dtype: torch.dtype = torch.float64, way: str = "drawn") -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).to(dtype)
    return bl.bayesianize_(layers, prior=prior, bias_posterior=bl.posteriors.MeanField, **WAYS[way])


def batch(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(7, 5, dtype=dtype), torch.randint(0, 3, (7,))


def gradients(model: nn.Module) -> list[Tensor]:
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def objective(model: nn.Module, samples: int = 1) -> Nelbo:
    torch.manual_seed(2)
    x, y = batch()
    return bl.nelbo(model, x, y, likelihood=bl.Categorical(), num_data=50, beta=torch.tensor(0.7), samples=samples)


def apart(model: nn.Module) -> Tensor:
    torch.manual_seed(2)
    x, y = batch()
    return bl.Categorical().expected_nll(model(x), y).mean() + 0.7 * bl.kl(model) / 50


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PRIORS)
def test_objective_and_gradient_are_those_of_the_two_apart(name: str, way: str) -> None:
    joint = network(PRIORS[name], way=way)
    plain = copy.deepcopy(joint)
    result, loss = objective(joint), apart(plain)
    torch.testing.assert_close(result.loss, loss)
    torch.testing.assert_close(result.kl, bl.kl(plain))
    result.loss.backward()
    loss.backward()
    assert len(gradients(joint)) == len(list(joint.parameters()))
    torch.testing.assert_close(gradients(joint), gradients(plain))


@pytest.mark.parametrize("use", [drawn, spread])
@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_derivatives_by_finite_differences(beta: float, use: Callable[[object, Tensor, Tensor], Tensor]) -> None:
    loc, log_std = (torch.randn(3, 2, dtype=torch.float64, requires_grad=True) for _ in range(2))

    def value(loc: Tensor, log_std: Tensor) -> Tensor:
        torch.manual_seed(4)
        with kl_alongside({"q": (0.1, 0.5)}) as found:
            weight = use("q", loc, log_std)
        return weight.sin().sum() + beta * found["q"]

    assert torch.autograd.gradcheck(value, (loc, log_std))


@pytest.mark.parametrize("use", [drawn, spread])
def test_second_derivatives_are_refused_not_wrong(use: Callable[[object, Tensor, Tensor], Tensor]) -> None:
    loc, log_std = (torch.zeros(2, requires_grad=True) for _ in range(2))
    with kl_alongside({"q": (0.0, 1.0)}):
        result = use("q", loc, log_std).sum()
    with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
        torch.autograd.grad(result, log_std, create_graph=True)


def test_the_first_draw_alone_leaves_a_kl() -> None:
    loc, log_std = (torch.zeros(2, requires_grad=True) for _ in range(2))
    with kl_alongside({"q": (0.0, 1.0)}) as found:
        drawn("q", loc, log_std)
        first = found["q"]
        drawn("q", loc, log_std)
        drawn("stranger", loc, log_std)
    assert found["q"] is first and list(found) == ["q"]
    drawn("q", loc, log_std)
    assert found["q"] is first


def test_several_samples_share_one_kl() -> None:
    model = network(Normal())
    torch.testing.assert_close(objective(model, samples=3).kl, bl.kl(model))


def test_asked_are_plain_normal_priors() -> None:
    model = nn.ModuleList(
        bl.layers.Linear(4, 3, prior=prior, posterior=posterior)
        for prior in (Normal(0.0, 2.0), bl.priors.ARD(), Normal(torch.zeros(3, 4)))
        for posterior in (bl.posteriors.MeanField, bl.posteriors.KTied)
    )
    assert list(normal_priors(named_posteriors(model)).values()) == [(0.0, 2.0), (0.0, 2.0)]
    assert not normal_priors(named_posteriors(bl.layers.Linear(4, 3, posterior=bl.posteriors.MatrixNormal)))


def test_pruned_networks_take_the_plain_way() -> None:
    model = network(Normal(), torch.float32)
    bl.prune_(model, threshold=-2.0)
    x, y = batch(torch.float32)
    result = bl.nelbo(model, x, y, likelihood=bl.Categorical(), num_data=50)
    torch.testing.assert_close(result.kl, bl.kl(model))


class Repeated(nn.Module):
    """Recomputes its activations in the backward pass."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.inner, x, use_reentrant=False)


def test_checkpointed_networks_take_the_plain_way() -> None:
    plain = network(Normal())
    model = Repeated(copy.deepcopy(plain))
    objective(model).loss.backward()
    objective(plain).loss.backward()
    torch.testing.assert_close(gradients(model), gradients(plain))


def test_vectorised_networks_take_the_plain_way() -> None:
    loc, log_std = torch.zeros(3, 2), torch.zeros(3, 2)
    with kl_alongside({"q": (0.0, 1.0)}) as found:
        torch.vmap(lambda m, s: drawn("q", m, s), randomness="different")(loc, log_std)
    assert not found


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_takes_the_plain_way(dtype: torch.dtype) -> None:
    with kl_alongside({"q": (0.0, 1.0)}) as found:
        weight = drawn("q", torch.zeros(2, dtype=dtype, requires_grad=True), torch.zeros(2))
    assert weight.dtype == dtype and not found


def test_only_the_gradient_of_one_result() -> None:
    for use in (0, 1):
        loc, log_std = (torch.zeros(2, requires_grad=True) for _ in range(2))
        with kl_alongside({"q": (0.0, 2.0)}) as found:
            weight = drawn("q", loc, log_std)
        (weight.sum() if use == 0 else found["q"]).backward()
        assert loc.grad is not None and log_std.grad is not None
        expected = (1.0, None) if use == 0 else (0.0, 1 / 4 - 1)
        assert loc.grad.tolist() == [expected[0]] * 2
        if expected[1] is not None:
            torch.testing.assert_close(log_std.grad, torch.full((2,), expected[1]))


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


@needs_cuda
@pytest.mark.parametrize("count", [1, 1023, 1024, 100_003])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cuda_kernel_against_its_formula(count: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    loc, log_std = torch.randn(count, device="cuda"), 0.3 * torch.randn(count, device="cuda") - 1
    for leaf in (loc, log_std):
        leaf.requires_grad_()
    half = torch.autocast("cuda", dtype) if dtype != torch.float32 else nullcontext()
    with half, kl_alongside({"q": (0.2, 0.7)}) as found:
        weight = drawn("q", loc, log_std)
    assert weight.dtype == dtype
    expected = Normal(0.2, 0.7).kl(loc, (2 * log_std).exp()).sum()
    torch.testing.assert_close(found["q"], expected, rtol=1e-5, atol=1e-3)
    upstream = torch.randn(count, device="cuda").to(dtype)
    (found["q"] * 0.3).backward(retain_graph=True)
    by_kl = torch.autograd.grad(expected * 0.3, (loc, log_std))
    torch.testing.assert_close((loc.grad, log_std.grad), by_kl, rtol=1e-5, atol=1e-5)
    loc.grad = log_std.grad = None
    torch.autograd.backward([weight, found["q"]], [upstream, torch.tensor(0.3, device="cuda")])
    noise = (weight.detach().float() - loc.detach()) / log_std.detach().exp()
    assert loc.grad is not None and log_std.grad is not None
    torch.testing.assert_close(loc.grad, upstream.float() + by_kl[0], rtol=1e-4, atol=1e-4)
    tolerance = 1e-4 if dtype == torch.float32 else 0.1
    by_log_std = upstream.float() * noise * log_std.detach().exp() + by_kl[1]
    torch.testing.assert_close(log_std.grad, by_log_std, rtol=tolerance, atol=tolerance)
    if count > 1e5 and dtype == torch.float32:
        for power, target in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)):
            values = noise.double() ** power
            assert abs(values.mean() - target) < 5 * values.std() / count**0.5


@needs_cuda
def test_cuda_draws_differ_and_follow_the_seed() -> None:
    loc, log_std = (torch.zeros(1000, device="cuda", requires_grad=True) for _ in range(2))

    def draw() -> Tensor:
        with kl_alongside({"q": (0.0, 1.0)}):
            return drawn("q", loc, log_std).detach()

    torch.manual_seed(1)
    first, second = draw(), draw()
    torch.manual_seed(1)
    assert torch.equal(first, draw()) and not torch.equal(first, second)


TIED_SHAPES = [(1, 1), (16, 256), (17, 257), (100, 784), (300, 1000)]


@needs_cuda
@pytest.mark.parametrize("shape", TIED_SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cuda_kernel_of_tied_scales_against_its_formula(shape: tuple[int, int], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    k = min(2, *shape)
    loc, log_in, log_out = (torch.randn(size, device="cuda") for size in (shape, (shape[1], k), (shape[0], k)))
    leaves = [leaf.mul_(0.3).requires_grad_() for leaf in (loc, log_in, log_out)]
    half = torch.autocast("cuda", dtype) if dtype != torch.float32 else nullcontext()
    with half, kl_alongside({"q": (0.2, 0.7)}) as found:
        weight = drawn_from_factors("q", *leaves)
    assert weight is not None and weight.dtype == dtype
    std = (log_out.exp() @ log_in.exp().T).double()
    noise = ((weight.double() - loc) / std).detach()
    upstream = torch.randn(shape, device="cuda").to(dtype)
    divergence = Normal(0.2, 0.7).kl(loc.double(), std.square()).sum()
    torch.testing.assert_close(found["q"].double(), divergence, rtol=1e-5, atol=1e-3)
    expected = torch.autograd.grad(((loc + std * noise) * upstream).sum() + 0.3 * divergence, leaves)
    results = [weight, found["q"]]
    actual = torch.autograd.grad(results, leaves, [upstream, torch.tensor(0.3, device="cuda")])
    tolerance = 1e-4 if dtype == torch.float32 else 0.02
    for mine, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance * float(theirs.abs().max()))
    if min(shape) >= 100 and dtype == torch.float32:
        for power, target in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)):
            values = noise**power
            assert abs(values.mean() - target) < 5 * values.std() / values.numel() ** 0.5


@needs_cuda
def test_tied_convolutions_on_cuda_leave_their_kl() -> None:
    layer = bl.layers.Conv2d(3, 8, 3, posterior=bl.posteriors.KTied, estimator=bl.weight_sample, prior=Normal()).cuda()
    x, y = torch.randn(4, 3, 5, 5, device="cuda"), torch.zeros(4, 3, 3, dtype=torch.long, device="cuda")
    model = nn.Sequential(layer, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    result = bl.nelbo(model, x, y[:, 0, 0], likelihood=bl.Categorical(), num_data=50)
    torch.testing.assert_close(result.kl, bl.kl(model), rtol=1e-5, atol=1e-4)
    result.loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_compiler_can_follow() -> None:
    model = network(Normal(0.3, 0.2))
    posterior = model[0].weight  # pyright: ignore[reportIndexIssue]

    def weight_and_kl() -> tuple[Tensor, Tensor]:
        with kl_alongside(normal_priors(named_posteriors(model))) as found:
            weight = posterior.rsample()
        return weight, found[posterior]

    _, compiled = torch.compile(weight_and_kl, fullgraph=True)()
    torch.testing.assert_close(compiled, Normal(0.3, 0.2).kl(posterior.mean(), posterior.variance()).sum())


@needs_cuda
@pytest.mark.parametrize("method", ["graves", "k-tied"])
def test_compiled_objective_on_cuda_is_the_eager_one(method: str) -> None:
    torch.manual_seed(0)
    model = bl.mlp([40, 30, 3], method=method).cuda()
    x, y = torch.randn(7, 40, device="cuda"), torch.randint(0, 3, (7,), device="cuda")
    compiled = torch.compile(bl.nelbo, fullgraph=True)
    results = {}
    for name, objective in (("eager", bl.nelbo), ("compiled", compiled)):
        model.zero_grad()
        draws = []
        for _ in range(400):
            result = objective(
                model, x, y, likelihood=bl.Categorical(), num_data=50, beta=torch.ones((), device="cuda")
            )
            result.loss.backward()
            torch.testing.assert_close(result.kl, bl.kl(model), rtol=1e-5, atol=1e-3)
            draws.append(result.nll.detach())
        results[name] = torch.stack(draws), [parameter.grad for parameter in model.parameters()]
    (first, mine), (second, theirs) = results["eager"], results["compiled"]
    assert abs(first.mean() - second.mean()) < 5 * (first.var() / 400 + second.var() / 400).sqrt()
    for one, other in zip(mine, theirs, strict=True):
        assert one is not None and other is not None
        assert (one - other).norm() < 0.1 * one.norm()


def test_there_is_no_kernel_for_factors_on_the_cpu() -> None:
    loc, factor = torch.zeros(2, 2, requires_grad=True), torch.zeros(2, 1, requires_grad=True)
    with kl_alongside({"q": (0.0, 1.0)}) as found:
        assert drawn_from_factors("q", loc, factor, factor) is None
    assert not found


@needs_cuda
@pytest.mark.parametrize("rows", [(7,), (2, 3)])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_product_on_cuda_is_that_of_the_drawn_weight(dtype: torch.dtype, has_bias: bool, rows: tuple[int, ...]) -> None:
    """Against float64 with the weight that an identity shows; 16-bit results are rounded once."""
    torch.manual_seed(0)
    loc, log_std, x, bias = (
        torch.randn(size, device="cuda").mul_(0.5).requires_grad_() for size in ((20, 30), (20, 30), (*rows, 30), (20,))
    )

    def product(x: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        torch.manual_seed(3)
        with torch.autocast("cuda", dtype), kl_alongside({"q": (0.2, 0.7)}) as found:
            output = drawn_product("q", loc, log_std, x, bias)
        assert output is not None and output.dtype == dtype
        return output, found["q"].sum()

    weight = product(torch.eye(30, device="cuda"), None)[0].T.double().detach()
    exact = [part.detach().double().requires_grad_() for part in (loc, log_std, x, bias)]
    noise = (weight - exact[0].detach()) / exact[1].detach().exp()
    drawn_weight = exact[0] + exact[1].exp() * noise
    expected = exact[2] @ drawn_weight.T + (exact[3] if has_bias else 0)
    divergence = Normal(0.2, 0.7).kl(exact[0], (2 * exact[1]).exp()).sum()
    output, found = product(x, bias if has_bias else None)
    torch.testing.assert_close(output.double(), expected, rtol=0.02, atol=0.02)
    torch.testing.assert_close(found.double(), divergence, rtol=1e-5, atol=1e-3)
    slopes = torch.randn(output.shape, device="cuda").to(dtype)
    leaves = [loc, log_std, x, *([bias] if has_bias else [])]
    actual = torch.autograd.grad([output, found], leaves, [slopes, torch.tensor(0.3, device="cuda")])
    total = (expected * slopes).sum() + 0.3 * divergence
    for mine, theirs in zip(actual, torch.autograd.grad(total, exact[: len(leaves)]), strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=0.02, atol=0.02 * float(theirs.abs().max()))


@needs_cuda
def test_weights_are_drawn_and_multiplied_by_one_function_in_sixteen_bits_alone() -> None:
    layer = bl.layers.Linear(4, 3, estimator=bl.weight_sample, prior=Normal()).cuda()
    x = torch.randn(5, 4, device="cuda")
    for half, node in ((True, "DrawnProductBackward"), (False, "AddmmBackward0")):
        with torch.autocast("cuda", torch.bfloat16, enabled=half), kl_alongside({layer.weight: (0.0, 1.0)}) as found:
            output = layer(x)
        assert output.grad_fn is not None
        names = {output.grad_fn.name(), *(parent.name() for parent, _ in output.grad_fn.next_functions if parent)}
        assert node in names and layer.weight in found


@pytest.mark.parametrize("times", [1.0, 2.0])
def test_powers_of_two_are_exponentials_to_a_millionth(times: float) -> None:
    """In float32 between deviations of 1e-6 and 1e2; to rounding in float64, and 0 for a deviation of 0."""
    log = torch.linspace(-14, 4.6, 10_001)
    exact = (times * log.double()).exp()
    assert (exp_of(log, times).double() / exact - 1).abs().max().item() < times * 1e-6
    assert (exp_of(log.double(), times) / exact - 1).abs().max().item() < 1e-14
    assert exp_of(torch.tensor([LOG_OF_NOTHING], dtype=torch.float64), times).item() == 0
