"""How much of a posterior's standard deviations a low rank explains."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bayeslim.checks.counts import check_counts
from bayeslim.checks.networks import check_network
from bayeslim.checks.numbers import check_number
from bayeslim.layers.base import BayesLayer
from bayeslim.posteriors.k_tied import KTied
from bayeslim.posteriors.mean_field import MeanField
from bayeslim.pruning.prune import bayes_layers

__all__ = ["Spectrum", "explained_variance", "named_spectra", "tie_scales_", "truncate_scales_"]


@dataclass(frozen=True)
class Spectrum:
    """The part of the squared entries that each singular value explains, largest first."""

    mean: Tensor
    """Of the matrix of posterior means."""
    scale: Tensor
    """Of the matrix of posterior standard deviations."""


def explained_variance(matrix: Tensor) -> Tensor:
    r"""`g_r^2 / sum g^2` for the singular values `g` of the raw, uncentred matrix.

    A constant matrix with 10 % independent noise already has 99 % in the first value, so the fractions of a
    fresh posterior say nothing; after training compare the ELBO of truncated scales (`truncate_scales_`).

    Args:
        matrix: (rows, columns).

    Returns:
        Fractions that sum to 1, largest first: (min(rows, columns),).

    Example:
        >>> explained_variance(torch.ones(4, 3))[0].item()
        1.0
    """
    squares = torch.linalg.svdvals(matrix.double()).square()
    return squares / squares.sum()


@torch.no_grad()
def named_spectra(model: nn.Module) -> dict[str, Spectrum]:
    """The spectra of every Bayesian layer's means and standard deviations, kernels as (out, fan_in).

    Figures 3 and 5 of the k-tied paper (arXiv 2002.02655): means have full rank, deviations about rank 2.

    Example:
        >>> named_spectra(bl.mlp([8, 4, 2]))["0"].scale.shape
        torch.Size([4])
    """
    return {
        name: Spectrum(
            explained_variance(layer.weight.mean().flatten(1)),
            explained_variance(layer.weight.variance().sqrt().flatten(1)),
        )
        for name, layer in bayes_layers(model, "analyse").items()
    }


@torch.no_grad()
def truncate_scales_(model: nn.Module, rank: int, floor: float = 1e-6) -> None:
    """Replace the standard deviations of every mean-field layer by their best rank-`rank` approximation.

    The paper's post-training test (section 3): singular value decomposition, cut, negative entries clipped.

    Args:
        model: network with `MeanField` posteriors; changed in place.
        rank: singular values to keep.
        floor: smallest standard deviation afterwards. The paper clips to exactly 0, which makes the KL to a
            Gaussian prior infinite; pass 0.0 for that.

    Example:
        >>> truncate_scales_(model, rank=2)
    """
    (rank,) = check_counts(rank=rank)
    check_number("floor", floor, "[0, inf)", "pass e.g. 1e-6")
    for posterior in _mean_fields(model):
        scale = posterior.variance().sqrt().flatten(1)
        left, values, right = torch.linalg.svd(scale.double(), full_matrices=False)
        cut = (left[:, :rank] * values[:rank]) @ right[:rank]
        # A cut may overshoot the bound of a bounded posterior, which it can only approach.
        bound = (1 - 1e-6) * math.exp(posterior.log_max_scale)
        posterior.set_scale_(cut.clamp_min(floor).clamp_max(bound).to(scale.dtype).view_as(posterior.loc))


@torch.no_grad()
def tie_scales_(model: nn.Module, k: int, iterations: int = 200) -> None:
    r"""Turn every mean-field posterior into a `KTied(k)` one with nearly the same standard deviations.

    The factors must be positive, so the factorisation is a non-negative one: Lee and Seung's multiplicative
    updates for `min ||S - V U^T||^2`, started from the leading singular vectors. Exact if the scales have
    non-negative rank `k`. Layers too small for `k` take the largest rank they allow.

    Args:
        model: network with `MeanField` posteriors; changed in place (build a new optimiser afterwards).
        k: rank of the new posteriors.
        iterations: updates of the factorisation.

    Example:
        >>> tie_scales_(model, k=2)
    """
    replacements = {id(posterior): _tied(posterior, k, iterations) for posterior in _mean_fields(model)}
    for layer in model.modules():
        if isinstance(layer, BayesLayer):
            layer.weight = replacements.get(id(layer.weight), layer.weight)


def _tied(posterior: MeanField, k: int, iterations: int) -> KTied:
    scale = posterior.variance().sqrt().flatten(1)
    rank = min(k, *scale.shape)
    out_factor, in_factor = positive_factors(scale.double(), rank, iterations)
    tied = KTied(posterior.loc, rank)
    tied.log_out.copy_(out_factor.log())
    tied.log_in.copy_(in_factor.log())
    tied.loc.requires_grad_(posterior.loc.requires_grad)
    for parameter in (tied.log_out, tied.log_in):
        parameter.requires_grad_(posterior.log_scale.requires_grad)
    return tied.train(posterior.training)


def positive_factors(matrix: Tensor, rank: int, iterations: int) -> tuple[Tensor, Tensor]:
    """Positive `V` (rows, rank) and `U` (columns, rank) with `V U^T` close to a positive `matrix`."""
    check_counts(k=rank)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    tiny = 1e-6 * matrix.mean().sqrt()
    root = values[:rank].sqrt()
    rows = (left[:, :rank].abs() * root).clamp_min(tiny)
    columns = (right[:rank].T.abs() * root).clamp_min(tiny)
    for _ in range(iterations):
        # A row or column of zeros gives a factor of zero, which stays so.
        rows = rows * (matrix @ columns) / (rows @ (columns.T @ columns)).clamp_min(1e-300)
        columns = columns * (matrix.T @ rows) / (columns @ (rows.T @ rows)).clamp_min(1e-300)
    # A factor may vanish somewhere; its log must not.
    return rows.clamp_min(1e-30), columns.clamp_min(1e-30)


def _mean_fields(model: nn.Module) -> list[MeanField]:
    """The mean-field posteriors over weights, a shared one once."""
    check_network(model, "change")
    found = {
        id(layer.weight): layer.weight
        for layer in model.modules()
        if isinstance(layer, BayesLayer) and isinstance(layer.weight, MeanField)
    }
    if not found:
        raise ValueError("`model` has no layer with a MeanField posterior: there are no scales to approximate")
    return list(found.values())
