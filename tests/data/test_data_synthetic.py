"""Generators: formulas at zero noise, moments within five standard errors, seeds."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayeslim.data import blundell_curve, dissertation_curve, moons, sparse_regression

DRAWS: list[Callable[[int], tuple[Tensor, ...]]] = [
    lambda seed: tuple(moons(50, 0.1, seed)),
    lambda seed: tuple(blundell_curve(50, 0.02, seed)),
    lambda seed: tuple(vars(dissertation_curve(seed=seed)).values()),
    lambda seed: tuple(sparse_regression(1, 20, seed)),
    lambda seed: tuple(sparse_regression(2, 20, seed)),
    lambda seed: tuple(sparse_regression(3, 20, seed)),
]


@pytest.mark.parametrize("draw", DRAWS)
def test_a_seed_fixes_the_draw_and_global_state_is_left_alone(draw) -> None:
    state = torch.get_rng_state()
    first, again, other = draw(3), draw(np.int64(3)), draw(4)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])
    assert first[0].dtype == torch.float32


def test_moons_lie_on_two_half_circles() -> None:
    x, y = moons(1001, noise=0, seed=1)
    assert x.shape == (1001, 2)
    assert y.dtype == torch.int64
    assert y.bincount().tolist() == [501, 500]
    centre = y[:, None] * torch.tensor([1.0, 0.3])
    assert torch.allclose((x - centre).norm(dim=1), torch.ones(1001), atol=1e-6)
    height = (x - centre)[:, 1]
    assert (height[y == 0] >= -1e-6).all()
    assert (height[y == 1] <= 1e-6).all()
    assert 150 < y[:500].sum() < 350  # shuffled
    moved, _ = moons(1001, noise=0, seed=1, shift=(1.0, 0.5))
    assert torch.allclose((moved - x)[:, 1], 0.2 * y, atol=1e-6)


def test_moons_noise_is_normal() -> None:
    n = 20_000
    noise = (moons(n, 0.3, seed=2).x - moons(n, 0, seed=2).x) / 0.3
    assert noise.mean().abs() < 5 / math.sqrt(2 * n)
    assert abs(noise.var() - 1) < 5 * math.sqrt(2 / (2 * n))


def curve(x: Tensor) -> Tensor:
    return x + 0.3 * torch.sin(2 * math.pi * x) + 0.3 * torch.sin(4 * math.pi * x)


def test_curves_without_noise() -> None:
    x, y = blundell_curve(2000, noise=0, seed=0)
    assert torch.allclose(y, curve(x), atol=1e-6)
    assert 0 <= x.min() < 0.005
    assert 0.495 < x.max() <= 0.5
    data = dissertation_curve(noise=0)
    assert data.x_train.shape == data.y_train.shape == (40, 1)
    assert data.x_test.shape == data.y_test.shape == (460, 1)
    grid = torch.cat([data.x_train, data.x_test]).flatten().sort().values
    assert torch.allclose(grid, torch.arange(500) * (1.4 / 499), atol=1e-6)
    assert torch.allclose(data.y_test, curve(data.x_test), atol=1e-6)
    assert data.x_train.max() - data.x_train.min() > 1  # taken from everywhere


@pytest.mark.parametrize("which", ["blundell", "dissertation"])
def test_the_same_noise_is_inside_and_outside_the_sines(which: str) -> None:
    n, noise = 20_000, 1e-3
    if which == "blundell":
        x, y = blundell_curve(n, noise, seed=5)
    else:
        data = dissertation_curve(n, 10, noise, seed=5)
        x, y = data.x_test, data.y_test
    x, y = x.double(), y.double()
    # To first order y = f(x) + g e with one e; with two the variance would not be g squared.
    g = 1 + 0.6 * math.pi * (2 * math.pi * x).cos() + 1.2 * math.pi * (4 * math.pi * x).cos()
    e = ((y - curve(x)) / g)[g.abs() > 1] / noise
    assert abs(e.mean()) < 5 / math.sqrt(len(e)) + 0.02
    assert abs(e.var() - 1) < 5 * math.sqrt(2 / len(e)) + 0.02


def columns(x: Tensor) -> NDArray[np.float64]:
    """Columns numbered from 1, as the formulas are printed."""
    values = x.double().numpy().T
    return np.concatenate([np.zeros_like(values[:1]), values])


def example_1(x: Tensor, variant: str) -> NDArray[np.float64]:
    c, tanh = columns(x), np.tanh
    first = tanh(2 * tanh(2 * c[1] - c[2]))
    inner, last = tanh(c[3] - 2 * c[4]), tanh(2 * c[5])
    if variant == "paper":
        return first + 2 * tanh(inner - last)
    return first + (2 * tanh(inner) - last if variant == "code" else 2 * tanh(2 * inner - last))


def example_2(x: Tensor) -> NDArray[np.float64]:
    c = columns(x)
    return 5 * c[2] / (1 + c[1] ** 2) + 5 * np.sin(c[3] * c[4]) + 2 * c[5]


def is_standard_normal(noise: NDArray[np.float64]) -> bool:
    n = len(noise)
    mean_fits = abs(noise.mean()) < 5 / math.sqrt(n)
    variance_fits = abs(noise.var() - 1) < 5 * math.sqrt(2 / n)
    return bool(mean_fits and variance_fits)


def test_inputs_have_variance_one_and_correlation_one_half() -> None:
    n = 6000
    x = sparse_regression(1, n, seed=0).x
    assert x.shape == (n, 1000)
    some = x[:, ::20].double()
    assert (some.mean(0).abs() < 5 / math.sqrt(n)).all()
    assert ((some.var(0) - 1).abs() < 5 * math.sqrt(2 / n)).all()
    correlation = torch.corrcoef(some.T)
    pairs = correlation[~torch.eye(len(correlation), dtype=torch.bool)]
    assert ((pairs - 0.5).abs() < 5 * (1 - 0.5**2) / math.sqrt(n)).all()


@pytest.mark.parametrize("variant", ["code", "paper", "sun"])
def test_example_1_is_the_chosen_function_of_five_inputs_plus_noise(variant: Any) -> None:
    n = 5000
    x, y, support = sparse_regression(1, n, seed=7, variant=variant)
    assert support.tolist() == [0, 1, 2, 3, 4]
    assert y.shape == (n, 1)
    noise = y.double().numpy()[:, 0] - example_1(x, variant)
    assert is_standard_normal(noise)
    standardised = (x.double() - x.double().mean(0)) / x.double().std(0)
    correlations = standardised.T @ torch.from_numpy(noise) / n
    assert (correlations.abs() < 5 / math.sqrt(n)).all()
    for other in {"code", "paper", "sun"} - {variant}:
        assert not is_standard_normal(y.double().numpy()[:, 0] - example_1(x, other))


def test_example_1_defaults_to_the_published_code() -> None:
    default, code = sparse_regression(1, 10, 0), sparse_regression(1, 10, 0, variant="code")
    assert torch.equal(default.y, code.y)


def test_example_2() -> None:
    x, y, support = sparse_regression(2, 5000, seed=7)
    assert x.shape == (5000, 2000)
    assert support.tolist() == [0, 1, 2, 3, 4]
    assert is_standard_normal(y.double().numpy()[:, 0] - example_2(x))


def test_example_3() -> None:
    n = 8000
    x, y, support = sparse_regression(3, n, seed=7)
    assert x.shape == (n, 1000)
    assert support.tolist() == [0, 1, 2, 3]
    c = columns(x)
    decision = np.exp(c[1]) + c[2] ** 2 + 5 * np.sin(c[3] * c[4]) - 3
    clear = np.abs(decision) > 1e-4
    np.testing.assert_array_equal(y.numpy()[clear, 0], decision[clear] > 0)
    assert y.dtype == torch.float32
    # The published generator gives about 52 to 48.
    assert abs(abs(y.mean().item() - 0.5) - 0.02) < 5 * 0.5 / math.sqrt(n)


def test_train_and_test_of_different_seeds_are_independent() -> None:
    n = 2000
    train, test = sparse_regression(1, n, seed=0), sparse_regression(1, n, seed=1)
    together = torch.cat([train.x[:, :20], test.x[:, :20]], 1).double()
    across = torch.corrcoef(together.T)[:20, 20:]
    assert (across.abs() < 5 / math.sqrt(n)).all()
    noises = [part.y.double().numpy()[:, 0] - example_1(part.x, "code") for part in (train, test)]
    assert abs(np.mean(noises[0] * noises[1])) < 5 / math.sqrt(n)
    # Nor is one stream of numbers a shifted copy of the other.
    a, b = (part.x[:, :500].double().flatten() for part in (train, test))
    spectrum = torch.fft.rfft(a - a.mean()) * torch.fft.rfft(b - b.mean()).conj()
    shifted = torch.fft.irfft(spectrum, len(a)) / (len(a) * a.std() * b.std())
    assert shifted.abs().max() < 0.1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: moons(0), "`n` must be a positive integer, got 0"),
        (lambda: moons(5, noise=-1), "`noise` must be finite and not negative, got -1"),
        (lambda: moons(5, noise=math.nan), "`noise` must be .* got nan"),
        (lambda: moons(5, seed=-1), "`seed` must be an integer"),
        (lambda: blundell_curve(5, noise=math.inf), "`noise` must be"),
        (lambda: blundell_curve(-2), "`n` must be"),
        (lambda: dissertation_curve(10, train=10), "`train` must be between 1 and n - 1 = 9"),
        (lambda: dissertation_curve(10, train=0), "`train` must be"),
        (lambda: sparse_regression(4, 5, 0), "`example` must be 1, 2 or 3, got 4"),  # pyright: ignore
        (lambda: sparse_regression(1, 0, 0), "`n` must be"),
        (lambda: sparse_regression(1, 5, -1), "`seed` must be"),
        (lambda: sparse_regression(2, 5, 0, "code"), "`variant` must be left out for example 2"),
        (lambda: sparse_regression(1, 5, 0, "mine"), "`variant` must be one of 'code'"),  # pyright: ignore
    ],
)
def test_arguments_are_checked(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
