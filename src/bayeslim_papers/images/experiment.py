"""What experiments with images have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from bayeslim_papers.experiment import Experiment
from bayeslim_papers.images.varied import Splits

__all__ = ["ImageExperiment"]


@dataclass(frozen=True)
class ImageExperiment(Experiment):
    """An experiment whose data are images, whose numbers count as settings."""

    read: ClassVar[Callable[[Path | None, str], Splits]]
    technical: ClassVar[tuple[str, ...]] = ("graph",)
    checkpoints: ClassVar[bool] = True

    def load(self, root: Path | None, device: str) -> Splits:
        """The images."""
        return type(self).read(root, device)

    def facts(self, data: Splits) -> dict[str, Any]:
        """What every record says, and how many images there are."""
        facts = super().facts(data)
        return facts | {"config": facts["config"] | {"images": [len(data.train), len(data.test)]}}
