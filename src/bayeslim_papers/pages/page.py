"""The pages: records read and templates filled."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from bayeslim.storage import write_atomically
from bayeslim_papers.pages.markdown import narrowed, wrapped
from bayeslim_papers.record import Record
from bayeslim_papers.tables import by, highest, lowest

__all__ = ["PAPERS", "Entry", "main", "pages", "read"]

PAPERS = ("k_tied", "sparse_vd", "samplers", "vdp", "dissertation", "comparison")
"""Packages with a `results.md`, in the order of the index."""
FOLDER = Path(__file__).parent.parent


@dataclass(frozen=True)
class Entry:
    """One record and how it is made."""

    record: str
    """The file, `results/{record}.json`."""
    title: str
    command: str | None
    """What measures it, without `--out`; None if nothing in the repository does."""


def read(folder: Path) -> dict[str, Record]:
    """The records in a folder, by name.

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: if a file is damaged.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"`results` must be a folder of records, got {folder}: run this in a checkout")
    records: dict[str, Record] = {}
    for file in sorted(folder.glob("*.json")):
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{file} is damaged ({error}): restore it, or measure it again") from error
        if not isinstance(record, dict):
            raise ValueError(f"{file} must hold a JSON object, got a {type(record).__name__}: restore it")
        records[file.stem] = record
    return records


def pages(records: Mapping[str, Record], folder: Path = FOLDER) -> tuple[dict[str, str], list[Entry]]:
    """All pages by their files in docs/, and what they have a section for.

    The records of `benchmarks/` are on other pages and left out. `folder` holds the template of the index, and packages
    with those of the pages.

    Raises:
        ValueError: if a record lacks what its section needs, or belongs to no section.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder), undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["f"] = _formatted
    environment.globals |= {"by": by, "highest": highest, "lowest": lowest, "mean": mean, "seeds": seeds_of}
    entries: list[Entry] = []

    def entry(record: str, title: str, command: str | None = None, *, level: int = 2, caller: Any = None) -> str:
        whole = command if command is None or command.startswith("python ") else f"bayeslim reproduce {command}"
        entries.append(Entry(record, title, whole))
        if record not in records:
            return ""
        return f"{'#' * level} {title}\n\n{_filled(entries[-1], records[record], caller)}\n\n"

    found: dict[str, str] = {}
    for paper in PAPERS:
        offered = importlib.import_module(f"bayeslim_papers.{paper}.results")
        names = {name: getattr(offered, name) for name in offered.__all__}
        text = environment.get_template(f"{paper}/results.md").render(entry=entry, **names)
        found[f"results/{paper.replace('_', '-')}.md"] = narrowed(wrapped(text)) + "\n"
    missing = [one for one in entries if one.record not in records and one.command is not None]
    index = environment.get_template("results.md").render(missing=missing)
    known = {one.record for one in entries}
    for name, record in records.items():
        if name not in known and not str(record.get("command", "")).startswith("python benchmarks/"):
            raise ValueError(f"results/{name}.json belongs to no page: give it an entry in a results.md, or remove it")
    return {"results.md": wrapped(index) + "\n"} | found, entries


def seeds_of(record: Record) -> int:
    """How many seeds (data sets, splits) the runs of a record have."""
    return len({run["seed"] for run in record["runs"]})


def _formatted(value: float, how: int | str = 1) -> str:
    return format(value, f".{how}f" if isinstance(how, int) else how)


def _filled(entry: Entry, record: Record, text: Callable[[Record], str]) -> str:
    """What made the record, and its section."""
    from jinja2 import UndefinedError

    lacking = LookupError, TypeError, ValueError, AttributeError, ArithmeticError, StopIteration, UndefinedError
    try:
        machine: Record = record.get("machine", record)
        torch = record["torch"] if "torch" in record else machine["versions"]["torch"]
        place = ", ".join([*([machine["device"]] if "device" in machine else []), f"torch {torch}"])
        body = text(record)
    except lacking as error:
        again = f" with `{entry.command}`" if entry.command else ""
        raise ValueError(
            f"results/{entry.record}.json lacks what its section needs ({type(error).__name__}: {error}): restore it, "
            f"or measure it again{again}"
        ) from error
    command = f"`{entry.command}`" if entry.command else "no command in the repository makes it"
    apart = "\n" if body.startswith("\n") else " "
    return f"`results/{entry.record}.json`; {command} ({place}).{apart}{body}"


def main(arguments: list[str] | None = None) -> None:
    """Write the pages from the command line."""
    parser = argparse.ArgumentParser(
        prog="bayeslim reproduce report",
        description="Write docs/results.md and docs/results/ from the records in results/; nothing is trained.",
    )
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder that holds the records")
    parser.add_argument("--out", type=Path, default=Path("docs/results.md"), help="the index; the pages lie beside it")
    chosen = parser.parse_args(arguments)
    index, *found = pages(read(chosen.results))[0].items()
    for file, text in [(chosen.out, index[1]), *((chosen.out.parent / name, text) for name, text in found)]:
        write_atomically(file, text.encode())
        print(file)
