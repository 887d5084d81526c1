"""Problems in which a handful of a thousand correlated inputs matter."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from bayeslim.data.synthetic import generator_for

Ex1Variant = Literal["code", "paper", "sun"]


class SparseSamples(NamedTuple):
    """Inputs x (N, p), float32, targets y (N, 1), float32, and the inputs that matter.

    `support` (s,) int64 numbers the columns of x that y depends on, from 0.
    """

    x: Tensor
    y: Tensor
    support: Tensor


def sparse_regression(
    example: Literal[1, 2, 3],
    n: int,
    seed: int,
    variant: Ex1Variant | None = None,
) -> SparseSamples:
    r"""Draw one of the three simulated examples of the CV-Adam and EM-MCMC paper.

    The inputs are :math:`x_i = (e + z_i) / \sqrt 2` with independent standard normal
    :math:`e, z_1, ..., z_p`, so each has variance 1 and any two have correlation 1/2. With
    :math:`\epsilon \sim N(0, 1)`:

    - Example 1 (p = 1000, support x1..x5). Three functions go by this name. All begin with
      :math:`\tanh(2 \tanh(2 x_1 - x_2))`; then

      - ``"code"``, the default: :math:`+ 2 \tanh(\tanh(x_3 - 2 x_4)) - \tanh(2 x_5) + \epsilon`,
        which the paper's notebooks draw from;
      - ``"paper"``: :math:`+ 2 \tanh(\tanh(x_3 - 2 x_4) - \tanh(2 x_5)) + \epsilon`, as printed;
      - ``"sun"``: :math:`+ 2 \tanh(2 \tanh(x_3 - 2 x_4) - \tanh(2 x_5)) + \epsilon`, the code of
        Sun, Song and Liang, the example's origin (who train on inputs of variance 1/2; not here).

    - Example 2 (p = 2000, support x1..x5):
      :math:`y = 5 x_2 / (1 + x_1^2) + 5 \sin(x_3 x_4) + 2 x_5 + \epsilon`.
    - Example 3 (p = 1000, support x1..x4): y = 1 if
      :math:`e^{x_1} + x_2^2 + 5 \sin(x_3 x_4) - 3 > 0`, else 0. The classes are not balanced.

    The papers truncate the normals to [-10, 10]; that removes 1.5e-23 of the mass and torch's
    generator never gives such a value. Draw training and test data with different seeds: the
    paper's code uses one seed for both, which makes the test inputs a shifted copy of the
    training inputs.

    Args:
        example: 1, 2 or 3.
        n: number of rows (the paper: 10240 to train, 1024 to test).
        seed: seed of the random generator.
        variant: which Example 1; leave it out for the others.

    Returns:
        x (n, p), y (n, 1) (0 and 1 in Example 3, as binary cross-entropy wants them) and the
        support, columns counted from 0.

    Example:
        >>> train, test = sparse_regression(1, 64, seed=0), sparse_regression(1, 16, seed=1)
        >>> train.x.shape, test.y.shape, train.support.tolist()
        (torch.Size([64, 1000]), torch.Size([16, 1]), [0, 1, 2, 3, 4])
    """
    if example not in (1, 2, 3):
        raise ValueError(f"`example` must be 1, 2 or 3, got {example!r}: pass one of them")
    generator = generator_for(n, seed)
    if variant is not None and example != 1:
        raise ValueError(
            f"`variant` must be left out for example {example}, got {variant!r}: only example 1 was "
            "published in several forms"
        )
    if variant is not None and variant not in _EXAMPLE_1_SECOND_TERMS:
        known = ", ".join(map(repr, _EXAMPLE_1_SECOND_TERMS))
        raise ValueError(f"`variant` must be one of {known}, got {variant!r}: pass one of them")
    inputs = 2000 if example == 2 else 1000
    shared = torch.randn(n, 1, generator=generator)
    x = torch.randn(n, inputs, generator=generator).add_(shared).mul_(0.5**0.5)
    noise = torch.randn(n, 1, generator=generator)
    if example == 1:
        y = _example_1(x, variant or "code") + noise
    elif example == 2:
        y = _example_2(x) + noise
    else:
        y = (_example_3(x) > 0).to(x.dtype)
    return SparseSamples(x, y, torch.arange(4 if example == 3 else 5))


# a = tanh(x3 - 2 x4), b = tanh(2 x5)
_EXAMPLE_1_SECOND_TERMS: dict[Ex1Variant, Callable[[Tensor, Tensor], Tensor]] = {
    "code": lambda a, b: 2 * a.tanh() - b,
    "paper": lambda a, b: 2 * (a - b).tanh(),
    "sun": lambda a, b: 2 * (2 * a - b).tanh(),
}


def _example_1(x: Tensor, variant: Ex1Variant) -> Tensor:
    x1, x2, x3, x4, x5 = x[:, :5].split(1, dim=1)
    first = (2 * (2 * x1 - x2).tanh()).tanh()
    return first + _EXAMPLE_1_SECOND_TERMS[variant]((x3 - 2 * x4).tanh(), (2 * x5).tanh())


def _example_2(x: Tensor) -> Tensor:
    x1, x2, x3, x4, x5 = x[:, :5].split(1, dim=1)
    return 5 * x2 / (1 + x1.square()) + 5 * (x3 * x4).sin() + 2 * x5


def _example_3(x: Tensor) -> Tensor:
    """The decision function: positive where y = 1."""
    x1, x2, x3, x4 = x[:, :4].split(1, dim=1)
    return x1.exp() + x2.square() + 5 * (x3 * x4).sin() - 3
