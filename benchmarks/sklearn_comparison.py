"""The Bayesian perceptrons with their default settings against scikit-learn's perceptron and Gaussian process.

    BAYESLIM_DATA=DATA python benchmarks/sklearn_comparison.py --out results/sklearn_comparison.json

Five-fold cross-validation, the same folds for all, on UCI concrete (regression) and breast cancer (classification). The
peers stand behind a StandardScaler, their targets are standardised too. The perceptron has no noise of its own: for nll
and coverage of regression it gets the standard deviation of its training residuals. ECE is taken over the pooled test
predictions of all folds, in 15 bins; everything else is the mean over folds, with its standard deviation. The default
settings were chosen on folds of seed 0; the folds here are those of another seed, of the same data.
"""

import argparse
import time
import warnings
from typing import Any

import numpy as np
import sklearn
import torch
from harness import run
from scipy.stats import norm
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bayeslim as bl
from bayeslim.machine import machine
from bayeslim.metrics import expected_calibration_error
from bayeslim.sklearn import BayesianMLPClassifier, BayesianMLPRegressor

Moments = tuple[np.ndarray, np.ndarray]


def concrete() -> tuple[np.ndarray, np.ndarray]:
    """All rows of UCI concrete."""
    data = bl.data.uci("concrete", split=0)
    x, y = torch.cat([data.x_train, data.x_test]), torch.cat([data.y_train, data.y_test])
    return x.double().numpy(), y[:, 0].double().numpy()


def bayesian_regressor(x: np.ndarray, y: np.ndarray, test: np.ndarray, seed: int) -> tuple[float, Moments]:
    start = time.perf_counter()
    model = BayesianMLPRegressor(random_state=seed).fit(x, y)
    seconds = time.perf_counter() - start
    mean, std = model.predict(test, return_std=True)
    return seconds, (np.asarray(mean), np.asarray(std))


def plain_regressor(x: np.ndarray, y: np.ndarray, test: np.ndarray, seed: int, **options: Any) -> tuple[float, Moments]:
    start = time.perf_counter()
    network = make_pipeline(StandardScaler(), MLPRegressor(random_state=seed, **options))
    model = TransformedTargetRegressor(network, transformer=StandardScaler()).fit(x, y)
    seconds = time.perf_counter() - start
    noise = np.std(y - model.predict(x))
    return seconds, (model.predict(test), np.full(len(test), noise))


def process_regressor(x: np.ndarray, y: np.ndarray, test: np.ndarray, seed: int) -> tuple[float, Moments]:
    start = time.perf_counter()
    scales: Any = np.ones(x.shape[1])
    kernel = ConstantKernel(1.0) * RBF(scales) + WhiteKernel(0.1)
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed)
    model = make_pipeline(StandardScaler(), process).fit(x, y)
    seconds = time.perf_counter() - start
    mean, std = model.predict(test, return_std=True)
    return seconds, (mean, std)


def classifier(model: Any, x: np.ndarray, y: np.ndarray, test: np.ndarray) -> tuple[float, np.ndarray]:
    start = time.perf_counter()
    model.fit(x, y)
    return time.perf_counter() - start, model.predict_proba(test)


def spread(values: list[float]) -> dict[str, float]:
    return {"mean": float(np.mean(values)), "std": float(np.std(values, ddof=1))}


def regression(seed: int, count: int) -> dict[str, Any]:
    x, y = concrete()
    rivals = {
        "BayesianMLPRegressor": bayesian_regressor,
        "MLPRegressor": plain_regressor,
        "MLPRegressor, 2000 epochs": lambda *data: plain_regressor(*data, max_iter=2000, n_iter_no_change=50),
        "GaussianProcessRegressor": process_regressor,
    }
    folds = list(KFold(count, shuffle=True, random_state=seed).split(x))
    record: dict[str, Any] = {}
    for name, rival in rivals.items():
        rows: dict[str, list[float]] = {"rmse": [], "nll": [], "coverage95": [], "fit_seconds": []}
        for train, test in folds:
            seconds, (mean, std) = rival(x[train], y[train], x[test], seed)
            rows["rmse"].append(float(np.sqrt(np.mean((y[test] - mean) ** 2))))
            rows["nll"].append(float(-norm.logpdf(y[test], mean, std).mean()))
            rows["coverage95"].append(float(np.mean(np.abs(y[test] - mean) <= 1.959964 * std)))
            rows["fit_seconds"].append(seconds)
        record[name] = {key: spread(values) for key, values in rows.items()}
        print(name, record[name], flush=True)
    return record


def classification(seed: int, count: int) -> dict[str, Any]:
    x, y = (np.asarray(part) for part in load_breast_cancer(return_X_y=True))
    rivals = {
        "BayesianMLPClassifier": lambda: BayesianMLPClassifier(random_state=seed),
        "MLPClassifier": lambda: make_pipeline(StandardScaler(), MLPClassifier(random_state=seed)),
        "GaussianProcessClassifier": lambda: make_pipeline(
            StandardScaler(), GaussianProcessClassifier(ConstantKernel(1.0) * RBF(5.0), random_state=seed)
        ),
    }
    folds = list(StratifiedKFold(count, shuffle=True, random_state=seed).split(x, y))
    record: dict[str, Any] = {}
    for name, build in rivals.items():
        rows: dict[str, list[float]] = {"accuracy": [], "nll": [], "fit_seconds": []}
        pooled = np.zeros((len(y), 2))
        for train, test in folds:
            seconds, probabilities = classifier(build(), x[train], y[train], x[test])
            chosen = probabilities[np.arange(len(test)), y[test]]
            rows["accuracy"].append(float(np.mean(probabilities.argmax(1) == y[test])))
            rows["nll"].append(float(-np.log(np.maximum(chosen, np.finfo(float).tiny)).mean()))
            rows["fit_seconds"].append(seconds)
            pooled[test] = probabilities
        record[name] = {key: spread(values) for key, values in rows.items()}
        record[name]["ece"] = expected_calibration_error(torch.from_numpy(pooled), torch.from_numpy(y))
        print(name, record[name], flush=True)
    return record


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    warnings.simplefilter("ignore", ConvergenceWarning)  # the perceptron's default of 200 epochs, kernels at a bound
    torch.set_num_threads(1)
    folds = 2 if chosen.quick else 5
    return {
        "command": f"python benchmarks/sklearn_comparison.py --seed {chosen.seed}",
        "seed": chosen.seed,
        "versions": machine()["versions"] | {"scikit-learn": sklearn.__version__, "numpy": np.__version__},
        "defaults": {k: v for k, v in BayesianMLPRegressor().get_params().items() if k != "random_state"},
        "concrete": regression(chosen.seed, folds),
        "breast cancer": classification(chosen.seed, folds),
    }


if __name__ == "__main__":
    run(__doc__, measure, seed={"type": int, "default": 1, "help": "of the folds and of every model"})
