"""Small problems drawn from known functions; the same seed always gives the same draw on a CPU."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from bayeslim.checks.counts import check_counts
from bayeslim.checks.numbers import check_number
from bayeslim.data.tabular import RegressionData
from bayeslim.runtime.seeds import check_seed


class Samples(NamedTuple):
    """Inputs x (N, features), float32, and targets y."""

    x: Tensor
    y: Tensor


def moons(n: int, noise: float = 0.1, seed: int = 0, shift: tuple[float, float] = (1.0, 0.3)) -> Samples:
    r"""Draw points near two interleaved half circles, one a class, in random order.

    .. math:: x = (\cos t, \sin t) + \sigma \epsilon \quad (y = 0), \qquad
              x = (\cos t, -\sin t) + \text{shift} + \sigma \epsilon \quad (y = 1)

    with :math:`t \sim U(0, \pi)` and :math:`\epsilon \sim N(0, I)`. The defaults are those of
    MLJBase's make_moons, which the dissertation's experiment uses with n = 1000, 50 of them to
    train on; scikit-learn's moons have the shift (1, 0.5) and equally spaced t.

    Args:
        n: number of points; class 0 gets the odd one.
        noise: standard deviation :math:`\sigma` >= 0.
        seed: seed of the random generator.
        shift: centre of the second half circle.

    Returns:
        x (n, 2) float32 and y (n,) int64.

    Example:
        >>> x, y = moons(1000, noise=0.1, seed=0)
        >>> x.shape, y.bincount().tolist()
        (torch.Size([1000, 2]), [500, 500])
    """
    generator = generator_for(n, seed)
    check_number("noise", noise, "[0, inf)", "pass e.g. 0.1")
    y = (torch.arange(n) >= (n + 1) // 2).long()
    angle = math.pi * torch.rand(n, generator=generator)
    side = 1 - 2 * y
    x = torch.stack([angle.cos(), side * angle.sin()], 1) + y[:, None] * torch.tensor(shift)
    x = x + noise * torch.randn(n, 2, generator=generator)
    order = torch.randperm(n, generator=generator)
    return Samples(x[order], y[order])


def dissertation_curve(n: int = 500, train: int = 40, noise: float = 0.02, seed: int = 2345) -> RegressionData:
    r"""Draw the dissertation's noisy curve at equally spaced inputs and split it at random.

    .. math:: y = x + 0.3 \sin(2\pi(x + e)) + 0.3 \sin(4\pi(x + e)) + e, \qquad e \sim N(0, \sigma^2)

    with the same e inside and outside the sines, and n values of x equally spaced on [0, 1.4]. The
    seed is the dissertation's; its generator was Julia's, so the draw is another one.

    Args:
        n: number of points.
        train: how many of them, chosen at random, are for training.
        noise: standard deviation :math:`\sigma` >= 0 of e.
        seed: seed of the random generator, for e and the split.

    Returns:
        `RegressionData` with x (., 1) and y (., 1).

    Example:
        >>> data = dissertation_curve()
        >>> data.x_train.shape, data.x_test.shape
        (torch.Size([40, 1]), torch.Size([460, 1]))
    """
    generator = generator_for(n, seed)
    check_number("noise", noise, "[0, inf)", "pass e.g. 0.1")
    if not 0 < train < n:
        raise ValueError(f"`train` must be between 1 and n - 1 = {n - 1}, got {train}: pass e.g. 40")
    x = torch.linspace(0, 1.4, n)[:, None]
    y = _curve(x, noise * torch.randn(n, 1, generator=generator))
    order = torch.randperm(n, generator=generator)
    first, rest = order[:train], order[train:]
    return RegressionData(x[first], y[first], x[rest], y[rest])


def blundell_curve(n: int, noise: float = 0.02, seed: int = 0) -> Samples:
    r"""Draw the regression curve of Blundell et al. (2015), section 5.2.

    .. math:: y = x + 0.3 \sin(2\pi(x + e)) + 0.3 \sin(4\pi(x + e)) + e, \qquad e \sim N(0, \sigma^2)

    with :math:`x \sim U(0, 0.5)` and the same e inside and outside the sines. The paper writes
    N(0, 0.02); as in its successors, 0.02 is read as the standard deviation.

    Args:
        n: number of points.
        noise: standard deviation :math:`\sigma` >= 0 of e.
        seed: seed of the random generator.

    Returns:
        x (n, 1) and y (n, 1), float32.

    Example:
        >>> x, y = blundell_curve(100, seed=0)
        >>> x.shape, y.shape
        (torch.Size([100, 1]), torch.Size([100, 1]))
    """
    generator = generator_for(n, seed)
    check_number("noise", noise, "[0, inf)", "pass e.g. 0.1")
    x = 0.5 * torch.rand(n, 1, generator=generator)
    return Samples(x, _curve(x, noise * torch.randn(n, 1, generator=generator)))


def _curve(x: Tensor, e: Tensor) -> Tensor:
    inside = 2 * math.pi * (x + e)
    return x + 0.3 * inside.sin() + 0.3 * (2 * inside).sin() + e


def generator_for(n: int, seed: int) -> torch.Generator:
    """A generator that starts from `seed`; a ValueError where that or the number of points makes no sense."""
    check_counts(n=n)
    return torch.Generator().manual_seed(check_seed(seed))
