"""Train one network on images: the gradient as one CUDA graph where there is CUDA, checkpoints now and then."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.runtime.seeds import seeded
from bayeslim.schedules import Progress, Schedule, constant
from bayeslim.training.checkpoint import RunState
from bayeslim.training.replay import Replayed
from bayeslim_papers.images.images import Images
from bayeslim_papers.training import Say, check_precision, epochs_left, resumed_, silent

__all__ = ["Gradients", "precise", "train"]


def precise(device: torch.device, precision: str) -> Any:
    """The context in which products have a precision; float32 everywhere but on CUDA.

    Raises:
        ValueError: if `precision` is not known.

    Example:
        >>> with precise(x.device, "bfloat16"):
        ...     logits = model(x)
    """
    check_precision(precision)
    half = precision == "bfloat16" and device.type == "cuda"
    return torch.autocast(device.type, torch.bfloat16) if half else nullcontext()


class Gradients:
    """The gradient of the negative ELBO on a batch of varied images, replayed as one CUDA graph.

    The optimiser's step is not part of the graph, so that any optimiser will do.

    Args:
        model: the network.
        images: the training set.
        batch_size: images per batch.
        precision: of the products.
        graph: whether to use a CUDA graph on CUDA.

    Example:
        >>> gradients = Gradients(model, images, batch_size=128)
        >>> loss = gradients(rows, beta=1.0)
        >>> optimizer.step()
    """

    def __init__(
        self, model: nn.Module, images: Images, *, batch_size: int, precision: str = "float32", graph: bool = True
    ) -> None:
        self.model, self.images, self.precision = model, images, precision
        self.likelihood = bl.Categorical()
        self.parameters = list(model.parameters())
        self.rows = torch.zeros(batch_size, dtype=torch.long, device=images.device)
        self.beta = torch.ones((), device=images.device)
        self.run: Callable[[], Any] = Replayed(self._computed, images.device) if graph else self._computed

    def __call__(self, rows: Tensor, beta: float = 1.0) -> Tensor:
        """Give the parameters their gradients; returns the loss, which the next call overwrites.

        Args:
            rows: (batch_size,), of the images.
            beta: weight of the KL.
        """
        self.rows.copy_(rows)
        self.beta.fill_(beta)
        loss, gradients = self.run()
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient  # an optimiser may have put a copy there, which a graph does not know
        return loss

    def _computed(self) -> tuple[Tensor, list[Tensor | None]]:
        for parameter in self.parameters:
            parameter.grad = None
        x, y = self.images.varied(self.rows)
        with precise(x.device, self.precision):
            result = bl.nelbo(self.model, x, y, likelihood=self.likelihood, num_data=len(self.images), beta=self.beta)
        result.loss.backward()
        return result.loss.detach(), [_laid_out(parameter) for parameter in self.parameters]


def _laid_out(parameter: nn.Parameter) -> Tensor | None:
    """The gradient in the parameter's strides, which torch does not match along axes of length 1, but `CVAdam` does."""
    gradient = parameter.grad
    if gradient is None or gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)


def train(
    model: nn.Module,
    images: Images,
    *,
    optimizer: torch.optim.Optimizer,
    epochs: int,
    batch_size: int,
    seed: int,
    lr_schedule: Schedule,
    kl_schedule: Schedule | None = None,
    precision: str = "float32",
    graph: bool = True,
    after_epoch: Callable[[Progress], None] = lambda progress: None,
    beside: Sequence[nn.Module] = (),
    settings: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    say: Say = silent,
) -> dict[str, Any]:
    """Train in place, on whole batches: the few images left over differ from epoch to epoch.

    Order and noise of an epoch follow from its number and `seed`, see `epochs_left`.

    Args:
        model: the network, on the device of the images.
        images: the training set.
        optimizer: of all parameters of the network.
        epochs: passes over the images.
        batch_size: images per step.
        seed: of order, variations and noise.
        lr_schedule: factor on the learning rates.
        kl_schedule: weight of the KL; default 1.
        precision: of the products, see `PRECISIONS`; float32 everywhere but on CUDA.
        graph: whether gradients are replayed as a CUDA graph on CUDA.
        after_epoch: called with the progress of an epoch's last step; what it changes must lie in the network, in
            the optimiser or in `beside`.
        beside: modules whose buffers a checkpoint keeps too.
        settings: what a run that goes on must have in common with the one that stopped.
        folder: for checkpoints; a run that finds one goes on from it.
        say: told how far training is.

    Returns:
        Facts for the record: epochs, steps, losses of the epochs, seconds of an epoch (median) and of all, peak memory
        in bytes (CUDA; weights, gradients, optimiser, and all that steps and `after_epoch` need), precision, whether
        there was a graph.

    Raises:
        FloatingPointError: if the loss is no longer finite.
        ValueError: if there are fewer images than a batch, or the checkpoint in `folder` is that of another run.

    Example:
        >>> train(model, images, optimizer=optimizer, epochs=20, batch_size=128, seed=0, lr_schedule=cosine_cycles(1))
    """
    steps = len(images) // batch_size
    if steps == 0:
        raise ValueError(f"`batch_size` must be at most {len(images)}, the number of images, got {batch_size}")
    device, beta = images.device, kl_schedule or constant()
    cuda = device.type == "cuda"
    own = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
    before = torch.cuda.memory_allocated(device) - own if cuda else 0
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
    state = RunState(seed=seed, settings=dict(settings or {}) | {"epochs": epochs, "batch_size": batch_size})
    trained = nn.ModuleList([model, *beside]), bl.Categorical(), optimizer
    state = resumed_(state, folder, trained, say)
    rates = [group["lr"] for group in optimizer.param_groups]
    gradients = Gradients(model, images, batch_size=batch_size, precision=precision, graph=graph)
    with seeded(0):
        for epoch in epochs_left(state, epochs, folder, trained):
            start = time.perf_counter()
            model.train()
            total = torch.zeros((), dtype=torch.float64, device=device)
            rows = torch.randperm(len(images))[: steps * batch_size].to(device)
            for step, some in enumerate(rows.split(batch_size)):
                now = Progress(epoch * steps + step, steps, epochs)
                for group, rate in zip(optimizer.param_groups, rates, strict=True):
                    group["lr"] = rate * lr_schedule(now)
                total += gradients(some, beta(now))
                optimizer.step()
            loss = total.item() / steps
            if not math.isfinite(loss):
                raise FloatingPointError(f"the loss became {loss} in epoch {epoch}: choose a smaller `lr`")
            record = {"loss": loss, "seconds": time.perf_counter() - start}
            after_epoch(Progress((epoch + 1) * steps - 1, steps, epochs))
            state.history.records.append(record)
            say(f"epoch {epoch + 1} of {epochs}: loss {loss:.4g}, {record['seconds']:.1f} s")
    return {
        "epochs": epochs,
        "steps": epochs * steps,
        "losses": state.history["loss"],
        "epoch_seconds": sorted(state.history["seconds"])[epochs // 2],
        "seconds": sum(state.history["seconds"]),
        "peak_bytes": torch.cuda.max_memory_allocated(device) - before if cuda else None,
        "precision": precision if cuda else "float32",
        "cuda_graph": graph and cuda,
    }
