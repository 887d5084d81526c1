"""The classifier."""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from bayeslim.likelihoods import Categorical
from bayeslim.likelihoods.base import Likelihood
from bayeslim.sklearn.estimator import FLOATS, BayesianMLP
from bayeslim.sklearn.weighted import WeightedCategorical

__all__ = ["BayesianMLPClassifier"]


class BayesianMLPClassifier(ClassifierMixin, BayesianMLP):
    """Classification by a sparse Bayesian perceptron that says how sure it is.

    `p(y = c | x) = E_q[softmax(f(x, W))_c]`, `W ~ q` by variational inference.

    Inputs are standardised inside, whatever their size.

    All rows of all calls are predicted by the same `n_samples` networks, drawn from the posterior: a prediction depends
    on its row alone. Equal rows are merged and their weights added, so that a row given twice and a row of weight 2
    give the same fit, and the order of the rows does not matter.

    Args:
        hidden_layer_sizes: widths of the hidden layers; () is logistic regression.
        activation: a name of `bl.models.ACTIVATIONS`.
        method: posterior, prior and estimator: a name of `bl.METHODS`, such as ard, molchanov, graves, k-tied.
        max_iter: passes over the data.
        batch_size: rows per optimiser step.
        learning_rate: of Adam; constant for the first half of the steps, then linear to 0.
        kl_weight: weight of the KL; 1 is the evidence lower bound, less fits more closely and prunes less.
        kl_warmup: the KL's weight grows linearly from 0 over this part of the epochs and is `kl_weight` from then on,
            in the last epoch at the latest. With 1 it grows while learning rates fall, and the fit ends short of the
            optimum: it predicts better on some data, with deviations of weights that are too small, some percent by
            local reparameterisation. 0.5 comes close to it; 0 starts at `kl_weight`, as a warm start does.
        n_samples: networks drawn for a prediction.
        standardise: scale inputs to mean 0 and variance 1 (weighted); False takes them as they are.
        early_stopping: hold rows back, stop when their nll stops falling and keep the best weights. Held rows
            count once each, whatever their weight.
        validation_fraction: the part of the rows to hold back.
        n_iter_no_change: epochs without a better nll before it stops.
        warm_start: let the next `fit` go on from here, with the network, scaling and classes of the first.
        random_state: of initial weights, batches, noise and draws; an integer makes everything repeatable.
        device: where the network lives, e.g. "cuda"; "auto" is an accelerator if there is one.
        verbose: show a progress bar on a terminal.

    Attributes:
        model_: the network, a `torch.nn.Module` for scaled inputs; `bl.save`, `bl.predict` and the rest take it.
        classes_: the labels, sorted.
        n_features_in_, feature_names_in_: of the training data.
        n_iter_: epochs done.
        loss_curve_: the objective of `fit`, epoch by epoch.
        sparsity_: the part of the fitted weights that `prune` removed; 0 before.

    Example:
        >>> classifier = BayesianMLPClassifier(random_state=0).fit(X, y)
        >>> labels, std = classifier.predict(X_new, return_std=True)
        >>> classifier.prune(X_val, y_val).sparsity_
    """

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[False] = False) -> NDArray[Any]: ...
    @overload
    def predict(self, X: ArrayLike, return_std: Literal[True]) -> tuple[NDArray[Any], NDArray[Any]]: ...
    def predict(self, X: ArrayLike, return_std: bool = False) -> NDArray[Any] | tuple[NDArray[Any], NDArray[Any]]:
        """The most probable class, and how sure the network is of its probability.

        Args:
            X: (n, features).
            return_std: also give the standard deviation, over the posterior, of the probability of the class that is
                predicted: large where more data would help.

        Returns:
            Labels (n,); with `return_std` also the deviations (n,), at most 0.5.

        Example:
            >>> labels, std = classifier.predict(X, return_std=True)
        """
        prediction = self._predicted(X)
        chosen = prediction.classes.cpu().numpy()
        labels = self.classes_[chosen]
        if not return_std:
            return labels
        return labels, prediction.epistemic.sqrt().cpu().numpy()[np.arange(len(chosen)), chosen]

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """`p(y = c | x) = (1/S) sum_s softmax(f(x, W_s))_c` over `S = n_samples` draws, (n, classes).

        Example:
            >>> classifier.predict_proba(X).sum(1)  # 1 everywhere
        """
        return self._predicted(X).mean.cpu().numpy()

    def predict_log_proba(self, X: ArrayLike) -> NDArray[Any]:
        """`ln` of `predict_proba`, (n, classes).

        Example:
            >>> -classifier.predict_log_proba(X)[np.arange(len(y)), y].mean()  # nll for y in 0, 1, ...
        """
        probabilities = self.predict_proba(X)
        return np.log(np.maximum(probabilities, np.finfo(probabilities.dtype).tiny))

    def sample_y(
        self, X: ArrayLike, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0
    ) -> NDArray[Any]:
        """Draw networks from the posterior and, from each, a label for every row.

        Args:
            X: (n, features).
            n_samples: how many; column `s` comes from one network.
            random_state: of the draws.

        Returns:
            Labels (n, n_samples).

        Example:
            >>> (classifier.sample_y(X, 1000) == "benign").mean(1)  # about predict_proba
        """
        generator = check_random_state(random_state)
        prediction = self._sampled(X, n_samples, int(generator.randint(2**31 - 1)))
        assert prediction.samples is not None
        cumulated = prediction.samples.cpu().numpy().cumsum(-1)
        heights = generator.uniform(size=(*cumulated.shape[:-1], 1)) * cumulated[..., -1:]
        return self.classes_[(heights >= cumulated).sum(-1)].T

    def _checked(self, X: Any, y: Any, again: bool) -> tuple[NDArray[Any], NDArray[Any]]:
        X, y = validate_data(self, X, y, dtype=FLOATS, multi_output=True, reset=not again)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        return X, y

    def _numbers(self, y: NDArray[Any], again: bool) -> NDArray[Any]:
        if not again:
            self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError(
                f"`y` has one class only, {self.classes_[0]!r}, among rows of positive weight: a classifier needs at "
                "least two classes"
            )
        known = np.isin(y, self.classes_)
        if not known.all():
            raise ValueError(
                f"`y` holds the label {y[~known][0]!r}, which the first fit did not see: use the labels in classes_, "
                f"or {self._anew}"
            )
        return np.searchsorted(self.classes_, y).astype(np.float64)[:, None]

    def _scaled_y(self, numbers: NDArray[Any]) -> NDArray[Any]:
        return numbers

    def _plain_targets(self, scaled: NDArray[Any]) -> NDArray[Any]:
        return scaled[:, 0].astype(np.int64)

    def _likelihood(self, weighted: bool) -> tuple[Likelihood, int]:
        return WeightedCategorical() if weighted else Categorical(), len(self.classes_)
