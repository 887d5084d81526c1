"""Priors over weights, each in the form of its KL from a Gaussian marginal."""

from bayeslim.priors.ard import ARD as ARD
from bayeslim.priors.ard import GammaARD as GammaARD
from bayeslim.priors.base import Prior as Prior
from bayeslim.priors.log_uniform import LogUniform as LogUniform
from bayeslim.priors.normal import HeNormal as HeNormal
from bayeslim.priors.normal import Normal as Normal
from bayeslim.priors.scale_mixture import ScaleMixture as ScaleMixture
from bayeslim.priors.student_t import StudentT as StudentT

__all__ = [
    "ARD",
    "GammaARD",
    "HeNormal",
    "LogUniform",
    "Normal",
    "Prior",
    "ScaleMixture",
    "StudentT",
]
