"""The Bayesian embedding layer."""

from __future__ import annotations

from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor, nn

from bayeslim.estimators import kind_of
from bayeslim.layers.base import BayesLayer, filled
from bayeslim.ops import EmbeddingOp

__all__ = ["Embedding"]

EVERY_ROW = EmbeddingOp()
"""The look-up without padding."""


class Embedding(BayesLayer):
    """Rows of a table, looked up by index, with a posterior over the table.

    Means are drawn from `N(0, 1)`, as torch does. The row of `padding_idx` gives zeros and no noise.

    Args:
        num_embeddings: rows of the table.
        embedding_dim: features of a row.
        padding_idx: index that stands for padding.
        device: where the parameters live.
        dtype: their floating type.
        **bayes: `posterior`, `prior`, `estimator` of `BayesLayer`.

    Shape:
        integers (...) -> (..., embedding_dim)

    Example:
        >>> layer = Embedding(100, 8, padding_idx=0)
        >>> layer(torch.tensor([[1, 5, 0]])).shape
        torch.Size([1, 3, 8])
    """

    max_norm: ClassVar[None] = None
    scale_grad_by_freq: ClassVar[bool] = False
    sparse: ClassVar[bool] = False

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **bayes: Any,
    ) -> None:
        plain = nn.Embedding(num_embeddings, embedding_dim, padding_idx, device=device, dtype=dtype)
        super().__init__(EmbeddingOp(plain.padding_idx), plain.weight, None, **bayes)

    @classmethod
    def from_torch(cls, plain: nn.Embedding, **bayes: Any) -> Self:
        """Give the table of a plain `nn.Embedding` a posterior centred on it."""
        for option in ("max_norm", "scale_grad_by_freq", "sparse"):
            if getattr(plain, option):
                raise ValueError(
                    f"an nn.Embedding with `{option}` cannot be converted: set it off, or leave the layer out "
                    "by `where`"
                )
        padding = None if plain.weight.is_meta else plain.padding_idx
        if padding is not None and bool(plain.weight[padding].any()):
            raise ValueError(
                f"row {plain.padding_idx} of the nn.Embedding is padding but not zero: set it to zero, or leave "
                "the layer out by `where`"
            )
        return cls.around(EmbeddingOp(plain.padding_idx), plain.weight, None, **bayes)

    def forward(self, input: Tensor) -> Tensor:
        """Look up the rows `input` as the estimator does; zeros for padding."""
        if self.padding_idx is None or kind_of(self.estimator) != "outputs":
            return super().forward(input)
        rows = self.estimator(self.weight, EVERY_ROW, input, self.bias)  # whose least noise is not quite none
        return rows * (input != self.padding_idx)[..., None]

    @property
    def num_embeddings(self) -> int:
        """Rows of the table."""
        return self.weight.shape[0]

    @property
    def embedding_dim(self) -> int:
        """Features of a row."""
        return self.weight.shape[1]

    @property
    def padding_idx(self) -> int | None:
        """Index that stands for padding."""
        return cast(EmbeddingOp, self.op).padding_index

    def to_torch(self) -> nn.Embedding:
        """The plain layer with the posterior mean as its table."""
        weight, _ = self.mean_tensors()
        padding = self.padding_idx
        if padding is not None:
            weight[padding] = 0.0  # the posterior's row is not used, so it may have moved
        with torch.device("meta"):
            plain = nn.Embedding(*weight.shape, padding_idx=padding)
        return filled(plain, weight, None)
