"""Divergences by other means than the library's: adaptive quadrature and series, in float64."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy import integrate, special, stats

LogDensity = Callable[[float], float]

LOG_UNIFORM_LIMIT = 0.5 * (np.euler_gamma + math.log(2))
"""`KL + 0.5 ln alpha` of the log-uniform prior for `alpha -> 0`."""


def log_normal(mean: float, std: float) -> LogDensity:
    """`ln N(w; mean, std^2)`."""
    return lambda w: float(stats.norm.logpdf(w, mean, std))


def log_student(nu: float, scale: float) -> LogDensity:
    """`ln St(w; nu, 0, scale)`."""
    return lambda w: float(stats.t.logpdf(w, nu, 0, scale))


def expectation(function: LogDensity, mean: float, std: float, kinks: Sequence[float] = ()) -> float:
    """`E[function(w)]` for `w ~ N(mean, std^2)`, adaptively, split where the integrand is rough."""
    span = [mean + k * std for k in (-12, -4, 0, 4, 12)]
    edges = sorted({*span, *(kink for kink in kinks if span[0] < kink < span[-1])})
    options = {"epsabs": 1e-12, "epsrel": 1e-10, "limit": 200}
    parts = [
        integrate.quad(lambda w: stats.norm.pdf(w, mean, std) * function(w), low, high, **options)[0]
        for low, high in itertools.pairwise(edges)
    ]
    return math.fsum(parts)


def kl_by_quadrature(log_prior: LogDensity, mean: float, std: float, kinks: Sequence[float] = ()) -> float:
    """`int q ln(q / p)` for `q = N(mean, std^2)`."""
    log_posterior = log_normal(mean, std)
    return expectation(lambda w: log_posterior(w) - log_prior(w), mean, std, kinks)


def log_scale_mixture(pi: float, wide: float, narrow: float) -> LogDensity:
    """`ln (pi N(0, wide^2) + (1 - pi) N(0, narrow^2))`."""
    first, second = log_normal(0, wide), log_normal(0, narrow)
    return lambda w: float(np.logaddexp(math.log(pi) + first(w), math.log1p(-pi) + second(w)))


def log_uniform_kl(log_alpha: float) -> float:
    """The exact KL to the log-uniform prior, 0 for `alpha -> inf`, by its Poisson-digamma series.

    `0.5 (ln 2 + sum_j Poisson(j; u) digamma(j + 1/2)) + 0.5 (gamma + ln 2)` with `u = 1 / (2 alpha)`:
    `w^2 / variance` is a Poisson mixture of chi-squared variables.
    """
    u = 0.5 * math.exp(-log_alpha)
    reach = 40 * math.sqrt(u) + 60
    j = np.arange(max(0, math.floor(u - reach)), math.ceil(u + reach))
    series = stats.poisson.pmf(j, u) @ special.digamma(j + 0.5)
    return float(0.5 * (math.log(2) + series) + LOG_UNIFORM_LIMIT)
