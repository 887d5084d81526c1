"""Remove attention heads that no output needs."""

from __future__ import annotations

import torch
from torch import nn

from bayeslim.layers import MultiheadAttention
from bayeslim.pruning.cutting import Cut, cut_layer_
from bayeslim.pruning.linear_map import linear_map

__all__ = ["cut_heads_"]


def cut_heads_(attention: MultiheadAttention, exact: bool) -> None:
    """Remove the heads whose columns of the output projection are pruned, or whose values are constant.

    A head with pruned values gives its value bias, whatever it attends to: attention weights sum to one. That
    constant goes into the output's bias. One head stays, its output columns zero, if none is needed.

    Args:
        attention: changed in place.
        exact: keep heads whose constant would lose the variance of the output weights.
    """
    values, output = linear_map(attention.v_proj), linear_map(attention.out_proj)
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    if values is None or output is None or any(linear_map(part) is None for part in projections):
        return
    constant = ~values.alive.any(1)
    if attention.bias_v is not None or attention.add_zero_attn or (exact and not values.bias_certain):
        constant = torch.zeros_like(constant)  # further positions may have other values
    blocking = output.alive & ~output.foldable(constant, values.bias, exact)
    needed = blocking.any(0).view(attention.num_heads, -1).any(1)
    if bool(needed.all()):
        return
    stays = needed.clone()
    stays[0] |= not bool(needed.any())
    width = output.inputs // attention.num_heads
    rows = stays.repeat_interleave(width).nonzero()[:, 0]
    gone = ~needed.repeat_interleave(width)
    addition = output.mean @ (values.bias * (gone & constant))
    nothing = torch.zeros(output.outputs, dtype=torch.bool)
    for part in projections:
        inputs = part.weight.mean().shape[1]
        cut = Cut(rows, torch.arange(inputs), 1, torch.zeros_like(values.bias), gone, torch.zeros(inputs).bool())
        cut_layer_(part, cut)
    cut_layer_(attention.out_proj, Cut(torch.arange(output.outputs), rows, 1, addition, nothing, gone))
    for name in ("bias_k", "bias_v"):
        parameter = getattr(attention, name)
        if parameter is not None:
            kept = parameter.detach().index_select(2, rows.to(parameter.device))
            setattr(attention, name, nn.Parameter(kept, parameter.requires_grad))
    attention.num_heads = int(stays.sum())
