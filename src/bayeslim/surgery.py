"""Exchange modules inside a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import nn

__all__ = ["replaced", "topmost", "with_hooks"]

HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
)


def topmost(model: nn.Module, wanted: Callable[[str, nn.Module], bool]) -> list[tuple[str, nn.Module]]:
    """Modules that are wanted and not inside a wanted one, under every name they have."""
    found: list[tuple[str, nn.Module]] = []
    for name, module in model.named_modules(remove_duplicate=False):
        inside = any(not outer or name.startswith(f"{outer}.") for outer, _ in found)
        if not inside and wanted(name, module):
            found.append((name, module))
    return found


def with_hooks(new: nn.Module, old: nn.Module) -> nn.Module:
    """Return `new`, with the hooks of `old` registered on it too."""
    for name in HOOKS:
        getattr(new, name).update(getattr(old, name))
    return new


def replaced(model: nn.Module, replacements: Mapping[int, nn.Module]) -> nn.Module:
    """Put the replacements in place of the modules with those identities, wherever they stand."""
    if id(model) in replacements:
        return replacements[id(model)]
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if id(module) in replacements:
            model.set_submodule(name, replacements[id(module)])
    return model
