"""The Bayesian linear layer."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import nn

from bayeslim.layers.base import BayesLayer, filled
from bayeslim.layers.initial import he_normal
from bayeslim.ops import LinearOp

__all__ = ["Linear"]


class Linear(BayesLayer):
    """`y = x W^T + b` with a posterior over `W`.

    A fresh layer draws its means from `N(0, 2 / in_features)`; the bias starts at zero.

    Args:
        in_features: size of the last axis of the input.
        out_features: size of the last axis of the output.
        bias: whether to add a bias.
        device: where the parameters live.
        dtype: their floating type.
        **bayes: `posterior`, `prior`, `estimator`, `bias_posterior`, `bias_prior` of `BayesLayer`.

    Shape:
        (..., in_features) -> (..., out_features)

    Example:
        >>> layer = Linear(3, 2, prior=ARD(), estimator=local_reparam)
        >>> layer(torch.randn(5, 3)).shape
        torch.Size([5, 2])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **bayes: Any,
    ) -> None:
        weight = he_normal(out_features, in_features, device=device, dtype=dtype)
        zero = weight.new_zeros(out_features) if bias else None
        super().__init__(LinearOp(), weight, zero, **bayes)

    @classmethod
    def from_torch(cls, plain: nn.Linear, **bayes: Any) -> Self:
        """Give the weight of a plain `nn.Linear` a posterior centred on it."""
        return cls.around(LinearOp(), plain.weight, plain.bias, **bayes)

    @property
    def in_features(self) -> int:
        """Size of the last axis of the input."""
        return self.weight.shape[1]

    @property
    def out_features(self) -> int:
        """Size of the last axis of the output."""
        return self.weight.shape[0]

    def to_torch(self) -> nn.Linear:
        """The plain layer with the posterior mean as its weight."""
        weight, bias = self.mean_tensors()
        with torch.device("meta"):
            plain = nn.Linear(weight.shape[1], weight.shape[0], bias is not None)
        return filled(plain, weight, bias)
