"""What the experiments with images have in common: settings, data, and one run per method and seed."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from bayeslim.experiments.vision.images import Splits
from bayeslim.experiments.vision.training import PRECISIONS, Say, silent

__all__ = ["CHOICES", "Experiment"]

CHOICES = ("methods", "seeds", "graph")
"""Settings that say which runs were made, not how: results of one file may differ in them."""


@dataclass(frozen=True)
class Experiment(ABC):
    """Settings of an experiment."""

    name: ClassVar[str]
    paper: ClassVar[dict[str, Any]]
    """What the paper says."""
    tolerance: ClassVar[dict[str, float]]
    """How far from it a full run may be."""
    settings: ClassVar[tuple[str, ...]]
    """Fields that the command line can set, besides methods, seeds, epochs and batch size."""
    known: ClassVar[tuple[str, ...]]
    """All methods."""

    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    epochs: int
    batch_size: int
    precision: str = "float32"
    """Of the products on CUDA."""
    graph: bool = True
    """Whether a step's gradient is replayed as a CUDA graph on CUDA."""

    def __post_init__(self) -> None:
        unknown = [method for method in self.methods if method not in self.known]
        if unknown:
            raise ValueError(f"`methods` has no {unknown[0]!r}: choose from {', '.join(self.known)}")
        if self.precision not in PRECISIONS:
            raise ValueError(f"`precision` must be one of {', '.join(PRECISIONS)}, got {self.precision!r}")

    @abstractmethod
    def load(self, root: Path | None, device: str) -> Splits:
        """The data."""

    @classmethod
    @abstractmethod
    def quick(cls, device: str) -> tuple[Self, Splits]:
        """Settings and made-up images with which the whole experiment takes seconds."""

    @abstractmethod
    def measured(
        self, method: str, seed: int, data: Splits, folder: Path | None = None, say: Say = silent
    ) -> dict[str, Any]:
        """Train and score one network; with a folder, an interrupted training goes on there."""

    def comparable(self) -> dict[str, Any]:
        """All settings but `CHOICES`, as JSON has them: what results of one file must have in common."""
        return json.loads(json.dumps({key: value for key, value in asdict(self).items() if key not in CHOICES}))
