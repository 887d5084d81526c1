"""Noise: the hash against the normal distribution, and what compiled code draws."""

import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from bayeslim.noise import hashed_normal, normal_like


def drawn(first: int, second: int, *shape: int) -> Tensor:
    return hashed_normal(torch.tensor([first, second], dtype=torch.int32), shape)


COUNT = 2**20


@pytest.fixture(scope="module")
def numbers() -> Tensor:
    return drawn(12345, -678, COUNT).double()


def test_moments_within_five_standard_errors(numbers: Tensor) -> None:
    for power, expected in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0), (6, 15.0)):
        values = numbers**power
        assert abs(values.mean() - expected) < 5 * values.std() / math.sqrt(COUNT), power


def test_distribution(numbers: Tensor) -> None:
    assert stats.kstest(numbers.numpy(), "norm").pvalue > 1e-4  # pyright: ignore[reportAttributeAccessIssue]
    beyond_four = (numbers.abs() > 4).double()
    expected = math.erfc(4 / math.sqrt(2))
    assert abs(beyond_four.mean() - expected) < 5 * math.sqrt(expected / COUNT)


@pytest.mark.parametrize("lag", [1, 2, 3, 7, 16, 300, 2**16])
def test_neighbours_are_independent(numbers: Tensor, lag: int) -> None:
    for function in (lambda x: x, lambda x: x.square() - 1, torch.sign):
        products = function(numbers[lag:]) * function(numbers[:-lag])
        assert abs(products.mean()) < 5 * products.std() / math.sqrt(len(products))


@pytest.mark.parametrize(
    "other", [(12346, -678), (12345, 1938405721), (-12345, 678), (12345 + COUNT // 2, -678), (0, 0), (-678, 12345)]
)
def test_other_seeds_are_independent(numbers: Tensor, other: tuple[int, int]) -> None:
    beside = drawn(*other, COUNT).double()
    for function in (lambda x: x, lambda x: x.square() - 1):
        for shift in (0, 1, -1, COUNT // 2):
            products = function(numbers) * function(beside.roll(shift))
            assert abs(products.mean()) < 5 * products.std() / math.sqrt(COUNT)


def test_a_function_of_seed_and_place_alone() -> None:
    assert torch.equal(drawn(1, 2, 3, 4), drawn(1, 2, 12).view(3, 4))
    assert torch.equal(drawn(1, 2, 5), drawn(1, 2, 12)[:5])


def test_the_largest_number() -> None:
    assert abs(drawn(0, 1, COUNT)).max() < math.sqrt(-2 * math.log(2.0**-25))


def test_eager_code_draws_from_torch() -> None:
    torch.manual_seed(3)
    found = normal_like(torch.empty(2, 3, dtype=torch.float64))
    torch.manual_seed(3)
    assert torch.equal(found, torch.randn(2, 3, dtype=torch.float64))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_compiled_cuda_code_hashes_the_same_numbers() -> None:
    seed = torch.tensor([3, -5], dtype=torch.int32)
    found = torch.compile(hashed_normal, fullgraph=True)(seed.cuda(), (300, 4096))
    torch.testing.assert_close(found.cpu(), hashed_normal(seed, (300, 4096)), rtol=1e-4, atol=1e-5)
    draw = torch.compile(lambda like: 2 * normal_like(like), fullgraph=True)
    torch.manual_seed(1)
    first = draw(found.bfloat16())
    assert first.dtype == torch.bfloat16 and abs(first.float().std().item() - 2) < 0.02
    assert not torch.equal(first, draw(found.bfloat16()))


def test_compiled_code_draws_anew_and_follows_the_seed() -> None:
    draw = torch.compile(normal_like, fullgraph=True)
    like = torch.zeros(1000, dtype=torch.float64)
    torch.manual_seed(1)
    first, second = draw(like), draw(like)
    torch.manual_seed(1)
    assert torch.equal(first, draw(like)) and not torch.equal(first, second)
    assert first.dtype == torch.float64 and abs(first.std() - 1) < 5 / math.sqrt(2 * 1000)
    assert abs((first * second).mean()) < 5 / math.sqrt(1000)


def test_compiled_code_keeps_no_noise_for_the_backward_pass() -> None:
    kept: list[Tensor] = []

    def noisy(mean: Tensor, log_std: Tensor) -> Tensor:
        return (mean + log_std.exp() * normal_like(mean)).square().sum()

    mean, log_std = (torch.randn(300, 200, requires_grad=True) for _ in range(2))
    torch.manual_seed(0)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        loss = torch.compile(noisy, fullgraph=True)(mean, log_std)
    loss.backward()
    assert mean.grad is not None and log_std.grad is not None
    noise = (mean.grad / 2 - mean.detach()) / log_std.detach().exp()
    assert abs(noise.std() - 1) < 5 / math.sqrt(2 * noise.numel())
    assert torch.allclose(log_std.grad, mean.grad * noise * log_std.detach().exp(), rtol=1e-3, atol=1e-3)
    parameters = {mean.data_ptr(), log_std.data_ptr()}
    assert sum(t.numel() for t in kept if t.data_ptr() not in parameters) < 10
