"""Prediction: average over the posterior and say how sure the network is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from bayeslim.checks.counts import check_counts
from bayeslim.divergence import is_sharded
from bayeslim.estimators import (
    clipped_reparam,
    flipout,
    independent_draws,
    local_reparam,
    mean_only,
    moments,
    taylor_moments,
)
from bayeslim.gaussian import Gaussian
from bayeslim.kernels.noise import normals
from bayeslim.layers.base import BayesLayer
from bayeslim.likelihoods.base import Likelihood, likelihood_of
from bayeslim.predictive.inputs import (
    ONE_INPUT,
    Inputs,
    device_of,
    input_batches,
    is_about_inputs,
    per_example,
    refusal,
)
from bayeslim.predictive.leftovers import without_leftovers
from bayeslim.predictive.networks import in_blocks, predict_by_networks, predict_by_sampling, together
from bayeslim.predictive.passes import TOO_LARGE_AT_ALL, is_too_large
from bayeslim.predictive.prediction import Prediction, joined
from bayeslim.predictive.snapshots import Replay, Snapshots, network_of
from bayeslim.predictive.streaming import StreamingMoments
from bayeslim.runtime.freed_memory import keep_freed_memory
from bayeslim.runtime.modes import evaluation_mode
from bayeslim.runtime.seeds import seeded
from bayeslim.runtime.swapping import swapped
from bayeslim.using import using

__all__ = ["predict", "predict_batch"]

KEEP_LIMIT = 2**24
"""Samples are kept by default up to this many numbers (64 MiB in float32)."""

OUTPUTS_AT_ONCE = 2**20
"""Samples times outputs that are drawn from propagated moments at once."""

Method = Literal["sample", "moments", "taylor", "mean"]


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
            leaves torch's global random state untouched. Where layers draw outputs, also for passes of the same size:
            after a refusal it is that of a device which takes smaller ones.

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
    if method not in get_args(Method):
        raise ValueError(f"`method` must be one of {', '.join(map(repr, get_args(Method)))}, got {method!r}")
    if estimator in (moments, taylor_moments) or (estimator is not None and method != "sample"):
        raise ValueError(
            "`estimator` says how to draw samples: leave it out with method='moments' or 'mean', and ask for "
            "moments by method='moments'"
        )
    if input_variance is not None and method == "mean":
        raise ValueError("`input_variance` has no effect on method='mean': use 'moments' or 'sample'")
    if isinstance(model, Snapshots) and method != "sample":
        raise ValueError(f"`method` must be 'sample' for snapshots, got {method!r}: they are samples already")
    network = network_of(model)
    if method != "mean" and is_sharded(network):
        raise ValueError(
            f"a sharded network cannot be predicted with method={method!r}: do it in `with unsharded(model):`, on all "
            "processes, or use method='mean'"
        )
    if method == "mean" and always_random(network):
        raise ValueError("the network holds MCDropout, which has no mean pass: predict by sampling (samples > 0)")
    parts: list[Prediction] = []
    room = math.inf if keep_samples else KEEP_LIMIT if keep_samples is None else 0
    alone = evaluation_mode(network)  # while nobody else predicts, who might switch the same things
    with alone, without_leftovers(network), seeded(seed), _estimating(network, method, estimator):
        source = model.replay() if isinstance(model, Snapshots) else model
        chosen = likelihood_of(network, likelihood).to(device_of(network))
        for batch in input_batches(network, x, batch_size):
            noisy = batch if input_variance is None else with_noise(batch, input_variance, method)
            try:
                parts.append(predict_batch(source, noisy, chosen, samples, method, room))
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


def predict_batch(
    model: nn.Module | Replay, x: Tensor | Gaussian, likelihood: Likelihood, samples: int, method: Method, room: float
) -> Prediction:
    """Predict one batch with the estimators as they are set, keeping samples while there is room."""
    if isinstance(model, Replay):
        size = together(model.count, model.shapes, certain(x))
        own = partial(model.likelihood, likelihood) if any(True for _ in likelihood.parameters()) else None
        return predict_by_networks(model.outputs, model.groups(size), size, x, likelihood, room, own)
    stream = StreamingMoments(likelihood, room)
    if method in ("moments", "taylor"):
        output = in_blocks(model, x)
        if not isinstance(output, Gaussian):
            raise ValueError(
                f"method={method!r} needs something uncertain: a Bayesian layer, or `input_variance`; "
                "for a plain pass use method='mean'"
            )
        per_example(output.loc)
        exact = likelihood.exact_moments(output)
        if exact is not None:
            return _from_moments(likelihood, *exact)
        for chunk in _chunks(samples, OUTPUTS_AT_ONCE // output.numel()):
            stream.add(output.loc + output.scale * normals((chunk, *output.shape), output.loc))
    elif method == "mean" or not (isinstance(x, Gaussian) or has_posterior(model)):
        stream.add(per_example(in_blocks(model, certain(x)))[None])
    else:
        return predict_by_sampling(model, x, likelihood, samples, room)
    return stream.prediction()


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


def has_posterior(model: nn.Module) -> bool:
    """Whether any layer of the network is Bayesian, or random in evaluation mode as `MCDropout` is."""
    return any(isinstance(module, BayesLayer) for module in model.modules()) or always_random(model)


def always_random(model: nn.Module) -> bool:
    """Whether a module draws noise that no estimator switches off."""
    return any(getattr(module, "always_random", False) for module in model.modules())


def certain(x: Tensor | Gaussian) -> Tensor:
    """The input itself, which must be without noise here."""
    if isinstance(x, Gaussian):
        raise ValueError("`input_variance` does not go with snapshots: predict from a network instead")
    return x


def _chunks(samples: int, most: int) -> Iterator[int]:
    """How many samples each pass draws; fixed by sizes alone, so that a seed means the same draws."""
    size = max(1, min(samples, most))
    for start in range(0, samples, size):
        yield min(size, samples - start)


def _from_moments(likelihood: Likelihood, mean: Tensor, epistemic: Tensor, aleatoric: Tensor) -> Prediction:
    entropy = likelihood.predictive_entropy(mean, epistemic + aleatoric)
    certain = likelihood.predictive_entropy(mean, aleatoric)
    return Prediction(mean, epistemic, aleatoric, entropy, entropy - certain, likelihood)


FOR_TRAINING = (local_reparam, clipped_reparam, flipout, moments, taylor_moments)
"""Estimators in whose place samples are drawn by `independent_draws`, from the posterior as it is."""


@contextmanager
def _estimating(model: nn.Module, method: Method, estimator: Callable[..., Any] | None) -> Iterator[None]:
    """Set the estimators that `method` calls for."""
    fixed = {"mean": mean_only, "moments": moments, "taylor": taylor_moments}.get(method, estimator)
    with using(model, fixed) if fixed is not None else nullcontext():
        noisy = [m for m in model.modules() if isinstance(m, BayesLayer)] if fixed is None else []
        with swapped((m, "estimator", independent_draws) for m in noisy if m.estimator in FOR_TRAINING):
            yield
