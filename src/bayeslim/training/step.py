"""One optimiser step on the negative ELBO."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bayeslim.divergence import is_sharded
from bayeslim.kl import kl as current_kl
from bayeslim.likelihoods.base import Likelihood
from bayeslim.predictive.inputs import device_of
from bayeslim.runtime.freed_memory import keep_freed_memory
from bayeslim.schedules import check_value
from bayeslim.training.batches import Batch, single_rows_explained
from bayeslim.training.compiling import compiled
from bayeslim.training.elbo import KLScaling, Nelbo, nelbo
from bayeslim.training.one_graph import OneGraph, fits_one_graph
from bayeslim.training.ranks import Ranks, weighted
from bayeslim.training.replay import ReplayedUpdates, allow_plain_steps_
from bayeslim.training.sharding import check_sharded, clip_, local

__all__ = ["Stepper"]

LOOK_EVERY = 50
"""Steps between looks at the loss on an accelerator, where each look waits for the device."""


@dataclass
class Stepper:
    """Everything that turns batches into an update, and the sums over an epoch."""

    model: nn.Module
    likelihood: Likelihood
    optimizer: torch.optim.Optimizer
    num_data: int
    kl_scaling: KLScaling = "elbo"
    samples: int = 1
    clip_norm: float | None = None
    autocast: torch.dtype | None = None
    compile: bool = False
    one_graph: bool = True
    """Where the update is compiled and this is possible, compile all of it together."""
    cuda_graph: bool = False
    """Replay the whole update as one CUDA graph; graphs live for one epoch."""
    ranks: Ranks = Ranks()  # noqa: RUF009 (it cannot change)
    """The processes over which gradients and losses are averaged."""

    def __post_init__(self) -> None:
        """Prepare the objective, the gradient scaler and the base learning rates."""
        keep_freed_memory()
        self.device = device_of(self.model)
        self.base_lrs = [float(group["lr"]) for group in self.optimizer.param_groups]
        self.parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        self.sharded = is_sharded(self.model)
        if self.sharded:
            check_sharded(self.model, self.optimizer, self.autocast, compile=self.compile)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.autocast == torch.float16)
        self.seen: list[tuple[Nelbo, int]] = []  # with the rows of the batch, over all ranks
        self.beta, self.last_beta = torch.zeros((), device=self.device), 0.0
        self.updates = ReplayedUpdates(self._updated, self.device)
        if self.cuda_graph:
            if self.ranks.count > 1:
                raise ValueError(f"`cuda_graph` cannot be used by {self.ranks.count} processes together: leave it out")
            _make_capturable_(self.optimizer, self.device, self.autocast)
        objective = compiled(nelbo, self.device) if self.compile else nelbo
        fixed: dict[str, Any] = {"num_data": self.num_data, "samples": self.samples, "kl_scaling": self.kl_scaling}
        alone = functools.partial(objective, self.model, likelihood=self.likelihood, **fixed)
        self.objective = self.ranks.parallel(alone, self.model, self.likelihood)
        plain = self.ranks.count == 1 and self.autocast is None and self.clip_norm is None
        parts = self.model, self.likelihood, self.optimizer
        together = self.compile and self.one_graph and plain and not self.sharded and fits_one_graph(*parts)
        self.whole = OneGraph(*parts, **fixed) if together else None

    def step(self, batches: Sequence[Batch], beta: float, lr_factor: float) -> None:
        """Update the parameters once; several batches accumulate into one step, that of all their rows at once.

        Raises:
            FloatingPointError: if the loss is not finite; the parameters are then as they were.
            ValueError: if a schedule gave a value that is negative or not finite.
            TypeError: if it gave no number.
        """
        check_value("kl_schedule", beta)
        check_value("lr_schedule", lr_factor)
        for group, lr in zip(self.optimizer.param_groups, self.base_lrs, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(lr * lr_factor)
            else:
                group["lr"] = lr * lr_factor
        if beta != self.last_beta:
            self.beta.fill_(beta)
            self.last_beta = beta
        rows = [self._rows(batch) for batch in batches]
        if self.cuda_graph:
            losses = self.updates(*(tensor for batch in batches for tensor in batch[:2]), kl=beta != 0)
            self.seen += zip((Nelbo(*parts.unbind()) for parts in losses), rows, strict=True)
            self._look(len(batches))
        else:
            done = self._updated_at_once(batches, kl=beta != 0)
            self.seen += zip(done or self._gradients(batches, rows, kl=beta != 0), rows, strict=True)
            self._look(len(batches))
            if done is None:
                self._apply()

    def epoch_summary(self) -> dict[str, Any]:
        """Averages since the last call of energy (the loss), nll and kl; the last beta and learning rate.

        A batch counts by its rows. Where no step needed the KL it is that of now.

        Raises:
            FloatingPointError: if a loss or a parameter is not finite.
        """
        parts, rows = zip(*self.seen, strict=True)
        losses, nlls, divergences, _ = (torch.stack(column).double() for column in zip(*parts, strict=True))
        weight = torch.tensor(rows, dtype=torch.float64, device=self.device)
        known = ~divergences.isnan()
        with torch.no_grad():
            divergence = _average(divergences[known], weight[known]) if known.any() else current_kl(self.model)
        found = _average(losses, weight), _average(nlls, weight), divergence
        energy, nll, divergence = self.ranks.means([part.item() for part in found])
        if not math.isfinite(energy):
            self._check_losses(0)
        self._check_parameters()
        last = parts[-1]
        self.seen = []
        self.updates.forget()  # between epochs pruning, estimators or the phase may change what a step does
        beta, lr = last.beta.item(), float(self.optimizer.param_groups[0]["lr"])
        return {"energy": energy, "nll": nll, "kl": divergence, "beta": beta, "lr": lr}

    def _rows(self, batch: Batch) -> int:
        """Of a batch over all ranks; where it does not say so, all have as many as this one."""
        return batch[3] if len(batch) == 4 else self.ranks.count * batch[1].shape[0]

    def _updated_at_once(self, batches: Sequence[Batch], *, kl: bool) -> list[Nelbo] | None:
        """Update by one compiled function and return the loss; None, and nothing done, where there is none."""
        if self.whole is None or len(batches) > 1:
            return None
        x, y, *_ = batches[0]
        with single_rows_explained():
            result = self.whole(x, y, beta=self.beta if kl else 0.0, with_kl=kl)
        if result is None:
            self.whole = None  # a network that is compiled in pieces, if at all
            return None
        return [result]

    def _gradients(self, batches: Sequence[Batch], rows: Sequence[int], *, kl: bool) -> list[Nelbo]:
        """Give the parameters the gradient of the loss on all rows of the batches; return the loss of each."""
        for parameter in self.parameters:
            parameter.grad = None
        results: list[Nelbo] = []
        for (x, y, *weight), own in zip(batches, rows, strict=True):
            autocast = torch.autocast(self.device.type, self.autocast) if self.autocast else nullcontext()
            with single_rows_explained(), autocast:
                # A tensor keeps one compiled graph for every value; a plain 0 leaves the KL out of the graph.
                result: Nelbo = self.objective(x, y, beta=self.beta if kl else 0.0, with_kl=kl)
            result = weighted(result, weight[0]) if weight else result
            loss = result.loss if len(batches) == 1 else result.loss / (sum(rows) / max(own, 1))
            self.scaler.scale(loss).backward()
            results.append(Nelbo(*(part.detach() for part in result)))
        if self.sharded:
            self.ranks.average_(self.likelihood)
        return results

    def _apply(self) -> None:
        """Let the optimiser use the gradients."""
        if self.clip_norm is not None:
            self.scaler.unscale_(self.optimizer)
            clip = clip_ if self.sharded else torch.nn.utils.clip_grad_norm_
            clip(self.parameters, self.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def _updated(self, *tensors: Tensor, kl: bool) -> Tensor:
        """Both for batches x, y, x, y, ..., and the losses as one tensor (batches, parts)."""
        batches = list(zip(tensors[::2], tensors[1::2], strict=True))
        results = self._gradients(batches, [self._rows(batch) for batch in batches], kl=kl)
        self._apply()
        return torch.stack([torch.stack([part.double() for part in result]) for result in results])

    def _look(self, new: int) -> None:
        """Check the last losses, on an accelerator now and then."""
        if self.device.type == "cpu" or len(self.seen) % LOOK_EVERY == 0:
            self._check_losses(len(self.seen) - new)

    def _check_losses(self, start: int) -> None:
        """Raise if a loss since batch `start` of the epoch is not finite, and name the term to blame."""
        for number, (part, _) in enumerate(self.seen[start:], start + 1):
            if math.isfinite(part.loss.item()):
                continue
            nll, divergence = part.nll.item(), part.kl.item()
            if not math.isfinite(nll):
                raise FloatingPointError(
                    f"the nll became {nll} in batch {number} of the epoch (kl {divergence:.4g}): "
                    "lower `lr`, set clip_norm=1.0, or standardise the inputs and targets"
                )
            raise FloatingPointError(
                f"the kl became {divergence} in batch {number} of the epoch (nll {nll:.4g}): "
                "lower `scale_lr`, bound the scales (MeanField(max_scale=...)), or use another prior"
            )

    def _check_parameters(self) -> None:
        """Raise if the last update spoilt a parameter, before a checkpoint of it is written."""
        named = (*self.model.named_parameters(), *self.likelihood.named_parameters())
        finite = [float(local(parameter).isfinite().all()) for _, parameter in named]
        for (name, _), good in zip(named, self.ranks.least(finite) if self.sharded else finite, strict=True):
            if not good:
                raise FloatingPointError(
                    f"the parameter {name} is no longer finite although the loss was: its gradient "
                    "overflowed; lower `lr` or set clip_norm=1.0"
                )


def _average(values: Tensor, weight: Tensor) -> Tensor:
    return (values * weight).sum() / weight.sum()


def _make_capturable_(optimizer: torch.optim.Optimizer, device: torch.device, autocast: torch.dtype | None) -> None:
    """Move what changes between steps to the device, where a graph reads it.

    Raises:
        ValueError: if the step cannot be captured.
    """
    if device.type != "cuda":
        raise ValueError(f"`cuda_graph` needs a network on a CUDA device, this one is on {device}: leave it out")
    if autocast == torch.float16:
        raise ValueError("`cuda_graph` cannot capture the loss scaling of float16: use autocast=torch.bfloat16")
    for group in optimizer.param_groups:
        if not group.get("capturable"):
            kind = type(optimizer).__name__
            raise ValueError(
                f"`cuda_graph` needs an optimiser that can be captured, {kind} was not made so: "
                "pass e.g. optimizer=partial(torch.optim.Adam, lr=1e-3, capturable=True)"
            )
        group["lr"] = torch.as_tensor(group["lr"], dtype=torch.float32, device=device).clone()
    allow_plain_steps_(optimizer)
