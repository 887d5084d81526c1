"""The folder of a training run: everything that is known about it, each file whole or absent."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import platform
import secrets
import shlex
import shutil
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bayeslim.data.named import load_problem
from bayeslim.data.preprocessing import Preprocessing
from bayeslim.data.problems import Problem, Splits
from bayeslim.data.target import in_own_unit
from bayeslim.masks import mask_of
from bayeslim.named_models import build_network
from bayeslim.predictive.evaluate import evaluate
from bayeslim.pruning.prune import bayes_layers, set_masks_
from bayeslim.saving import load, save
from bayeslim.storage import json_text, read_json, read_tensors, write_atomically
from bayeslim.train_config import TrainConfig, read_config, to_toml
from bayeslim.training.history import History

__all__ = ["Network", "Run", "check_free", "differences", "json_document", "problem_of"]

MOST_BYTES = 2**20
"""Of a JSON document in a run folder; ours have some thousands."""

Network = Literal["auto", "trained", "pruned"]
"""Which network of a run: `auto` is the pruned one where there is one."""


class Run:
    """A training run in its folder.

    | file | holds |
    |---|---|
    | run.json | the command, versions, when it ended |
    | config.toml | the settings; `bayeslim train --config` runs them again |
    | preprocessing.json | how raw data become inputs, and outputs answers |
    | checkpoint.safetensors, history.jsonl | the training, epoch by epoch |
    | checkpoint.previous.safetensors | the epoch before, should the last one get damaged |
    | model.safetensors | the trained network |
    | metrics.json | its scores |
    | pruned.safetensors, pruning.json | the pruned network, and what pruning did |

    Args:
        folder: of an existing run; `Run.create` makes a new one.

    Raises:
        FileNotFoundError: if the folder holds no run.

    Example:
        >>> run = Run(Path("runs/a"))
        >>> bl.evaluate(run.model(), run.splits().test)
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / "run.json").is_file():
            raise FileNotFoundError(f"{folder} holds no run: make one by `bayeslim train --out {_typed(folder)}`")

    @classmethod
    def create(cls, folder: Path, config: TrainConfig, preprocessing: Preprocessing, command: str) -> Run:
        """Begin a run in a new or empty folder.

        A new folder appears with all its files at once: a kill leaves a run, or nothing that stands in the way.

        Args:
            folder: where; made if needed.
            config: its settings.
            preprocessing: how its data were prepared.
            command: the command line that began it.

        Raises:
            FileExistsError: if the folder is not empty; nothing is ever overwritten.
            OSError: if it cannot be written.
        """
        check_free(folder)
        files = {
            "config.toml": to_toml(config),
            "preprocessing.json": preprocessing.to_json(),
            "run.json": json_document({"command": command, "versions": _versions()}),  # last: it makes the folder a run
        }
        new = not folder.exists()
        place = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}") if new else folder
        try:
            for name, content in files.items():
                write_atomically(place / name, content)
            if new:
                place.rename(folder)
        except BaseException:
            if new:
                shutil.rmtree(place, ignore_errors=True)
            else:
                for name in files:
                    (place / name).unlink(missing_ok=True)
            raise
        return cls(folder)

    @cached_property
    def config(self) -> TrainConfig:
        """The settings."""
        return read_config(self.folder / "config.toml")

    @cached_property
    def preprocessing(self) -> Preprocessing:
        """How its data were prepared."""
        file = self.folder / "preprocessing.json"
        return Preprocessing.from_json(_content(file), str(file))

    @property
    def command(self) -> str:
        """The exact command line that began it."""
        return str(self._read("run.json").get("command", ""))

    @property
    def versions(self) -> dict[str, str]:
        """Versions of Python and the packages that trained it."""
        found = self._read("run.json").get("versions")
        return {name: str(version) for name, version in found.items()} if isinstance(found, dict) else {}

    @property
    def finished(self) -> bool:
        """Whether training came to its end."""
        return (self.folder / "model.safetensors").is_file()

    def history(self) -> History:
        """The records of its epochs so far, with None for a number that is not finite."""
        file = self.folder / "history.jsonl"
        lines = file.read_bytes().splitlines() if file.is_file() else []
        return History([_facts(line, file) for line in lines])

    def metrics(self) -> dict[str, Any]:
        """Scores by network and data, e.g. `metrics()["trained"]["test"]["nll"]`, None if infinite; empty at first."""
        return self._read("metrics.json") if (self.folder / "metrics.json").is_file() else {}

    def pruning(self) -> dict[str, Any]:
        """What pruning did; empty before `bayeslim prune`."""
        return self._read("pruning.json") if (self.folder / "pruning.json").is_file() else {}

    def problem(self) -> Problem:
        """Load its data again, split and prepared as they were.

        Raises:
            ValueError: if the data have changed since, which would mix the splits.
        """
        problem = problem_of(self.config)
        if problem.preprocessing != self.preprocessing:
            raise ValueError(
                f"{self.config.data} has changed since the run in {self.folder} was trained, and with it which rows "
                "are held out: restore the file, or train again"
            )
        return problem

    def splits(self) -> Splits:
        """Its training, validation and test data, prepared."""
        return self.problem().splits

    def has_pruned(self) -> bool:
        """Whether there is a pruned network."""
        return (self.folder / "pruned.safetensors").is_file()

    def model(self, which: Network = "auto") -> nn.Module:
        """Its network, on the CPU, with its likelihood.

        Args:
            which: the trained, the pruned, or the pruned where there is one.

        Raises:
            FileNotFoundError: if training did not end, or nothing was pruned.
        """
        if not self.finished:
            raise FileNotFoundError(
                f"the run in {self.folder} is not finished: `bayeslim train --resume --out {_typed(self.folder)}` "
                "continues it"
            )
        if which == "pruned" and not self.has_pruned():
            raise FileNotFoundError(
                f"the run in {self.folder} has no pruned network: `bayeslim prune {_typed(self.folder)}`"
            )
        pruned = which == "pruned" or (which == "auto" and self.has_pruned())
        file = self.folder / ("pruned.safetensors" if pruned else "model.safetensors")
        if read_tensors(file)[1].get("architecture") is not None:
            return load(file).eval()
        network = build_network(self.config, self.preprocessing)
        if pruned:  # with masks of ones, into which those of the file are loaded
            layers = bayes_layers(network)
            set_masks_(layers, {name: torch.ones_like(mask_of(layer.weight)) for name, layer in layers.items()})
        return load(file, network).eval()

    def scores(self, model: nn.Module, data: tuple[Tensor, Tensor], samples: int) -> dict[str, float]:
        """Judge a network as `bl.evaluate`, with errors and densities of a regression in the target's own unit.

        With the standard deviation `s` of the training targets an error is `s` times the standardised one, and the
        negative log-density larger by `ln s`.

        Args:
            model: a network of this run.
            data: prepared inputs and targets.
            samples: posterior samples; 0 uses the posterior mean.
        """
        return in_own_unit(evaluate(model, data, samples=samples), self.preprocessing.target.std)

    def save_model(self, model: nn.Module) -> None:
        """Store the trained network."""
        save(model, self.folder / "model.safetensors")

    def save_pruned(self, model: nn.Module, facts: dict[str, Any]) -> None:
        """Store the pruned network and what pruning did."""
        save(model, self.folder / "pruned.safetensors")
        write_atomically(self.folder / "pruning.json", json_document(facts))

    def write_metrics(self, metrics: dict[str, Any]) -> None:
        """Add scores to metrics.json; those under the same names are replaced."""
        write_atomically(self.folder / "metrics.json", json_document(self.metrics() | metrics))

    def _read(self, name: str) -> dict[str, Any]:
        return _facts(_content(self.folder / name), self.folder / name)


