"""The networks behind a prediction: the same in all threads, drawn once, and anew when the posterior has changed."""

import copy
import pickle
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

import bayeslim as bl
from bayeslim.export.samples import sample_networks
from bayeslim.sklearn import BayesianMLPClassifier, BayesianMLPRegressor
from bayeslim.sklearn import draws as module

X = np.random.default_rng(0).normal(size=(40, 4))
OPTIONS: dict[str, Any] = {"hidden_layer_sizes": (8,), "max_iter": 2, "n_samples": 30, "random_state": 0}


@pytest.fixture
def regressor() -> BayesianMLPRegressor:
    return BayesianMLPRegressor(**OPTIONS).fit(X, X[:, 0])


@pytest.fixture
def _often() -> Iterator[None]:
    """Switch threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many networks were drawn, time after time."""
    counts: list[int] = []
    original = module.drawn_networks

    def counted(model: Any, samples: int, seed: int) -> Any:
        counts.append(samples)
        return original(model, samples, seed)

    monkeypatch.setattr(module, "drawn_networks", counted)
    return counts


@pytest.mark.usefixtures("_often")
def test_four_threads_find_what_one_finds(regressor: BayesianMLPRegressor) -> None:
    classifier = BayesianMLPClassifier(**OPTIONS).fit(X, X[:, 0] > 0)

    def weights(seed: int) -> Any:
        return np.concatenate(
            [p.detach().numpy().ravel() for p in sample_networks(regressor.model_, 2, seed)[1].parameters()]
        )

    jobs: list[Any] = [
        lambda: regressor.sample_y(X, 5, random_state=1),
        lambda: classifier.sample_y(X, 5, random_state=2),
        lambda: regressor.predict(X),
        lambda: classifier.predict_proba(X),
        lambda: copy.deepcopy(regressor).predict(X),  # draws anew
        lambda: weights(3),
    ]
    alone, before = [job() for job in jobs], torch.get_rng_state()
    with ThreadPoolExecutor(4) as pool:
        found = [future.result() for future in [pool.submit(job) for _ in range(6) for job in jobs]]
    assert all((one == alone[index % len(jobs)]).all() for index, one in enumerate(found))
    assert torch.equal(torch.get_rng_state(), before)


def test_networks_are_drawn_once(regressor: BayesianMLPRegressor, drawn: list[int]) -> None:
    first, second = regressor.predict(X), regressor.predict(X)
    assert drawn == [30] and (first == second).all()
    regressor.sample_y(X, 3)  # others, which do not take their place
    regressor.set_params(n_samples=20).predict(X)
    regressor.set_params(n_samples=30)
    assert (regressor.predict(X) == first).all() and drawn == [30, 20, 30]


def test_and_anew_when_the_posterior_has_changed(regressor: BayesianMLPRegressor, drawn: list[int]) -> None:
    data = (regressor._scaled(X).astype(np.float64), X[:, :1])
    model: Any = regressor.model_
    found: Any = [regressor.predict(X, return_std=True)]

    def told_apart() -> bool:
        found.append(regressor.predict(X, return_std=True))
        return not (found[-1][0] == found[-2][0]).all() or not (found[-1][1] == found[-2][1]).all()

    with torch.no_grad():
        model[0].weight.loc.add_(0.1)
    assert told_apart()
    bl.fit(model, data, likelihood=bl.likelihoods.Gaussian(0.2), epochs=1, seed=0, progress=False)
    assert told_apart()
    model[1] = torch.nn.Tanh()
    assert told_apart()
    regressor.fit(X, -X[:, 0])
    assert told_apart() and not told_apart()
    assert len(drawn) == 5
    regressor.prune(threshold=100.0).predict(X)
    assert len(drawn) == 6


def test_copies_and_pickles_leave_them_out(regressor: BayesianMLPRegressor, drawn: list[int]) -> None:
    size = len(pickle.dumps(regressor))
    expected = regressor.predict(X)
    assert len(pickle.dumps(regressor)) == size
    for twin in (pickle.loads(pickle.dumps(regressor)), copy.deepcopy(regressor)):
        assert (twin.predict(X) == expected).all()
    assert len(drawn) == 3


def test_networks_that_are_large_together_are_not_kept(
    regressor: BayesianMLPRegressor, drawn: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HELD_WEIGHTS", 30 * 49 - 1)  # 4 * 8 + 8 + 8 + 1 numbers each
    expected = regressor.predict(X)
    assert (regressor.predict(X) == expected).all() and len(drawn) == 2
    monkeypatch.setattr(module, "HELD_WEIGHTS", 30 * 49)
    assert (regressor.predict(X) == expected).all() and (regressor.predict(X) == expected).all() and len(drawn) == 3
