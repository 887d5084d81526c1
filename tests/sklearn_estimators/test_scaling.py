"""Inputs and targets of any size: what is learned does not depend on the unit."""

import math
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.preprocessing import StandardScaler

from bayeslim.sklearn import BayesianMLPRegressor
from bayeslim.sklearn.scaling import Scaling

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(60, 3))
Y = 2 * X[:, 0] + 0.1 * GENERATOR.normal(size=60) + 3
WEIGHT = GENERATOR.uniform(0.5, 2, 60)
OPTIONS: dict[str, Any] = {"hidden_layer_sizes": (8,), "max_iter": 3, "n_samples": 10, "random_state": 0}
POWERS = [-1040, -1000, -530, -30, 30, 510, 1020]


def test_ordinary_numbers_are_scaled_as_scikit_learn_does() -> None:
    values = X * [1, 1e-6, 1e9] + [0, 5, -1e9]
    theirs: Any = StandardScaler().fit(values, sample_weight=WEIGHT)
    ours = Scaling.learned(values, WEIGHT)
    scaled = ours.scaled("X", values)
    np.testing.assert_allclose(scaled, np.asarray(theirs.transform(values)), rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(ours.restored(scaled), values, rtol=1e-14)
    np.testing.assert_allclose(ours.deviations(np.ones(3)), theirs.scale_, rtol=1e-9)
    assert Scaling.learned(values.astype(np.float32), WEIGHT).scaled("X", values.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize("power", POWERS)
def test_another_unit_gives_the_same_numbers(power: int) -> None:
    """Powers of two are exact, as long as no digits are lost below 2^-1074: some forty are left at 2^-1040."""
    values = np.ldexp(X, power)
    one, other = Scaling.learned(X, WEIGHT), Scaling.learned(values, WEIGHT)
    np.testing.assert_allclose(other.scaled("X", values), one.scaled("X", X), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(other.deviations(np.ones(3)), np.ldexp(one.deviations(np.ones(3)), power), rtol=1e-9)


@pytest.mark.parametrize("power", POWERS)
def test_predictions_are_in_the_unit_of_the_targets(power: int) -> None:
    mean, std = BayesianMLPRegressor(**OPTIONS).fit(X, Y).predict(X, return_std=True)
    scaled = BayesianMLPRegressor(**OPTIONS).fit(np.ldexp(X, power), np.ldexp(Y, power))
    found = scaled.predict(np.ldexp(X, power), return_std=True)
    np.testing.assert_allclose(np.ldexp(found[0], -power), mean, rtol=1e-6)
    np.testing.assert_allclose(np.ldexp(found[1], -power), std, rtol=1e-6)
    assert np.ldexp(scaled.noise_[0], -power) == pytest.approx(std.min(), rel=0.2)


@pytest.mark.parametrize("constant", [0.0, 5.0, 5e-6, -3e200, 5e-324])
def test_a_constant_target_is_predicted_with_next_to_no_deviation(constant: float) -> None:
    model = BayesianMLPRegressor(**OPTIONS).fit(X, np.full(60, constant))
    mean, std = model.predict(X, return_std=True)
    unit = abs(constant) or 1.0
    np.testing.assert_allclose(mean, constant, rtol=1e-7, atol=1e-7 * unit)
    assert (std > 0).all() and (std <= max(1e-7 * unit, math.ulp(0.0))).all()
    assert np.isfinite(model.sample_y(X, 2)).all()


def test_targets_one_of_which_is_constant() -> None:
    model = BayesianMLPRegressor(**OPTIONS).fit(X, np.column_stack([Y, np.full(60, 7.0), 1e-200 * Y]))
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean[:, 1], 7.0, rtol=1e-6)
    assert (std[:, 1] < 1e-6).all() and (std[:, 0] > 0.01).all() and (std[:, 2] < 1e-199).all()


def test_constant_inputs_are_harmless() -> None:
    constants = np.array([7.0, 0.0, 1e300, 1e-300, 0.1])
    rows = np.hstack([X, np.tile(constants, (60, 1))])
    rows[::2, -1] = np.nextafter(0.1, 1)  # the same number, computed in another way
    model = BayesianMLPRegressor(**OPTIONS).fit(rows, Y)
    scaled = model._scaled(rows)
    assert (np.abs(scaled[:, 3:]) < 1e-15).all()
    other = rows[:5] + np.array([0, 0, 0, 7, 1, 1e300, 1, 1])
    assert np.abs(model._scaled(other)[:, 3:]).max() <= 1.1
    assert np.isfinite(model.predict(other)).all()


@pytest.mark.parametrize(("dtype", "far"), [(np.float32, 1e20), (np.float64, 1e300)])
def test_a_row_too_far_away_is_named(dtype: Any, far: float) -> None:
    model = BayesianMLPRegressor(**OPTIONS).fit((X / far).astype(dtype), Y)
    new = np.ones((3, 3), dtype)
    new[0], new[2, 1] = 0, far
    with pytest.raises(
        ValueError, match=r"`X` holds 1e\+\d+ in row 2, column 1, which is too far from the rows of `fit`"
    ):
        model.predict(np.where(new == 1, 0, new).astype(dtype))


def test_a_setting_of_scikit_learn_for_the_output_of_transformers_is_not_ours() -> None:
    """Warnings are errors here; torch warned of a frame's memory."""
    with sklearn.config_context(transform_output="pandas"):
        model = BayesianMLPRegressor(**OPTIONS).fit(X, Y)
        assert model.predict(X).shape == (60,)
