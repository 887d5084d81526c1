"""Snapshots of a network along a sampler's path, on disk or in memory, and their joint prediction."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bayeslim.architecture import build_likelihood, describe_likelihood
from bayeslim.checks.networks import check_network
from bayeslim.likelihoods.base import Likelihood, remember_likelihood_, remembered_likelihood
from bayeslim.saving import check_state, load_state_, prefixed, unprefixed
from bayeslim.schedules import Progress
from bayeslim.storage import read_tensors, remove_leftovers, write_tensors

__all__ = ["Replay", "Snapshot", "Snapshots", "in_run", "network_of"]

NAME = re.compile(r"snapshot-(\d{6,})\.safetensors")
State = dict[str, Tensor]
LIKELIHOOD = ".likelihood"
"""Begins the names of the likelihood's state in a file; no name in a network begins with a dot."""
RUNS: WeakKeyDictionary[nn.Module, str | None] = WeakKeyDictionary()
"""The run in which a network is being trained."""
HELD_WEIGHTS = 2**24
"""Snapshots times weights that stay in memory between batches (64 MiB in float32)."""


class Snapshot(State):
    """A network's `state_dict` at one time, and its likelihood then, if that is known."""

    def __init__(self, state: Mapping[str, Tensor], likelihood: Likelihood | None = None) -> None:
        super().__init__(state)
        self.likelihood = likelihood


