"""Families of Gaussian posteriors over one weight tensor."""

from bayeslim.posteriors.base import Posterior as Posterior
from bayeslim.posteriors.base import PosteriorFactory as PosteriorFactory
from bayeslim.posteriors.k_tied import KTied as KTied
from bayeslim.posteriors.matrix_normal import MatrixNormal as MatrixNormal
from bayeslim.posteriors.mean_field import MeanField as MeanField
from bayeslim.posteriors.mean_field import fan_in_mean_field as fan_in_mean_field
from bayeslim.posteriors.multiplicative import Multiplicative as Multiplicative

__all__ = ["KTied", "MatrixNormal", "MeanField", "Multiplicative", "Posterior", "PosteriorFactory", "fan_in_mean_field"]
