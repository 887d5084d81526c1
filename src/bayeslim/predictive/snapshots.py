"""Snapshots of a network along a sampler's path, on disk or in memory, and their joint prediction."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from bayeslim.saving import check_state
from bayeslim.schedules import Progress
from bayeslim.storage import read_tensors, write_tensors

__all__ = ["Replay", "Snapshots", "network_of"]

NAME = re.compile(r"snapshot-(\d{6,})\.safetensors")
State = dict[str, Tensor]
HELD_WEIGHTS = 2**24
"""Snapshots times weights that stay in memory between batches (64 MiB in float32)."""


class Snapshots:
    """Weights and buffers of one network at several times: samples of its posterior.

    In a folder every snapshot is one checksummed file, written atomically, and only one is in memory while
    writing. `bl.predict(snapshots, x)` and `bl.evaluate(snapshots, data)` average over all of them and leave the
    network's own weights alone.

    Args:
        model: the network they belong to.
        source: a folder of their own, made when the first is taken; or a list of state dictionaries.
        when: as a hook of `fit`, take one after the epochs for which this is True; None takes one after each.

    Raises:
        FileExistsError: if the folder holds anything else; nothing is touched then.
        ValueError: if what is there was taken of another network, or is damaged.

    Example:
        >>> snapshots = Snapshots(model, "run/snapshots", when=bl.schedules.sampling_epochs(4, 3))
        >>> bl.fit(model, data, ..., lr_schedule=bl.schedules.cosine_cycles(4), after_epoch=snapshots)
        >>> bl.predict(snapshots, x).mean
    """

    def __init__(
        self,
        model: nn.Module,
        source: str | os.PathLike[str] | list[State],
        *,
        when: Callable[[Progress], bool] | None = None,
    ) -> None:
        self.model = model
        self.source = source if isinstance(source, list) else Path(source)
        self.when = when
        for index in range(min(1, len(self))):
            self[index]

    def __len__(self) -> int:
        """Number of snapshots."""
        return len(self.source if isinstance(self.source, list) else self.files())

    def __getitem__(self, index: int) -> State:
        """One state, in the order taken, checked against the network and in its type and place."""
        if isinstance(self.source, list):
            where, state = Path(f"snapshot {index}"), self.source[index]
        else:
            where = self.files()[index]
            state, facts = read_tensors(where)
            if facts.get("kind") != "snapshot":
                raise ValueError(f"{where} holds {facts.get('kind')!r}, not a snapshot")
        check_state(self.model, state, where)
        return {name: state[name].to(own) for name, own in self.model.state_dict().items()}

    def __call__(self, model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
        """Take a snapshot if it is time: the hook `after_epoch` of `fit`."""
        if model is not self.model:
            raise ValueError("the snapshots were made for another network: pass the one that is trained to Snapshots")
        if self.when is None or self.when(progress):
            self.take_(progress.epoch)

    def take_(self, number: int) -> None:
        """Add the network as it is now.

        Args:
            number: its place in the order, e.g. the epoch. The last one may be taken again, as happens when a
                run is resumed; a list ignores it and appends.

        Raises:
            FileExistsError: if the folder holds later ones, which must come from another run.
        """
        if isinstance(self.source, list):
            self.source.append({name: value.detach().clone() for name, value in self.model.state_dict().items()})
            return
        later = [file.name for file in self.files() if _number(file) > number]
        if later:
            raise FileExistsError(
                f"{self.source} holds {later[-1]}, later than {number} and thus of another run: choose an empty folder"
            )
        facts = {"kind": "snapshot", "number": number}
        write_tensors(self.source / f"snapshot-{number:06d}.safetensors", self.model.state_dict(), facts)

    def files(self) -> list[Path]:
        """The files of the snapshots, in order."""
        if isinstance(self.source, list) or not self.source.exists():
            return []
        if not self.source.is_dir():
            raise FileExistsError(f"{self.source} is a file: pass a folder")
        found = [entry for entry in self.source.iterdir() if not entry.name.startswith(".snapshot-")]  # cut short
        foreign = sorted(entry.name for entry in found if NAME.fullmatch(entry.name) is None)
        if foreign:
            raise FileExistsError(
                f"{self.source} holds {foreign[0]}, which is no snapshot ({len(foreign)} such): give snapshots a "
                "folder of their own"
            )
        return sorted(found, key=_number)


class Replay:
    """The network at every snapshot as a function of inputs, a bounded number of snapshots in memory.

    If all fit they are read once; otherwise they are read again for every batch.
    """

    def __init__(self, snapshots: Snapshots) -> None:
        self.snapshots = snapshots
        self.count = len(snapshots)
        if self.count == 0:
            raise ValueError(f"there are no snapshots in {snapshots.source}: train with `after_epoch=snapshots` first")
        self.shapes = [tensor.shape for tensor in snapshots.model.state_dict().values()]
        weights = max(1, sum(shape.numel() for shape in self.shapes))
        self.held = self._stack(0, self.count) if self.count * weights <= HELD_WEIGHTS else None

    def groups(self, size: int) -> Iterator[State]:
        """The states, stacked in groups of `size`."""
        for start in range(0, self.count, size):
            stop = min(start + size, self.count)
            if self.held is None:
                yield self._stack(start, stop)
            else:
                yield {name: tensor[start:stop] for name, tensor in self.held.items()}

    def outputs(self, x: Tensor, state: State) -> Tensor:
        """Outputs of the network with this state."""
        return torch.func.functional_call(self.snapshots.model, state, (x,), tie_weights=False)

    def _stack(self, start: int, stop: int) -> State:
        states = [self.snapshots[index] for index in range(start, stop)]
        return {name: torch.stack([state[name] for state in states]) for name in states[0]}


def network_of(model: nn.Module | Snapshots) -> nn.Module:
    """The network itself, where snapshots of it may stand for it."""
    return model.model if isinstance(model, Snapshots) else model


def _number(file: Path) -> int:
    found = NAME.fullmatch(file.name)
    assert found is not None
    return int(found[1])
