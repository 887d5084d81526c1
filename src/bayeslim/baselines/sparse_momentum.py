"""Sparse momentum: a network that is sparse from the first step, its connections moved to where they are needed."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from bayeslim.checks.counts import check_counts
from bayeslim.checks.numbers import check_number
from bayeslim.optim.groups import prunable_layers
from bayeslim.runtime.seeds import check_seed

__all__ = ["SparseMomentum"]


class SparseMomentum:
    r"""Keep `density` of the weights, and after every epoch move some (Dettmers and Zettlemoyer 2019).

    Each layer begins with a random part `density`. After epoch t of T, with `r = prune_rate (1 + cos(pi t / T)) / 2`:

    - prune: every layer loses the part r of its weights that is smallest in `|w|`;
    - redistribute: what was lost in all is shared among layers by the mean `|m|` of their kept weights before it, m the
      optimiser's momentum;
    - grow: every layer takes its share at the missing weights of largest `|m|`, from zero.

    So the number of weights never changes. Masks are no part of a checkpoint of `bl.fit`.

    Args:
        model: any network; its plain linear layers and convolutions become sparse at once, biases do not.
        density: part of these weights to keep, in (0, 1).
        epochs: T; nothing moves after it.
        prune_rate: part of a layer's weights that moves after the first epochs, in (0, 1).
        seed: of the first masks.

    Example:
        >>> sparse = SparseMomentum(model, density=0.05, epochs=20)
        >>> bl.fit(model, data, likelihood=bl.Categorical(), epochs=20, after_epoch=sparse.after_epoch,
        ...        optimizer=lambda groups: sparse.attach(torch.optim.SGD(groups, lr=0.1, momentum=0.9)))
    """

    def __init__(
        self, model: nn.Module, *, density: float, epochs: int, prune_rate: float = 0.5, seed: int = 0
    ) -> None:
        for name, value in {"density": density, "prune_rate": prune_rate}.items():
            check_number(name, value, "(0, 1)", "pass e.g. 0.5")
        (epochs,) = check_counts(epochs=epochs)
        self.layers = prunable_layers(model)
        self.epochs, self.prune_rate, self.epoch = epochs, prune_rate, 0
        generator = torch.Generator().manual_seed(check_seed(seed))
        self.kept = [_random_mask(layer.weight, density, generator) for layer in self.layers]
        self.optimizer: torch.optim.Optimizer | None = None
        self._mask_weights()

    def attach(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Mask the weights after every `optimizer.step()`; returns the optimiser."""
        self.optimizer = optimizer
        optimizer.register_step_post_hook(lambda *_: self._mask_weights())
        return optimizer

    @torch.no_grad()
    def after_epoch(self, *_: Any) -> None:
        """Count an epoch, and prune, redistribute and grow; what `bl.fit` passes on is not needed."""
        self.epoch += 1
        rate = self.prune_rate * 0.5 * (1 + math.cos(math.pi * min(1.0, self.epoch / self.epochs)))
        momenta = [self._momentum(layer.weight).abs() for layer in self.layers]
        shares = [
            (momentum * kept).sum().item() / kept.sum().item()
            for momentum, kept in zip(momenta, self.kept, strict=True)
        ]
        lost = [min(int(rate * kept.sum().item()), int(kept.sum().item()) - 1) for kept in self.kept]
        for layer, kept, count in zip(self.layers, self.kept, lost, strict=True):
            sizes = layer.weight.detach().abs().masked_fill(~kept, math.inf)
            kept.view(-1)[sizes.view(-1).topk(count, largest=False).indices] = False
        room = [kept.numel() - int(kept.sum().item()) for kept in self.kept]
        for momentum, kept, count in zip(momenta, self.kept, shared_out(sum(lost), shares, room), strict=True):
            growth = momentum.masked_fill(kept, -1.0)
            kept.view(-1)[growth.view(-1).topk(count).indices] = True
        self._mask_weights()

    def sparsity(self) -> float:
        """The part of the prunable weights that is zero by the masks."""
        return 1 - sum(int(kept.sum().item()) for kept in self.kept) / sum(kept.numel() for kept in self.kept)

    def _momentum(self, weight: Tensor) -> Tensor:
        state = {} if self.optimizer is None else self.optimizer.state.get(weight, {})
        for name in ("momentum_buffer", "exp_avg", "velocity"):
            if isinstance(found := state.get(name), Tensor):
                return found
        raise ValueError(
            "there is no momentum: `attach` an optimiser with one, e.g. SGD(momentum=0.9), and take a step"
        )

    @torch.no_grad()
    def _mask_weights(self) -> None:
        for index, layer in enumerate(self.layers):
            self.kept[index] = self.kept[index].to(layer.weight.device)
            layer.weight.mul_(self.kept[index])


def shared_out(total: int, shares: list[float], room: list[int]) -> list[int]:
    """Whole numbers that sum to `total`, as near to proportional to `shares` as `room` allows."""
    given = [0] * len(room)
    while (left := total - sum(given)) > 0:
        open_layers = [index for index in range(len(room)) if given[index] < room[index]]
        weight = sum(shares[index] for index in open_layers)
        for index in sorted(open_layers, key=lambda index: -shares[index]):
            part = shares[index] / weight if weight > 0 else 1 / len(open_layers)
            more = min(max(1, int(left * part)), room[index] - given[index], total - sum(given))
            given[index] += more
    return given


def _random_mask(weight: Tensor, density: float, generator: torch.Generator) -> Tensor:
    """Exactly `density` of the weights, rounded, and at least one."""
    mask = torch.zeros(weight.numel(), dtype=torch.bool)
    mask[torch.randperm(weight.numel(), generator=generator)[: max(1, round(density * weight.numel()))]] = True
    return mask.view(weight.shape).to(weight.device)
