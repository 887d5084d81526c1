"""The settings of a training run, and their file: flat TOML that anybody can read and edit."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from bayeslim.checks.names import did_you_mean
from bayeslim.checks.packages import check_installed

__all__ = ["TrainConfig", "kl_epochs", "read_config", "rows_per_step", "to_toml"]

MOST_BYTES = 2**20
"""Of a file of settings."""
LEAST_ROWS, MOST_ROWS, STEPS = 4, 64, 16
"""Rows of a step where nothing else is said, and the steps of an epoch of few rows."""
WARMUP, RAMP = 5, 50
"""Epochs without the KL, and of its growth, where nothing else is said and both fit."""


@dataclass(frozen=True)
class TrainConfig:
    """What decides how a training run ends: the same settings give the same weights (bit for bit on a CPU)."""

    data: str = "digits"
    """A data set by name (see `bayeslim data list`), or your own file: .csv, .parquet, .npy, .npz, or a folder with
    one sub-folder of images per class."""
    target: str | None = None
    """The column of your table to predict."""
    task: Literal["auto", "classes", "regression"] = "auto"
    """auto: text or few whole numbers are classes, anything else is regression."""
    impute: bool = False
    """Fill in missing inputs: the mean of numbers, the most frequent text."""
    rows: int | None = None
    """Use at most this many rows."""
    model: str = "mlp"
    """mlp, lenet-300-100, lenet-5, vgg, resnet18, vit-small, lstm or transformer."""
    hidden: tuple[int, ...] = (100, 100)
    """Widths of the hidden layers of the mlp."""
    method: str = "ard"
    """How the network is Bayesian: graves, bbb, molchanov, kingma, ard, gamma, k-tied, vdp; none for a plain one."""
    epochs: int = 100
    """Passes over the training rows."""
    batch_size: int | None = None
    """Rows per step; where left out 64, of small data fewer, so that an epoch has some 16 steps."""
    lr: float = 3e-3
    """Learning rate of Adam; it falls to zero over the second half of the run."""
    kl_weight: float = 1.0
    """Final weight of the KL; 1 is the evidence lower bound, less gives up sparsity for accuracy."""
    kl_warmup: int | None = None
    """Epochs without the KL; where left out 5, or fewer in a short run."""
    kl_ramp: int | None = None
    """Epochs over which its weight then grows to the final one; where left out 50, or as many as leave the whole weight
    to the last epoch."""
    seed: int = 0
    """Of the split, the initial weights, the order of batches and the noise."""
    device: str = "auto"
    """auto (an accelerator if there is one), cpu, cuda, ..."""

    def __post_init__(self) -> None:
        least = {"rows": 1, "epochs": 1, "batch_size": 1, "kl_warmup": 0, "kl_ramp": 0, "seed": 0}
        for name, lowest in least.items():
            if (value := getattr(self, name)) is not None and value < lowest:
                raise ValueError(f"--{name.replace('_', '-')} must be at least {lowest}, got {value}")
        for name in ("lr", "kl_weight"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"--{name.replace('_', '-')} must be a positive number, got {getattr(self, name)}")
        if any(width < 1 for width in self.hidden):
            raise ValueError(f"--hidden must be positive widths, got {self.hidden}: pass e.g. --hidden 100 100")


KINDS = get_type_hints(TrainConfig)
"""Setting -> its type."""


def kl_epochs(config: TrainConfig) -> tuple[int, int]:
    """The epochs without the KL, and those over which its weight grows.

    What the settings leave open is 5 and 50, shortened in proportion to `epochs - 1`: the last epoch has the whole
    weight.

    Example:
        >>> kl_epochs(TrainConfig(epochs=100)), kl_epochs(TrainConfig(epochs=23))
        ((5, 50), (2, 20))
    """
    warmup, ramp, most = config.kl_warmup, config.kl_ramp, config.epochs - 1
    if warmup is None:
        warmup = min(WARMUP, WARMUP * most // (WARMUP + RAMP) if ramp is None else max(0, most - ramp))
    if ramp is None:
        ramp = min(RAMP, max(0, most - warmup))
    return warmup, ramp


def rows_per_step(config: TrainConfig, rows: int) -> int:
    """The size of a batch: as set, or 64; a sixteenth of the training rows where these are few, but at least 4.

    Example:
        >>> rows_per_step(TrainConfig(), 105)
        6
    """
    return config.batch_size or min(MOST_ROWS, max(LEAST_ROWS, rows // STEPS))


def to_toml(config: TrainConfig) -> bytes:
    """Write settings as TOML, one line each; those that are None are left out.

    Example:
        >>> print(to_toml(TrainConfig(data="mnist")).decode().splitlines()[0])
        data = "mnist"
    """
    check_installed("tomli_w", "settings are written by tomli-w", "cli")
    import tomli_w

    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(TrainConfig)}
    return tomli_w.dumps({name: value for name, value in values.items() if value is not None}).encode()


def read_config(path: Path) -> TrainConfig:
    """Read settings that `to_toml` wrote; what is not there has its default.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not TOML or far too long, or a name, type or value is wrong.

    Example:
        >>> read_config(Path("runs/a/config.toml")).epochs
        100
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path} has {path.stat().st_size} bytes: settings take a few hundred, it is something else")
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from error
    for name, value in values.items():
        if name not in KINDS:
            raise ValueError(f"{path}: unknown setting {name[:80]!r}; {did_you_mean(name, KINDS, 1)}".rstrip("; "))
        values[name] = _checked(f"{path}: {name}", value, KINDS[name])
    return TrainConfig(**values)


def _checked(name: str, value: Any, kind: Any) -> Any:
    """The value in the type of its field, or a ValueError."""
    if get_origin(kind) is Literal:
        if value in get_args(kind):
            return value
        raise ValueError(f"{name} must be one of {', '.join(get_args(kind))}, got {str(value)[:80]!r}")
    if get_origin(kind) is tuple:
        if isinstance(value, list) and all(type(item) is int for item in value):
            return tuple(value)
        raise ValueError(f"{name} must be a list of whole numbers, got {str(value)[:80]!r}")
    plain = next((part for part in get_args(kind) if part is not type(None)), kind)
    if plain is float and type(value) is int and abs(value) < 2**63:
        return float(value)
    if type(value) is not plain or (plain is int and abs(value) >= 2**63):
        raise ValueError(f"{name} must be {plain.__name__}, got {str(value)[:80]!r}")
    return value
