"""Bayesian multi-head attention and the Transformer encoder layer around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayeslim.layers.base import BayesLayer
from bayeslim.layers.linear import Linear
from bayeslim.moment_rules.attention import additive_mask
from bayeslim.ops import LinearOp

__all__ = ["MultiheadAttention", "TransformerEncoderLayer"]


class MultiheadAttention(nn.Module):
    """Attention whose four projections have posteriors; the call is that of `torch.nn.MultiheadAttention`.

    torch's own module reads its weights without calling the output projection, so its children cannot be
    replaced one by one: the whole module is.

    Args:
        embed_dim: features of the queries and of the output.
        num_heads: heads; must divide `embed_dim`.
        dropout: dropout on the attention weights while training.
        bias: whether the projections have biases.
        kdim: features of the keys; `embed_dim` when None.
        vdim: features of the values; `embed_dim` when None.
        batch_first: (batch, length, features) instead of (length, batch, features).
        **bayes: `posterior`, `prior`, `estimator`, `bias_posterior`, `bias_prior` of `BayesLayer`.

    Example:
        >>> layer = MultiheadAttention(16, 4, batch_first=True)
        >>> x = torch.randn(2, 5, 16)
        >>> layer(x, x, x, need_weights=False)[0].shape
        torch.Size([2, 5, 16])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        **bayes: Any,
    ) -> None:
        super().__init__()
        plain = nn.MultiheadAttention(
            embed_dim, num_heads, dropout, bias, kdim=kdim, vdim=vdim, batch_first=batch_first
        )
        self._adopt(plain, bayes)

    @classmethod
    def from_torch(cls, plain: nn.MultiheadAttention, **bayes: Any) -> Self:
        """Give the projections of a plain torch module posteriors centred on them."""
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        layer._adopt(plain, bayes)
        return layer

    def _adopt(self, plain: nn.MultiheadAttention, bayes: dict[str, Any]) -> None:
        self.embed_dim, self.num_heads, self.dropout = plain.embed_dim, plain.num_heads, plain.dropout
        self.kdim, self.vdim, self.batch_first = plain.kdim, plain.vdim, plain.batch_first
        self.add_zero_attn = plain.add_zero_attn
        if plain.in_proj_weight is None:
            weights = plain.q_proj_weight, plain.k_proj_weight, plain.v_proj_weight
        else:
            weights = plain.in_proj_weight.chunk(3)
        biases = (None,) * 3 if plain.in_proj_bias is None else plain.in_proj_bias.chunk(3)
        projections = [Linear.around(LinearOp(), w, b, **bayes) for w, b in zip(weights, biases, strict=True)]
        self.q_proj, self.k_proj, self.v_proj = projections
        self.out_proj = Linear.around(LinearOp(), plain.out_proj.weight, plain.out_proj.bias, **bayes)
        self.bias_k, self.bias_v = _own(plain.bias_k), _own(plain.bias_v)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As torch's module: the output, and the attention weights if `need_weights`.

        Args:
            query: (length, batch, features), batch first if so set, or unbatched (length, features).
            key: likewise.
            value: likewise.
            key_padding_mask: (batch, source), True (or -inf) where a key is padding.
            need_weights: return the weights; False uses torch's fused attention.
            attn_mask: (length, source) or (batch * heads, length, source), True (or -inf) to forbid.
            average_attn_weights: average the returned weights over the heads.
            is_causal: hint that `attn_mask` is causal; demands it, as in torch.
        """
        if is_causal and attn_mask is None:
            raise ValueError("`is_causal` is a hint about `attn_mask`: pass the mask too")
        unbatched = query.ndim == 2
        if unbatched:
            query, key, value = (part[None] for part in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        elif not self.batch_first:
            query, key, value = (part.transpose(0, 1) for part in (query, key, value))
        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        k, v = self._extended(k, v)
        bias = self._mask(q, k, attn_mask, key_padding_mask)
        q, k, v = (part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in (q, k, v))
        dropout = self.dropout if self.training else 0.0
        if need_weights:
            scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
            weights = (scores if bias is None else scores + bias).softmax(-1)
            weights = F.dropout(weights, dropout) if dropout else weights
            mixed = weights @ v
        else:
            weights = None
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout)
        output = self.out_proj(mixed.transpose(1, 2).flatten(-2))
        if weights is not None and average_attn_weights:
            weights = torch.mean(weights, 1)
        if unbatched:
            return output[0], None if weights is None else weights[0]
        return (output if self.batch_first else output.transpose(0, 1)), weights

    @property
    def head_dim(self) -> int:
        """Features of one head."""
        return self.out_proj.in_features // self.num_heads

    def _extended(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append torch's learned and zero positions to keys and values (batch, source, features)."""
        if self.bias_k is not None and self.bias_v is not None:
            k = torch.cat([k, self.bias_k.expand(len(k), -1, -1)], 1)
            v = torch.cat([v, self.bias_v.expand(len(v), -1, -1)], 1)
        if self.add_zero_attn:
            k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
        return k, v

    def _mask(self, q: Tensor, k: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None) -> Tensor | None:
        """Both masks as one term to add to the scores, (batch, heads or 1, length, source)."""
        total: Tensor | None = None
        if attn_mask is not None:
            total = additive_mask(attn_mask, q.dtype)
            total = total[None, None] if total.ndim == 2 else total.unflatten(0, (-1, self.num_heads))
        if key_padding_mask is not None:
            padding = additive_mask(key_padding_mask, q.dtype)[:, None, None]
            total = padding if total is None else total + padding
        if total is not None and total.shape[-1] < k.shape[1]:
            total = F.pad(total, (0, k.shape[1] - total.shape[-1]))
        return total

    def to_torch(self) -> nn.MultiheadAttention:
        """The plain torch module with the posterior means as its weights."""
        plain: Any
        parts = [p.mean_tensors() for p in (self.q_proj, self.k_proj, self.v_proj)]
        weight, bias = self.out_proj.mean_tensors()
        # torch's module is square: heads that were removed come back as zeros.
        missing = self.embed_dim - weight.shape[1]
        heads = self.embed_dim * self.num_heads // weight.shape[1]
        parts = [(F.pad(w, (0, 0, 0, missing)), None if b is None else F.pad(b, (0, missing))) for w, b in parts]
        weight = F.pad(weight, (0, missing))
        plain = nn.MultiheadAttention(
            self.embed_dim,
            heads,
            self.dropout,
            bias is not None,
            self.bias_k is not None,
            self.add_zero_attn,
            self.kdim,
            self.vdim,
            self.batch_first,
            device="meta",
        )
        state = {"out_proj.weight": weight}
        if plain.in_proj_weight is None:
            names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
            state |= {name: part[0] for name, part in zip(names, parts, strict=True)}
        else:
            state["in_proj_weight"] = torch.cat([part[0] for part in parts])
        biases = [part[1] for part in parts if part[1] is not None]
        if bias is not None:
            state["out_proj.bias"] = bias
        if biases:
            state["in_proj_bias"] = torch.cat(biases)
        # torch cannot build an output bias without input biases or the reverse, but runs with it
        plain.in_proj_bias = nn.Parameter(state["in_proj_bias"]) if biases else None
        plain.bias_k = plain.bias_v = None
        plain.load_state_dict(state, assign=True)
        for name in ("bias_k", "bias_v"):
            own = _own(getattr(self, name))
            if own is not None and missing:
                own = nn.Parameter(F.pad(own.detach(), (0, missing)), own.requires_grad)
            setattr(plain, name, own)
        return plain

    def sources(self, plain: nn.MultiheadAttention) -> Iterator[tuple[BayesLayer, Tensor, Tensor | None]]:
        """The projections, each with the weight and bias of `plain` that it stands for."""
        for name in ("q_proj", "k_proj", "v_proj"):
            own = getattr(plain, f"{name}_weight")  # None where the three are one matrix
            yield getattr(self, name), plain.in_proj_weight if own is None else own, plain.in_proj_bias
        yield self.out_proj, plain.out_proj.weight, plain.out_proj.bias


