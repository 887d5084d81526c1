"""The import paths that the documentation shows, as `module:attribute` with the kind of what stands there.

`python tests/frozen/import_paths.py` adds to import_paths.txt what is shown today; it removes nothing.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any, get_origin

ROOT = Path(__file__).parent.parent.parent
LIST = Path(__file__).with_name("import_paths.txt")
REFERENCE = re.compile(r"^::: ([\w.]+)(?:\n +options: \{ members: \[([\w, ]+)\])?", re.M)
FROM = re.compile(r"\bfrom (bayeslim[\w.]*) import (\w+(?:, \w+)*)")
DOTTED = re.compile(r"\bbayeslim(?:\.[A-Za-z_]\w*)+")
CHAIN = re.compile(r"\bbl((?:\.[A-Za-z_]\w*)+)")
OFFERED = re.compile(r"^from bayeslim[\w.]* import (\w+) as \1$", re.M)
EXAMPLE = re.compile(r"^ *(?:>>>|\.\.\.) .*$", re.M)


def kind_of(found: Any) -> str:
    """Module, class, function or value; any object that can be called counts as a function, as its callers see it."""
    if isinstance(found, ModuleType):
        return "module"
    if inspect.isclass(found):
        return "class"
    return "function" if callable(found) and get_origin(found) is None else "value"


def resolved(path: str) -> Any:
    """What `module:attribute` leads to by `from module import attribute`, or the module where there is no attribute.

    Example:
        >>> resolved("bayeslim.optim:SGLD")
    """
    module, _, attributes = path.partition(":")
    found: Any = importlib.import_module(module)
    for name in filter(None, attributes.split(".")):
        found = getattr(found, name)
    return found


def shown_today() -> dict[str, str]:
    """The paths that the pages, the examples and the docstrings' examples of public objects show, with their kinds."""
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.py")]
    found = _paths_in("\n".join(file.read_text(encoding="utf-8") for file in files))
    stub = (ROOT / "src/bayeslim/__init__.pyi").read_text(encoding="utf-8")
    found |= {f"bayeslim:{name}" for name in OFFERED.findall(stub)}
    read: set[str] = set()
    while unread := found - read:  # docstrings lead to further objects, which have docstrings
        read |= unread
        found |= _paths_in("\n".join(text for path in sorted(unread) for text in _examples(resolved(path))))
    return {path: kind_of(resolved(path)) for path in sorted(found)}


def stored() -> dict[str, str]:
    """The frozen paths with their kinds."""
    pairs = (line.split() for line in LIST.read_text(encoding="utf-8").splitlines())
    return {path: kind for path, kind in pairs}


def _paths_in(text: str) -> set[str]:
    """The paths in a text: those written out, those after `bl.`, and all that a package or page of reference offers."""
    found = {f"bayeslim:{chain[1:]}" for chain in CHAIN.findall(text)}
    found |= {_split(path) for path in DOTTED.findall(text)}
    for module, names in FROM.findall(text):
        found |= {f"{module}:{name}" for name in names.split(", ")}
    packages = {part.__name__ for path in found if hasattr(part := resolved(path), "__path__")} - {"bayeslim"}
    offered = {name: "" for name in packages} | {name: members for name, members in REFERENCE.findall(text)}
    for name, members in offered.items():
        names = members.split(", ") if members else getattr(importlib.import_module(name), "__all__", ())
        found |= {name, *(f"{name}:{member}" for member in names)}
    return found


def _split(path: str) -> str:
    """`bayeslim.optim.SGLD` as `bayeslim.optim:SGLD`: a module as far as there is one."""
    parts = path.split(".")
    module = parts[0]
    for number, part in enumerate(parts[1:], 1):
        package = hasattr(importlib.import_module(module), "__path__")
        if not package or importlib.util.find_spec(f"{module}.{part}") is None:
            return f"{module}:{'.'.join(parts[number:])}"
        module = f"{module}.{part}"
    return module


def _examples(found: Any) -> list[str]:
    """The lines of code in the docstring of an object of ours, and in those of a class's public members."""
    members = (
        [value for name, value in vars(found).items() if not name.startswith("_")] if inspect.isclass(found) else []
    )
    ours = [one for one in [found, *members] if str(getattr(one, "__module__", "")).startswith("bayeslim")]
    return EXAMPLE.findall("\n".join(inspect.getdoc(one) or "" for one in ours))


if __name__ == "__main__":
    merged = shown_today() | (stored() if LIST.exists() else {})
    LIST.write_text("".join(f"{path} {kind}\n" for path, kind in sorted(merged.items())), encoding="utf-8")
    print(f"{LIST.name}: {len(merged)} paths")
