"""Optional packages that are not installed."""

from __future__ import annotations

import importlib.util

__all__ = ["check_installed"]


def check_installed(package: str, what: str, extra: str) -> None:
    """Raise ModuleNotFoundError, with what to install, unless there is a package.

    Args:
        package: as it is imported.
        what: needs it.
        extra: of bayeslim, which brings it.

    Example:
        >>> check_installed("matplotlib", "figures need matplotlib", "report")
    """
    if importlib.util.find_spec(package) is None:
        raise ModuleNotFoundError(f"{what}: pip install bayeslim[{extra}]")
