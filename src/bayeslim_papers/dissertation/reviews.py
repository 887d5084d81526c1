"""The dissertation's Transformer on IMDB reviews: variational dropout in its feed-forward block.

A variant is `objective/size/network`. `size` counts reviews, half of them to test on. Networks: dense; feed-forward
(variational dropout in both matrices of the feed-forward block); block (in the attention as well). "elbo" anneals the
KL linearly, uses local reparameterisation and lets the learning rate fall to 0 in the end; "dissertation" is its code:
KL divided by N once more, weight 1 from the start, sampled weights, and a softmax before the softmax of the loss. Both
start from ln variance -10.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.data import TextData
from bayeslim.priors import LogUniform
from bayeslim.pruning import LOG_ALPHA
from bayeslim.runtime.seeds import seeded
from bayeslim.training import fit_many
from bayeslim_papers.dissertation.pruning import accuracies, errors

__all__ = ["ReviewTokens", "Reviews", "tokenised", "words"]

SHUFFLE_SEED = 1308
"""Of the choice of reviews; the dissertation's, whose generator was Julia's."""
LINE_BREAK = re.compile(r"<br\s*/?>")
DROPPED = re.compile("['\u0300-\u036f]")
"""Apostrophes, and accents once they are apart from their letters."""
WORD = re.compile(r"\w\w+")
WHERE = {"feed-forward": bl.selectors.feed_forward, "block": bl.selectors.transformer_block}
"""Network -> which of its layers are Bayesian."""


@dataclass(frozen=True)
class ReviewTokens:
    """Word numbers (reviews, length) and labels of both parts, and how many numbers there are."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    vocabulary: int


@dataclass(frozen=True)
class Reviews:
    """Settings."""

    sizes: tuple[int, ...] = (50_000, 5000, 1000)
    objectives: tuple[str, ...] = ("elbo", "dissertation")
    networks: tuple[str, ...] = ("dense", "feed-forward", "block")
    least_reviews: int = 10
    """Training reviews that a word must be in."""
    length: int = 120
    dim: int = 32
    heads: int = 4
    hidden: int = 128
    epochs: int = 30
    batch_size: int = 32
    lr: float = 0.01
    samples: int = 100

    def variants(self) -> list[str]:
        """The names of what is trained."""
        return [f"{o}/{size}/{network}" for size in self.sizes for o in self.objectives for network in self.networks]

    def load(self, root: Path | None, device: str) -> dict[int, ReviewTokens]:
        """The reviews of every size as word numbers."""
        train, test = (shuffled(bl.data.imdb(split, root=root)) for split in ("train", "test"))
        return {
            size: tokenised(_first(train, size // 2), _first(test, size // 2), self.least_reviews, self.length, device)
            for size in self.sizes
        }

    def measured(self, variant: str, seeds: Sequence[int], data: dict[int, ReviewTokens]) -> list[dict[str, Any]]:
        """Train one network per seed, side by side, and judge each."""
        objective, size, network = variant.split("/")
        tokens = data[int(size)]
        models: list[nn.Module] = []
        for seed in seeds:
            with seeded(seed):
                models.append(self.build(objective, network, tokens.vocabulary).to(tokens.train[0].device))
        exact = objective == "elbo"
        fit_many(
            models,
            tokens.train,
            likelihood=bl.Categorical(),
            epochs=self.epochs,
            batch_size=self.batch_size,
            lr=self.lr,
            lr_schedule=bl.schedules.constant_then_linear() if exact else None,
            kl_schedule=bl.schedules.linear() if exact else None,
            kl_scaling="elbo" if exact else "dissertation",
            seeds=seeds,
            progress=False,
        )
        runs: list[dict[str, Any]] = []
        for seed, model in zip(seeds, models, strict=True):
            if network == "dense":
                scores = {"accuracy": {"none": 100 - errors(model, tokens.test, (1,), seed)[1]}}
            else:
                scores = accuracies(model, tokens.test, LOG_ALPHA, self.samples, seed)
                scores["layers"] = [name.split(".")[-1] for name in bl.named_sparsity(model)]
            runs.append({"vocabulary": tokens.vocabulary} | scores)
        return runs

    def build(self, objective: str, network: str, vocabulary: int) -> nn.Module:
        """The network before training; matrices of the block by Glorot."""
        model: nn.Module = bl.models.TransformerClassifier(
            vocabulary, self.dim, self.heads, self.hidden, max_length=self.length
        )
        for name, parameter in model.named_parameters():
            if name.startswith("layers.") and parameter.ndim == 2:
                nn.init.xavier_uniform_(parameter)
        if network != "dense":
            estimator = bl.local_reparam if objective == "elbo" else bl.weight_sample
            bl.bayesianize_(model, prior=LogUniform(), estimator=estimator, where=WHERE[network])
        return model if objective == "elbo" else nn.Sequential(model, nn.Softmax(-1))


def shuffled(data: TextData) -> TextData:
    """The reviews in random order, the same one every time."""
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(SHUFFLE_SEED))
    return TextData(tuple(data.texts[index] for index in order.tolist()), data.y[order], data.ratings[order])


def _first(data: TextData, count: int) -> TextData:
    return TextData(data.texts[:count], data.y[:count], data.ratings[:count])


def words(text: str) -> list[str]:
    """Words of two letters or more, in lower case, without accents and apostrophes.

    Example:
        >>> words("It's a cliché,<br />I know")
        ['its', 'cliche', 'know']
    """
    decomposed = unicodedata.normalize("NFD", LINE_BREAK.sub(" ", text.lower()))
    return WORD.findall(DROPPED.sub("", decomposed))


def tokenised(train: TextData, test: TextData, least_reviews: int, length: int, device: str) -> ReviewTokens:
    """Number the words that enough training reviews hold, from 2; 0 pads behind a text, 1 is any other word.

    A review's first `length` words are kept.
    """
    split = [[words(text) for text in part.texts] for part in (train, test)]
    counts = Counter(word for review in split[0] for word in set(review))
    kept = sorted(word for word, count in counts.items() if count >= least_reviews)
    number = {word: index for index, word in enumerate(kept, 2)}
    parts: list[tuple[Tensor, Tensor]] = []
    for reviews, data in zip(split, (train, test), strict=True):
        rows = [[number.get(word, 1) for word in review[:length]] for review in reviews]
        x = torch.tensor([row + [0] * (length - len(row)) for row in rows])
        parts.append((x.to(device), data.y.to(device)))
    return ReviewTokens(parts[0], parts[1], len(kept) + 2)
