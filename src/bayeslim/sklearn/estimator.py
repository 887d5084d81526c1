"""What the classifier and the regressor share: parameters, training, drawing and pruning."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import nn

from bayeslim import methods, schedules
from bayeslim.checks.counts import check_counts
from bayeslim.likelihoods.base import Likelihood, likelihood_of, remember_likelihood_
from bayeslim.masks import mask_of
from bayeslim.named_models import resolved_device
from bayeslim.predictive import Prediction, predict
from bayeslim.pruning import compact, prune_, prune_curve
from bayeslim.pruning.prune import bayes_layers
from bayeslim.runtime.seeds import seeded
from bayeslim.sklearn.draws import Draws, drawn_networks
from bayeslim.sklearn.parameters import check_parameters, check_same_network, network_parameters, widths
from bayeslim.sklearn.scaling import Scaling
from bayeslim.sklearn.weighted import Examples, checked_mean, merged
from bayeslim.training import fit as train

__all__ = ["FLOATS", "BayesianMLP"]

FLOATS = (np.float64, np.float32)
"""The network computes in the floating type of the training data; anything else becomes float64."""


class BayesianMLP(BaseEstimator, ABC):
    """Parameters, training and pruning; see `BayesianMLPClassifier` and `BayesianMLPRegressor`."""

    n_features_in_: int
    feature_names_in_: NDArray[Any]
    network_advice = "the network that it has fitted, estimator.model_"
    """What to pass where a network is wanted, see `check_network`."""

    def __init__(
        self,
        hidden_layer_sizes: Sequence[int] = (50, 50),
        activation: str = "relu",
        *,
        method: str = "ard",
        max_iter: int = 100,
        batch_size: int = 50,
        learning_rate: float = 0.02,
        kl_weight: float = 1.0,
        kl_warmup: float = 1.0,
        n_samples: int = 100,
        standardise: bool = True,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 20,
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
        device: str = "cpu",
        verbose: bool = False,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.method = method
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.kl_weight = kl_weight
        self.kl_warmup = kl_warmup
        self.n_samples = n_samples
        self.standardise = standardise
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.warm_start = warm_start
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    @abstractmethod
    def _checked(self, X: Any, y: Any, again: bool) -> tuple[NDArray[Any], NDArray[Any]]:
        """Valid inputs and targets; an estimator that was fitted before insists on the same features."""

    @abstractmethod
    def _numbers(self, y: NDArray[Any], again: bool) -> NDArray[Any]:
        """Targets as numbers (n, targets); what they stand for is learned, unless fitted before."""

    @abstractmethod
    def _scaled_y(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Targets as the network sees them, (n, targets)."""

    @abstractmethod
    def _plain_targets(self, scaled: NDArray[Any]) -> NDArray[Any]:
        """Scaled targets as the likelihood without weights takes them."""

    @abstractmethod
    def _likelihood(self, weighted: bool) -> tuple[Likelihood, int]:
        """A fresh likelihood, and how many outputs of the network it takes."""

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        r"""Fit the posterior: minimise `(sum_i w_i E_q[-ln p(y_i | x_i, W)] + beta KL(q || p)) / sum_i w_i`.

        `beta` grows from 0 to `kl_weight` over the first `kl_warmup` of the epochs and stays there; in the last epoch
        it is `kl_weight` always. The noise of a regression is learned with `q`. With `early_stopping` the posterior
        that is kept is that of the best epoch, whatever its `beta`.

        Args:
            X: (n, features), finite numbers.
            y: (n,) targets.
            sample_weight: (n,) weights `w_i >= 0`, 1 where None. An integer weight is the same as repeating the row.

        Returns:
            The estimator itself.

        Raises:
            ValueError: for data or parameters that make no sense.

        Example:
            >>> estimator.fit(X, y).predict(X_new, return_std=True)
        """
        check_parameters(self)
        again = self.warm_start and hasattr(self, "model_")
        if again:
            check_same_network(self, self._built)
        X, y = self._checked(X, y, again)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        used = weight > 0
        examples = merged(X[used], self._numbers(y[used], again), weight[used])
        if not again:
            self._learn_scales(examples)
        x, targets = self._scaled(examples.x), self._scaled_y(examples.y)
        self._train(Examples(x, targets, examples.weight), again)
        return self

    def prune(
        self,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
        threshold: float | None = None,
        tolerance: float = 1.0,
    ) -> Self:
        """Remove the weights that are noise by their posterior, and make the network smaller, in place.

        A weight goes if its `log alpha = ln(variance / mean^2)` is above the threshold. Units without influence are
        cut out of `model_`, and `sparsity_` tells which part of the fitted weights is gone.

        Args:
            X_val: inputs that choose the threshold: the sparsest one that costs at most `tolerance` standard errors of
                their nll. Best not those of `fit`.
            y_val: their targets.
            threshold: of log alpha, instead; without it and without validation data 3, a dropout rate of 0.95.
            tolerance: see `X_val`.

        Returns:
            The estimator itself.

        Raises:
            ValueError: if a layer would lose all its weights, or only one of `X_val` and `y_val` is given.

        Example:
            >>> estimator.fit(X, y).prune(X_val, y_val).sparsity_
        """
        check_is_fitted(self)
        if (X_val is None) != (y_val is None):
            raise ValueError("`X_val` and `y_val` belong together: pass both or neither")
        if X_val is not None and threshold is not None:
            raise ValueError(f"`threshold`={threshold} leaves nothing for `X_val` to choose: pass one of the two")
        if X_val is not None:
            x, y = self._checked(X_val, y_val, again=True)
            data = (self._scaled(x), self._plain_targets(self._scaled_y(self._numbers(y, again=True))))
            threshold = prune_curve(self.model_, data, random=False, tolerance=tolerance).recommended
        prune_(self.model_, threshold=threshold)
        first = next(self.model_.parameters())
        self.model_ = compact(self.model_, first.new_zeros(1, self.n_features_in_), fold="exact")
        self.sparsity_, self._draws = 1 - _weights(self.model_) / self._fitted_weights, Draws()
        return self

    @property
    def _anew(self) -> str:
        """What to do about data that the fitted network cannot take, for messages."""
        return "fit anew with warm_start=False" if self.warm_start else "fit a new estimator"

    def _learn_scales(self, examples: Examples) -> None:
        """Note mean and deviation of the inputs."""
        self._x_scaling = (
            Scaling.learned(examples.x, examples.weight) if self.standardise else Scaling.none(examples.x.shape[1])
        )

    def _train(self, examples: Examples, again: bool) -> None:
        """Build the network unless there is one, and train it."""
        dtype = torch.from_numpy(examples.x).dtype
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        likelihood, outputs = self._likelihood(weighted=True)
        likelihood.to(dtype)
        if again:
            likelihood.load_state_dict(likelihood_of(self.model_).state_dict())
        else:
            sizes = [examples.x.shape[1], *widths(self.hidden_layer_sizes), outputs]
            with seeded(seed):
                self.model_ = methods.mlp(sizes, self.activation, method=self.method).to(dtype)
            self._seed, self._fitted_weights = seed, _weights(self.model_)
            self.sparsity_, self.loss_curve_, self._built = 0.0, [], network_parameters(self)
        self._draws = Draws()
        validation = None
        if self.early_stopping:
            examples, validation = self._split(examples, seed)
        mean_weight = checked_mean(examples.weight, self.kl_weight)
        ramp = 0 if again else min(round(self.kl_warmup * self.max_iter), self.max_iter - 1)
        history = train(
            self.model_,
            (examples.x, np.column_stack([examples.y, examples.weight / mean_weight])),
            likelihood=likelihood,
            epochs=int(self.max_iter),
            batch_size=int(self.batch_size),
            lr=self.learning_rate,
            lr_schedule=schedules.constant_then_linear(0.5),
            kl_schedule=schedules.warmup_linear(0, ramp, self.kl_weight / mean_weight),
            validation=validation,
            patience=int(self.n_iter_no_change) if self.early_stopping else None,
            seed=seed,
            device=resolved_device(self.device),
            progress=self.verbose,
        )
        plain, _ = self._likelihood(weighted=False)
        plain.to(dtype).load_state_dict(likelihood.state_dict())
        remember_likelihood_(self.model_, plain)
        self.loss_curve_ = [*self.loss_curve_, *history["energy"]]
        self.n_iter_ = len(self.loss_curve_)

    def _split(self, examples: Examples, seed: int) -> tuple[Examples, tuple[NDArray[Any], NDArray[Any]]]:
        """Set validation rows apart, which count once each whatever their weight."""
        targets = self._plain_targets(examples.y)
        kept, held = train_test_split(
            np.arange(len(targets)),
            test_size=self.validation_fraction,
            random_state=seed,
            stratify=targets if targets.ndim == 1 else None,
        )
        return Examples(*(part[kept] for part in examples)), (examples.x[held], targets[held])

    def _predicted(self, X: ArrayLike) -> Prediction:
        """The prediction of the networks that belong to this fit."""
        check_is_fitted(self)
        (samples,) = check_counts(n_samples=self.n_samples)
        x = self._inputs(X)
        return predict(self._draws.networks(self.model_, samples, self._seed), x, keep_samples=False)

    def _sampled(self, X: ArrayLike, n_samples: int, seed: int) -> Prediction:
        """The prediction of other networks, and what each of them says."""
        check_is_fitted(self)
        (n_samples,) = check_counts(n_samples=n_samples)
        x = self._inputs(X)
        return predict(drawn_networks(self.model_, n_samples, seed), x, keep_samples=True)

    def _inputs(self, X: Any) -> NDArray[Any]:
        """Valid inputs as the network sees them."""
        return self._scaled(validate_data(self, X, dtype=FLOATS, reset=False))

    def _scaled(self, x: Any) -> NDArray[Any]:
        return self._x_scaling.scaled("X", x)


def _weights(model: nn.Module) -> int:
    """Weights that are not pruned."""
    return sum(int(mask_of(layer.weight).sum()) for layer in bayes_layers(model).values())
