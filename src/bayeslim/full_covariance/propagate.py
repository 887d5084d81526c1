"""Propagate a full covariance through a network, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
from torch import Tensor, nn

from bayeslim import layers
from bayeslim.checks.networks import check_network
from bayeslim.estimators import mean_only
from bayeslim.full_covariance.activations import activation, softmax
from bayeslim.full_covariance.joint import JointGaussian
from bayeslim.full_covariance.layers import Value, Within, average_pool, batch_norm, bayesian, max_pool, plain, reshape
from bayeslim.gaussian import Mode
from bayeslim.layers.base import BayesLayer
from bayeslim.runtime.modes import evaluation_mode
from bayeslim.using import using

__all__ = ["full_covariance"]

WEIGHTED: dict[type[nn.Module], Callable[..., JointGaussian]] = {
    **dict.fromkeys([layers.Linear, layers.Conv1d, layers.Conv2d, layers.Conv3d], bayesian),
    **dict.fromkeys([layers.ConvTranspose1d, layers.ConvTranspose2d, layers.ConvTranspose3d], bayesian),
    **dict.fromkeys([nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d], plain),
}
"""Layers that mix features by weights."""
LINEAR: dict[type[nn.Module], Callable[..., JointGaussian]] = {
    **WEIGHTED,
    **dict.fromkeys([nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d], average_pool),
    nn.MaxPool2d: max_pool,
    **dict.fromkeys([nn.BatchNorm1d, nn.BatchNorm2d], batch_norm),
    **dict.fromkeys([nn.Flatten, nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d], reshape),
}
"""Rules `(layer, x, within)`."""
ACTIVATIONS = (nn.ReLU, nn.LeakyReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.Softplus, nn.ELU, nn.SELU)
COPIES = {("exact", False): 3, ("taylor", False): 2, ("exact", True): 7, ("taylor", True): 3}
"""Peak memory over that of the covariances, by mode and whether gradients are kept: measured on LeNets and perceptrons
at 3.0, 1.8, 6.4 and 2.4 times."""


def full_covariance(
    model: nn.Module,
    x: Value,
    mode: Mode = "exact",
    within: Within = "all",
    memory_limit: int = 2**31,
) -> JointGaussian:
    """Mean and covariance of a Bayesian network's outputs, all correlations between features kept.

    The original variance propagation (VDP, called VDP-Cov beside VDP++), and the reference for `method="moments"`,
    which keeps variances alone. Layers linear in their input are exact (see `layers.bayesian`), activations treat
    their input as Gaussian (see `activations.activation`), max-pooling and softmax are first order. Examples are
    treated one by one: the weights they share correlate them, which is left out. Differentiable; evaluation mode.

    Args:
        model: a (nested) `nn.Sequential` of linear, convolutional, pooling, BatchNorm, dropout and activation layers.
        x: inputs (B, ...), or a `JointGaussian` of uncertain ones.
        mode: "exact" moments of activations, or "taylor", their linearisation, as in the paper.
        within: "all" keeps every covariance, `D^2` numbers for `D` features; "channel" those within each feature map
            and treats maps as independent, as the original VDP does.
        memory_limit: bytes that one call may take for covariances, with the working copies of its forward and backward
            pass.

    Returns:
        The outputs' mean (B, ...) and covariance (B, D, D).

    Raises:
        MemoryError: if the covariances would not fit; nothing large is allocated.
        TypeError: for a module without a rule.

    Example:
        >>> model = bl.mlp([4, 8, 2])
        >>> full_covariance(model, torch.randn(5, 4)).covariance.shape
        torch.Size([5, 2, 2])
    """
    check_network(model, "propagate through")
    if mode not in ("exact", "taylor"):
        raise ValueError(f"`mode` must be 'exact' or 'taylor', got {mode!r}")
    if within not in ("all", "channel"):
        raise ValueError(f"`within` must be 'all' or 'channel', got {within!r}")
    steps = list(_steps(model, ""))
    with evaluation_mode(model):
        _check_memory(model, steps, x, mode, within, memory_limit)
        for layer in steps:
            x = _step(layer, x, mode, within)
    if isinstance(x, Tensor):
        raise ValueError("`model` has no Bayesian layer and `x` is certain: there is no covariance")
    return x


def _steps(module: nn.Module, name: str) -> Iterator[nn.Module]:
    """The layers in order, or a TypeError where something else than a sequence of known layers decides."""
    if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
        for key, child in module.named_children():
            yield from _steps(child, f"{name}.{key}" if name else key)
    elif type(module) in LINEAR or type(module) in ACTIVATIONS or type(module) is nn.Softmax:
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) and module.running_var is None:
            raise ValueError(f"full_covariance needs running statistics, got {module}: pass track_running_stats=True")
        yield module
    else:
        place = f" at {name!r}" if name else ""
        raise TypeError(
            f"full_covariance has no rule for `{type(module).__name__}`{place}: it takes (nested) nn.Sequential of "
            "linear, convolutional, pooling, BatchNorm, dropout, flatten, softmax and activation layers; use "
            "bl.predict(model, x, method='moments') or sampling instead"
        )


def _step(layer: nn.Module, x: Value, mode: Mode, within: Within) -> Value:
    if isinstance(x, Tensor) and not isinstance(layer, BayesLayer):
        return layer(x)
    if type(layer) in LINEAR:
        return LINEAR[type(layer)](layer, x, within)
    assert isinstance(x, JointGaussian)
    return softmax(layer, x) if isinstance(layer, nn.Softmax) else activation(layer, x, mode)


def _check_memory(model: nn.Module, steps: list[nn.Module], x: Value, mode: Mode, within: Within, limit: int) -> None:
    """Raise MemoryError if the covariances take more than `limit` bytes.

    With gradients every layer's covariance stays until the backward pass, without them a layer's input and output.
    """
    mean = x.mean if isinstance(x, JointGaussian) else x
    sizes = _sizes(model, steps, x, within)
    kept = torch.is_grad_enabled() and any(parameter.requires_grad for parameter in model.parameters())
    numbers = sum(sizes) if kept else max(a + b for a, b in pairwise([0, *sizes]))
    each = COPIES[mode, kept] * numbers * mean.element_size()
    if len(mean) * each > limit:
        advice = f"pass at most {limit // each} at a time" if limit >= each else "not even one of them fits"
        other = "" if within == "channel" else ", or pass within='channel'"
        raise MemoryError(
            f"the covariances of {len(mean)} examples need about {len(mean) * each:,} bytes, `memory_limit` is "
            f"{limit:,}: {advice}, raise `memory_limit`{other}"
        )


@torch.no_grad()
def _sizes(model: nn.Module, steps: list[nn.Module], x: Value, within: Within) -> list[int]:
    """How many numbers each layer's covariance takes per example; a mean pass of one example tells the shapes."""
    mean = (x.mean if isinstance(x, JointGaussian) else x)[:1].clone()
    groups = x.blocks.shape[1] if isinstance(x, JointGaussian) else 0  # none while the features are certain
    sizes = [x.blocks[0].numel() if isinstance(x, JointGaussian) else 0]
    with using(model, mean_only):
        for layer in steps:
            inputs = mean.numel() if groups else 0
            mean = layer(mean)
            weighted = type(layer) in WEIGHTED
            if weighted and (groups or isinstance(layer, BayesLayer)):
                groups = mean.shape[1] if within == "channel" and mean.ndim > 2 else 1
            # Layers with weights also keep `M C` of `M C M^T`.
            half = inputs * mean.numel() if weighted else 0
            sizes.append(mean.numel() ** 2 // groups + half if groups else 0)
    return sizes
