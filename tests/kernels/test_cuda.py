"""Triton kernels against their formulas; `make test-cuda` runs them."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim import kernels
from bayeslim.kernels import NormalPrior, collecting
from bayeslim.ops import LinearOp
from bayeslim.posteriors import KTied, MeanField
from bayeslim.priors import Normal

pytestmark = pytest.mark.cuda

PRIOR = NormalPrior(0.2, 0.7)


def under(dtype: torch.dtype) -> Any:
    return torch.autocast("cuda", dtype) if dtype != torch.float32 else nullcontext()


def is_standard_normal(noise: Tensor) -> None:
    for power, target in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)):
        values = noise.double() ** power
        assert abs(values.mean() - target) < 5 * values.std() / noise.numel() ** 0.5


@pytest.mark.parametrize("count", [1, 1023, 1024, 100_003])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_draw_against_its_formula(count: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    q = MeanField(torch.randn(count, device="cuda"))
    q.set_scale_((0.3 * torch.randn(count, device="cuda") - 1).exp())
    known: dict[object, Tensor] = {}
    with under(dtype), collecting({q: PRIOR}, known, q.loc):
        weight = q.rsample()
    assert weight.dtype == dtype
    expected = Normal(*PRIOR).kl(q.loc, (2 * q.log_scale).exp()).sum()
    torch.testing.assert_close(known[q], expected, rtol=1e-5, atol=1e-3)
    leaves, upstream = (q.loc, q.log_scale), torch.randn(count, device="cuda").to(dtype)
    by_kl = torch.autograd.grad(expected * 0.3, leaves)
    slope = torch.tensor(0.3, device="cuda")
    torch.testing.assert_close(
        torch.autograd.grad(known[q], leaves, slope, retain_graph=True), by_kl, rtol=1e-5, atol=1e-5
    )
    by_loc, by_log_std = torch.autograd.grad([weight, known[q]], leaves, [upstream, slope])
    std = q.log_scale.detach().exp()
    noise = (weight.detach().float() - q.loc.detach()) / std
    torch.testing.assert_close(by_loc, upstream.float() + by_kl[0], rtol=1e-4, atol=1e-4)
    tolerance = 1e-4 if dtype == torch.float32 else 0.1
    torch.testing.assert_close(by_log_std, upstream.float() * noise * std + by_kl[1], rtol=tolerance, atol=tolerance)
    if count > 1e5 and dtype == torch.float32:
        is_standard_normal(noise)


def test_draws_differ_and_follow_the_seed() -> None:
    q = MeanField(torch.zeros(1000, device="cuda"))

    def draw() -> Tensor:
        with collecting({q: PRIOR}, {}, q.loc):
            return q.rsample().detach()

    torch.manual_seed(1)
    first, second = draw(), draw()
    torch.manual_seed(1)
    assert torch.equal(first, draw()) and not torch.equal(first, second)


@pytest.mark.parametrize("shape", [(1, 1), (16, 256), (17, 257), (100, 784), (300, 1000)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_draw_of_tied_scales_against_its_formula(shape: tuple[int, int], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    q = KTied(0.3 * torch.randn(shape, device="cuda"), k=min(2, *shape), scale=0.3, jitter=0.3)
    known: dict[object, Tensor] = {}
    with under(dtype), collecting({q: PRIOR}, known, q.loc):
        weight = q.rsample()
    assert weight.dtype == dtype
    leaves, std = (q.loc, q.log_in, q.log_out), q.scale().double()
    noise = ((weight.double() - q.loc) / std).detach()
    upstream = torch.randn(shape, device="cuda").to(dtype)
    divergence = Normal(*PRIOR).kl(q.loc.double(), std.square()).sum()
    torch.testing.assert_close(known[q].double(), divergence, rtol=1e-5, atol=1e-3)
    expected = torch.autograd.grad(((q.loc + std * noise) * upstream).sum() + 0.3 * divergence, leaves)
    actual = torch.autograd.grad([weight, known[q]], leaves, [upstream, torch.tensor(0.3, device="cuda")])
    tolerance = 1e-4 if dtype == torch.float32 else 0.02
    for mine, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance * float(theirs.abs().max()))
    if min(shape) >= 100 and dtype == torch.float32:
        is_standard_normal(noise)


def test_tied_convolutions_leave_their_kl() -> None:
    layer = bl.layers.Conv2d(3, 8, 3, posterior=KTied, estimator=bl.weight_sample, prior=Normal()).cuda()
    x, y = torch.randn(4, 3, 5, 5, device="cuda"), torch.zeros(4, dtype=torch.long, device="cuda")
    model = nn.Sequential(layer, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    assert "triton draw" in str(kernels.explain(model, x))
    result = bl.nelbo(model, x, y, likelihood=bl.Categorical(), num_data=50)
    torch.testing.assert_close(result.kl, bl.kl(model), rtol=1e-5, atol=1e-4)
    result.loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("method", ["graves", "k-tied"])
def test_the_compiled_objective_is_the_eager_one(method: str) -> None:
    torch.manual_seed(0)
    model = bl.mlp([40, 30, 3], method=method).cuda()
    x, y = torch.randn(7, 40, device="cuda"), torch.randint(0, 3, (7,), device="cuda")
    results = {}
    for name, objective in (("eager", bl.nelbo), ("compiled", torch.compile(bl.nelbo, fullgraph=True))):
        model.zero_grad()
        draws = []
        for _ in range(400):
            beta = torch.ones((), device="cuda")
            result = objective(model, x, y, likelihood=bl.Categorical(), num_data=50, beta=beta)
            result.loss.backward()
            torch.testing.assert_close(result.kl, bl.kl(model), rtol=1e-5, atol=1e-3)
            draws.append(result.nll.detach())
        results[name] = torch.stack(draws), [parameter.grad for parameter in model.parameters()]
    (first, mine), (second, theirs) = results["eager"], results["compiled"]
    assert abs(first.mean() - second.mean()) < 5 * (first.var() / 400 + second.var() / 400).sqrt()
    for one, other in zip(mine, theirs, strict=True):
        assert one is not None and other is not None
        assert (one - other).norm() < 0.1 * one.norm()


@pytest.mark.parametrize("rows", [(7,), (2, 3)])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_product_is_that_of_the_drawn_weight(dtype: torch.dtype, has_bias: bool, rows: tuple[int, ...]) -> None:
    """Against float64 with the weight that an identity shows; 16-bit results are rounded once."""
    torch.manual_seed(0)
    q = MeanField(0.5 * torch.randn(20, 30, device="cuda"))
    q.set_scale_((0.5 * torch.randn(20, 30, device="cuda")).exp())
    x, bias = (torch.randn(size, device="cuda").mul_(0.5).requires_grad_() for size in ((*rows, 30), (20,)))

    def product(x: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        torch.manual_seed(3)
        known: dict[object, Tensor] = {}
        with torch.autocast("cuda", dtype), collecting({q: PRIOR}, known, x):
            output = kernels.draw_by_weight(q, LinearOp(), x, bias)
        assert (output.dtype == dtype and "DrawnProduct" in str(output.grad_fn or "")) or output.ndim > 2
        return output, known[q].sum()

    weight = product(torch.eye(30, device="cuda"), None)[0].T.double().detach()
    exact = [part.detach().double().requires_grad_() for part in (q.loc, q.log_scale, x, bias)]
    noise = (weight - exact[0].detach()) / exact[1].detach().exp()
    expected = exact[2] @ (exact[0] + exact[1].exp() * noise).T + (exact[3] if has_bias else 0)
    divergence = Normal(*PRIOR).kl(exact[0], (2 * exact[1]).exp()).sum()
    output, found = product(x, bias if has_bias else None)
    torch.testing.assert_close(output.double(), expected, rtol=0.02, atol=0.02)
    torch.testing.assert_close(found.double(), divergence, rtol=1e-5, atol=1e-3)
    slopes = torch.randn(output.shape, device="cuda").to(dtype)
    leaves = [q.loc, q.log_scale, x, *([bias] if has_bias else [])]
    actual = torch.autograd.grad([output, found], leaves, [slopes, torch.tensor(0.3, device="cuda")])
    total = (expected * slopes).sum() + 0.3 * divergence
    for mine, theirs in zip(actual, torch.autograd.grad(total, exact[: len(leaves)]), strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=0.02, atol=0.02 * float(theirs.abs().max()))
