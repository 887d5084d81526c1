"""Networks drawn from a posterior once, so that all rows of all calls see the same ones."""

from __future__ import annotations

import torch
from torch import nn

from bayeslim.collapse import collapse_
from bayeslim.predictive import Snapshots
from bayeslim.pruning.prune import bayes_layers
from bayeslim.randomness import seeded
from bayeslim.surgery import copied

__all__ = ["drawn_networks"]


@torch.no_grad()
def drawn_networks(model: nn.Module, samples: int, seed: int) -> Snapshots:
    """Plain networks with weights `W_s ~ q`, `s = 1..samples`: the same ones for the same seed.

    `bl.predict(model, x)` draws anew for every batch, so that the prediction for a row depends a little on the rows
    around it. With these it depends on the row alone.

    Args:
        model: network with Bayesian layers.
        samples: how many.
        seed: of the draws.

    Returns:
        What `bl.predict` and `bl.evaluate` take in place of a network.

    Example:
        >>> bl.predict(drawn_networks(model, samples=100, seed=0), x).mean
    """
    plain = collapse_(copied(model))
    fixed = plain.state_dict()
    layers = bayes_layers(model)
    with seeded(seed):
        states = [
            fixed | {f"{name}.weight": layer.weight.rsample() for name, layer in layers.items()} for _ in range(samples)
        ]
    return Snapshots(plain, states)
