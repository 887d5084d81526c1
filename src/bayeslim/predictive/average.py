"""The average over networks that run over a batch: passes that the device takes, moments as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as tree

from bayeslim.gaussian import Gaussian
from bayeslim.likelihoods.base import Conditional, Likelihood
from bayeslim.predictive.passes import Attempt, over_samples
from bayeslim.predictive.prediction import Prediction

__all__ = ["Networks", "StreamingMoments", "average", "blocks_of", "joined"]


class Networks:
    """Networks that run over a batch.

    Args:
        together: the most networks of a group.
        rows: the most examples of a pass with such a group.
        least: how many networks times examples must run together.
    """

    def __init__(self, together: int, rows: int, least: int = 1) -> None:
        self.together, self.rows, self.least = together, rows, least
        self.most = together * rows
        """Networks times examples that the device takes, as far as is known."""

    def groups(self) -> Iterator[Any]:
        """The networks, stacked in groups."""
        raise NotImplementedError

    def noise(self, count: int, examples: int) -> list[Tensor]:
        """What so many networks draw for so many examples besides, these first."""
        return []

    def outputs(self, x: Any, network: tuple[Any, list[Tensor]]) -> Tensor:
        """Outputs of one network, given with its noise, for examples."""
        raise NotImplementedError


def average(
    networks: Networks,
    x: Tensor | Gaussian,
    likelihood: Likelihood,
    room: float,
    own: Callable[[int], Likelihood] | None = None,
) -> Prediction:
    """Run every block of a batch through one group of networks after the other, and accumulate their moments.

    Memory holds one group, the activations of a pass and the moments of the batch, however many groups there are.

    Args:
        networks: what runs.
        x: the batch.
        likelihood: turns outputs into conditionals.
        room: keep every sample as well while they are at most this many numbers.
        own: the likelihood of a network by its number, where they differ.
    """
    parts = [x] if networks.together == 1 else blocks_of(x, networks.rows)  # moments of one network are few
    streams = [StreamingMoments(likelihood, room * len(part) / len(x), own) for part in parts]
    for group in networks.groups():
        for part, stream in zip(parts, streams, strict=True):
            outputs = [_passed(networks, group, block) for block in blocks_of(part, networks.rows)]
            stream.add(torch.cat(outputs, 1) if len(outputs) > 1 else outputs[0])
    return joined([stream.prediction() for stream in streams])


def _passed(networks: Networks, group: Any, x: Any) -> Tensor:
    """Outputs of a group of networks, these first.

    A pass that the device refuses for its size is made again as two of half the size, first with fewer networks, then
    with fewer examples, and so are those after it. What was drawn before stays as it was; what layers draw in a pass is
    drawn as if it had been so small from the start.
    """
    count = len(tree.tree_leaves(group)[0])
    noise = networks.noise(count, len(x))
    most = min(networks.most, count * len(x))
    while True:
        with Attempt(x.device, final=most <= networks.least):
            return _outputs(networks, group, noise, x, most)
        networks.most = most = max(networks.least, most // 2)


def _outputs(networks: Networks, group: Any, noise: list[Tensor], x: Any, most: int) -> Tensor:
    """Outputs of a group of networks in passes of so many networks times examples."""
    count, many = len(tree.tree_leaves(group)[0]), max(1, most // len(x))
    if many < count:
        parts: Any = [tree.tree_map(lambda t: t[i : i + many], (group, noise)) for i in range(0, count, many)]  # noqa: B023
        return torch.cat([_outputs(networks, some, own, x, most) for some, own in parts])
    if most < len(x):
        blocks = [(x[i : i + most], [numbers[:, i : i + most] for numbers in noise]) for i in range(0, len(x), most)]
        return torch.cat([_outputs(networks, group, own, block, most) for block, own in blocks], 1)
    return over_samples(partial(networks.outputs, x), (group, noise))


def blocks_of(x: Tensor | Gaussian, rows: int) -> list[Any]:
    """A batch in parts of so many examples."""
    return [x[start : start + rows] for start in range(0, len(x), rows)]


def joined(parts: list[Prediction]) -> Prediction:
    """Concatenate predictions of consecutive batches."""
    if len(parts) == 1:
        return parts[0]

    def join(name: str, dim: int = 0) -> Any:
        values = [getattr(part, name) for part in parts]
        return None if any(value is None for value in values) else torch.cat(values, dim)

    fields = ("mean", "epistemic", "aleatoric", "entropy", "mutual_information")
    return Prediction(
        **{name: join(name) for name in fields},
        likelihood=parts[0].likelihood,
        samples=join("samples", 1),
        sample_variances=join("sample_variances", 1),
    )


class StreamingMoments:
    r"""Mean and variance of conditionals over samples that never stand in memory together.

    Chunks are merged by the pairwise update of Chan et al. 1983: with counts `n`, `m`, means `a`, `b` and
    `delta = b - a`, the sum of squared deviations grows by that of the chunk plus
    `delta^2 n m / (n + m)`.

    Args:
        likelihood: turns outputs into conditionals.
        room: keep every sample as well while they are at most this many numbers; drop all beyond it.
        own: the likelihood of a sample by its number, where they differ.
    """

    def __init__(self, likelihood: Likelihood, room: float, own: Callable[[int], Likelihood] | None = None) -> None:
        self.likelihood = likelihood
        self.own = own
        self.room = room
        self.count = 0
        self.mean = self.squares = self.variance = self.entropy = torch.zeros(())
        self.kept: list[Conditional] = []

    def add(self, outputs: Tensor) -> None:
        """Take in a chunk of outputs, samples first."""
        self.likelihood.check_outputs(outputs.shape[1:])
        conditional = self._conditional(outputs.float() if _is_half(outputs) else outputs)
        count = len(outputs)
        total = self.count + count
        mean = conditional.mean.mean(0)
        delta = mean - self.mean
        chunk_squares = (conditional.mean - mean).square().sum(0)
        self.squares = self.squares + chunk_squares + delta.square() * (self.count * count / total)
        self.mean = self.mean + delta * (count / total)
        self.variance = self.variance + (conditional.variance.mean(0) - self.variance) * (count / total)
        self.entropy = self.entropy + (conditional.entropy.mean(0) - self.entropy) * (count / total)
        self.count = total
        self.room -= conditional.mean.numel() + conditional.variance.numel()
        if self.room >= 0:
            self.kept.append(conditional)
        else:
            self.kept.clear()

    def _conditional(self, outputs: Tensor) -> Conditional:
        if self.own is None:
            return self.likelihood.conditional(outputs)
        each = [self.own(number).conditional(output) for number, output in enumerate(outputs, self.count)]
        return Conditional(*map(torch.stack, zip(*each, strict=True)))

    def prediction(self) -> Prediction:
        """The prediction so far. Variances divide by the number of samples, so that they add up."""
        epistemic = self.squares / self.count
        entropy = self.likelihood.predictive_entropy(self.mean, epistemic + self.variance)
        return Prediction(
            mean=self.mean,
            epistemic=epistemic,
            aleatoric=self.variance,
            entropy=entropy,
            mutual_information=(entropy - self.entropy).clamp_min(0.0),
            likelihood=self.likelihood,
            samples=torch.cat([part.mean for part in self.kept]) if self.kept else None,
            sample_variances=torch.cat([part.variance for part in self.kept]) if self.kept else None,
        )


def _is_half(tensor: Tensor) -> bool:
    return tensor.dtype in (torch.float16, torch.bfloat16)
