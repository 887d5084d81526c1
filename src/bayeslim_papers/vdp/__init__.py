"""VDP++ on MNIST: mean and variance in one pass beside a plain network, sampled weights and full covariances."""

from bayeslim_papers.vdp.mnist import PAPER, Config, CovarianceNetwork, main, run

__all__ = ["PAPER", "Config", "CovarianceNetwork", "main", "run"]
