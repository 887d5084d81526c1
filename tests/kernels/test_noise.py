"""Noise: the hash against the normal distribution, and what compiled code draws."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from bayeslim.kernels import noise
from bayeslim.kernels.noise import hashed_normal, looked_up_normal, normal_like, normals


def drawn(first: int, second: int, *shape: int) -> Tensor:
    return hashed_normal(torch.tensor([first, second], dtype=torch.int32), shape)


COUNT = 2**20


@pytest.fixture(scope="module", params=["hashed", "looked up"])
def numbers(request: pytest.FixtureRequest) -> Tensor:
    found = drawn(12345, -678, COUNT) if request.param == "hashed" else looked_up_normal(12345, (COUNT,))
    return found.double()


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
def test_other_seeds_are_independent(other: tuple[int, int]) -> None:
    numbers, beside = drawn(12345, -678, COUNT).double(), drawn(*other, COUNT).double()
    for function in (lambda x: x, lambda x: x.square() - 1):
        for shift in (0, 1, -1, COUNT // 2):
            products = function(numbers) * function(beside.roll(shift))
            assert abs(products.mean()) < 5 * products.std() / math.sqrt(COUNT)


def test_a_function_of_seed_and_place_alone() -> None:
    assert torch.equal(drawn(1, 2, 3, 4), drawn(1, 2, 12).view(3, 4))
    assert torch.equal(drawn(1, 2, 5), drawn(1, 2, 12)[:5])


def test_the_largest_number() -> None:
    assert abs(drawn(0, 1, COUNT)).max() < math.sqrt(-2 * math.log(2.0**-25))


@pytest.mark.parametrize("other", [0, 1, 12344, 12346, 12345 + 2**32, 12345 + 2**64])
def test_numbers_looked_up_by_other_seeds_are_independent(other: int) -> None:
    numbers, beside = looked_up_normal(12345, (COUNT,)).double(), looked_up_normal(other, (COUNT,)).double()
    for function in (lambda x: x, lambda x: x.square() - 1):
        for shift in (0, 1, 4, -4):
            products = function(numbers) * function(beside.roll(shift))
            assert abs(products.mean()) < 5 * products.std() / math.sqrt(COUNT)


def test_the_table_holds_the_means_of_equally_likely_intervals() -> None:
    """By its own moments, and by averages of normal numbers that lie between two quantiles."""
    table = noise._table(torch.float64)
    moments = [float(np.mean(table**power)) for power in (1, 2, 4, 6)]
    assert moments == pytest.approx([0, 1, 2.9998, 14.99], abs=0.002)
    assert moments[1] == pytest.approx(1, abs=1e-12) and table.max() == pytest.approx(4.3875, abs=1e-4)
    for i in (0, 1, 40_000, 65_534):
        inside = stats.norm.ppf(np.linspace(i, i + 1, 20_001)[1:-1] / 2**16)
        assert table[i] == pytest.approx(inside.mean(), rel=2e-4)


def test_looked_up_numbers_depend_on_nothing_but_the_seed() -> None:
    some, more = looked_up_normal(7, (3, 5)), looked_up_normal(7, (2 * noise.AT_ONCE + 3,))
    assert torch.equal(some.flatten(), more[:15]) and not torch.equal(more[:15], more[noise.AT_ONCE :][:15])
    torch.testing.assert_close(looked_up_normal(7, (15,), torch.float64).float(), more[:15])


def test_eager_code_draws_few_or_exact_numbers_from_torch() -> None:
    for shape, dtype in (((2, 3), torch.float32), ((300, 300), torch.float64)):
        torch.manual_seed(3)
        found = normal_like(torch.empty(shape, dtype=dtype))
        torch.manual_seed(3)
        assert torch.equal(found, torch.randn(shape, dtype=dtype))


def test_many_numbers_follow_the_seed_and_are_drawn_anew() -> None:
    like = torch.empty(400, 400)
    torch.manual_seed(1)
    first, second = normal_like(like), normals((160_000,), like)
    torch.manual_seed(1)
    assert torch.equal(first, normal_like(like)) and first.shape == like.shape
    assert np.isin(first.numpy(), noise._table(torch.float32)).all()
    assert abs((first.flatten() * second).mean()) < 5 / math.sqrt(160_000)


@pytest.mark.parametrize("differs", [True, False])
def test_samples_of_vmap_get_numbers_of_their_own(differs: bool) -> None:
    """Whether the tensor differs over samples or not; where samples are to share their noise, they do."""

    def draw(sample: Tensor, randomness: str = "different") -> Tensor:
        like = torch.zeros(50, 60)
        return torch.vmap(lambda x: normal_like(like + x if differs else like), randomness=randomness)(sample)

    torch.manual_seed(1)
    found = draw(torch.zeros(50))
    assert found.shape == (50, 50, 60) and np.isin(found.numpy(), noise._table(torch.float32)).all()
    flat = found.flatten(1)
    correlations = flat @ flat.T / 3000 - torch.eye(50)
    assert correlations.abs().max() < 5.5 / math.sqrt(3000 / 2)
    torch.manual_seed(1)
    assert torch.equal(found, draw(torch.zeros(50)))
    few = draw(torch.zeros(3))
    assert few.shape == (3, 50, 60) and not torch.equal(few[0], few[1])
    nested = torch.vmap(draw, randomness="different")(torch.zeros(2, 50))
    assert nested.shape == (2, 50, 50, 60) and not torch.equal(nested[0], nested[1])
    if not differs:
        shared = torch.vmap(lambda x: normal_like(torch.zeros(400, 400)) + x, randomness="same")(torch.zeros(2))
        assert torch.equal(shared[0], shared[1])


def test_noise_of_a_traced_network_stays_random() -> None:
    """Numbers of a table would be constants there."""
    traced: Any = torch.jit.trace(normal_like, torch.empty(400, 400), check_trace=False)
    assert not torch.equal(traced(torch.empty(400, 400)), traced(torch.empty(400, 400)))


@pytest.mark.cuda
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
