"""Networks of classes that bayeslim cannot build: their files say what the layers are, and these plain ones take it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["OWN"]


class Recurrent(nn.Module):
    """Sequences through an LSTM and a GRU in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)
        self.gru = nn.GRU(4, 3, batch_first=True, bidirectional=True)
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.gru(self.lstm(x)[0])[0][:, -1])


class Attentive(nn.Module):
    """Sequences through attention to themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.embed, self.head = nn.Linear(3, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Any:
        tokens = self.embed(x)
        return self.head(torch.mean(self.attention(tokens, tokens, tokens, need_weights=False)[0], 1))


class Encoder(nn.Module):
    """Sequences through a Transformer's encoder layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(3, 6)
        self.block = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, activation="gelu", batch_first=True)
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Any:
        return self.head(torch.mean(self.block(self.embed(x)), 1))


class Tied(nn.Module):
    """Tokens through an embedding whose weight is that of the head too."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Any:
        return self.head(torch.tanh(torch.mean(self.embed(tokens), 1)))


class Perceptron(nn.Module):
    """Vectors through two layers, the hidden one pruned and cut in the file."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(3, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Any:
        return self.head(torch.relu(self.hidden(x)))


OWN: dict[str, Callable[[], nn.Module]] = {
    "own_recurrent": Recurrent,
    "own_attention": Attentive,
    "own_encoder": Encoder,
    "own_tied": Tied,
    "own_pruned": Perceptron,
    "own_compacted": Perceptron,
}
"""Name of a file -> the plain network to load it into."""
