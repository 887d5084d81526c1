"""What the estimators minimise: the KL at its whole weight in the end, and the posterior that follows."""

from typing import Any

import numpy as np
import pytest

import bayeslim as bl
from bayeslim.methods import Method
from bayeslim.schedules import Progress
from bayeslim.sklearn import BayesianMLPClassifier, BayesianMLPRegressor, estimator
from contracts.cases import each


class Stop(Exception):
    pass


@each("kind", [BayesianMLPClassifier, BayesianMLPRegressor])
@each("max_iter", [1, 2, 3, 10, 100])
@each("kl_warmup", [None, 1.0, 0.5, 0.0])
def test_the_last_epoch_has_the_whole_weight(
    kind: Any, max_iter: int, kl_warmup: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, Any] = {}

    def train(*data: Any, **options: Any) -> None:
        found.update(options)
        raise Stop

    monkeypatch.setattr(estimator, "train", train)
    chosen = {} if kl_warmup is None else {"kl_warmup": kl_warmup}
    with pytest.raises(Stop):
        kind(max_iter=max_iter, kl_weight=0.7, **chosen).fit(np.eye(6), np.arange(6) % 2, np.full(6, 2.0))
    weights = [found["kl_schedule"](Progress(5 * epoch + 4, 5, max_iter)) for epoch in range(max_iter)]
    assert weights[-1] == pytest.approx(0.35)
    assert weights == sorted(weights)
    ramp = 1.0 if kl_warmup is None else kl_warmup
    assert sum(weight < 0.35 for weight in weights) == min(round(ramp * max_iter), max_iter - 1)


@pytest.mark.parametrize(
    ("estimating", "options", "tolerance"),
    [
        (bl.local_reparam, {}, 0.07),
        (bl.weight_sample, {"kl_warmup": 0.5}, 0.1),
    ],
)
def test_deviations_of_a_linear_model_are_those_of_the_exact_posterior(
    estimating: Any, options: dict[str, Any], tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among factorised Gaussians the best has the variances `1 / diag(X^T X / noise^2 + 1)`.

    A ramp over all epochs leaves them some percent too small, since learning rates fall meanwhile. Twenty deviations
    are averaged, whose noise is 0.6 % by local reparameterisation and 2.5 % by sampled weights.
    """
    conjugate = bl.METHODS["graves"]
    monkeypatch.setitem(bl.METHODS, "conjugate", Method(conjugate.posterior, conjugate.prior, estimating))
    generator = np.random.default_rng(0)
    X = generator.normal(size=(400, 20))
    y = X @ generator.normal(size=20) + 2 * generator.normal(size=400)
    model = BayesianMLPRegressor((), method="conjugate", random_state=0, **options).fit(X, y)
    network: Any = model.model_
    scaled = (X - X.mean(0)) / X.std(0)
    precision = (scaled**2).sum(0) / (model.noise_[0] / y.std()) ** 2 + 1
    deviations = network[0].weight.variance().detach().sqrt().numpy().ravel()
    assert np.mean(deviations * np.sqrt(precision)) == pytest.approx(1, abs=tolerance)
