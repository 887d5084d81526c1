"""Which layers `bayesianize_` converts: predicates for its `where`."""

from __future__ import annotations

from torch import nn

__all__ = ["attention", "feed_forward", "transformer_block"]


def feed_forward(name: str, module: nn.Module) -> bool:
    """The two linear layers of a Transformer's feed-forward block, as torch's encoder and decoder name them.

    Example:
        >>> bl.bayesianize_(transformer, where=bl.selectors.feed_forward)
    """
    return isinstance(module, nn.Linear) and name.split(".")[-1] in ("linear1", "linear2")


def attention(name: str, module: nn.Module) -> bool:
    """Every multi-head attention.

    Example:
        >>> bl.bayesianize_(transformer, where=bl.selectors.attention)
    """
    return isinstance(module, nn.MultiheadAttention)


def transformer_block(name: str, module: nn.Module) -> bool:
    """Feed-forward and attention, but neither embeddings nor the head.

    Example:
        >>> bl.bayesianize_(transformer, where=bl.selectors.transformer_block)
    """
    return feed_forward(name, module) or attention(name, module)
