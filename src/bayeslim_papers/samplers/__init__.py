"""CV-Adam and pruning in one shot (arXiv 2210.12957) on MNIST, beside the usual baselines."""

from bayeslim_papers.samplers.mnist import PAPER, Config, main, run

__all__ = ["PAPER", "Config", "main", "run"]
