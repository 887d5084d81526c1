"""Which layers of a network have a posterior, and which stayed plain."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from torch import nn
from torch.nn.parameter import is_lazy

from bayeslim.checks.networks import check_network
from bayeslim.checks.text import visible
from bayeslim.converters import CONVERTERS, kind_of
from bayeslim.layers.base import BayesLayer

__all__ = ["ConversionReport", "LayerRow", "conversion_report", "refuse_lazy", "warn_of_passed_by"]

LEFT = "left out by `where`, or not converted yet"
FROZEN = "frozen"
BARE = "bare parameters, such as a token or positions"
TIED = "its weights are counted in a row above"
BARE_NAMES = ("pos", "tok", "emb", "bias", "latent", "quer", "prompt", "table", "scale")
"""Parts of names of parameters, and of the modules that hold them, which multiply nothing."""


@dataclass(frozen=True)
class LayerRow:
    """A module that holds weights: parameters of two or more axes."""

    path: str
    """Its name in the network, empty for the network itself."""
    kind: str
    """The name of its type."""
    weights: int
    """Numbers in its weights; tied ones count in the first row that has them."""
    state: Literal["Bayesian", "plain"]
    why: str
    """Why it is plain, where that is known."""

    @property
    def passed_by(self) -> bool:
        """Whether it is a layer that `bayesianize_` cannot convert."""
        return self.state == "plain" and self.why not in (LEFT, FROZEN, BARE, TIED)


@dataclass(frozen=True)
class ConversionReport:
    """The rows of `conversion_report`; `str()` is a table."""

    rows: tuple[LayerRow, ...]

    @property
    def share(self) -> float:
        """The part of the weights that has a posterior, between 0 and 1."""
        bayesian = sum(row.weights for row in self.rows if row.state == "Bayesian")
        return bayesian / max(sum(row.weights for row in self.rows), 1)

    def __str__(self) -> str:
        """One line per row, then the share."""
        cells = [("layer", "type", "weights", "state", "why")]
        for row in self.rows:
            cells.append((visible(row.path) or "(network)", row.kind, f"{row.weights:,}", row.state, row.why))
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(
                cell.rjust(width) if place == 2 else cell.ljust(width)
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in cells
        ]
        total = sum(row.weights for row in self.rows)
        return "\n".join([*lines, f"{self.share:.1%} of {total:,} weights have a posterior"])


def conversion_report(model: nn.Module) -> ConversionReport:
    """List the modules that hold weights: which have a posterior, which are plain, and why.

    Weights are parameters of two or more axes, held by a layer or, as bare parameters, by any other module. Biases
    and norms are left out. What takes whole layers, such as attention, is one row until it is converted.

    Args:
        model: any network, before or after `bayesianize_`.

    Returns:
        The rows and the converted share.

    Raises:
        ValueError: if a parameter has no shape yet.

    Example:
        >>> net = bl.bayesianize_(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)), where=lambda name, _: name == "0")
        >>> print(bl.conversion_report(net))
        layer  type    weights  state     why
        0      Linear       32  Bayesian
        1      Linear       16  plain     left out by `where`, or not converted yet
        66.7% of 48 weights have a posterior
    """
    check_network(model, "list the layers of")
    refuse_lazy(model)
    seen: set[int] = set()
    rows: list[LayerRow] = []
    for path, module, held in _holders(model):
        fresh = sum(size for key, size in held.items() if key not in seen)
        seen |= held.keys()
        bayesian = isinstance(module, BayesLayer)
        why = TIED if not fresh else "" if bayesian else _why_plain(path, module)
        rows.append(LayerRow(path, kind_of(module).__name__, fresh, "Bayesian" if bayesian else "plain", why))
    return ConversionReport(tuple(rows))


def warn_of_passed_by(model: nn.Module, where: Callable[[str, nn.Module], bool]) -> None:
    """Warn, on behalf of who called `bayesianize_`, of layers that it could not convert and `where` accepts."""
    report = conversion_report(model)
    kinds: dict[str, list[str]] = {}
    for row in report.rows:
        if row.passed_by and _accepted(where, row.path, model.get_submodule(row.path)):
            kinds.setdefault(row.kind, []).append(row.path)
    if kinds:
        listed = ", ".join(f"{kind} ({len(paths)}, e.g. {paths[0]!r})" for kind, paths in kinds.items())
        warnings.warn(
            f"{report.share:.1%} of the weights of `model` have a posterior: layers of types that bayesianize_ does "
            f"not know stayed plain, {listed}. bl.conversion_report(model) lists them; leave them out by `where` if "
            "that is meant",
            stacklevel=4,
        )


def refuse_lazy(model: nn.Module) -> None:
    """Raise ValueError if a parameter has no shape yet."""
    for name, parameter in model.named_parameters():
        if is_lazy(parameter):
            raise ValueError(f"{name} has no shape yet: run one batch through the network before converting it")


def _holders(model: nn.Module) -> Iterator[tuple[str, nn.Module, dict[int, int]]]:
    """Every module with weights, and their sizes by identity; what is converted as a whole counts as one."""
    inside: set[int] = set()
    for path, module in model.named_modules():
        if id(module) in inside or isinstance(module, nn.LayerNorm | nn.RMSNorm):
            continue
        whole = kind_of(module) in CONVERTERS
        if isinstance(module, BayesLayer):
            held = {id(module.weight): module.weight.shape.numel()}
        else:
            parameters = [p for p in module.parameters(recurse=whole) if p.ndim >= 2]
            held = {id(p): p.numel() for p in parameters if p.is_floating_point() or p.is_complex()}
        if whole or isinstance(module, BayesLayer):
            inside.update(map(id, module.modules()))
        if held:
            yield path, module, held


def _why_plain(path: str, module: nn.Module) -> str:
    """Why a module has no posterior."""
    kind = kind_of(module)
    if not any(p.requires_grad for p in module.parameters(recurse=kind in CONVERTERS) if p.ndim >= 2):
        return FROZEN
    if kind in CONVERTERS:
        return LEFT
    known = next((base.__name__ for base in kind.__mro__ if base in CONVERTERS), None)
    if known is not None:
        return f"a subclass of nn.{known}, whose forward may do anything"
    return "no Bayesian counterpart" if _multiplies(path, module) else BARE


def _multiplies(path: str, module: nn.Module) -> bool:
    """Whether a module uses one of its own parameters as a layer does, as far as names and shapes tell.

    A token or positions often are a matrix on a network or block, with a first axis of one; a layer is a leaf, and
    stacked experts have three axes.
    """
    block = not path or any(True for child in module.children() for _ in child.parameters())
    for name, parameter in module.named_parameters(recurse=False):
        matrix = sum(size > 1 for size in parameter.shape) >= 2
        whole = all(size > 1 for size in parameter.shape) and parameter.ndim >= (3 if block else 2)
        told = f"{path.rpartition('.')[2]} {type(module).__name__} {name}".lower()
        if (matrix and "weight" in name) or (whole and not any(part in told for part in BARE_NAMES)):
            return True
    return False


def _accepted(where: Callable[[str, nn.Module], bool], path: str, module: nn.Module) -> bool:
    """What `where` says of a layer that cannot be converted, whose attributes it may not expect."""
    try:
        return bool(where(path, module))
    except AttributeError:
        return True
