"""The recurrent network on IMDB reviews: figure 6 and table 2.

Embedding of 20 000 words, LSTM 128, one logit, on the last 80 words of a review, padded in front. The kernels of the
LSTM and of the last layer are Bayesian, the embedding and the biases point estimates; k-tied in the two kernels of the
LSTM, the last one has a single row, which has no rank. One draw of the weights serves all time steps. N(0, prior_std^2)
prior, Adam, batch 128, the last 5000 of the shuffled training reviews held out. KL weight min(1, 100 rate
floor(step / 100)), which is 1 from step 20 000 (epoch 128) on.

Kernels start as the paper says (He), the point estimates as in Keras: embedding U(-0.05, 0.05), biases 0 but 1 for the
forget gate. Mean-field scales start as in the MNIST part. Learning rate and prior are to be chosen on the validation
scores from the paper's grids, 1e-4 to 3e-3 and 0.2 or 0.3.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.data.text_inputs import TextInputs
from bayeslim.layers.initial import he_normal
from bayeslim.posteriors import KTied, MeanField
from bayeslim_papers.k_tied.part import Part, Splits

__all__ = ["Imdb"]

HELD_OUT = 5000
SHUFFLE_SEED = 0
"""Of the training reviews, which come sorted by their labels."""


@dataclass(frozen=True)
class Imdb(Part):
    """Settings."""

    name: ClassVar[str] = "imdb"

    vocabulary: int = 20_000
    length: int = 80
    width: int = 128
    """Of embedding and LSTM."""
    batch_size: int = 128
    anneal_rate: float = 5e-5
    scale: float = 0.01

    def load(self, root: Path | None, device: str) -> Splits:
        """Word numbers by the vocabulary of the training reviews, most frequent words first."""
        train, test = (bl.data.imdb(split, root=root) for split in ("train", "test"))
        inputs = TextInputs.fitted(train.texts, self.vocabulary - 2, self.length)
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(SHUFFLE_SEED))
        (x, y), held = (
            (inputs.encode(part.texts)[rows].to(device), part.y[rows].to(device))
            for part, rows in ((train, order), (test, torch.arange(len(test))))
        )
        return Splits.holding_out((x, y), held, HELD_OUT)

    @classmethod
    def quick(cls, root: Path | None, device: str) -> tuple[Self, Splits]:
        """A small network on made-up texts of six words."""
        few: dict[str, Any] = {"epochs": 15, "samples": 5, "ranks": (0, 2), "cuts": (1, 2), "seeds": (0, 1)}
        small = cls(vocabulary=20, length=6, width=8, batch_size=32, lr=0.03, anneal_rate=1e-3, **few)
        return small, made_texts(small.vocabulary, small.length, (160, 40, 80), device)

    def build(self, k: int) -> nn.Module:
        """The network with k-tied kernels in the LSTM; k = 0 is mean-field."""
        model = bl.models.LSTMClassifier(self.vocabulary, self.width, self.width)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name == "embedding.weight":
                    parameter.uniform_(-0.05, 0.05)
                elif parameter.ndim == 2:
                    parameter.copy_(he_normal(*parameter.shape))
                else:
                    parameter.zero_()
            model.lstm.get_parameter("bias_ih_l0")[self.width : 2 * self.width] = 1  # the forget gate, second of four
        mean_field = functools.partial(MeanField, scale=self.scale)
        return bl.bayesianize_(
            model,
            posterior=functools.partial(KTied, k=k, scale=self.scale) if k else mean_field,
            prior=bl.priors.Normal(0.0, self.prior_std),
            estimator=bl.weight_sample,
            where=lambda name, module: name != "embedding",
            overrides={"head": {"posterior": mean_field}},
        )

    def training(self, model: nn.Module) -> dict[str, Any]:
        """Two classes and the staircase."""
        return {"likelihood": bl.Bernoulli(), "kl_schedule": bl.schedules.staircase(self.anneal_rate)}


def made_texts(vocabulary: int, length: int, counts: tuple[int, int, int], device: str) -> Splits:
    """Random words, of which the second half of the vocabulary is more frequent in texts of label 1."""
    generator = torch.Generator().manual_seed(0)

    def split(count: int) -> tuple[Tensor, Tensor]:
        y = torch.randint(2, (count,), generator=generator)
        upper = torch.rand(count, length, generator=generator) < 0.1 + 0.8 * y[:, None]
        words = torch.randint(vocabulary // 2, (count, length), generator=generator)
        return (words + vocabulary // 2 * upper).to(device), y.to(device)

    return Splits(*map(split, counts))
