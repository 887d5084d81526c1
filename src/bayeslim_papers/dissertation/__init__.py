"""The dissertation's experiments: what variational layers prune, and where its sparsities come from."""

from bayeslim.experiments.dissertation.command import PAPER, QUICK, TOLERANCE, Config, Part, main, merged, run

__all__ = ["PAPER", "QUICK", "TOLERANCE", "Config", "Part", "main", "merged", "run"]
