"""The results of the samplers experiment beside the paper's, as a table."""

from __future__ import annotations

from typing import Any

from bayeslim_papers.tables import by_method, spread

__all__ = ["table"]

UNITS = ("dfp", "dpf")
"""Begin the names of the methods that remove single weights here and whole channels in the paper."""
OTHER_UNITS = """Not comparable: `dfp` and `dpf` set single weights to zero here. The paper judges kernels and removes
whole channels, which costs more accuracy at the same sparsity; its figures in brackets are for orientation alone."""
COLUMNS = (
    "method",
    "networks",
    "accuracy % (paper)",
    "NLL",
    "ECE",
    "last network: accuracy %",
    "NLL",
    "ECE",
    "sparsity %",
    "seconds an epoch",
)


def table(record: dict[str, Any]) -> str:
    """Mean and standard deviation over seeds for every method, and which are as near the paper as they should be.

    Args:
        record: of `run`, perhaps read from a file.

    Example:
        >>> print(table(record))
    """
    config, paper = record["config"], record["paper"]["accuracy %"]
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    near: list[str] = []
    for name, runs in by_method(record).items():
        accuracy, units = spread([run["accuracy"] for run in runs]), ", channels" if name.startswith(UNITS) else ""
        cells = [
            name,
            str(runs[0]["networks"]),
            f"{accuracy} ({paper[name]}{units})" if name in paper else accuracy,
            *(spread([run[key] for run in runs]) for key in ("nll", "ece")),
            *(spread([run["single"][key] for run in runs]) for key in ("accuracy", "nll", "ece")),
            spread([100 * run["sparsity"] for run in runs]),
            spread([run["epoch_seconds"] for run in runs]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
        if name in paper and not name.startswith(UNITS):
            gap = sum(run["accuracy"] for run in runs) / len(runs) - paper[name]
            near.append(f"{name} {gap:+.2f}{'' if gap >= -record['tolerance']['accuracy %'] else ' (below)'}")
    how = f"{config['epochs']} epochs in {config['cycles']} cycles, batches of {config['batch_size']}, learning rate "
    how += f"{config['lr']:g}; the paper has {record['paper'].get('epochs, cycles', '200, 4, 64 and 1')}."
    tolerance = record["tolerance"]["accuracy %"]
    if near:
        how += f"\nPoints over the paper, {tolerance} less allowed: {', '.join(near)}."
    pruned = any(name.startswith(UNITS) for name in by_method(record))
    return "\n".join([*lines, "", how, *(["", OTHER_UNITS] if pruned else [])])
