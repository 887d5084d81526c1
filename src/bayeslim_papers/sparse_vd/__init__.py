"""Sparse variational dropout (Molchanov et al. 2017) and its empirical-Bayes form (arXiv 1811.00596)."""
