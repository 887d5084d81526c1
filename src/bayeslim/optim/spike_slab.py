"""Prune while training, under a spike-and-slab prior: EM steps beside any optimiser or sampler."""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn

from bayeslim.optim.carried_state import carry_state_
from bayeslim.optim.decays import check_decays, groups_of, surplus_decay
from bayeslim.optim.groups import Group, check_group, prunable_layers
from bayeslim.optim.layer_masks import LayerMasks
from bayeslim.optim.sparsity_target import SparsityTarget, pruned_part, smallest_level
from bayeslim.optim.spike_thresholds import VERSION, check_version, filled_in

__all__ = ["SpikeAndSlab", "pruner_of"]

PREFIX = "spike_and_slab."
"""Begins the names of the masks in an optimiser's state."""
PRUNERS: WeakKeyDictionary[torch.optim.Optimizer, ref[SpikeAndSlab]] = WeakKeyDictionary()
"""The one that is attached to an optimiser, whose `step` holds it; here it would hold the optimiser."""


class SpikeAndSlab:
    r"""Shrink groups of small weights more, and prune those that become very small, once per epoch.

    The prior of a group is a slab N(0, 1 / delta1) or a narrow spike N(0, 1 / delta0). After the warm-up every EM step
    looks at the weights w as they are:

    - soft mask: a group is in the spike if `mean w^2 < soft_threshold` (lambda1), and then has the weight decay
      `spike_decay` (delta0 / N) instead of the optimiser's own (delta1 / N). This is judged anew every time.
    - hard mask: a group is set to zero if it is below `hard_threshold` (lambda2). Linear layers: `mean w^2 < lambda2`
      (eq. 10). Convolutions: `(max w - min w)^2 < lambda2` (eq. 9 has the range itself) and, so that equal weights do
      not count as small, `max w^2 < lambda2`. The largest group of a layer always stays, so that no layer is emptied.

    Both thresholds are mean squares, in all layers. With group="kernel" kernels are judged softly and whole input and
    output channels are set to zero; linear layers have no kernels and are left out, as in the paper's code.

    Without feedback (DFP) what was set to zero stays zero, whatever noise or momentum the optimiser adds. With feedback
    (DPF) the optimiser goes on to move a dense copy of the weights, from zero, by gradients taken at the masked ones;
    the next EM step judges the copy, and the largest pruned group of a layer comes back if it is not small. Only one:
    masked weights drift together, and many at once would throw the network over. With a `target` the smallest groups
    beyond `hard_threshold` are masked only: they keep their values in the copy, and any number may come back (Lin et
    al. 2020). Between steps the network always holds the masked weights; what it is given then, e.g. by
    `load_state_dict`, is what training goes on from.

    The defaults are those of the paper's code: where convolutions are pruned `spike_decay=1e-3`, `soft_threshold=1e-4`
    and `hard_threshold=1e-4` (a range of 0.01), elsewhere 1e-2, 1e-2 and 1e-3. With n weights per output torch begins
    a linear layer with a mean square of `1 / (3 n)`, a convolution with a squared range of `4 / n`: a hard threshold
    above that takes the layer away.

    The spike decays as the optimiser's own `weight_decay` does: inside the gradient in SGD and the samplers; apart from
    it, by `lr * spike_decay * w`, where that is decoupled (AdamW). Adam, RMSprop and the like divide a decay inside the
    gradient by its own size, so that it hardly depends on `spike_decay`: take AdamW.

    Every weight may have further axes in front, those of a stack of networks trained as one. The optimiser's
    `state_dict` carries the masks along, so that a checkpoint of `bl.fit` is complete.

    Args:
        model: any network; its plain linear layers and convolutions are pruned, biases are not.
        optimizer: any torch optimiser that steps without a closure; its `step` is wrapped. None: `attach` one later.
        group: which weights are judged together: "input_unit" to select inputs, "output_unit", "kernel", "weight".
        spike_decay: weight decay in the spike; must exceed the optimiser's `weight_decay`. None: the default.
        soft_threshold: lambda1, see `em_threshold`. None: the default.
        hard_threshold: lambda2. None: the default.
        warm_up: epochs before the first EM step.
        every: epochs between EM steps.
        feedback: whether pruned weights may come back.
        feedback_until: epochs after which they no longer may, e.g. 3/4 of all (Lin et al. 2020); None: they always may.
        target: a sparsity to reach: each EM step then sets as many groups to zero as it asks for, the smallest of
            the network first, beyond those below `hard_threshold`.
        where: leaves a layer alone where it returns False for (name, module).

    Example:
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=2e-4)
        >>> pruner = SpikeAndSlab(model, optimizer, group="input_unit", warm_up=5)
        >>> pruner.after_epoch()  # after every epoch of optimizer.step()
        >>> bl.fit(model, data, optimizer=lambda groups: pruner.attach(CVAdam(groups, ...)),
        ...        after_epoch=pruner.after_epoch, ...)  # in `fit`, with pruner = SpikeAndSlab(model)
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        group: Group = "input_unit",
        spike_decay: float | None = None,
        soft_threshold: float | None = None,
        hard_threshold: float | None = None,
        warm_up: int = 50,
        every: int = 1,
        feedback: bool = False,
        feedback_until: int | None = None,
        target: SparsityTarget | None = None,
        where: Callable[[str, nn.Module], bool] = lambda name, module: True,
    ) -> None:
        check_group(group)
        layers = prunable_layers(model, where, linear=group != "kernel")
        self.spike_decay, self.soft_threshold, self.hard_threshold = filled_in(
            spike_decay, soft_threshold, hard_threshold, convolutions=any(layer.kernel for layer in layers)
        )
        self._told_all = None not in (spike_decay, soft_threshold, hard_threshold)
        if warm_up < 0 or every < 1:
            raise ValueError(f"`warm_up` must be at least 0 and `every` at least 1, got {warm_up} and {every}")
        if target is not None and target.by_epoch <= warm_up:
            raise ValueError(f"`target` must be reached after the warm-up of {warm_up} epochs, got {target.by_epoch}")
        self.group: Group = group
        self._hard_groups: tuple[Group, ...] = ("input_unit", "output_unit") if group == "kernel" else (group,)
        self.warm_up, self.every, self.target = warm_up, every, target
        self.feedback, self.feedback_until = feedback, math.inf if feedback_until is None else feedback_until
        self.epoch = 0
        """Epochs seen."""
        self._parts: list[LayerMasks] = []
        for layer in layers:
            weight = layer.weight.detach()
            spike = torch.zeros_like(layer.mean_square(weight, group), dtype=torch.bool)
            kept = torch.ones_like(weight, dtype=torch.bool)
            self._parts.append(LayerMasks(layer, spike, kept, weight.clone() if feedback else None))
        self.optimizer: torch.optim.Optimizer | None = None
        if target is not None and (most := pruned_part(self._judged(math.inf))) < target.sparsity:
            raise ValueError(
                f"`target` asks for a sparsity of {target.sparsity}, but one group of each layer stays, which allows "
                f"{most:.4f}: ask for less, or leave small layers out by `where`"
            )
        if optimizer is not None:
            self.attach(optimizer)

    def attach(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Let the masks take part in every `optimizer.step()`; returns the optimiser.

        Raises:
            ValueError: if there is one already, if it does not hold a layer's weight, or decays it too strongly.
        """
        if self.optimizer is not None:
            raise ValueError("an optimiser is attached already: make a new SpikeAndSlab for another one")
        check_decays(optimizer, [part.layer for part in self._parts], self.spike_decay)
        for part in self._parts:
            part.follow_()
        self.optimizer, inner = optimizer, optimizer.step

        @functools.wraps(inner)
        def step(_: torch.optim.Optimizer, closure: None = None) -> Any:
            if closure is not None:
                raise TypeError("a step with SpikeAndSlab takes no closure: compute the gradients before it")
            self._before_step(optimizer)
            try:
                result = inner()
            except BaseException:
                for part in self._parts:
                    part.mask_weight_()
                raise
            self._after_step(optimizer)
            return result

        optimizer.step = types.MethodType(step, optimizer)
        carry_state_(optimizer, self._parts[0].layer.weight, PREFIX, self.state_dict, self.load_state_dict)
        PRUNERS[optimizer] = ref(self)
        return optimizer

    def after_epoch(self, *_: Any) -> None:
        """Count an epoch, and make an EM step if it is time; what `bl.fit` passes on is not needed.

        Raises:
            RuntimeError: if no optimiser is attached: its steps would undo the masks.
        """
        if self.optimizer is None:
            raise RuntimeError(
                "no optimiser is attached, and its steps would undo the masks: call pruner.attach(optimizer); in "
                "`bl.fit` pass optimizer=lambda groups: pruner.attach(torch.optim.Adam(groups))"
            )
        self.epoch += 1
        if self.epoch > self.warm_up and (self.epoch - self.warm_up - 1) % self.every == 0:
            self.update_()

    @torch.no_grad()
    def update_(self) -> None:
        """One EM step: judge all groups by the weights as they are."""
        for part in self._parts:
            part.follow_()
            part.spike.copy_(part.layer.mean_square(part.weight, self.group) < self.soft_threshold)
        asked = 0.0 if self.target is None else self.target.at(self.epoch, self.warm_up)
        small = self._judged(0.0)
        masks = small if asked == 0 else self._judged(self._level_for(asked))
        for part, above, kept in zip(self._parts, small, masks, strict=True):
            if part.dense is not None:
                part.dense.mul_(above)
            part.kept.copy_(kept)
            part.mask_weight_()
            if self.optimizer is not None:
                part.stop_momenta_(self.optimizer)

    def masks(self) -> dict[str, Tensor]:
        """The hard mask of every layer by name, 1 where a weight stays: what `set_masks_` of `bl.pruning` takes."""
        return {part.layer.name: part.kept.to(part.weight.dtype) for part in self._parts}

    def take_masks_(self) -> None:
        """Take the masks from the network: what is zero there counts as pruned, all else does not.

        For weights of another time, e.g. when training has gone back to its best epoch.
        """
        for part in self._parts:
            part.kept.copy_(part.layer.weight.detach() != 0)

    def sparsity(self) -> float:
        """The part of the prunable weights that is set to zero."""
        return pruned_part([part.kept for part in self._parts])

    def reached(self) -> bool:
        """Whether as much is pruned as the target asks for in the end; always without a target."""
        return self.target is None or self.sparsity() >= self.target.sparsity

    def state_dict(self) -> dict[str, Any]:
        """Epoch and masks (and the dense weights): with model and optimiser, all that resuming takes."""
        tensors = {name: tensor.clone() for part in self._parts for name, tensor in part.tensors().items()}
        return {"epoch": self.epoch, "version": VERSION, "tensors": tensors}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave.

        Raises:
            ValueError: if it belongs to other layers, groups or another kind of pruning.
        """
        own = {name: tensor for part in self._parts for name, tensor in part.tensors().items()}
        shapes = [{(name, tensor.shape) for name, tensor in part.items()} for part in (own, state["tensors"])]
        if any(part.layer.kernel for part in self._parts):
            check_version(state, set(own), same=self._told_all and self.hard_threshold == 0)
        if shapes[0] != shapes[1]:
            wrong = min(name for name, _ in shapes[0] ^ shapes[1])
            raise ValueError(f"`state` is of another network, `group` or `feedback`: {wrong!r} does not fit")
        self.epoch = int(state["epoch"])
        for name, tensor in own.items():
            tensor.copy_(state["tensors"][name])
        for part in self._parts:
            part.mask_weight_()

    def _judged(self, level: float) -> list[Tensor]:
        """The hard masks by the weights as they are, where groups of a root mean square up to `level` go too.

        Without feedback, or after it, what is pruned stays so; with it, the largest pruned group may come back.
        """
        masks: list[Tensor] = []
        for part in self._parts:
            layer, threshold = part.layer, self.hard_threshold**0.5
            large = torch.ones((), dtype=torch.bool, device=part.weight.device)
            for group in self._hard_groups:
                low = layer.mean_square(part.weight, group).sqrt() <= level
                # Written so that NaN counts as large: a network gone wrong must not look pruned.
                large = large & ~(low | (layer.size(part.weight, group) < threshold))
            keep = layer.whole(large | layer.largest(layer.size(part.weight, self.group)))
            if not self.feedback or self.epoch > self.feedback_until:
                keep = keep & part.kept
            elif self.target is None:
                pruned = layer.size(part.weight * ~part.kept, self.group)
                keep = keep & (part.kept | layer.whole(layer.largest(pruned)))
            masks.append(keep)
        return masks

    def _level_for(self, asked: float) -> float:
        """The smallest level at which the asked sparsity is reached; 0 if the hard threshold reaches it alone."""
        # Ranked by one measure in all layers, whichever the hard threshold is compared with.
        squares = [part.layer.mean_square(part.weight, group) for part in self._parts for group in self._hard_groups]
        sizes = [square.sqrt().flatten() for square in squares]
        levels = torch.cat([torch.zeros_like(sizes[0][:1]), *sizes]).unique()
        return smallest_level(levels, lambda level: pruned_part(self._judged(level)) >= asked)

    @torch.no_grad()
    def _before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Put the dense weights in, and let the spike decay more."""
        groups = groups_of(optimizer)
        for part in self._parts:
            layer, weight = part.layer, part.layer.weight
            if part.dense is not None:
                part.follow_()
                weight.copy_(part.dense)
            if weight.grad is not None:
                decoupled, factor = surplus_decay(optimizer, groups[id(weight)], self.spike_decay)
                target = weight if decoupled else weight.grad
                layer.grouped(target).add_(layer.grouped(weight) * part.spike * factor)
                if part.dense is None:
                    weight.grad.mul_(part.kept)

    @torch.no_grad()
    def _after_step(self, optimizer: torch.optim.Optimizer) -> None:
        for part in self._parts:
            if part.dense is not None:
                part.dense.copy_(part.layer.weight)
            part.mask_weight_()
            part.stop_momenta_(optimizer)


def pruner_of(optimizer: torch.optim.Optimizer) -> SpikeAndSlab | None:
    """The one that `SpikeAndSlab.attach` attached to an optimiser, if any."""
    return PRUNERS.get(optimizer, lambda: None)()
