"""The page: records read and sections filled."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from bayeslim.storage import write_atomically
from bayeslim_papers.results_page.entry import Entry, Record, Section
from bayeslim_papers.results_page.markdown import narrowed, wrapped
from bayeslim_papers.results_page.registry import SECTIONS

__all__ = ["main", "page", "read"]

INTRODUCTION = """Measured numbers beside the papers'. `bayeslim reproduce report` writes this page from the records in
`results/`; nothing is trained for it. Each section names its record and the command that measures it again (`--out`
says where to), and the experiments of `bayeslim reproduce list` print the same tables from a record by `--merge`."""
NOT_RUN = """These experiments are written and tested at a small size, but their records are not there yet. What they
measure appears above as soon as its file lies in `results/` and this page is written again."""


def read(folder: Path, sections: Sequence[Section] = SECTIONS) -> dict[str, Record]:
    """The experiments' records in a folder, by name; those of `benchmarks/` are on other pages and left out.

    Args:
        folder: what holds the JSON files.
        sections: what the page knows.

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: if a file is damaged, or belongs to no section.

    Example:
        >>> sorted(read(Path("results")))[0]
        'comparison_uci'
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"`results` must be a folder of records, got {folder}: run this in a checkout")
    known = {entry.record for section in sections for entry in section.entries}
    records: dict[str, Record] = {}
    for file in sorted(folder.glob("*.json")):
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{file} is damaged ({error}): restore it, or measure it again") from error
        if not isinstance(record, dict):
            raise ValueError(f"{file} must hold a JSON object, got a {type(record).__name__}: restore it")
        if file.stem in known:
            records[file.stem] = record
        elif not str(record.get("command", "")).startswith("python benchmarks/"):
            raise ValueError(
                f"{file} belongs to no experiment: add it to SECTIONS of bayeslim_papers.results_page.registry, "
                "or remove it"
            )
    return records


def page(records: Mapping[str, Record], sections: Sequence[Section] = SECTIONS) -> str:
    """The whole page.

    Args:
        records: by name, those of `read`.
        sections: what to write, in this order.

    Raises:
        ValueError: if a record lacks what its section needs.

    Example:
        >>> page(read(Path("results"))).splitlines()[0]
        '# Results'
    """
    parts = ["# Results", wrapped(INTRODUCTION)]
    missing: list[Entry] = []
    for section in sections:
        there = [entry for entry in section.entries if entry.record in records]
        missing += [entry for entry in section.entries if entry not in there and entry.command is not None]
        if there or not section.entries:
            parts += [f"## {section.title}", wrapped(section.about)]
        for entry in there:
            heading = [f"### {entry.title}"] if len(section.entries) > 1 else []
            parts += [*heading, *_filled(entry, records[entry.record], level=3 + len(heading))]
    if missing:
        rows = [f"| {entry.title} | `{entry.command} --out results/{entry.record}.json` |" for entry in missing]
        parts += ["## Not run yet", wrapped(NOT_RUN), "\n".join(["| what | command |", "|---|---|", *rows])]
    return "\n\n".join(part for part in parts if part) + "\n"


def _filled(entry: Entry, record: Record, level: int) -> list[str]:
    """What made the record, its tables with headings of this level, and the notes."""
    try:
        about, table, notes = entry.about(record), entry.table(record), entry.notes(record)
        made = _made(entry, record)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, StopIteration) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(
            f"results/{entry.record}.json lacks what its section needs ({reason}): restore it, or measure it again"
            + (f" with `{entry.command}`" if entry.command else "")
        ) from error
    table = re.sub(r"^###", "#" * level, table, flags=re.M)
    return [wrapped(f"{made} {about}"), wrapped(narrowed(table)), wrapped(notes)]


def _made(entry: Entry, record: Record) -> str:
    machine: Record = record.get("machine", record)
    torch = record["torch"] if "torch" in record else machine["versions"]["torch"]
    place = ", ".join([*([machine["device"]] if "device" in machine else []), f"torch {torch}"])
    command = f"`{entry.command}`" if entry.command else "no command in the repository makes it"
    return f"`results/{entry.record}.json`; {command} ({place})."


def main(arguments: list[str] | None = None) -> None:
    """Write the page from the command line."""
    parser = argparse.ArgumentParser(
        prog="bayeslim reproduce report",
        description="Write docs/results.md from the records in results/; nothing is trained.",
    )
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder that holds the records")
    parser.add_argument("--out", type=Path, default=Path("docs/results.md"), help="the page to write")
    chosen = parser.parse_args(arguments)
    records = read(chosen.results)
    write_atomically(chosen.out, page(records).encode())
    print(f"{chosen.out}: {len(records)} records")
