"""Likelihoods of real-valued targets."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayeslim import metrics
from bayeslim.checks.numbers import check_number
from bayeslim.gaussian import Gaussian as GaussianOutput
from bayeslim.likelihoods.base import Conditional, Likelihood, aligned, summed, targets_like_output

__all__ = ["Gaussian", "HeteroscedasticGaussian"]

LOG_2PI = math.log(2 * math.pi)


class _Regression(Likelihood):
    """What both noise models share: the predictive is a mixture of Gaussians."""

    def predictive_entropy(self, mean: Tensor, variance: Tensor) -> Tensor:
        """Entropy of the Gaussian with the predictive's moments: an upper bound of the mixture's."""
        return _gaussian_entropy(variance)

    def log_density(self, means: Tensor, variances: Tensor, y: Tensor) -> Tensor:
        """Log density of the mixture over samples, jointly over the outputs of an example."""
        terms = -0.5 * ((y - means).square() / variances + variances.log() + LOG_2PI)
        return summed(terms, 2).logsumexp(0) - math.log(len(means))

    def metrics(self, mean: Tensor, variance: Tensor, y: Tensor) -> dict[str, float]:
        """Root mean squared error, and how often `mean +- 1.96 std` covers the target."""
        half = 1.959964 * variance.sqrt()
        return {
            "rmse": metrics.rmse(mean, y),
            "coverage95": metrics.interval_coverage(mean - half, mean + half, y),
        }

    def quantile(self, means: Tensor, variances: Tensor, level: float) -> Tensor:
        """Quantile of the mixture of Gaussians, by bisection to float precision."""
        std = variances.sqrt()
        low, high = (means - 12 * std).amin(0), (means + 12 * std).amax(0)
        for _ in range(60):
            middle = 0.5 * (low + high)
            below = torch.special.ndtr((middle - means) / std).mean(0) < level
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return 0.5 * (low + high)


class Gaussian(_Regression):
    r"""Regression with the same noise everywhere: `p(y | f) = N(f, noise^2)`.

    `-ln p = ln noise + (y - f)^2 / (2 noise^2) + 0.5 ln 2 pi`, summed over outputs. Mean squared error
    alone is this with `noise^2 = 1/2`, whatever the data say: state the noise, or learn it.

    Args:
        noise: standard deviation of the noise, or its initial value.
        learn_noise: learn it by maximum likelihood together with the network.
        outputs: number of outputs with a noise of their own; None shares one.

    Example:
        >>> Gaussian(noise=0.1).nll(torch.zeros(1, 1), torch.zeros(1, 1)).item()
        -1.3836...
    """

    def __init__(self, noise: float = 1.0, learn_noise: bool = False, outputs: int | None = None) -> None:
        super().__init__()
        check_number("noise", noise, "(0, inf)", "it is a standard deviation; pass e.g. 0.1")
        self.learn_noise, self.outputs = learn_noise, outputs
        value = torch.full(() if outputs is None else (outputs,), math.log(noise))
        if learn_noise:
            self.log_noise = nn.Parameter(value)
        else:
            self.log_noise: Tensor
            self.register_buffer("log_noise", value)

    def nll(self, output: Tensor, y: Tensor) -> Tensor:
        """See the class docstring."""
        scaled = (aligned(y, output) - output) * torch.exp(-self.log_noise)
        return summed(0.5 * (scaled.square() + LOG_2PI) + self.log_noise, 1)

    def expected_nll(self, output: Tensor | GaussianOutput, y: Tensor) -> Tensor:
        """Closed form over a Gaussian output: its variance adds `variance / (2 noise^2)`."""
        if not isinstance(output, GaussianOutput):
            return self.nll(output, y)
        extra = 0.5 * output.variance * torch.exp(-2 * self.log_noise)
        return self.nll(output.loc, y) + summed(extra, 1)

    def conditional(self, output: Tensor) -> Conditional:
        """Mean `f`, variance `noise^2`."""
        variance = torch.exp(2 * self.log_noise).expand_as(output)
        return Conditional(output, variance, _gaussian_entropy(variance))

    def exact_moments(self, output: GaussianOutput) -> tuple[Tensor, Tensor, Tensor]:
        """The output's own moments and the noise."""
        noise = torch.exp(2 * self.log_noise).expand_as(output.loc)
        return output.loc, output.variance, noise

    def check_targets(self, y: Tensor, output_shape: torch.Size | None = None) -> Tensor:
        """Finite values in the shape of the output; (batch,) stands for (batch, 1)."""
        if output_shape is not None:
            self.check_outputs(output_shape)
        return targets_like_output(y, output_shape)

    def check_outputs(self, shape: torch.Size) -> None:
        """As many as there are noises, where there are several."""
        found = shape[-1] if len(shape) > 1 else 1
        if self.outputs is not None and found != self.outputs:
            raise ValueError(
                f"Gaussian has a noise for {self.outputs} outputs, but the model has {found}: pass "
                f"outputs={found}, or None for one noise"
            )

    def config(self) -> dict[str, Any]:
        """Whether the noise is learned, and its shape; its value is in the state."""
        return {"learn_noise": self.learn_noise, "outputs": self.outputs}


class HeteroscedasticGaussian(_Regression):
    r"""Regression whose noise depends on the input: the network has `2 D` outputs.

    The first `D` outputs are the means `f`, the last `D` set the variances `v = floor + softplus(g)`:
    `-ln p = 0.5 (ln v + (y - f)^2 / v + ln 2 pi)`, summed over the `D` outputs (Kendall and Gal 2017).

    Args:
        floor: smallest noise variance.

    Example:
        >>> HeteroscedasticGaussian().conditional(torch.zeros(5, 2)).mean.shape
        torch.Size([5, 1])
    """

    def __init__(self, floor: float = 1e-6) -> None:
        super().__init__()
        check_number("floor", floor, "(0, inf)", "it is a variance; pass e.g. 1e-6")
        self.floor = float(floor)

    def split(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances out of the network's raw output."""
        mean, raw = output.chunk(2, dim=-1)
        return mean, self.floor + F.softplus(raw)

    def nll(self, output: Tensor, y: Tensor) -> Tensor:
        """See the class docstring."""
        mean, variance = self.split(output)
        squared = (aligned(y, mean) - mean).square()
        return summed(0.5 * (variance.log() + squared / variance + LOG_2PI), 1)

    def conditional(self, output: Tensor) -> Conditional:
        """Mean `f`, variance `v`."""
        mean, variance = self.split(output)
        return Conditional(mean, variance, _gaussian_entropy(variance))

    def check_targets(self, y: Tensor, output_shape: torch.Size | None = None) -> Tensor:
        """Finite values with half as many outputs as the network; (batch,) stands for (batch, 1)."""
        if output_shape is not None:
            self.check_outputs(output_shape)
            output_shape = torch.Size((*output_shape[:-1], output_shape[-1] // 2))
        return targets_like_output(y, output_shape)

    def check_outputs(self, shape: torch.Size) -> None:
        """An even number."""
        if len(shape) < 2 or shape[-1] % 2:
            raise ValueError(
                "HeteroscedasticGaussian needs an even number of model outputs (means, then raw "
                f"variances), got {tuple(shape)}: give the last layer 2 per target"
            )

    def config(self) -> dict[str, Any]:
        """The floor."""
        return {"floor": self.floor}


def _gaussian_entropy(variance: Tensor) -> Tensor:
    return 0.5 * (LOG_2PI + 1 + variance.clamp_min(torch.finfo(variance.dtype).tiny).log())
