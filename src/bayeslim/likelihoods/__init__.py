"""Likelihoods: what the outputs of a network say about the targets."""

from bayeslim.likelihoods.base import Conditional as Conditional
from bayeslim.likelihoods.base import Likelihood as Likelihood
from bayeslim.likelihoods.base import likelihood_of as likelihood_of
from bayeslim.likelihoods.base import remember_likelihood_ as remember_likelihood_
from bayeslim.likelihoods.classification import Bernoulli as Bernoulli
from bayeslim.likelihoods.classification import Categorical as Categorical
from bayeslim.likelihoods.regression import Gaussian as Gaussian
from bayeslim.likelihoods.regression import HeteroscedasticGaussian as HeteroscedasticGaussian

__all__ = [
    "Bernoulli",
    "Categorical",
    "Conditional",
    "Gaussian",
    "HeteroscedasticGaussian",
    "Likelihood",
    "likelihood_of",
    "remember_likelihood_",
]
