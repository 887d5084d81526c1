"""The recurrent text classifier of the k-tied Normal paper."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["LSTMClassifier"]


class LSTMClassifier(nn.Module):
    """Embedding, one LSTM, and a linear layer on the output of the last step.

    Keras' imdb_lstm example as used by Swiatkowski et al. 2020 (20 000 words, embedding 128, LSTM 128,
    one logit). Keras adds one bias to the gates, torch two, so torch has `4 * hidden` parameters more
    (2 692 225 against 2 691 713) for the same functions. Keras also starts the forget gate's bias at 1 and
    embeddings in U(-0.05, 0.05); here torch's defaults hold: 1 / sqrt(hidden) uniform and N(0, 1).

    `nn.LSTM` refuses `torch.vmap` and graph capture without breaks.

    Args:
        vocabulary: number of tokens.
        embedding: width of the embedding.
        hidden: width of the LSTM.
        outputs: width of the output.

    Shape:
        tokens (batch, time) and lengths (batch,), or (time,) and () -> (batch, outputs), or (outputs,)

    Example:
        >>> LSTMClassifier(vocabulary=50, embedding=8, hidden=8)(torch.zeros(2, 7, dtype=torch.long)).shape
        torch.Size([2, 1])
    """

    def __init__(self, vocabulary: int = 20000, embedding: int = 128, hidden: int = 128, outputs: int = 1) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, batch_first=True)
        self.head = nn.Linear(hidden, outputs)

    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Read the tokens and map the output of the last step.

        Args:
            tokens: integers below `vocabulary`. Keras pads in front, where the last step is the last word.
            lengths: number of valid tokens per sequence, at least 1, for padding behind; all when None.
        """
        outputs, _ = self.lstm(self.embedding(tokens))
        if lengths is None:
            return self.head(outputs[..., -1, :])
        # gather, since plain indexing would take a length of 0 for the last step.
        last = (lengths - 1)[..., None, None].expand(*lengths.shape, 1, outputs.shape[-1])
        return self.head(torch.gather(outputs, -2, last).squeeze(-2))
