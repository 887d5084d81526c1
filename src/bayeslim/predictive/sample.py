"""Prediction: average over the posterior and say how sure the network is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from bayeslim.estimators import flipout, independent_draws, local_reparam, mean_only, moments
from bayeslim.evaluation_mode import evaluation_mode
from bayeslim.gaussian import Gaussian
from bayeslim.layers.base import BayesLayer
from bayeslim.likelihoods.base import Likelihood, likelihood_of
from bayeslim.predictive.inputs import Inputs, device_of, input_batches, refusal
from bayeslim.predictive.prediction import Prediction
from bayeslim.predictive.streaming import StreamingMoments
from bayeslim.randomness import seeded
from bayeslim.using import using

__all__ = ["predict", "predict_batch"]

KEEP_LIMIT = 2**24
"""Samples are kept by default up to this many numbers (64 MiB in float32)."""
ROWS_AT_ONCE = 4096
"""Samples times examples that one vectorised pass handles."""
WEIGHTS_AT_ONCE = 2**24
"""Samples times weights that one vectorised pass may draw."""

Method = Literal["sample", "moments", "mean"]


@torch.no_grad()
def predict(
    model: nn.Module,
    x: Inputs,
    *,
    samples: int = 200,
    likelihood: Likelihood | None = None,
    method: Method = "sample",
    estimator: Callable[..., Any] | None = None,
    batch_size: int = 1024,
    keep_samples: bool | None = None,
    seed: int | None = None,
) -> Prediction:
    r"""Predict by `p(y | x) = (1/S) sum_s p(y | x, W_s)`, `W_s ~ q`.

    The samples of a batch run as one vectorised pass, in chunks of bounded size, and their moments are
    accumulated as they come: memory depends neither on `samples` nor on the size of `x`, only the result
    does. The network is put in evaluation mode meanwhile (BatchNorm and dropout), which has no influence on
    the sampling of weights.

    Linear layers on plain vectors draw their outputs, everything else draws weights: local
    reparameterisation and flipout would lose the correlation between positions and with it most of the
    variance of pooled outputs. Layers set to `mean_only` stay so. A network that `torch.vmap` cannot run, such as one
    around a plain `nn.LSTM`, is sampled in a loop instead: slower, with the same distribution.

    Args:
        model: network, Bayesian or not.
        x: tensor or array (N, ...), a Dataset or a DataLoader (the first element of their tuples counts).
        samples: number of posterior samples `S`.
        likelihood: `p(y | f)`; None takes the one `fit` trained with.
        method: "sample"; "mean" is one pass with the posterior mean; "moments" is one pass that propagates
            mean and variance.
        estimator: force this sampling estimator on every layer instead.
        batch_size: examples per pass, where `x` is not a loader.
        keep_samples: keep the conditional mean of every sample, which quantile intervals need; None keeps
            them while they are below 64 MiB.
        seed: makes the prediction reproducible (for the same `samples`, batches and torch version) and
            leaves torch's global random state untouched.

    Returns:
        A `Prediction` with `.mean`, `.epistemic`, `.aleatoric`, `.total`, `.std`, `.entropy`,
        `.mutual_information`, `.interval(0.95)` and `.samples`.

    Raises:
        ValueError: for bad input, an unknown method, or an unknown likelihood.

    Example:
        >>> pred = bl.predict(model, x, samples=200)
        >>> pred.mean, pred.std, pred.interval(0.95)
    """
    if samples < 1:
        raise ValueError(f"`samples` must be at least 1, got {samples}")
    if method not in ("sample", "moments", "mean"):
        raise ValueError(f"`method` must be 'sample', 'moments' or 'mean', got {method!r}")
    if estimator is moments or (estimator is not None and method != "sample"):
        raise ValueError(
            "`estimator` says how to draw samples: leave it out with method='moments' or 'mean', and ask for "
            "moments by method='moments'"
        )
    chosen = likelihood_of(model, likelihood).to(device_of(model))
    parts: list[Prediction] = []
    room = math.inf if keep_samples else KEEP_LIMIT if keep_samples is None else 0
    with evaluation_mode(model), seeded(seed), _estimating(model, method, estimator):
        for batch in input_batches(model, x, batch_size):
            try:
                parts.append(predict_batch(model, batch, chosen, samples, method, room))
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                raise refusal(batch, error) from error
            kept = parts[-1].samples
            room = 0 if kept is None else room - 2 * kept.numel()
            if kept is None:
                parts = [replace(part, samples=None, sample_variances=None) for part in parts]
    if not parts:
        raise ValueError("`x` gave no batches: the loader is empty")
    return _joined(parts)


def predict_batch(
    model: nn.Module, x: Tensor, likelihood: Likelihood, samples: int, method: Method, room: float
) -> Prediction:
    """Predict one batch with the estimators as they are set, keeping samples while there is room."""
    stream = StreamingMoments(likelihood, room)
    if method == "moments":
        output: Any = model(x)
        if not isinstance(output, Gaussian):
            raise ValueError("`method='moments'` needs at least one Bayesian layer; use method='mean'")
        exact = likelihood.exact_moments(output)
        if exact is not None:
            return _from_moments(likelihood, *exact)
        for _ in range(samples):
            stream.add(output.rsample()[None])
    elif method == "mean" or not any(isinstance(m, BayesLayer) for m in model.modules()):
        stream.add(model(x)[None])
    else:
        for chunk in _chunks(model, x, samples):
            stream.add(_draws(model, x, chunk))
    return stream.prediction()


def _draws(model: nn.Module, x: Tensor, count: int) -> Tensor:
    """Outputs of `count` posterior samples, samples first: one vectorised pass, or a loop where vmap cannot follow."""
    fused = torch.backends.mha.get_fastpath_enabled()
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        with sdpa_kernel(SDPBackend.MATH):  # neither this fast path nor the fused kernels have a batching rule
            return torch.vmap(lambda _: model(x), randomness="different")(x.new_empty(count, dtype=torch.float32))
    except RuntimeError as error:
        if not any(word in str(error) for word in ("vmap", "Batching rule", "functorch")):
            raise
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
    return torch.stack([model(x) for _ in range(count)])


def _chunks(model: nn.Module, x: Tensor, samples: int) -> Iterator[int]:
    """How many samples each pass draws; fixed by sizes alone, so that a seed means the same draws."""
    weights = sum(m.weight.mean().numel() for m in model.modules() if isinstance(m, BayesLayer))
    size = max(1, min(samples, ROWS_AT_ONCE // len(x), WEIGHTS_AT_ONCE // max(1, weights)))
    for start in range(0, samples, size):
        yield min(size, samples - start)


def _from_moments(likelihood: Likelihood, mean: Tensor, epistemic: Tensor, aleatoric: Tensor) -> Prediction:
    entropy = likelihood.predictive_entropy(mean, epistemic + aleatoric)
    certain = likelihood.predictive_entropy(mean, aleatoric)
    return Prediction(mean, epistemic, aleatoric, entropy, entropy - certain, likelihood)


def _joined(parts: list[Prediction]) -> Prediction:
    """Concatenate predictions of consecutive batches."""
    if len(parts) == 1:
        return parts[0]

    def join(name: str, dim: int = 0) -> Any:
        values = [getattr(part, name) for part in parts]
        return None if any(value is None for value in values) else torch.cat(values, dim)

    fields = ("mean", "epistemic", "aleatoric", "entropy", "mutual_information")
    return Prediction(
        **{name: join(name) for name in fields},
        likelihood=parts[0].likelihood,
        samples=join("samples", 1),
        sample_variances=join("sample_variances", 1),
    )


@contextmanager
def _estimating(model: nn.Module, method: Method, estimator: Callable[..., Any] | None) -> Iterator[None]:
    """Set the estimators that `method` calls for."""
    fixed = {"mean": mean_only, "moments": moments}.get(method, estimator)
    with using(model, fixed) if fixed is not None else nullcontext():
        noisy = [m for m in model.modules() if isinstance(m, BayesLayer)] if fixed is None else []
        swapped = [m for m in noisy if m.estimator in (local_reparam, flipout, moments)]
        before = [layer.estimator for layer in swapped]
        try:
            for layer in swapped:
                layer.estimator = independent_draws
            yield
        finally:
            for layer, own in zip(swapped, before, strict=True):
                layer.estimator = own
