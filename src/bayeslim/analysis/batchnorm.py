"""BatchNorm statistics that belong to the weights in use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from bayeslim.estimators import mean_only
from bayeslim.evaluation_mode import evaluation_mode
from bayeslim.predictive.inputs import Inputs, input_batches
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

    The means and variances of the batches are averaged with their sizes as weights. Statistics gathered during
    training belong to noisy weights of the past. Refresh them with `mean_only` before using the posterior mean or a
    pruned network, and with `weight_sample` before averaging samples.

    Args:
        model: the network; only its BatchNorm buffers change, modes and estimators are restored.
        data: inputs, as for `predict`; a few thousand are enough.
        estimator: which weights the statistics shall fit.
        batch_size: examples per pass, where `data` is not a loader.

    Example:
        >>> refresh_batchnorm_(model, x_train[:5000])
    """
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    if not norms:
        raise ValueError("`model` has no BatchNorm layer with running statistics: there is nothing to refresh")
    momenta = [norm.momentum for norm in norms]
    before = [{name: buffer.clone() for name, buffer in norm.named_buffers()} for norm in norms]
    try:
        with evaluation_mode(model), using(model, estimator):
            for norm in norms:
                norm.reset_running_stats()
                norm.train()
            seen = 0
            for batch in input_batches(model, data, batch_size):
                seen += len(batch)
                for norm in norms:
                    norm.momentum = len(batch) / seen  # a last batch may be smaller than the others
                model(batch)
    except BaseException:
        for norm, buffers in zip(norms, before, strict=True):
            norm.load_state_dict(buffers, strict=False)
        raise
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
