"""Compare two records of one benchmark, and print the rows that became slower.

    git show main:results/train_step.json > /tmp/old.json
    python benchmarks/compare.py /tmp/old.json results/train_step.json

What is compared is the ratio to the first row of its group (the plain network, in most), measured in turns in one run:
another machine, or a busy one, changes it little. Where the first row is our own, as in predict.json, look at
`--seconds` too, for two records of one quiet machine. Exits with 1 if a row is slower or gone.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Figure:
    """A ratio or a time, and where most of its rounds lay."""

    value: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        spread = "" if self.low is None else f" ({self.low:.3g} to {self.high:.3g})"
        return f"{self.value:.4g}{spread}"


def figures(record: Any, seconds: bool = False, place: str = "") -> Iterator[tuple[str, Figure]]:
    """The rows of a record by where they stand, such as "steps / eager / graves"."""
    if not isinstance(record, dict):
        return
    times = record.get("seconds")
    if isinstance(times, dict):  # of a sweep: a list over sizes for each network
        first = next(iter(times.values()))
        for name, column in times.items():
            for size, value, base in zip(record["sizes"], column, first, strict=True):
                yield f"{place} / {name} / {size}", Figure(value if seconds else value / base)
    elif times is not None and seconds:
        yield place, Figure(times)
    elif times is not None and "ratio" in record:
        yield place, Figure(record["ratio"], record.get("ratio_low"), record.get("ratio_high"))
    else:
        for name, part in record.items():
            yield from figures(part, seconds, f"{place} / {name}" if place else name)


def main() -> int:
    """Print the rows that are slower or gone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="JSON file that a benchmark wrote")
    parser.add_argument("new", type=Path, help="the same benchmark's, later")
    parser.add_argument("--seconds", action="store_true", help="compare times instead of ratios")
    parser.add_argument("--percent", type=float, default=5.0, help="how much slower is worth a line")
    chosen = parser.parse_args()
    records = [json.loads(file.read_text(encoding="utf-8")) for file in (chosen.old, chosen.new)]
    old, new = (dict(figures(record, chosen.seconds)) for record in records)
    if not old.keys() & new.keys():
        raise SystemExit(f"{chosen.old} and {chosen.new} have no row in common: pass records of one benchmark")
    gains = {place: 100 * (new[place].value / old[place].value - 1) for place in old if place in new}
    slower = {place: gain for place, gain in gains.items() if gain > chosen.percent}
    for place, gain in sorted(slower.items(), key=lambda item: -item[1]):
        print(f"{place}: {old[place]} -> {new[place]}, {gain:+.1f} %")
    gone = [place for place in old if place not in new]
    print(
        f"{len(slower)} of {len(gains)} rows are more than {chosen.percent:g} % slower",
        *map("gone: {}".format, gone),
        sep="\n",
    )
    return bool(slower or gone)


if __name__ == "__main__":
    sys.exit(main())
