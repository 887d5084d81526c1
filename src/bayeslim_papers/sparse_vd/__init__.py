"""Sparse variational dropout (Molchanov et al. 2017) and its empirical-Bayes form (arXiv 1811.00596)."""

from bayeslim_papers.sparse_vd.command import Config, main, merged, run, stacks

__all__ = ["Config", "main", "merged", "run", "stacks"]
