"""What a Bayesian network says about inputs: a prediction and how sure it is, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from bayeslim.likelihoods.base import Likelihood

__all__ = ["Prediction"]


@dataclass(frozen=True)
class Prediction:
    r"""The predictive distribution of the targets, split by the law of total variance.

    `Var[y] = Var_W[E[y | W]] + E_W[Var[y | W]]`: epistemic (the weights are uncertain; more data would
    help) plus aleatoric (the data are noisy; it would not). For classes `y` is one-hot.
    """

    mean: Tensor
    """Class probabilities (N, classes), or regression means (N, outputs); (N,) where the network ends in a squeeze."""
    epistemic: Tensor
    """Variance of the conditional mean over the posterior, in the shape of `mean`."""
    aleatoric: Tensor
    """Average conditional variance, in the shape of `mean`."""
    entropy: Tensor
    """Entropy of the predictive in nats: (N,) for classes, (N, outputs) otherwise. For regression it is
    that of the Gaussian with the same moments."""
    mutual_information: Tensor
    """`entropy` minus the average conditional entropy: what the weights do not know, in nats."""
    likelihood: Likelihood
    """The likelihood it was made with."""
    samples: Tensor | None = None
    """Conditional means of every posterior sample, (S, N, ...), where kept."""
    sample_variances: Tensor | None = None
    """Conditional variances of every posterior sample, where kept."""

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.mean)

    @property
    def total(self) -> Tensor:
        """Total variance of the target: epistemic plus aleatoric."""
        return self.epistemic + self.aleatoric

    @property
    def std(self) -> Tensor:
        """Standard deviation of the target."""
        return self.total.sqrt()

    @property
    def classes(self) -> Tensor:
        """The decision for every example, as integers.

        `Categorical`: the most probable class, (N,). `Bernoulli`: 1 where the probability is above 1/2, else 0; (N,)
        for one output and in the shape of `mean` for several.

        Raises:
            ValueError: if the likelihood has no classes, as in regression.
        """
        return self.likelihood.classes(self.mean)

    def interval(
        self, level: float = 0.95, method: Literal["quantile", "normal"] = "quantile"
    ) -> tuple[Tensor, Tensor]:
        """Central interval of the given level, as (lower, upper) in the shape of `mean`.

        Args:
            level: between 0 and 1.
            method: "quantile" uses the kept samples: for regression the quantiles of the predictive
                mixture (noise included), for classes those of the probability under the posterior.
                "normal" is `mean +- z std` of the total variance (regression) or of the epistemic
                one, cut to [0, 1] (classes); it needs no samples.

        Raises:
            ValueError: if the level makes no sense, or the samples were not kept.

        Example:
            >>> lower, upper = predict(model, x).interval(0.9)
        """
        if not 0 < level < 1:
            raise ValueError(f"`level` must lie between 0 and 1, got {level}: pass e.g. 0.95")
        if method == "normal":
            return self._normal_interval(level)
        if method != "quantile":
            raise ValueError(f"`method` must be 'quantile' or 'normal', got {method!r}")
        if self.samples is None or self.sample_variances is None:
            raise ValueError(
                "the samples were not kept, so there are no quantiles: call predict(..., keep_samples=True) "
                "or interval(method='normal')"
            )
        tails = (0.5 * (1 - level), 0.5 * (1 + level))
        lower, upper = (self.likelihood.quantile(self.samples, self.sample_variances, q) for q in tails)
        return lower, upper

    def _normal_interval(self, level: float) -> tuple[Tensor, Tensor]:
        z = torch.special.ndtri(torch.tensor(0.5 * (1 + level), dtype=torch.float64)).item()
        bounded = self.likelihood.bounded
        half = z * (self.epistemic if bounded else self.total).sqrt()
        lower, upper = self.mean - half, self.mean + half
        return (lower.clamp_min(0.0), upper.clamp_max(1.0)) if bounded else (lower, upper)
