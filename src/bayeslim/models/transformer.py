"""The text classifier with one transformer block."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

__all__ = ["TransformerClassifier", "encoder_layer", "gelu", "relu", "sinusoidal_positions"]

PAD = 0
"""The token that fills short documents."""


class TransformerClassifier(nn.Module):
    """Embedding plus positions, post-norm encoder blocks, mean over the sequence, linear.

    N(0, 1) embedding + `sinusoidal_positions`, dropout; per block LayerNorm(x + dropout(attention(x))),
    then LayerNorm(x + linear(relu(linear(x)))); mean over the tokens; linear. Queries, keys and values
    have no bias, the attention's output has one (the dissertation's transformer after Sinai 2022: one
    block, 4 heads of 8, 48 482 parameters for 1 119 tokens). Its variational matrices are the two of the
    feed-forward: `where=lambda name, module: ".linear" in name`.

    Args:
        vocabulary: number of tokens, padding included.
        dim: width of the embedding; even, a multiple of `heads`.
        heads: attention heads.
        hidden: width of the feed-forward.
        classes: number of outputs.
        dropout: rate after the positions and after the attention.
        max_length: longest sequence.
        layers: number of blocks.
        padding_mask: whether token 0 is padding, which attention and mean then skip. The dissertation's
            network has no mask: padding counts as a word.
        feedforward_dropout: rate after the feed-forward; 0 in the dissertation's variational network,
            0.1 in Sinai's.
        qkv_bias: whether queries, keys and values have biases.

    Shape:
        (batch, time) or (time,) integers -> (batch, classes) or (classes,)

    Example:
        >>> TransformerClassifier(vocabulary=50)(torch.ones(2, 9, dtype=torch.long)).shape
        torch.Size([2, 2])
    """

    positions: Tensor

    def __init__(
        self,
        vocabulary: int,
        dim: int = 32,
        heads: int = 4,
        hidden: int = 128,
        classes: int = 2,
        dropout: float = 0.1,
        max_length: int = 120,
        layers: int = 1,
        padding_mask: bool = False,
        feedforward_dropout: float = 0.0,
        qkv_bias: bool = False,
    ) -> None:
        super().__init__()
        self.padding_mask = padding_mask
        self.embedding = nn.Embedding(vocabulary, dim)
        self.register_buffer("positions", sinusoidal_positions(max_length, dim))
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            encoder_layer(
                dim,
                heads,
                hidden,
                activation=relu,
                attention_dropout=dropout,
                feedforward_dropout=feedforward_dropout,
                qkv_bias=qkv_bias,
            )
            for _ in range(layers)
        )
        self.head = nn.Linear(dim, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Classify sequences of at most `max_length` tokens; an empty document (all padding) is allowed."""
        length, longest = tokens.shape[-1], self.positions.shape[0]
        if length > longest:
            raise ValueError(
                f"`tokens` must have at most `max_length` = {longest} columns, got {length}: cut them, or "
                f"build the network with max_length={length}"
            )
        padding = tokens == PAD if self.padding_mask else None
        x = self.dropout(torch.add(self.embedding(tokens), self.positions[:length]))
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=padding)
        if padding is None:
            return self.head(torch.mean(x, -2))
        kept = (~padding).to(self.positions.dtype)[..., None]
        return self.head(torch.div(torch.sum(torch.mul(x, kept), -2), kept.sum(-2).clamp_min(1)))


def encoder_layer(
    dim: int,
    heads: int,
    hidden: int,
    *,
    activation: Callable[[Tensor], Tensor],
    norm_first: bool = False,
    attention_dropout: float = 0.0,
    feedforward_dropout: float = 0.0,
    qkv_bias: bool = False,
) -> nn.TransformerEncoderLayer:
    """Build torch's encoder layer so that it always calls its children.

    In eval mode torch may hand the weights of the whole layer to one fused kernel, past `linear1` and
    `linear2`, and so fails on Bayesian layers in their place. It never does with an `activation` that it
    does not know, such as `relu` and `gelu` of this module. Without `qkv_bias` the attention has
    no fused kernel either, which has no rule for `torch.vmap`.

    Args:
        dim: width of the tokens, a multiple of `heads`.
        heads: attention heads.
        hidden: width of the feed-forward.
        activation: of the feed-forward; neither `F.relu`, `F.gelu` nor their modules.
        norm_first: whether LayerNorm comes before attention and feed-forward instead of after the sums.
        attention_dropout: rate on the attention's output (not on its weights).
        feedforward_dropout: rate on the feed-forward's output (not inside it).
        qkv_bias: whether queries, keys and values have biases; the attention's output always has one.

    Shape:
        (batch, time, dim) or (time, dim) -> the same

    Example:
        >>> encoder_layer(8, 2, 16, activation=gelu)(torch.zeros(3, 5, 8)).shape
        torch.Size([3, 5, 8])
    """
    if dim % heads:
        raise ValueError(f"`dim` must be a multiple of `heads`, got {dim} and {heads}: pass e.g. dim={8 * heads}")
    layer = nn.TransformerEncoderLayer(
        dim, heads, hidden, dropout=0.0, activation=activation, batch_first=True, norm_first=norm_first
    )
    layer.dropout1 = nn.Dropout(attention_dropout)
    layer.dropout2 = nn.Dropout(feedforward_dropout)
    if not qkv_bias:
        # `bias=False` of nn.MultiheadAttention would also take the output's bias away.
        layer.self_attn.register_parameter("in_proj_bias", None)
    return layer


def sinusoidal_positions(length: int, dim: int) -> Tensor:
    """The fixed position code `sin, cos(p / 10000^(r / dim))` in columns `r, r + 1`, `r = 0, 2, ...`

    Positions `p` start at 1 (Sinai 2022; Vaswani et al. 2017, section 3.5, start at 0).

    Args:
        length: number of positions.
        dim: number of columns, even.

    Returns:
        Tensor (length, dim).

    Example:
        >>> sinusoidal_positions(1, 2)  # sin 1, cos 1
        tensor([[0.8415, 0.5403]])
    """
    if dim < 2 or dim % 2:
        raise ValueError(f"`dim` must be even and positive, got {dim}: pass e.g. 32")
    position = torch.arange(1, length + 1, dtype=torch.float64)[:, None]
    angle = position / 10000 ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    both = torch.stack([torch.sin(angle), torch.cos(angle)], -1)
    return both.flatten(-2).to(torch.get_default_dtype())


def relu(x: Tensor) -> Tensor:
    """`max(x, 0)`, under a name that torch's fused encoder layer does not know."""
    return torch.relu(x)


def gelu(x: Tensor) -> Tensor:
    """`x P(x)` with the normal distribution function `P`, under a name that torch does not know either."""
    return nn.functional.gelu(x)
