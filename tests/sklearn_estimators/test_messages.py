"""What the estimators say about arguments they cannot use."""

from typing import Any

import numpy as np
import pytest
import torch

from bayeslim.sklearn import BayesianMLPClassifier, BayesianMLPRegressor

X = np.random.default_rng(0).normal(size=(30, 3))
OPTIONS: dict[str, Any] = {"hidden_layer_sizes": (8,), "max_iter": 1, "n_samples": 5, "random_state": 0}


@pytest.mark.parametrize("kind", [BayesianMLPClassifier, BayesianMLPRegressor])
@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_counts_of_samples(kind: Any, count: Any) -> None:
    model = kind(**OPTIONS).fit(X, X[:, 0] > 0)
    with pytest.raises(ValueError, match=f"`n_samples` must be a positive integer, got {count}: pass e.g. 1"):
        model.sample_y(X, count)
    with pytest.raises(ValueError, match=f"`n_samples` must be a positive integer, got {count}: pass e.g. 1"):
        model.set_params(n_samples=count).predict(X)


def test_a_warm_start_refuses_another_network_and_takes_another_schedule() -> None:
    model = BayesianMLPRegressor(**OPTIONS, warm_start=True).fit(X, X[:, 0])
    network = model.model_
    model.set_params(hidden_layer_sizes=[8], max_iter=2, learning_rate=0.01, kl_weight=0.5).fit(X, X[:, 0])
    assert model.model_ is network and model.n_iter_ == 3
    model.set_params(hidden_layer_sizes=(3,), method="graves", activation="tanh")
    message = (
        r"`warm_start` goes on with the fitted network, which does not fit hidden_layer_sizes=\(3,\) \(it was "
        r"\(8,\)\), activation='tanh' \(it was 'relu'\), method='graves' \(it was 'ard'\): set "
        "the old parameters again, or "
    )
    with pytest.raises(ValueError, match=message):
        model.fit(X, X[:, 0])
    assert model.model_ is network
    rebuilt: Any = model.set_params(warm_start=False).fit(X, X[:, 0]).model_
    assert rebuilt[0].weight.shape == (3, 3)


def test_other_labels_and_targets_are_told_without_a_warm_start_that_was_not_used() -> None:
    classifier = BayesianMLPClassifier(**OPTIONS).fit(X, X[:, 0] > 0)
    with pytest.raises(ValueError, match="use the labels in classes_, or fit a new estimator$"):
        classifier.prune(X, np.full(30, 7))
    regressor = BayesianMLPRegressor(**OPTIONS).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="reshape it, or fit a new estimator$"):
        regressor.prune(X, X)
    warm = BayesianMLPClassifier(**OPTIONS, warm_start=True).fit(X, X[:, 0] > 0)
    with pytest.raises(ValueError, match="or fit anew with warm_start=False$"):
        warm.fit(X, np.arange(30) % 3)


@pytest.mark.parametrize("device", ["cuda:99", "abacus"])
def test_a_device_that_is_not_there(device: str) -> None:
    with pytest.raises(ValueError, match=rf"`device` '{device}' cannot be used \(.*\): pass cpu"):
        BayesianMLPRegressor(**OPTIONS, device=device).fit(X, X[:, 0])


def test_devices_by_object_and_automatically() -> None:
    for device in (torch.device("cpu"), "auto"):
        named: Any = device
        assert np.isfinite(BayesianMLPRegressor(**OPTIONS, device=named).fit(X, X[:, 0]).predict(X)).all()


def test_weights_beside_which_the_kl_is_everything_or_nothing() -> None:
    model = BayesianMLPRegressor(**OPTIONS)
    with pytest.raises(
        ValueError, match=r"`sample_weight` has the mean 1e-300, .*: a weight of 1 is one row, so multiply"
    ):
        model.fit(X, X[:, 0], np.full(30, 1e-300))
    for weight in (1e-12, 1e12, 1e308):
        assert np.isfinite(model.fit(X, X[:, 0], np.full(30, weight)).predict(X)).all()
