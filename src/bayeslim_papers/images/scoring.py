"""What a network predicts for images, and how good that is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.gaussian import Gaussian
from bayeslim.runtime.modes import evaluation_mode
from bayeslim.runtime.seeds import seeded
from bayeslim_papers.images.training import precise

__all__ = ["Collected", "Predicted", "predicted", "scores"]

ROWS = 1000
"""Images in one pass, which share a draw of the weights."""


class Predicted(NamedTuple):
    """Moments of the class probabilities, (images, classes) each."""

    mean: Tensor
    variance: Tensor
    """Over draws of the weights; 0 without any."""

    def of_predicted_class(self) -> float:
        """The variance of the most probable class, averaged over images."""
        return self.variance.gather(1, self.mean.argmax(1, keepdim=True)).mean().item()


@torch.no_grad()
def predicted(model: nn.Module, x: Tensor, *, samples: int = 1, precision: str = "float32") -> Predicted:
    r"""Mean and variance of the class probabilities `softmax(f_s)` over `S` draws `f_s` of the logits.

    A network whose layers draw weights is run `S` times, one that propagates moments once, and its Gaussian logits
    are drawn `S` times. `variance = (1/S) sum_s p_s^2 - mean^2`, with `mean = (1/S) sum_s p_s`.

    Args:
        model: gives logits (images, classes), or a `Gaussian` of them.
        x: images.
        samples: draws `S`; 1 for a network without noise.
        precision: of the products, see `PRECISIONS` of `experiments.training`.

    Example:
        >>> predicted(model, x, samples=30).mean.argmax(1)
    """
    means: list[Tensor] = []
    variances: list[Tensor] = []
    with seeded(0), evaluation_mode(model):
        for some in x.split(ROWS):
            total = torch.zeros((), dtype=torch.float64, device=x.device)
            squares = torch.zeros((), dtype=torch.float64, device=x.device)
            for logits in _draws(model, some, samples, precision):
                probabilities = logits.double().softmax(-1)
                total, squares = total + probabilities, squares + probabilities.square()
            means.append(total / samples)
            variances.append((squares / samples - means[-1].square()).clamp_min(0))
    return Predicted(torch.cat(means), torch.cat(variances))


def scores(probabilities: Tensor, labels: Tensor) -> dict[str, float]:
    """Accuracy in percent, NLL in nats and calibration error.

    Args:
        probabilities: (images, classes).
        labels: (images,).

    Example:
        >>> scores(torch.tensor([[0.5, 0.5], [0.9, 0.1]]), torch.tensor([1, 0]))["accuracy"]
        50.0
    """
    return {
        "accuracy": 100 * bl.metrics.accuracy(probabilities, labels),
        "nll": bl.metrics.negative_log_likelihood(probabilities, labels),
        "ece": bl.metrics.expected_calibration_error(probabilities, labels),
    }


class Collected(nn.Module):
    """Predictions of the networks that a sampler passes, in buffers, so that a checkpoint keeps them.

    Averaging the probabilities of snapshots needs the snapshots' predictions, not their weights.

    Args:
        networks: predictions to make room for.
        images: number of images.
        classes: number of classes.

    Example:
        >>> collected = Collected(12, 10_000, 10)
        >>> collected.add_(probabilities)
        >>> collected.all().mean(0)
    """

    probabilities: Tensor
    count: Tensor

    def __init__(self, networks: int, images: int, classes: int) -> None:
        super().__init__()
        self.register_buffer("probabilities", torch.zeros(networks, images, classes))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def add_(self, probabilities: Tensor) -> None:
        """Keep one more prediction."""
        self.probabilities[int(self.count)] = probabilities
        self.count += 1

    def all(self) -> Tensor:
        """All predictions (networks, images, classes) so far."""
        return self.probabilities[: int(self.count)].double()


def _draws(model: nn.Module, x: Tensor, samples: int, precision: str) -> Iterator[Tensor]:
    """Logits by as many passes, or drawn from those that one pass of moments gives."""
    for number in range(samples):
        with precise(x.device, precision):
            output = model(x)
        if isinstance(output, Gaussian):
            mean, std = output.loc.float(), output.variance.float().clamp_min(0).sqrt()
            yield from (mean + std * torch.randn_like(mean) for _ in range(samples - number))
            return
        yield output
