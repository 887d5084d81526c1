"""Sparse Bayesian neural networks: networks that say how sure they are, and that shrink themselves."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
_HOMES = {alias.name: node.module for node in _STUB if isinstance(node, ast.ImportFrom) for alias in node.names}
"""Name -> the module that holds it; "bayeslim" for a part of the package. The stub is for type checkers too."""
__all__: list[str] = next(ast.literal_eval(node.value) for node in _STUB if isinstance(node, ast.Assign))  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Load what is asked for: `import bayeslim` alone does not load torch, which takes a second."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'bayeslim' has no attribute {name!r}")
    if home == "bayeslim":
        value: Any = importlib.import_module(f"bayeslim.{name}")
    else:
        value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


class _Package(ModuleType):
    """Keeps `bl.kl`, `bl.using` and `bl.moped` functions when the modules of the same names are imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if _HOMES.get(name, "bayeslim") == "bayeslim" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
