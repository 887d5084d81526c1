"""A subclass that overrides a method is asked for it, however the network runs."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import bayeslim as bl
from bayeslim.ops import Op
from bayeslim.posteriors import MeanField
from bayeslim.pruning.prune import set_masks_

OUTPUTS = 10_000
"""Each is an independent draw of `sum_i w_i` over four weights of mean 1 and standard deviation 0.1."""


class OwnMean(MeanField):
    def mean(self) -> Tensor:
        return self.loc + 3


class OwnVariance(MeanField):
    def variance(self) -> Tensor:
        return super().variance() + 4


class OwnLogStd(MeanField):
    def log_std(self) -> Tensor:
        return super().log_std() + 2


class OwnDraw(MeanField):
    """Either two more or two less, and a little noise."""

    def rsample(self) -> Tensor:
        return super().rsample() + 4 * torch.randint_like(self.loc, 2) - 2

    def variance(self) -> Tensor:
        return super().variance() + 4


class OwnOutputVariance(MeanField):
    def output_variance(self, op: Op, x: Tensor) -> Tensor:
        return 9 + super().output_variance(op, x)


# Mean of a weight, its variance, and what is added to that of an output.
EXPECTED: dict[type[MeanField], tuple[float, float, float]] = {
    MeanField: (1, 0.01, 0),
    OwnMean: (4, 0.01, 0),
    OwnVariance: (1, 4.01, 0),
    OwnLogStd: (1, 0.01 * math.exp(4), 0),
    OwnDraw: (1, 4.01, 0),
    OwnOutputVariance: (1, 0.01, 9),
}
KNOWN = bl.likelihoods.Gaussian(noise=1.0)


def spread_by_loss(loss: Tensor) -> float:
    """`E[(f - y)^2]` of an output, from the nll of all of them at noise 1."""
    return 2 * loss.item() / OUTPUTS - math.log(2 * math.pi)


def found(way: str, net: Any, x: Tensor, y: Tensor) -> float:
    if way == "plain":
        return (net(x) - y)[0].square().mean().item()
    if way == "predict":
        prediction = bl.predict(net, x[:1], samples=400, likelihood=KNOWN, seed=0)
        return (prediction.epistemic.mean() + (prediction.mean - y[:1]).square().mean()).item()
    objective = torch.compile(bl.nelbo, backend="aot_eager") if way == "compiled" else bl.nelbo
    result = objective(net, x, y, likelihood=KNOWN, num_data=2)
    result.loss.backward()
    return spread_by_loss(result.nll)


WAYS = {
    bl.local_reparam: ("plain", "objective", "compiled", "predict"),
    bl.weight_sample: ("plain", "objective", "compiled", "predict"),
    bl.moments: ("objective", "compiled", "predict"),
}


@pytest.mark.parametrize("kind", EXPECTED)
@pytest.mark.parametrize("estimator", WAYS, ids=lambda estimator: estimator.__name__)
def test_overridden_methods_count_in_every_way(kind: type[MeanField], estimator: Any) -> None:
    if estimator is bl.weight_sample and kind in (OwnVariance, OwnOutputVariance):
        return  # a drawn weight knows nothing of these
    for way in WAYS[estimator]:
        for kept in (4, 3):
            torch.manual_seed(0)
            net = bl.layers.Linear(4, OUTPUTS, bias=False, posterior=lambda w: kind(w, 0.1), estimator=estimator)
            with torch.no_grad():
                net.weight.loc.fill_(1.0)  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]
            if kept == 3:
                set_masks_({"": net}, {"": torch.tensor([0.0, 1, 1, 1]).expand(OUTPUTS, 4)})
            mean, variance, extra = EXPECTED[kind]
            y = torch.full((2, OUTPUTS), kept * mean)
            expected = kept * variance + extra
            assert found(way, net, torch.ones(2, 4), y) == pytest.approx(expected, rel=0.09), (way, kept)
