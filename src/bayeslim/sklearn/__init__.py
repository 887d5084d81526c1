"""scikit-learn estimators: sparse Bayesian perceptrons with `fit`, `predict(return_std=True)`, `sample_y` and `prune`.

This is the only part of the package that imports scikit-learn; `import bayeslim` does not load it.
"""

from bayeslim.sklearn.classifier import BayesianMLPClassifier as BayesianMLPClassifier
from bayeslim.sklearn.regressor import BayesianMLPRegressor as BayesianMLPRegressor

__all__ = ["BayesianMLPClassifier", "BayesianMLPRegressor"]