class Snapshots:
    """Weights and buffers of one network at several times: samples of its posterior.

    In a folder every snapshot is one checksummed file, written atomically, and only one is in memory while
    writing. `bl.predict(snapshots, x)` and `bl.evaluate(snapshots, data)` average over all of them and leave the
    network's own weights alone. Where the likelihood has learned parameters, such as a noise, each snapshot predicts
    with its own. A network that remembers no likelihood, as in a new process, gets that of the last snapshot.

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
        check_network(model, "take snapshots of")
        self.model = model
        self.source = source if isinstance(source, list) else Path(source)
        self.when = when
        self._checked: tuple[Path, str] | None = None  # the last file, and the run that it is known to be of
        for index in range(len(self))[-1:]:
            likelihood = self[index].likelihood
            if likelihood is not None and remembered_likelihood(model) is None:
                remember_likelihood_(model, copy.deepcopy(likelihood))

    @property
    def network_advice(self) -> str:
        """What to pass where one network is wanted, see `check_network`."""
        advice = (
            "the network that they are of, snapshots.model; one of them by itself is that network after "
            "snapshots.model.load_state_dict(snapshots[-1])"
        )
        saved = "; in their folder they are saved already, and bl.Snapshots(model, folder) reads them again"
        return advice if isinstance(self.source, list) else advice + saved

    def __len__(self) -> int:
        """Number of snapshots."""
        return len(self.source if isinstance(self.source, list) else self.files())

    def __getitem__(self, index: int) -> Snapshot:
        """One state, in the order taken, checked against the network and in its type and place."""
        if isinstance(self.source, list):
            where, state = Path(f"snapshot {index}"), self.source[index]
            likelihood = state.likelihood if isinstance(state, Snapshot) else None
        else:
            where = self.files()[index]
            tensors, facts = read_tensors(where)
            if facts.get("kind") != "snapshot":
                raise ValueError(f"{where} holds {facts.get('kind')!r}, not a snapshot")
            state = {name: tensor for name, tensor in tensors.items() if not name.startswith(LIKELIHOOD)}
            likelihood = _stored_likelihood(facts.get("likelihood"), unprefixed(LIKELIHOOD, tensors), where)
        check_state(self.model, state, where)
        return Snapshot({name: state[name].to(own) for name, own in self.model.state_dict().items()}, likelihood)

    def replay(self) -> Replay:
        """The network at every snapshot, as `bl.predict` runs it."""
        return Replay(self)

    def __call__(self, model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
        """Take a snapshot if it is time: the hook `after_epoch` of `fit`."""
        if model is not self.model:
            raise ValueError("the snapshots were made for another network: pass the one that is trained to Snapshots")
        self._make_room(progress.epoch)
        if self.when is None or self.when(progress):
            self.take_(progress.epoch)

    def take_(self, number: int) -> None:
        """Add the network as it is now, and its likelihood if it remembers one.

        Args:
            number: its place in the order, e.g. the epoch. In `fit` it replaces what the same run has taken at this
                place and later, before it went back to an earlier checkpoint; elsewhere only the last one may be
                taken again. A list ignores it and appends.

        Raises:
            FileExistsError: if the folder holds snapshots of another run.
        """
        run, likelihood = RUNS.get(self.model), remembered_likelihood(self.model)
        if isinstance(self.source, list):
            state = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
            self.source.append(Snapshot(state, copy.deepcopy(likelihood)))
        elif _writes(run):
            self._make_room(number)
            file = self.source / f"snapshot-{number:06d}.safetensors"
            tensors, facts = self.model.state_dict(), {"kind": "snapshot", "number": number, "run": run}
            if likelihood is not None:
                tensors = tensors | prefixed(LIKELIHOOD, likelihood.state_dict())
                facts["likelihood"] = describe_likelihood(likelihood)
            if run is not None or _rank() is None:  # nobody else writes this file
                remove_leftovers(file)
            write_tensors(file, tensors, facts)
            self._checked = None if run is None else (file, run)

    def _make_room(self, number: int) -> None:
        """Refuse a folder of another run, and remove what this one took after `number` before it went back there."""
        run, files = RUNS.get(self.model), self.files()
        if not files or not _writes(run):
            return
        last, later = files[-1], [file for file in files if _number(file) > number]
        if run is None and later:
            raise FileExistsError(
                f"{self.source} holds {last.name}, later than {number} and thus of another run: choose an empty folder"
            )
        if run is not None and self._checked != (last, run):
            if read_tensors(last)[1].get("run") != run:
                raise FileExistsError(
                    f"{self.source} holds {last.name} of another run: choose another folder, or delete this one; to go "
                    "on with that run, pass `fit` its `checkpoint` and resume=True"
                )
            self._checked = (last, run)
        for file in later:
            file.unlink()

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
        self.likelihoods: dict[int, Likelihood | None] = {}
        self.held = self._stack(0, self.count) if self.count * weights <= HELD_WEIGHTS else None

    def likelihood(self, given: Likelihood, number: int) -> Likelihood:
        """That of a snapshot which was read already, if it is known and of the kind of the given one; else that one."""
        own = self.likelihoods[number]
        alike = own is not None and describe_likelihood(own) == describe_likelihood(given)
        return own.to(next(given.parameters()).device) if own is not None and alike else given

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
        self.likelihoods |= {number: state.likelihood for number, state in enumerate(states, start)}
        return {name: torch.stack([state[name] for state in states]) for name in states[0]}


def network_of(model: nn.Module | Snapshots) -> nn.Module:
    """The network itself, where snapshots of it may stand for it; a TypeError for what is neither."""
    if isinstance(model, Snapshots):
        return model.model
    check_network(model, "predict with")
    return model


@contextmanager
def in_run(model: nn.Module, run: str | None) -> Iterator[None]:
    """Tell snapshots that are taken of `model` meanwhile in which run it is trained.

    Args:
        model: the network.
        run: a name that no other run has, and that a resumed one has kept; None if it is not known.

    Example:
        >>> with in_run(model, "5f2a"):
        ...     snapshots.take_(0)
    """
    RUNS[model] = run
    try:
        yield
    finally:
        del RUNS[model]


def _writes(run: str | None) -> bool:
    """Whether this process writes files: of those that train together in a run, rank 0 does."""
    return run is None or not _rank()


def _rank() -> int | None:
    """The rank of this process among several that train together."""
    several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    return dist.get_rank() if several else None


def _stored_likelihood(description: Any, state: State, file: Path) -> Likelihood | None:
    """The likelihood that a file describes, if it does: old ones do not, nor those with a likelihood of the user's."""
    if description is None:
        return None
    likelihood = build_likelihood(description)
    load_state_(likelihood, state, file, assign=True)
    return likelihood


def _number(file: Path) -> int:
    found = NAME.fullmatch(file.name)
    assert found is not None
    return int(found[1])
