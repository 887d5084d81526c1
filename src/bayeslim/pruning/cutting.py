"""Cut rows and columns out of layers, in place: posteriors of every family, priors, biases and plain weights."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvTransposeNd

from bayeslim.layers.base import BayesLayer
from bayeslim.masks import Masked, mask_of, unmasked
from bayeslim.ops import swap_channels
from bayeslim.posteriors import KTied, MeanField
from bayeslim.posteriors.base import Posterior
from bayeslim.priors import HeNormal, Normal
from bayeslim.priors.base import Prior

__all__ = ["Cut", "cut_layer_", "cut_norm_", "cut_parameter"]


@dataclasses.dataclass(frozen=True)
class Cut:
    """What stays of a layer; all indices are of the layer as it was, (out, in / groups, *kernel)."""

    rows: Tensor
    """Outputs that stay."""
    columns: Tensor
    """Inputs that stay (within a group)."""
    groups: int
    """Groups that stay."""
    addition: Tensor
    """(out,) what the removed inputs added: goes into the bias."""
    silent_rows: Tensor
    """(out,) booleans: outputs that stay only as place holders, their weights zero."""
    silent_columns: Tensor
    """(in / groups,) booleans: likewise inputs."""


@torch.no_grad()
def cut_layer_(layer: Any, cut: Cut) -> None:
    """Cut a Bayesian or plain linear layer or convolution."""
    if isinstance(layer, BayesLayer):
        _cut_bayesian_(layer, cut)
    else:
        _cut_plain_(layer, cut)
    addition = cut.addition[cut.rows]
    if not bool(addition.any()):
        return
    if isinstance(layer.bias, MeanField):
        layer.bias.loc.add_(addition.to(layer.bias.loc))
    elif layer.bias is None:
        like = layer.weight.mean() if isinstance(layer, BayesLayer) else layer.weight
        layer.bias = nn.Parameter(addition.to(like.device, like.dtype))
    elif isinstance(layer.bias, nn.Parameter):
        layer.bias.add_(addition.to(layer.bias))


def _cut_bayesian_(layer: BayesLayer, cut: Cut) -> None:
    shape = layer.weight.mean().shape
    mask = mask_of(layer.weight).clone()
    mask[cut.silent_rows.to(mask.device)] = 0
    mask[:, cut.silent_columns.to(mask.device)] = 0
    mask = _rows_and_columns(mask, cut.rows, cut.columns)
    posterior = _cut_posterior(unmasked(layer.weight), cut.rows, cut.columns)
    layer.weight = posterior if bool(mask.all()) else Masked(posterior, mask)
    layer.prior = _cut_prior(layer.prior, shape, cut.rows, cut.columns)
    if isinstance(layer.bias, Posterior):
        layer.bias_prior = _cut_prior(layer.bias_prior, layer.bias.mean().shape, cut.rows, None)
        layer.bias = _cut_posterior(layer.bias, cut.rows, None)
    elif layer.bias is not None:
        layer.bias = cut_parameter(layer.bias, cut.rows)
    if cut.groups != layer.op.groups:
        layer.op = dataclasses.replace(layer.op, groups=cut.groups)  # pyright: ignore[reportArgumentType]


def _cut_plain_(layer: Any, cut: Cut) -> None:
    transposed = isinstance(layer, _ConvTransposeNd)
    weight = swap_channels(layer.weight, layer.groups) if transposed else layer.weight.clone()
    weight[cut.silent_rows.to(weight.device)] = 0
    weight[:, cut.silent_columns.to(weight.device)] = 0
    weight = _rows_and_columns(weight, cut.rows, cut.columns)
    weight = swap_channels(weight, cut.groups) if transposed else weight
    layer.weight = nn.Parameter(weight.contiguous(), layer.weight.requires_grad)
    if layer.bias is not None:
        layer.bias = cut_parameter(layer.bias, cut.rows)
    if isinstance(layer, nn.Linear):
        layer.in_features, layer.out_features = len(cut.columns), len(cut.rows)
    else:
        layer.groups = cut.groups
        layer.in_channels, layer.out_channels = len(cut.columns) * cut.groups, len(cut.rows)


def cut_norm_(norm: _BatchNorm, keep: Tensor) -> None:
    """Cut the channels of a batch normalisation, parameters and running statistics."""
    norm.num_features = len(keep)
    if norm.affine:
        norm.weight, norm.bias = cut_parameter(norm.weight, keep), cut_parameter(norm.bias, keep)
    if norm.running_mean is not None and norm.running_var is not None:
        norm.running_mean = norm.running_mean[keep.to(norm.running_mean.device)]
        norm.running_var = norm.running_var[keep.to(norm.running_var.device)]


def cut_parameter(parameter: nn.Parameter, rows: Tensor, columns: Tensor | None = None) -> nn.Parameter:
    """Some rows and columns of a parameter, trained if it was."""
    return nn.Parameter(_rows_and_columns(parameter.detach(), rows, columns), parameter.requires_grad)


def _rows_and_columns(tensor: Tensor, rows: Tensor, columns: Tensor | None) -> Tensor:
    result = tensor.index_select(0, rows.to(tensor.device))
    return result if columns is None else result.index_select(1, columns.to(tensor.device))


def _cut_posterior(posterior: Any, rows: Tensor, columns: Tensor | None) -> Posterior:
    """Cut in place, mean and spread; a k-tied posterior too small for its rank becomes the same mean-field one."""
    shape = posterior.loc.shape
    if isinstance(posterior, KTied) and columns is not None:
        scale = _rows_and_columns(posterior.scale(), rows, columns)
        loc = cut_parameter(posterior.loc, rows, columns)
        if posterior.k > min(loc.shape[0], loc[0].numel()):
            return _mean_field(loc, scale, posterior.log_out.requires_grad)
        every = torch.arange(shape[1:].numel()).view(shape[1], -1)[columns.cpu()].flatten()
        posterior.log_in = cut_parameter(posterior.log_in, every)
        posterior.log_out = cut_parameter(posterior.log_out, rows)
        posterior.loc = loc
        return posterior
    for name in ("loc", *posterior.scale_parameters):
        setattr(posterior, name, cut_parameter(getattr(posterior, name), rows, columns))
    return posterior


def _mean_field(loc: nn.Parameter, scale: Tensor, trained: bool) -> MeanField:
    posterior = MeanField(loc)
    posterior.set_scale_(scale)
    posterior.loc.requires_grad_(loc.requires_grad)
    posterior.log_scale.requires_grad_(trained)
    return posterior


def _cut_prior(prior: Prior, shape: torch.Size, rows: Tensor, columns: Tensor | None) -> Prior:
    """The prior of the weights that stay: tensors are cut along, and a scale read off the fan-in stays as it was."""
    if isinstance(prior, HeNormal) and columns is not None and len(columns) < shape[1]:
        return Normal(0.0, math.sqrt(2 / shape[1:].numel())).train(prior.training)
    for name, buffer in list(prior.named_buffers()):
        if buffer.ndim:
            setattr(prior, name, _rows_and_columns(buffer.expand(shape), rows, columns).clone())
    return prior
