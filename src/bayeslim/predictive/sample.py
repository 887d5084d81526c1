"""Prediction: average over the posterior and say how sure the network is."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from bayeslim.checks.counts import check_counts
from bayeslim.estimators import kind_of, mean_only, moments, taylor_moments
from bayeslim.gaussian import Gaussian
from bayeslim.likelihoods.base import Likelihood, likelihood_of
from bayeslim.predictive.average import joined
from bayeslim.predictive.inputs import ONE_INPUT, Inputs, device_of, input_batches, is_about_inputs, refusal
from bayeslim.predictive.networks import predict_by_replay, predict_by_sampling
from bayeslim.predictive.one_pass import always_random, check_whole, predict_by_moments, predict_by_one_pass
from bayeslim.predictive.passes import TOO_LARGE_AT_ALL, is_too_large, without_leftovers
from bayeslim.predictive.prediction import Prediction
from bayeslim.predictive.snapshots import Snapshots, network_of
from bayeslim.runtime.freed_memory import keep_freed_memory
from bayeslim.runtime.modes import evaluation_mode
from bayeslim.runtime.seeds import seeded
from bayeslim.using import using

__all__ = ["Method", "predict"]

KEEP_LIMIT = 2**24
"""Samples are kept by default up to this many numbers (64 MiB in float32)."""

Method = Literal["sample", "moments", "taylor", "mean"]
Answer = Callable[[Any, Likelihood, int, float], Prediction]
"""Predicts a batch by a likelihood and so many samples, which it keeps while there is room."""


@torch.no_grad()
def predict(
    model: nn.Module | Snapshots,
    x: Inputs,
    *,
    samples: int = 200,
    likelihood: Likelihood | None = None,
    method: Method = "sample",
    estimator: Callable[..., Any] | None = None,
    input_variance: float | Tensor | None = None,
    batch_size: int | None = None,
    keep_samples: bool | None = None,
    seed: int | None = None,
) -> Prediction:
    r"""Predict by `p(y | x) = (1/S) sum_s p(y | x, W_s)`, `W_s ~ q`.

    Few examples run through many networks in one vectorised pass, many examples through one network after the other,
    whose weights are drawn once per batch. Moments are accumulated as they come: memory depends neither on `samples`
    nor on the size of `x`, only the result does. The network is put in evaluation mode meanwhile (BatchNorm and
    dropout), which has no influence on the sampling of weights.

    Linear layers that see one vector per example, once, draw their outputs; everything else draws weights: local
    reparameterisation and flipout would lose the correlation between positions, tokens or uses of a weight, and with it
    most of the variance of pooled outputs. Layers set to `mean_only` stay so. A network that `torch.vmap` cannot run,
    such as one around a plain `nn.LSTM`, is sampled in a loop instead: slower, with the same distribution.

    The first prediction for inputs of a kind looks at the network by a pass with one example. Its plan serves those
    that follow, until anything about the network changes; a pass that takes another way is noticed and made again.

    Passes are bounded by what they hold. One that the device refuses for want of memory, or because it has no kernel
    for such sizes, is made again in halves, down to one example and one network; only then its error is raised.

    Calls from several threads take turns, since a network's estimators and torch's random state are switched meanwhile.
    What the network's `forward` keeps on itself in a vectorised pass is dropped again.

    Args:
        model: network, Bayesian or not; or snapshots of one, each of which counts once whatever `samples` says.
        x: tensor or array (N, ...), a Dataset or a DataLoader (the first element of their tuples counts).
        samples: number of posterior samples `S`.
        likelihood: `p(y | f)`; None takes the one `fit` trained with.
        method: "sample"; "mean" is one pass with the posterior mean; "moments" is one pass that propagates
            mean and variance, "taylor" the same by the first-order rules of the VDP++ paper. Where the likelihood has
            no closed form over Gaussian outputs, `samples` outputs (not networks) are drawn.
        estimator: force this sampling estimator on every layer instead.
        input_variance: variance of independent noise on the inputs, one number or in the shape of an example; it counts
            as epistemic. Also for networks without Bayesian layers.
        batch_size: examples that share the draws of weights, where `x` is not a loader; None takes 1024 of a Dataset
            and of a tensor as many as 128 MiB hold in float32.
        keep_samples: keep the conditional mean of every sample, which quantile intervals need; None keeps
            them while they are below 64 MiB.
        seed: makes the prediction reproducible (for the same `samples`, batches and torch version) and
            leaves torch's global random state untouched. What estimators that are asked for, noisy inputs and
            `MCDropout` draw inside a pass follows from its size too: after a refusal it is that of a smaller device.

    Returns:
        A `Prediction` with `.mean`, `.epistemic`, `.aleatoric`, `.total`, `.std`, `.entropy`,
        `.mutual_information`, `.interval(0.95)` and `.samples`.

    Raises:
        ValueError: for bad input, an unknown method, or an unknown likelihood.
        RuntimeError: what the device says, as it says it.

    Example:
        >>> pred = bl.predict(model, x, samples=200)
        >>> pred.mean, pred.std, pred.interval(0.95)
    """
    keep_freed_memory()
    (samples,) = check_counts(samples=samples)
    network = model if isinstance(model, nn.Module) else network_of(model)
    _check_method(model, network, method, estimator, input_variance)
    fixed = {"mean": mean_only, "moments": moments, "taylor": taylor_moments}.get(method, estimator)
    parts: list[Prediction] = []
    room = math.inf if keep_samples else KEEP_LIMIT if keep_samples is None else 0
    alone = evaluation_mode(network)  # while nobody else predicts, who might switch the same things
    reproducibly = nullcontext() if seed is None else seeded(seed)
    with alone, without_leftovers(network), reproducibly, nullcontext() if fixed is None else using(network, fixed):
        answer = _answering(model, network, method, forced=fixed is not None)
        chosen = likelihood_of(network, likelihood).to(device_of(network))
        for batch in input_batches(network, x, batch_size):
            noisy = batch if input_variance is None else with_noise(batch, input_variance, method)
            try:
                parts.append(answer(noisy, chosen, samples, room))
            except TypeError as error:
                if "required positional argument" not in str(error):
                    raise
                raise TypeError(f"{error}; {ONE_INPUT}") from error
            except (RuntimeError, MemoryError) as error:
                if is_too_large(error):
                    error.add_note(TOO_LARGE_AT_ALL)
                elif is_about_inputs(error):
                    raise refusal(batch, error) from error
                raise
            kept = parts[-1].samples
            room = 0 if kept is None else room - 2 * kept.numel()
            if kept is None and parts[0].samples is not None:
                parts = [replace(part, samples=None, sample_variances=None) for part in parts]
    if not parts:
        raise ValueError("`x` gave no batches: the loader is empty")
    return joined(parts)


def _check_method(
    model: object, network: nn.Module, method: str, estimator: Callable[..., Any] | None, input_variance: object
) -> None:
    """Raise a ValueError for what does not go together."""
    if method not in get_args(Method):
        raise ValueError(f"`method` must be one of {', '.join(map(repr, get_args(Method)))}, got {method!r}")
    if estimator is not None and (method != "sample" or kind_of(estimator) == "moments"):
        raise ValueError(
            "`estimator` says how to draw samples: leave it out with method='moments' or 'mean', and ask for "
            "moments by method='moments'"
        )
    if input_variance is not None and method == "mean":
        raise ValueError("`input_variance` has no effect on method='mean': use 'moments' or 'sample'")
    if isinstance(model, Snapshots):
        if method != "sample":
            raise ValueError(f"`method` must be 'sample' for snapshots, got {method!r}: they are samples already")
        if input_variance is not None:
            raise ValueError("`input_variance` does not go with snapshots: predict from a network instead")
    if method == "mean" and always_random(network):
        raise ValueError("the network holds MCDropout, which has no mean pass: predict by sampling (samples > 0)")


def _answering(model: nn.Module | Snapshots, network: nn.Module, method: Method, forced: bool) -> Answer:
    """What predicts a batch by this method."""
    if method == "mean":
        return partial(predict_by_one_pass, network)
    if method != "sample":
        check_whole(network, method)
        return partial(predict_by_moments, network)
    if isinstance(model, Snapshots):
        check_whole(network, method)
        return partial(predict_by_replay, model.replay(), forced)
    return partial(predict_by_sampling, network, forced)


def with_noise(x: Tensor, variance: float | Tensor, method: Method) -> Gaussian:
    """Inputs with independent noise of this variance, one number or in the shape of an example."""
    try:
        spread = torch.as_tensor(variance, dtype=x.dtype, device=x.device).expand_as(x)
        return Gaussian(x, spread, "taylor" if method == "taylor" else "exact")
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            "`input_variance` must be a finite number that is not negative, or a tensor of such numbers in the shape "
            f"of an example {tuple(x.shape[1:])}: {error}"
        ) from error
