"""MC dropout: dropout that stays random in evaluation mode."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from bayeslim.checks.networks import check_network
from bayeslim.checks.numbers import check_number
from bayeslim.surgery import replaced, topmost, with_hooks

__all__ = ["MCDropout", "keep_dropout_"]

DROPOUTS: dict[type[nn.Module], Callable[..., Tensor]] = {
    nn.Dropout: F.dropout,
    nn.Dropout1d: F.dropout1d,
    nn.Dropout2d: F.dropout2d,
    nn.Dropout3d: F.dropout3d,
}
"""The exact torch type -> its function."""


class MCDropout(nn.Module):
    """Dropout in training and evaluation mode alike (Gal and Ghahramani 2016).

    `y = x z / (1 - p)` with `z ~ Bernoulli(1 - p)` for every element: mean x, variance `x^2 p / (1 - p)`.
    `bl.predict` draws a new z for every sample and every example.

    Args:
        p: probability of dropping an element, in [0, 1).
        function: `F.dropout`, or `F.dropout2d` to drop whole channels.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 50), nn.ReLU(), MCDropout(0.1), nn.Linear(50, 1))
        >>> bl.predict(model, x, samples=200, likelihood=bl.likelihoods.Gaussian(0.1)).std
    """

    always_random = True
    """Tells `bl.predict` that there is something to sample."""

    def __init__(self, p: float = 0.5, function: Callable[..., Tensor] = F.dropout) -> None:
        super().__init__()
        check_number("p", p, "[0, 1)", "pass e.g. 0.1")
        self.p, self.function = float(p), function

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements of x."""
        return self.function(x, self.p, True)

    def extra_repr(self) -> str:
        """The probability."""
        return f"p={self.p}"


def keep_dropout_(model: nn.Module) -> nn.Module:
    """Replace the dropout layers of a trained network by `MCDropout`, so that `bl.predict` samples them.

    Args:
        model: network with `nn.Dropout`, `nn.Dropout1d`, `nn.Dropout2d` or `nn.Dropout3d` inside; changed in place.

    Returns:
        `model`, or its replacement where it is such a layer itself.

    Raises:
        ValueError: if there is none, or if another module drops on its own in training mode, as torch's attention and
            recurrent layers may; `model` is then unchanged.

    Example:
        >>> bl.fit(model, data, likelihood=bl.Categorical(), epochs=20)
        >>> bl.predict(keep_dropout_(model), x, samples=100).entropy
    """
    check_network(model, "change")
    for name, module in model.named_modules():
        rate = getattr(module, "dropout", 0.0)
        if isinstance(rate, float) and rate > 0:
            raise ValueError(
                f"{name or 'the network'} ({type(module).__name__}) has a dropout of {rate} of its own, which only "
                "works in training mode: build it with dropout=0 and put nn.Dropout beside it"
            )
    found = topmost(model, lambda _, module: type(module) in DROPOUTS)
    if not found:
        raise ValueError("`model` has no nn.Dropout to keep random: put some in, or use MCDropout directly")
    new = {id(old): with_hooks(MCDropout(getattr(old, "p"), DROPOUTS[type(old)]), old) for _, old in found}  # noqa: B009
    return replaced(model, new)
