"""Judge a network on labelled data."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from bayeslim.checks.counts import check_counts, check_zero_or_more
from bayeslim.likelihoods.base import Likelihood, likelihood_of
from bayeslim.predictive.inputs import as_tensor, pair_of
from bayeslim.predictive.sample import Method, predict
from bayeslim.predictive.snapshots import Snapshots, network_of
from bayeslim.runtime.modes import evaluation_mode
from bayeslim.runtime.seeds import check_seed

__all__ = ["Evaluation", "evaluate", "evaluate_in_full"]


class Evaluation(NamedTuple):
    """Scores, and the log density of every example."""

    scores: dict[str, float]
    log_densities: Tensor


def evaluate(
    model: nn.Module | Snapshots,
    data: Any,
    *,
    samples: int = 100,
    likelihood: Likelihood | None = None,
    method: Method | None = None,
    batch_size: int = 1024,
    seed: int | None = 0,
) -> dict[str, float]:
    """Score a network: log-likelihood of the predictive, and the likelihood's own metrics.

    Args:
        model: the network, or snapshots of one.
        data: (x, y), a Dataset or a DataLoader.
        samples: posterior samples; 0 uses the posterior mean in one pass.
        likelihood: None takes the one `fit` trained with.
        method: see `predict`; None takes "sample", or "mean" without samples.
        batch_size: examples per pass, where `data` is not a loader.
        seed: see `predict`.

    Returns:
        For classes nll, accuracy, ece, brier; for yes/no targets nll, accuracy; for regression nll, rmse,
        coverage95. `nll` is `-ln (1/S) sum_s p(y | x, W_s)`, averaged over examples.

    Example:
        >>> evaluate(model, (x_test, y_test))["ece"]
    """
    return evaluate_in_full(model, data, samples, likelihood, batch_size, seed, method).scores


@torch.no_grad()
def evaluate_in_full(
    model: nn.Module | Snapshots,
    data: Any,
    samples: int = 100,
    likelihood: Likelihood | None = None,
    batch_size: int = 1024,
    seed: int | None = 0,
    method: Method | None = None,
) -> Evaluation:
    """As `evaluate`, with `ln p(y | x)` of every example besides the scores."""
    samples = check_zero_or_more("samples", samples, "0 uses the posterior mean")
    (batch_size,) = check_counts(batch_size=batch_size)
    seed = None if seed is None else check_seed(seed)
    chosen = likelihood_of(network_of(model), likelihood)
    means: list[Tensor] = []
    variances: list[Tensor] = []
    targets: list[Tensor] = []
    log_densities: list[Tensor] = []
    with evaluation_mode(network_of(model)):  # nobody else predicts meanwhile, so that the loader's draws are ours
        for index, (x, y) in enumerate(map(pair_of, _batches(data, batch_size))):
            prediction = predict(
                model,
                x,
                samples=max(1, samples),
                likelihood=chosen,
                method=method or ("sample" if samples > 0 else "mean"),
                batch_size=len(x),
                keep_samples=True,
                seed=None if seed is None else seed + index,
            )
            y = _fitting(chosen, as_tensor("y", y), prediction.mean)
            if prediction.samples is None or prediction.sample_variances is None:
                # Propagated moments in closed form: one Gaussian instead of a mixture.
                log_densities.append(chosen.log_density(prediction.mean[None], prediction.total[None], y))
            else:
                log_densities.append(chosen.log_density(prediction.samples, prediction.sample_variances, y))
            means.append(prediction.mean)
            variances.append(prediction.total)
            targets.append(y)
    if not means:
        raise ValueError("`data` gave no batches: the loader is empty")
    densities = torch.cat(log_densities).double()
    scores = {"nll": -densities.mean().item()}
    scores |= chosen.metrics(torch.cat(means), torch.cat(variances), torch.cat(targets))
    return Evaluation(scores, densities)


def _fitting(likelihood: Likelihood, y: Tensor, mean: Tensor) -> Tensor:
    """Valid targets that fit the predictive mean, on its device."""
    y = likelihood.check_targets(y)
    labels = likelihood.bounded and not y.is_floating_point()
    if labels and int(y.max()) >= mean.shape[-1]:
        raise ValueError(
            f"`y` holds the label {int(y.max())}, but the model has {mean.shape[-1]} outputs: "
            f"labels must lie in [0, {mean.shape[-1] - 1}]"
        )
    if mean.ndim == 1 and y.shape[1:] == (1,):
        y = y[:, 0]
    if not labels and y.shape != mean.shape:
        raise ValueError(f"`y` has shape {tuple(y.shape)}, the predictions {tuple(mean.shape)}: they must agree")
    return y.to(mean.device)


def _batches(data: Any, batch_size: int) -> Any:
    """Batches of (x, y), in order."""
    if isinstance(data, DataLoader):
        return data
    if isinstance(data, Dataset):
        return DataLoader(data, batch_size)
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise TypeError(f"`data` must be (x, y), a Dataset or a DataLoader, got {type(data).__name__}")
    x, y = (as_tensor(name, part) for name, part in zip("xy", pair_of(data), strict=True))
    if len(x) != len(y):
        raise ValueError(f"`data` has {len(x)} inputs and {len(y)} targets: they must agree")
    return zip(x.split(batch_size), y.split(batch_size), strict=True)
