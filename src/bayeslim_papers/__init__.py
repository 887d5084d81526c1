"""The papers' experiments: `bayeslim reproduce list` names them, and each has a package of its own.

- `k_tied`: scales of low rank, k-tied Normal posteriors (arXiv 2002.02655);
- `sparse_vd`: sparse variational dropout (arXiv 1701.05369) and its empirical-Bayes form (arXiv 1811.00596);
- `vdp`: mean and variance in one pass, VDP++ (Epifano et al. 2024), on MNIST, CIFAR-10 and ImageNet;
- `samplers`: CV-Adam, pruning while training, and variable selection (arXiv 2210.12957);
- `dissertation`: what variational layers prune;
- `comparison`: all methods on the same data.

`images` trains the deep networks of `vdp` and `samplers`; `pages` writes docs/results.md and docs/results/ from the
records.
"""
