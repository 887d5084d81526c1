"""BatchNorm statistics that belong to the weights in use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from bayeslim.checks.networks import check_network
from bayeslim.estimators import mean_only
from bayeslim.predictive.inputs import Inputs, input_batches
from bayeslim.runtime.modes import evaluation_mode
from bayeslim.runtime.swapping import swapped
from bayeslim.using import using

__all__ = ["refresh_batchnorm_"]


@torch.no_grad()
def refresh_batchnorm_(
    model: nn.Module,
    data: Inputs,
    estimator: Callable[..., Any] = mean_only,
    batch_size: int = 1024,
) -> None:
    """Estimate the running statistics of every BatchNorm layer anew, as averages over `data`.

    The means and variances of the batches are averaged with their sizes as weights; a batch of one row, which has no
    variance, goes with the one next to it. Statistics gathered during
    training belong to noisy weights of the past. Refresh them with `mean_only` before using the posterior mean or a
    pruned network, and with `weight_sample` before averaging samples.

    Args:
        model: the network; only its BatchNorm buffers change, modes and estimators are restored.
        data: inputs, as for `predict`; a few thousand are enough.
        estimator: which weights the statistics shall fit.
        batch_size: examples per pass, where `data` is not a loader.

    Raises:
        ValueError: if the network has no such layer, or `data` one row and a layer needs more. Nothing has changed.

    Example:
        >>> refresh_batchnorm_(model, x_train[:5000])
    """
    check_network(model, "refresh")
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    if not norms:
        raise ValueError("`model` has no BatchNorm layer with running statistics: there is nothing to refresh")
    momenta = [(norm, "momentum", norm.momentum) for norm in norms]
    before = [{name: buffer.clone() for name, buffer in norm.named_buffers()} for norm in norms]
    try:
        with evaluation_mode(model), using(model, estimator), swapped(momenta):
            for norm in norms:
                norm.reset_running_stats()
                norm.train()
            seen = 0
            for batch in _joined(input_batches(model, data, batch_size)):
                seen += len(batch)
                for norm in norms:
                    norm.momentum = len(batch) / seen  # a last batch may be smaller than the others
                model(batch)
    except BaseException as error:
        for norm, buffers in zip(norms, before, strict=True):
            norm.load_state_dict(buffers, strict=False)
        if "more than 1 value per channel" in str(error):
            raise ValueError(
                "BatchNorm has no variance over a batch of one row: pass at least two rows of `data`, or a loader with "
                "larger batches"
            ) from error
        raise


def _joined(batches: Iterator[Tensor]) -> Iterator[Tensor]:
    """The batches, of which one with a single row is joined to the next, or to the one before if it is the last."""
    before: Tensor | None = None
    held: Tensor | None = None
    for batch in batches:
        if held is not None and len(held) == 1 and held.shape[1:] == batch.shape[1:]:
            held = torch.cat([held, batch])
            continue
        if before is not None:
            yield before
        before, held = held, batch
    if before is not None and held is not None and len(held) == 1 and before.shape[1:] == held.shape[1:]:
        before, held = None, torch.cat([before, held])
    yield from (batch for batch in (before, held) if batch is not None)