def problem_of(config: TrainConfig) -> Problem:
    """Load the data of a run."""
    return load_problem(
        config.data,
        target=config.target,
        task=None if config.task == "auto" else config.task,
        impute=config.impute,
        seed=config.seed,
        rows=config.rows,
    )


def check_free(folder: Path) -> None:
    """Raise FileExistsError unless a new run can begin in `folder`."""
    if (folder / "run.json").is_file():
        raise FileExistsError(f"{folder} already holds a run: pass --resume to continue it, or another --out")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} exists and is not an empty folder: choose another --out")


def differences(one: TrainConfig, other: TrainConfig) -> list[str]:
    """The settings in which two runs differ, for a message."""
    pairs = [(field.name, getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(one)]
    return [f"{name} was {before!r}, now {after!r}" for name, before, after in pairs if before != after]


def _typed(path: Path) -> str:
    """A path as a command line takes it."""
    return shlex.quote(str(path))


def _versions() -> dict[str, str]:
    packages = ("bayeslim", "torch", "numpy", "safetensors")
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in packages}


def _content(file: Path) -> bytes:
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}: the run is not complete")
    return file.read_bytes()


def _facts(text: bytes, file: Path) -> dict[str, Any]:
    """The JSON object of a file, or of one of its lines, unless it is far too long to be ours."""
    if len(text) > MOST_BYTES:
        raise ValueError(f"{file} has {len(text)} bytes of JSON, more than {MOST_BYTES}: restore it from a copy")
    return read_json(text, file)


def json_document(facts: Mapping[str, Any]) -> bytes:
    r"""Facts as JSON for any reader: a number that is not finite becomes null.

    Example:
        >>> json_document({"nll": math.inf})
        b'{\n "nll": null\n}\n'
    """
    return (json_text(facts, indent=1) + "\n").encode()
