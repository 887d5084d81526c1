"""How the dissertation's code starts training, and the KL that it uses outside its range."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bayeslim.log_alpha import log_alpha
from bayeslim.priors import Prior
from bayeslim.priors.log_uniform import C1, C2, C3, KINGMA_CONSTANT

__all__ = ["UnboundedKingma", "scatter_"]


class UnboundedKingma(Prior):
    r"""Kingma's polynomial KL used where it does not hold, `alpha > 1`, as the dissertation's code does.

    `-(0.5 ln alpha + c1 alpha + c2 alpha^2 + c3 alpha^3) + 0.6554` with `alpha = variance / mean^2` (Kingma et al.
    2015, eq. 14): it falls to minus infinity, so that the objective has no minimum.
    `bl.priors.LogUniform(fit="kingma")` refuses such posteriors.

    Example:
        >>> UnboundedKingma().kl(torch.ones(()), torch.ones(()).mul(3).exp())  # the true KL is 0.025
        tensor(-4169.0...)
    """

    def kl(self, mean: Tensor, variance: Tensor) -> Tensor:
        """See the class docstring."""
        la = log_alpha(mean, variance)
        alpha = la.exp()
        return KINGMA_CONSTANT - 0.5 * la - alpha * (C1 + alpha * (C2 + alpha * C3))

    def config(self) -> dict[str, Any]:
        """Nothing to choose."""
        return {}


@torch.no_grad()
def scatter_(model: nn.Module) -> None:
    """Draw the mean and the log variance (`kingma`: ln alpha) of every weight from N(0, 1), whatever the fan-in.

    The posteriors are mean-field or multiplicative ones without bounds; biases stay as they are.
    """
    for name, parameter in model.named_parameters():
        if name.endswith((".loc", ".log_alpha")):
            parameter.normal_()
        elif name.endswith(".log_scale"):  # of the standard deviation
            parameter.normal_().mul_(0.5)
