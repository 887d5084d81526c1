"""Which method to choose: all of them, and the usual baselines, on the same data, network and epochs."""

from bayeslim_papers.comparison.command import Config, main, run, table

__all__ = ["Config", "main", "run", "table"]