def _own(parameter: Tensor | None) -> nn.Parameter | None:
    return None if parameter is None else nn.Parameter(parameter.detach().clone(), parameter.requires_grad)


class TransformerEncoderLayer(nn.Module):
    """torch's encoder layer around whichever attention and linear layers it holds, Bayesian or not.

    torch's own class takes a fused path in evaluation mode that reads the weights of its children and would
    pass Bayesian ones by; this one only calls them. `bayesianize_` puts it in place where needed.

    Args:
        plain: the layer whose children it takes over (they are shared, not copied).

    Example:
        >>> layer = TransformerEncoderLayer(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True))
        >>> layer(torch.randn(2, 5, 16)).shape
        torch.Size([2, 5, 16])
    """

    self_attn: nn.Module
    linear1: nn.Module
    linear2: nn.Module
    norm1: nn.Module
    norm2: nn.Module
    dropout: nn.Module
    dropout1: nn.Module
    dropout2: nn.Module
    CHILDREN = ("self_attn", "linear1", "dropout", "linear2", "norm1", "norm2", "dropout1", "dropout2")

    def __init__(self, plain: nn.TransformerEncoderLayer) -> None:
        super().__init__()
        for name in self.CHILDREN:
            self.add_module(name, getattr(plain, name))
        self.norm_first: bool = plain.norm_first
        self.activation: Callable[[Tensor], Tensor] = plain.activation
        self.training = plain.training  # not train(), which would also set the children

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Attention and feed-forward block, each with its residual and norm.

        Args:
            src: the sequence.
            src_mask: see `MultiheadAttention.forward`'s `attn_mask`.
            src_key_padding_mask: see `key_padding_mask` there.
            is_causal: see there.
        """
        options = (src_mask, src_key_padding_mask, is_causal)
        if self.norm_first:
            x = src + self._attend(self.norm1(src), *options)
            return x + self._feed(self.norm2(x))
        x = self.norm1(src + self._attend(src, *options))
        return self.norm2(x + self._feed(x))

    def _attend(self, x: Tensor, mask: Tensor | None, padding: Tensor | None, causal: bool) -> Tensor:
        output = self.self_attn(
            x, x, x, key_padding_mask=padding, need_weights=False, attn_mask=mask, is_causal=causal
        )[0]
        return self.dropout1(output)

    def _feed(self, x: Tensor) -> Tensor:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))

    def to_torch(self) -> nn.TransformerEncoderLayer:
        """The torch class with the same children."""
        with torch.device("meta"):
            plain = nn.TransformerEncoderLayer(1, 1, 1, norm_first=self.norm_first)
        for name in self.CHILDREN:
            setattr(plain, name, getattr(self, name))
        plain.activation = self.activation
        plain.activation_relu_or_gelu = 1 if self.activation is F.relu else 2 if self.activation is F.gelu else 0
        plain.training = self.training
        return plain
