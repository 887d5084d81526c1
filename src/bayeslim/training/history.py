"""What happened during training, epoch by epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bayeslim.storage import json_text, write_atomically

__all__ = ["History"]


@dataclass
class History:
    """One record per epoch: energy, nll, kl, beta, lr, sparsity per layer, validation scores.

    Energy, nll and kl are averages over the batches; the kl of an epoch without it is that of its end.

    Example:
        >>> history = bl.fit(...)
        >>> history["nll"]  # one value per epoch
    """

    records: list[dict[str, Any]] = field(default_factory=list)

    def __len__(self) -> int:
        """Number of epochs."""
        return len(self.records)

    def __getitem__(self, name: str) -> list[Any]:
        """The values of one column over the epochs."""
        if self.records and name not in self.records[-1]:
            raise KeyError(f"no column {name!r}: there are {', '.join(self.records[-1])}")
        return [record.get(name) for record in self.records]

    @property
    def last(self) -> dict[str, Any]:
        """The record of the last epoch."""
        return self.records[-1]

    def write(self, path: Path) -> None:
        """Write JSON lines for any reader, atomically; a number that is not finite becomes null."""
        lines = "".join(json_text(record) + "\n" for record in self.records)
        write_atomically(path, lines.encode())
