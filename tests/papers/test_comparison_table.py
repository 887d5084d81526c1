"""The table of the comparison, and records that are merged."""

from __future__ import annotations

from typing import Any

from bayeslim_papers.comparison.command import Comparison
from bayeslim_papers.comparison.results import table


def row(data: str, method: str, seed: int, rmse: float, nll: float, coverage: float) -> dict[str, Any]:
    sizes = {"sparsity": 0.25, "bytes": 2048, "slim_bytes": 1024, "single": rmse, "seconds": 1.0}
    return {"data": data, "method": method, "seed": seed, "rmse": rmse, "nll": nll, "coverage95": coverage} | sizes


def test_table_and_ranks() -> None:
    runs = [
        row("a", "map", 0, 1.0, 3.0, 0.80),
        row("a", "map", 1, 3.0, 3.0, 0.80),
        row("a", "ard", 0, 1.5, 2.0, 0.99),
        row("b", "map", 0, 1.0, 1.0, 0.95),
        row("b", "ard", 0, 2.0, 0.5, 0.90),
        row("b", "vdp", 0, 0.1, 0.1, 0.95),
    ]
    text = table({"runs": runs, "costs": {"a": {"ard": {"train_ratio": 2.345, "predict_ratio": 10.0}}}})
    assert "| map | 2 | 2 ± 1 | 3 ± 0 | 0.8 ± 0 | 2 ± 1 | 25 | 2 | 1 | - | - |" in text
    assert "| ard | 1 | 1.5 | 2 | 0.99 | 1.5 | 25 | 2 | 1 | 2.35 | 10 |" in text
    ranks = text.split("### Mean rank")[1]
    assert "| map | 1.5 | 2 | 1.5 |" in ranks and "| ard | 1.5 | 1 | 1.5 |" in ranks
    assert "vdp" not in ranks


def test_sizes_are_plain_numbers() -> None:
    runs = [row("a", "map", 0, 1.0, 3.0, 0.8) | {"bytes": 12_800_900, "slim_bytes": 534_222}]
    assert "| 25 | 12501 | 521.7 |" in table({"runs": runs, "costs": {}})


def test_merging_two_halves_of_the_methods() -> None:
    config = {"sets": ["a"], "methods": ["map"], "seeds": [0], "epochs": 4}
    runs = [row("a", "map", 0, 1.0, 3.0, 0.8), row("a", "ard", 0, 1.0, 3.0, 0.8)]
    halves = [
        {"config": config, "machine": "this", "costs": {"a": {"map": {"train_ratio": 1.0}}}, "runs": runs[:1]},
        {
            "config": config | {"methods": ["ard"]},
            "machine": "that",
            "costs": {"a": {"ard": {"train_ratio": 2.0}}},
            "runs": runs[1:],
        },
    ]
    joined = Comparison.merged(halves)
    assert joined["config"] == config | {"methods": ["map", "ard"]}
    assert joined["costs"] == {"a": {"map": {"train_ratio": 1.0}, "ard": {"train_ratio": 2.0}}}
    assert joined["runs"] == runs and joined["machine"] == "this"
