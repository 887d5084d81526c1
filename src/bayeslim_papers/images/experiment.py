"""What the experiments with images have in common: settings, and what a record says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from bayeslim_papers.experiment import Experiment
from bayeslim_papers.images.images import Splits
from bayeslim_papers.training import check_precision

__all__ = ["ImageExperiment"]


@dataclass(frozen=True)
class ImageExperiment(Experiment):
    """Settings of an experiment that compares methods."""

    kind: ClassVar[str] = "experiment"
    by: ClassVar[str] = "method"
    choices: ClassVar[tuple[str, ...]] = ("methods", "seeds")
    technical: ClassVar[tuple[str, ...]] = ("graph",)
    paper: ClassVar[dict[str, Any]]
    """What the paper says."""
    tolerance: ClassVar[dict[str, float]]
    """How far from it a full run may be."""
    settings: ClassVar[tuple[str, ...]]
    """Fields that the command line can set, besides methods, seeds, epochs and batch size."""
    known: ClassVar[tuple[str, ...]]
    """All methods."""

    methods: tuple[str, ...]
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
        check_precision(self.precision)

    def variants(self) -> dict[str, str]:
        """The methods."""
        return {method: method for method in self.methods}

    def headline(self, found: Mapping[str, Any]) -> str:
        """Accuracy and NLL."""
        return f"accuracy {found['accuracy']:.2f} %, NLL {found['nll']:.4f}"

    def facts(self, data: Splits) -> dict[str, Any]:
        """The numbers of images count as settings."""
        facts = super().facts(data)
        config = facts["config"] | {"images": [len(data.train), len(data.test)]}
        return facts | {"config": config, "paper": self.paper, "tolerance": self.tolerance}
