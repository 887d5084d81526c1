"""Moments of softmax and of attention."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayeslim.estimators import without_float16
from bayeslim.gaussian import Gaussian
from bayeslim.moment_rules.arithmetic import bilinear, mean_of, mode_of, neg
from bayeslim.moment_rules.norms import dropout
from bayeslim.posteriors.base import wide

__all__ = [
    "additive_mask",
    "log_softmax",
    "multi_head_attention_forward",
    "scaled_dot_product_attention",
    "softmax",
    "softmin",
]


def softmax(input: Gaussian, dim: int = -1, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> Gaussian:
    r"""`p`, the softmax of `m`; `variance = sum_j J_ij^2 v_j`, full Jacobian `J = diag(p) - p p^T` (VDP++, eq. 8-9).

    `sum_j J_ij^2 v_j = p_i^2 ((1 - 2 p_i) v_i + sum_j p_j^2 v_j)`, without the matrix. First order in both modes: for
    10 standard normal logits the standard deviation is on average 3 % off at an input deviation of 0.3, 20 % at 1.

    Args:
        input: the logits.
        dim: the axis of the classes.
        _stacklevel: ignored; torch's own signature.
        dtype: type of the result.
    """
    p = input.loc.softmax(dim, dtype=dtype)
    return Gaussian.of(p, p.square() * _log_softmax_variance(p, input.variance, dim), input.mode)


def softmin(input: Gaussian, dim: int = -1, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> Gaussian:
    """`softmax` of `-x`."""
    return softmax(neg(input), dim, _stacklevel, dtype)


def log_softmax(input: Gaussian, dim: int = -1, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> Gaussian:
    r"""`ln p = m - ln sum exp m`, `variance = (1 - 2 p_i) v_i + sum_j p_j^2 v_j`: full Jacobian `I - 1 p^T`.

    First order in both modes: for 10 standard normal logits the standard deviation is on average 0.4 % off at an input
    deviation of 0.3, 3 % at 1.

    Args:
        input: the logits.
        dim: the axis of the classes.
        _stacklevel: ignored; torch's own signature.
        dtype: type of the result.
    """
    log_p = input.loc.log_softmax(dim, dtype=dtype)
    return Gaussian.of(log_p, _log_softmax_variance(log_p.exp(), input.variance, dim), input.mode)


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Gaussian:
    r"""`A V` with `A = softmax(q k^T / sqrt(d) + mask)`, by the rules of products and softmax.

    Score: `v_s = (1/d) sum_k (m_q^2 v_k + v_q (m_k^2 + v_k))`. Output `o = sum_j a_j V_j` of a query, whose weights
    `a = softmax(s)` move together: `do/ds_j = a_j (V_j - o)`, so
    `variance = sum_j a_j^2 v_sj (V_j - o)^2 + sum_j (a_j^2 + v_aj) v_Vj`. In mode "taylor", and with dropout, the
    weights count as independent, as in the paper: `sum_j (a_j^2 v_Vj + v_aj (V_j^2 + v_Vj))`. Queries, keys and values
    always do. For standard normal means and a deviation of 0.3 the standard deviation is on average up to 5 % off
    (single ones by 16 %) and the mean by up to 0.3 deviations; in mode "taylor" 16 % (single ones by a factor of 3).

    Args:
        query: (..., length, features).
        key: (..., source, features).
        value: (..., source, outputs).
        attn_mask: boolean (True keeps) or a term to add, broadcastable to (..., length, source).
        dropout_p: dropout on the weights, in closed form.
        is_causal: forbid later keys.
        scale: factor on the scores; `1 / sqrt(features)` when None.
        enable_gqa: whether keys and values have fewer heads than queries.
    """
    if enable_gqa:
        heads = query.shape[-3]
        key, value = (torch.repeat_interleave(part, heads // part.shape[-3], -3) for part in (key, value))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = bilinear(torch.matmul)(query, torch.transpose(key, -2, -1)) * factor if _uncertain(query, key) else None
    plain = None if scores is not None else query @ key.transpose(-2, -1) * factor
    mean = plain if scores is None else scores.loc
    assert isinstance(mean, Tensor)
    if is_causal:
        attn_mask = torch.ones(mean.shape[-2:], dtype=torch.bool, device=mean.device).tril()
    allowed = None
    if attn_mask is not None:
        mean = mean.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else mean + attn_mask
        hidden = mean.isneginf().all(-1, keepdim=True)  # a query without any key attends to nothing, as in torch
        mean, allowed = mean.masked_fill(hidden, 0.0), (~hidden).to(mean.dtype)
    weights: Any = mean.softmax(-1) if scores is None else softmax(Gaussian.of(mean, scores.variance, scores.mode))
    weights = weights if allowed is None else weights * allowed
    if dropout_p > 0:
        certain = Gaussian.of(weights, torch.zeros_like(weights), mode_of(value)) if scores is None else weights
        weights = dropout(certain, dropout_p)
    if scores is None or dropout_p > 0 or mode_of(query, key, value) == "taylor":
        return bilinear(torch.matmul)(weights, value)
    return _mixed(weights, scores.variance, mean_of(value), value.variance if isinstance(value, Gaussian) else None)


def _mixed(weights: Gaussian, score_variance: Tensor, value: Tensor, value_variance: Tensor | None) -> Gaussian:
    """`sum_j a_j V_j` for weights `a` that sum to 1; see `scaled_dot_product_attention`."""
    output = weights.loc @ value
    with without_float16(output.device.type):
        squared, values, mixed = wide(weights.loc).square(), wide(value), wide(output)
        spread = squared * score_variance
        # sum_j w_j (V_j - o)^2, expanded, so that no tensor of (length, source, outputs) is needed
        variance = spread @ values.square() - 2 * mixed * (spread @ values)
        variance = (variance + mixed.square() * spread.sum(-1, keepdim=True)).clamp_min(0)
        if value_variance is not None:
            variance = variance + (squared + weights.variance) @ wide(value_variance)
    return Gaussian.of(output, variance, weights.mode)


def multi_head_attention_forward(
    query: Any,
    key: Any,
    value: Any,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Gaussian, None]:
    """The attention of a plain `nn.MultiheadAttention` on uncertain input (length, [batch,] features).

    Arguments are torch's own. The weights are not returned: call the module with `need_weights=False`, as torch's
    encoder layers do.

    Raises:
        TypeError: for `need_weights` and the rarer options (`add_bias_kv`, `add_zero_attn`, static keys).
    """
    if need_weights or bias_k is not None or add_zero_attn or static_k is not None or static_v is not None:
        raise TypeError(
            "no moment rule for `multi_head_attention_forward` with need_weights, add_bias_kv, add_zero_attn or static "
            "keys: call the layer with need_weights=False, or convert it by bl.bayesianize_"
        )
    unbatched = query.ndim == 2
    if unbatched:
        query, key, value = (part[:, None] for part in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
    if use_separate_proj_weight:
        matrices: Any = (q_proj_weight, k_proj_weight, v_proj_weight)
    else:
        assert in_proj_weight is not None
        matrices = in_proj_weight.chunk(3)
    biases: Any = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
    q, k, v = (F.linear(x, w, b) for x, w, b in zip((query, key, value), matrices, biases, strict=True))
    # (length, batch, heads * d) -> (batch, heads, length, d)
    q, k, v = (torch.permute(part.unflatten(-1, (num_heads, -1)), (1, 2, 0, 3)) for part in (q, k, v))
    mask = None
    if attn_mask is not None:
        mask = additive_mask(attn_mask, q.dtype)
        mask = mask if mask.ndim == 2 else mask.unflatten(0, (-1, num_heads))
    if key_padding_mask is not None:
        padding = additive_mask(key_padding_mask, q.dtype)[:, None, None]
        mask = padding if mask is None else mask + padding
    mixed: Any = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout_p if training else 0.0, is_causal=is_causal and mask is None
    )
    mixed = torch.flatten(torch.permute(mixed, (2, 0, 1, 3)), -2)
    output: Any = F.linear(mixed, out_proj_weight, out_proj_bias)
    return output[:, 0] if unbatched else output, None


def additive_mask(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A boolean mask (True forbids) as a term to add to the scores; a floating one as it is."""
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -torch.inf)


def _uncertain(*values: Any) -> bool:
    return any(isinstance(value, Gaussian) for value in values)


def _log_softmax_variance(p: Tensor, variance: Tensor, dim: int) -> Tensor:
    """`(1 - 2 p_i) v_i + sum_j p_j^2 v_j`, written so that it is never negative."""
    weighted = p.square() * variance
    return (1 - p).square() * variance + (weighted.sum(dim, keepdim=True) - weighted).clamp_min(0)
