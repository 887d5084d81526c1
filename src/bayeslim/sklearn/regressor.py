"""The regressor."""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from bayeslim.likelihoods import Gaussian
from bayeslim.likelihoods.base import Likelihood, likelihood_of
from bayeslim.sklearn.estimator import FLOATS, BayesianMLP
from bayeslim.sklearn.scaling import Scaling
from bayeslim.sklearn.weighted import Examples, WeightedGaussian

__all__ = ["BayesianMLPRegressor"]

INITIAL_NOISE = 0.3
"""Initial noise, relative to the spread of the targets."""


class BayesianMLPRegressor(RegressorMixin, BayesianMLP):
    """Regression by a sparse Bayesian perceptron that says how sure it is.

    `y = f(x, W) + noise`, `W ~ q` by variational inference, the noise learned: `y | x` has the mean `E_q[f(x, W)]` and
    the variance `Var_q[f(x, W)] + noise^2`. Several targets at once have a noise each.

    Inputs and targets are standardised inside, whatever their size. A target that is constant is predicted as it is,
    with a deviation of about 1e-8 of it.

    All rows of all calls are predicted by the same `n_samples` networks, drawn from the posterior: a prediction depends
    on its row alone. Equal rows are merged and their weights added, so that a row given twice and a row of weight 2
    give the same fit, and the order of the rows does not matter.

    Args:
        hidden_layer_sizes: widths of the hidden layers; () is a linear model.
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
        standardise: scale inputs and targets to mean 0 and variance 1 (weighted); False takes them as they are.
        early_stopping: hold rows back, stop when their nll stops falling and keep the best weights. Held rows
            count once each, whatever their weight.
        validation_fraction: the part of the rows to hold back.
        n_iter_no_change: epochs without a better nll before it stops.
        warm_start: let the next `fit` go on from here, with the network and scaling of the first.
        random_state: of initial weights, batches, noise and draws; an integer makes everything repeatable.
        device: where the network lives, e.g. "cuda"; "auto" is an accelerator if there is one.
        verbose: show a progress bar on a terminal.

    Attributes:
        model_: the network, a `torch.nn.Module` for scaled inputs; `bl.save`, `bl.predict` and the rest take it.
        n_features_in_, feature_names_in_: of the training data.
        n_iter_: epochs done.
        loss_curve_: the objective of `fit`, epoch by epoch.
        sparsity_: the part of the fitted weights that `prune` removed; 0 before.

    Example:
        >>> regressor = BayesianMLPRegressor(random_state=0).fit(X, y)
        >>> mean, std = regressor.predict(X_new, return_std=True)
        >>> regressor.prune(X_val, y_val).sparsity_
    """

    @property
    def noise_(self) -> NDArray[Any]:
        """Standard deviation of the noise per target, in the units of `y`."""
        check_is_fitted(self)
        likelihood = likelihood_of(self.model_)
        assert isinstance(likelihood, Gaussian)
        return self._y_scaling.deviations(likelihood.log_noise.detach().exp().cpu().numpy())

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[False] = False) -> NDArray[Any]: ...
    @overload
    def predict(self, X: ArrayLike, return_std: Literal[True]) -> tuple[NDArray[Any], NDArray[Any]]: ...
    def predict(self, X: ArrayLike, return_std: bool = False) -> NDArray[Any] | tuple[NDArray[Any], NDArray[Any]]:
        """The predictive mean, and the standard deviation of a new target.

        `std^2 = Var_s[f(x, W_s)] + noise^2` over `S = n_samples` draws: what the weights do not know, plus the noise of
        the data (`noise_`).

        Args:
            X: (n, features).
            return_std: also give the standard deviation.

        Returns:
            Means (n,), or (n, targets) if `y` had two axes; with `return_std` also the deviations, same shape.

        Example:
            >>> mean, std = regressor.predict(X, return_std=True)
        """
        prediction = self._predicted(X)
        mean = self._in_form(self._y_scaling.restored(prediction.mean.cpu().numpy()))
        if not return_std:
            return mean
        return mean, self._in_form(self._y_scaling.deviations(prediction.std.cpu().numpy()))

    def sample_y(
        self, X: ArrayLike, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0
    ) -> NDArray[Any]:
        """Draw functions from the posterior and, from each, a noisy target for every row.

        Args:
            X: (n, features).
            n_samples: how many; `[..., s]` comes from one network.
            random_state: of the draws.

        Returns:
            (n, n_samples), or (n, targets, n_samples) if `y` had two axes.

        Example:
            >>> np.quantile(regressor.sample_y(X, 1000), [0.025, 0.975], axis=1)
        """
        generator = check_random_state(random_state)
        prediction = self._sampled(X, n_samples, int(generator.randint(2**31 - 1)))
        assert prediction.samples is not None and prediction.sample_variances is not None
        means, std = prediction.samples.cpu().numpy(), prediction.sample_variances.sqrt().cpu().numpy()
        targets = self._y_scaling.restored(means + std * generator.standard_normal(means.shape))
        return np.moveaxis(self._in_form(targets), 0, -1)

    def __sklearn_tags__(self) -> Tags:
        """Several targets at once are fine."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _checked(self, X: Any, y: Any, again: bool) -> tuple[NDArray[Any], NDArray[Any]]:
        checked: Any = validate_data(self, X, y, dtype=FLOATS, multi_output=True, y_numeric=True, reset=not again)
        return checked

    def _numbers(self, y: NDArray[Any], again: bool) -> NDArray[Any]:
        if not again:
            self._y_form: tuple[int, ...] = y.shape[1:]
        if y.shape[1:] != self._y_form:
            expected = ", ".join(["n", *map(str, self._y_form)])
            raise ValueError(
                f"`y` must have the shape ({expected}) as in `fit`, got {y.shape}: reshape it, or {self._anew}"
            )
        return y.reshape(len(y), -1).astype(np.float64)

    def _learn_scales(self, examples: Examples) -> None:
        super()._learn_scales(examples)
        y, weight = examples.y, examples.weight
        self._y_scaling = Scaling.learned(y, weight, targets=True) if self.standardise else Scaling.none(y.shape[1])

    def _scaled_y(self, numbers: NDArray[Any]) -> NDArray[Any]:
        return self._y_scaling.scaled("y", numbers)

    def _plain_targets(self, scaled: NDArray[Any]) -> NDArray[Any]:
        return scaled

    def _likelihood(self, weighted: bool) -> tuple[Likelihood, int]:
        kind = WeightedGaussian if weighted else Gaussian
        outputs = len(self._y_scaling.mean)
        return kind(INITIAL_NOISE, learn_noise=True, outputs=outputs), outputs

    def _in_form(self, values: NDArray[Any]) -> NDArray[Any]:
        """Without the axis of targets where `y` had none."""
        return values if self._y_form else values[..., 0]
