"""Networks drawn from a posterior once, so that all rows of all calls see the same ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bayeslim.collapse import collapse_
from bayeslim.likelihoods.base import likelihood_of
from bayeslim.predictive import Snapshots
from bayeslim.predictive.snapshots import HELD_WEIGHTS, Replay
from bayeslim.pruning.prune import bayes_layers
from bayeslim.runtime.seeds import seeded
from bayeslim.runtime.threads import TURN
from bayeslim.surgery import copied

__all__ = ["DrawnNetworks", "Draws", "drawn_networks"]


class DrawnNetworks(Snapshots):
    """Snapshots that do not change: they are put together for `bl.predict` once."""

    _replay: Replay | None = None

    def replay(self) -> Replay:
        """See `Snapshots.replay`."""
        if self._replay is None:
            self._replay = super().replay()
            held = self._replay.held
            if held is not None:  # the list then shares their memory
                self.source = [{name: part[i] for name, part in held.items()} for i in range(len(self))]
        return self._replay


@torch.no_grad()
def drawn_networks(model: nn.Module, samples: int, seed: int) -> DrawnNetworks:
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
    return DrawnNetworks(plain, states)


class _Posterior(NamedTuple):
    """What drawn networks depend on."""

    samples: int
    seed: int
    modules: list[nn.Module]
    tensors: list[Tensor]


class Draws:
    """The networks that were drawn last, for as long as the posterior is what it was.

    Threads may share them. Copies and pickles hold none, and draw the same ones again. Networks that are large together
    are not kept.

    Example:
        >>> bl.predict(Draws().networks(model, samples=100, seed=0), x).mean
    """

    def __init__(self) -> None:
        self._kept: tuple[_Posterior, DrawnNetworks] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """A fresh one."""
        return Draws, ()

    @torch.no_grad()
    def networks(self, model: nn.Module, samples: int, seed: int) -> DrawnNetworks:
        """See `drawn_networks`."""
        with TURN:
            parts = (model, likelihood_of(model))
            modules = [module for part in parts for module in part.modules()]
            tensors = [tensor for part in parts for tensor in (*part.parameters(), *part.buffers())]
            now = _Posterior(samples, seed, modules, tensors)
            if self._kept is not None and _same(self._kept[0], now):
                return self._kept[1]
            self._kept = None
            found = drawn_networks(model, samples, seed)
            if samples * sum(tensor.numel() for tensor in found.model.state_dict().values()) <= HELD_WEIGHTS:
                self._kept = now._replace(tensors=[tensor.detach().clone() for tensor in tensors]), found
            return found


def _same(one: _Posterior, other: _Posterior) -> bool:
    """Whether the same networks are drawn; versions of tensors would not tell, which fused optimisers do not count."""
    alike = one[:2] == other[:2] and len(one.modules) == len(other.modules) and len(one.tensors) == len(other.tensors)
    return (
        alike
        and all(a is b for a, b in zip(one.modules, other.modules, strict=True))
        and all(a.device == b.device and torch.equal(a, b) for a, b in zip(one.tensors, other.tensors, strict=True))
    )
