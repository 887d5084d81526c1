"""The options that all experiments understand."""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["common_parser"]


def common_parser(
    doc: str | None, *, root: str, quick: str, out: str = "JSON file to write"
) -> argparse.ArgumentParser:
    """A parser with `--out`, `--root`, `--device`, `--merge` and `--quick`; an experiment adds its own.

    Args:
        doc: the experiment's docstring, which is its help.
        root: what `--root` holds.
        quick: what `--quick` does.
        out: what `--out` is for.

    Example:
        >>> common_parser(__doc__, root="mnist/", quick="one seed").parse_args(["--quick"]).device
        'cpu'
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None, help=out)
    parser.add_argument("--root", type=Path, default=None, help=f"folder that holds {root}")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--merge", type=Path, nargs="+", default=[], help="join these result files instead of running")
    parser.add_argument("--quick", action="store_true", help=quick)
    return parser
