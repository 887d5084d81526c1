"""The dissertation's experiments: what variational layers prune, and where its sparsities come from."""

from bayeslim_papers.dissertation.command import PAPER, QUICK, TOLERANCE, Config, Part, main, merged, run

__all__ = ["PAPER", "QUICK", "TOLERANCE", "Config", "Part", "main", "merged", "run"]
