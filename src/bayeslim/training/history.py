"""What happened during training, epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

from bayeslim.storage import json_text, write_atomically

__all__ = ["History"]


@dataclass
class History:
    """One record per epoch: energy, nll, kl, beta, lr, sparsity per layer, validation scores.

    Energy, nll and kl are averages over the examples seen, while the weights change; the kl of an epoch without it is
    that of its end. A name gives a column, a number or a loop the records of epochs.

    Example:
        >>> history = bl.fit(...)
        >>> history["nll"]  # one value per epoch
        >>> for record in history:
        ...     print(record["epoch"], record["sparsity"])
    """

    records: list[dict[str, Any]] = field(default_factory=list)

    def __len__(self) -> int:
        """Number of epochs."""
        return len(self.records)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The records, epoch by epoch."""
        return iter(self.records)

    def __contains__(self, name: object) -> bool:
        """Whether there is a column of this name."""
        return isinstance(name, str) and bool(self.records) and name in self.records[-1]

    @overload
    def __getitem__(self, name: str) -> list[Any]: ...
    @overload
    def __getitem__(self, name: int) -> dict[str, Any]: ...
    def __getitem__(self, name: str | int) -> list[Any] | dict[str, Any]:
        """The values of one column over the epochs; or the record of one epoch, by its number."""
        if isinstance(name, int):
            return self.records[name]
        if self.records and name not in self:
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
