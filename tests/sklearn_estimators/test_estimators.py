import pickle
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import bayeslim as bl
from bayeslim.masks import mask_of
from bayeslim.pruning.prune import bayes_layers
from bayeslim.sklearn import BayesianMLPClassifier, BayesianMLPRegressor

KINDS = [BayesianMLPClassifier, BayesianMLPRegressor]


def line(n: int, seed: int = 0, noise: float = 0.5) -> tuple[Any, Any]:
    """`y = 100 + 10 x_0` plus noise, and two inputs that do not matter; x_0 has another unit."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, 3)) * [1.0, 1.0, 1000.0]
    return X, 100 + 10 * X[:, 0] + noise * generator.normal(size=n)


def words(n: int, seed: int = 0) -> tuple[Any, Any]:
    """Three classes, cut along the first input, with names that are not in order."""
    X = np.random.default_rng(seed).normal(size=(n, 3))
    return X, np.array(["low", "high", "middle"])[np.digitize(X[:, 0], [-0.5, 0.5])]


@pytest.fixture(scope="module")
def regressor() -> BayesianMLPRegressor:
    return BayesianMLPRegressor(random_state=0).fit(*line(400))


@pytest.fixture(scope="module")
def classifier() -> BayesianMLPClassifier:
    return BayesianMLPClassifier(random_state=0).fit(*words(400))


def test_regression_in_the_units_of_the_targets(regressor: BayesianMLPRegressor) -> None:
    X, y = line(1000, seed=1)
    mean, std = regressor.predict(X, return_std=True)
    assert np.sqrt(np.mean((y - mean) ** 2)) < 0.75  # the noise alone is 0.5
    assert regressor.noise_.shape == (1,) and 0.4 < regressor.noise_[0] < 0.8
    assert (std > regressor.noise_[0]).all()
    assert abs(np.mean(np.abs(y - mean) < 1.96 * std) - 0.95) < 0.05
    far = regressor.predict(X + np.array([10.0, 0.0, 0.0]), return_std=True)[1]
    assert far.mean() > 1.3 * std.mean()  # less sure where there were no data


def test_total_deviation_is_that_of_sampled_targets(regressor: BayesianMLPRegressor) -> None:
    X, _ = line(5, seed=2)
    samples = regressor.sample_y(X, 4000, random_state=3)
    mean, std = regressor.predict(X, return_std=True)
    assert samples.shape == (5, 4000)
    # 100 networks give the mean, 4000 the samples: errors of 0.1 and 0.016 deviations, 7 % of the epistemic part.
    assert (np.abs(samples.mean(1) - mean) < 0.4 * std).all()
    np.testing.assert_allclose(samples.std(1), std, rtol=0.2)
    assert (samples == regressor.sample_y(X, 4000, random_state=3)).all()
    assert (samples != regressor.sample_y(X, 4000, random_state=4)).all()


def test_a_sampled_function_is_one_network(regressor: BayesianMLPRegressor) -> None:
    """Far from the data the functions differ by more than the noise, and rows agree within one sample."""
    X = np.array([[30.0, 0.0, 0.0], [30.001, 0.0, 0.0]])
    first, second = regressor.sample_y(X, 500)
    assert np.corrcoef(first, second)[0, 1] > 0.5


def test_classification_with_names(classifier: BayesianMLPClassifier) -> None:
    X, y = words(500, seed=1)
    assert classifier.classes_.tolist() == ["high", "low", "middle"]
    assert classifier.score(X, y) > 0.93
    probabilities = classifier.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(classifier.predict_log_proba(X), np.log(probabilities))
    labels, std = classifier.predict(X, return_std=True)
    assert (labels == classifier.classes_[probabilities.argmax(1)]).all()
    assert std.shape == (500,) and (std >= 0).all() and (std <= 0.5).all()
    edge = np.abs(np.abs(X[:, 0]) - 0.5) < 0.1
    assert std[edge].mean() > 2 * std[~edge].mean()


def test_sampled_labels_have_the_predicted_frequencies(classifier: BayesianMLPClassifier) -> None:
    X, _ = words(6, seed=2)
    X[:, 0] = [-2.0, -0.5, 0.0, 0.5, 0.4, 2.0]
    samples = classifier.sample_y(X, 3000, random_state=0)
    assert samples.shape == (6, 3000)
    frequencies = (samples[:, :, None] == classifier.classes_).mean(1)
    # Errors: 0.009 of the labels, and up to 0.05 of the 100 networks behind the probabilities.
    np.testing.assert_allclose(frequencies, classifier.predict_proba(X), atol=0.15)


def test_two_targets_at_once() -> None:
    X, y = line(300, noise=1.0)
    both = np.column_stack([y, -0.01 * y])
    model = BayesianMLPRegressor(random_state=0).fit(X, both)
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (300, 2)
    assert model.sample_y(X[:4], 6).shape == (4, 2, 6)
    assert model.noise_.shape == (2,) and 0.3 < 100 * model.noise_[1] / model.noise_[0] < 3
    assert model.score(X, both) > 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_result_and_no_touch_of_the_global_state(kind: Any) -> None:
    X, y = words(60) if kind is BayesianMLPClassifier else line(60)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second, other = (kind(max_iter=5, random_state=seed).fit(X, y) for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert first.loss_curve_ == second.loss_curve_ != other.loss_curve_
    assert (first.sample_y(X) == second.sample_y(X)).all()
    assert len(first.loss_curve_) == first.n_iter_ == 5


@pytest.mark.parametrize("kind", KINDS)
def test_pickle_and_clone(kind: Any) -> None:
    X, y = words(60) if kind is BayesianMLPClassifier else line(60)
    model = kind(max_iter=5, random_state=1).fit(X, y)
    restored = pickle.loads(pickle.dumps(model))
    for one, other in zip(model.predict(X, return_std=True), restored.predict(X, return_std=True), strict=True):
        assert (one == other).all()
    fresh: Any = clone(model)
    with pytest.raises(NotFittedError):
        fresh.predict(X)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_floating_type_follows_the_inputs(kind: Any, dtype: Any) -> None:
    X, y = words(60) if kind is BayesianMLPClassifier else line(60)
    model = kind(max_iter=2, random_state=1).fit((10 * X).astype(dtype), y)
    expected = torch.float32 if dtype == np.float32 else torch.float64
    assert next(model.model_.parameters()).dtype == expected
    assert np.isfinite(model.score(X, y))


def test_pipeline_grid_search_and_cross_validation() -> None:
    X, y = words(120)
    pipeline = make_pipeline(MinMaxScaler(), BayesianMLPClassifier(random_state=0))
    search = GridSearchCV(pipeline, {"bayesianmlpclassifier__max_iter": np.array([1, 40])}, cv=2).fit(X, y)
    assert search.best_params_ == {"bayesianmlpclassifier__max_iter": 40}
    assert cross_val_score(search.best_estimator_, X, y, cv=3, scoring="neg_log_loss").shape == (3,)


@pytest.mark.slow
def test_two_processes_give_what_one_gives() -> None:
    X, y = line(120)
    model = BayesianMLPRegressor(max_iter=20, random_state=0)
    one, two = (cross_val_score(model, X, y, cv=3, n_jobs=jobs) for jobs in (1, 2))
    np.testing.assert_allclose(one, two, rtol=1e-9)


def test_data_frames_name_the_features() -> None:
    pandas = pytest.importorskip("pandas")
    X, y = line(50)
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    model = BayesianMLPRegressor(max_iter=3, random_state=0).fit(frame, pandas.Series(y))
    assert model.feature_names_in_.tolist() == ["a", "b", "c"] and model.n_features_in_ == 3
    assert model.predict(frame).shape == (50,)
    with pytest.raises(ValueError, match="same order"):
        model.predict(frame[["b", "a", "c"]])


def test_prune_shrinks_the_network_and_keeps_the_prediction() -> None:
    model = BayesianMLPRegressor(random_state=0).fit(*line(400))
    X, y = line(400, seed=1)
    before, size = model.score(X, y), sum(p.numel() for p in model.model_.parameters())
    assert model.sparsity_ == 0.0
    assert model.prune(X, y) is model
    kept = sum(int(mask_of(layer.weight).sum()) for layer in bayes_layers(model.model_).values())
    assert model.sparsity_ == pytest.approx(1 - kept / (3 * 50 + 50 * 50 + 50)) and model.sparsity_ > 0.7
    assert sum(p.numel() for p in model.model_.parameters()) < 0.5 * size
    assert model.score(X, y) > before - 0.01
    assert model.predict(X, return_std=True)[1].min() > model.noise_[0]


def test_prune_by_threshold(classifier: BayesianMLPClassifier) -> None:
    X, y = words(300, seed=3)
    gentle, published = pickle.loads(pickle.dumps([classifier, classifier]))
    assert gentle.prune(threshold=8.0).sparsity_ < published.prune().sparsity_
    expected = bl.sparsity(classifier.model_)
    assert published.sparsity_ == pytest.approx(expected, abs=0.02)  # cutting may take a few more
    assert published.score(X, y) > 0.9
    assert published.prune(X, y).sparsity_ >= expected


def test_warm_start_goes_on() -> None:
    X, y = line(200)
    model = BayesianMLPRegressor(max_iter=10, warm_start=True, random_state=0).fit(X, y)
    network, once = model.model_, model.score(X, y)
    model.fit(X[:150], y[:150])
    assert model.model_ is network and model.n_iter_ == 20 and model.score(X, y) > once
    model.set_params(warm_start=False).fit(X, y)
    assert model.model_ is not network and model.n_iter_ == 10


def test_early_stopping_stops() -> None:
    X, y = words(200)
    model = BayesianMLPClassifier(max_iter=500, early_stopping=True, n_iter_no_change=3, random_state=0).fit(X, y)
    assert model.n_iter_ < 200
    assert model.score(X, y) > 0.9


def test_saving_and_predicting_with_the_library(regressor: BayesianMLPRegressor, tmp_path: Any) -> None:
    bl.save(regressor.model_, tmp_path / "net.safetensors")
    assert bl.predict(bl.load(tmp_path / "net.safetensors"), torch.zeros(2, 3)).mean.shape == (2, 1)


def test_without_standardisation_the_network_sees_the_data_as_they_are() -> None:
    X, y = line(50)
    model = BayesianMLPRegressor((), max_iter=1, standardise=False, random_state=0).fit(X, y)
    assert model.predict(X).std() > 100  # the third input is in the thousands


@pytest.mark.parametrize("method", sorted(bl.METHODS))
def test_every_method_trains_and_predicts(method: str) -> None:
    X, y = words(60)
    model = BayesianMLPClassifier((8,), method=method, max_iter=3, random_state=0).fit(X, y)
    assert model.predict_proba(X).shape == (60, 3)


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ({"max_iter": 0}, "`max_iter` must be a positive integer, got 0"),
        ({"batch_size": 1.5}, "`batch_size` must be a positive integer, got 1.5"),
        ({"n_samples": True}, "`n_samples` must be a positive integer, got True"),
        ({"n_iter_no_change": -1}, "`n_iter_no_change` must be a positive integer, got -1"),
        ({"learning_rate": 0.0}, r"`learning_rate` must be positive, got 0.0: pass e.g. 0.01"),
        ({"kl_weight": float("nan")}, r"`kl_weight` must be finite and not negative, got nan: pass e.g. 1.0"),
        ({"kl_warmup": 1.1}, r"`kl_warmup` must lie in \[0, 1\], got 1.1: pass e.g. 0.5"),
        ({"validation_fraction": 1}, r"`validation_fraction` must lie in \(0, 1\), got 1: pass e.g. 0.1"),
        ({"hidden_layer_sizes": (3, 0)}, r"`hidden_layer_sizes` must be positive integers, got \(3, 0\)"),
        ({"hidden_layer_sizes": "50"}, "`hidden_layer_sizes` must be positive integers, got '50'"),
        ({"method": "mcmc"}, "unknown `method` 'mcmc': choose from graves"),
        ({"activation": "step"}, "unknown activation 'step': choose from relu"),
    ],
)
def test_bad_parameters_are_named_by_fit(parameter: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BayesianMLPRegressor(**parameter).fit(*line(10))


def test_bad_data() -> None:
    X, y = words(30)
    with pytest.raises(ValueError, match=r"`y` has one class only, .*'a'.*: a classifier needs at least two classes"):
        BayesianMLPClassifier().fit(X, ["a"] * 30)
    compressed: Any = sparse.csr_array(X)
    with pytest.raises(TypeError, match="Sparse data was passed"):
        BayesianMLPClassifier().fit(compressed, y)
    with pytest.raises(ValueError, match="Negative values in data passed to `sample_weight`"):
        BayesianMLPClassifier().fit(X, y, -np.ones(30))
    with pytest.raises(ValueError, match="X has 2 features, but BayesianMLPClassifier is expecting 3"):
        BayesianMLPClassifier(max_iter=1).fit(X, y).predict(X[:, :2])


def test_bad_second_fit() -> None:
    X, y = words(30)
    classifier = BayesianMLPClassifier(max_iter=1, warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match="`y` holds the label .*'new'.*, which the first fit did not see"):
        classifier.fit(X, np.where(y == "low", "new", y))
    regressor = BayesianMLPRegressor(max_iter=1, warm_start=True).fit(X, X[:, 0])
    with pytest.raises(ValueError, match=r"`y` must have the shape \(n\) as in `fit`, got \(30, 3\): reshape it"):
        regressor.fit(X, X)


def test_bad_pruning(regressor: BayesianMLPRegressor) -> None:
    X, y = line(20)
    with pytest.raises(NotFittedError):
        BayesianMLPRegressor().prune()
    with pytest.raises(ValueError, match="`X_val` and `y_val` belong together: pass both or neither"):
        regressor.prune(X)
    with pytest.raises(ValueError, match="`threshold`=3.0 leaves nothing for `X_val` to choose: pass one of the two"):
        regressor.prune(X, y, threshold=3.0)
    with pytest.raises(ValueError, match="`tolerance` must not be negative, got -1"):
        regressor.prune(X, y, tolerance=-1.0)
    with pytest.raises(ValueError, match="would lose all its 150 weights"):
        regressor.prune(threshold=-100.0)
    assert regressor.sparsity_ == 0.0
