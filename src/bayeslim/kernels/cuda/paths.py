"""Training on CUDA: a draw and its KL by one Triton kernel, noise drawn again in the backward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bayeslim.kernels.context import Collection, Context, NormalPrior
from bayeslim.kernels.facts import Facts

__all__ = ["run_product", "run_weight", "supports_product", "supports_weight"]

MOST_FACTORS = 4
"""Rank up to which the kernel holds its sums in registers."""


def supports_weight(
    kernel: str, q: object, facts: Facts, op: Any, inputs: tuple[Tensor, ...], context: Context
) -> str | None:
    """None if weights are drawn here, else the reason why not."""
    if context.device != "cuda" or facts.loc.dtype != torch.float32 or not facts.loc.is_contiguous():
        return "it is for contiguous float32 weights on CUDA"
    if context.transformed or context.recomputed or not torch.is_grad_enabled():
        return "not inside torch's transforms, activation checkpointing or without gradients"
    if facts.mask is not None:
        return "it is for weights that are not pruned"
    if facts.factors is not None and facts.factors[0].shape[1] > MOST_FACTORS:
        return f"it is for ranks up to {MOST_FACTORS}"
    if context.collection is None or context.collection.prior_of(q) is None:
        return "nobody wants the KL from a normal prior now"
    return None


def run_weight(
    kernel: str, q: object, facts: Facts, inputs: tuple[Tensor, ...], bias: Tensor | None, context: Context
) -> tuple[Tensor, ...]:
    """Draw `loc + std * noise`, in autocast's type, and leave the KL."""
    from bayeslim.kernels.cuda.functions import Drawn, TiedDrawn

    collection, prior = _given(q, context)
    rest = collection.seed(facts.loc.device), prior, context.autocast or facts.loc.dtype
    if facts.factors is not None:
        u, v = (factor.exp() for factor in facts.factors)
        weight, collection.found[q] = TiedDrawn.apply(facts.loc, u, v, *rest)
    else:
        weight, collection.found[q] = Drawn.apply(facts.loc, _log_std(facts), *rest)
    return (weight,)


def supports_product(
    kernel: str, q: object, facts: Facts, op: Any, inputs: tuple[Tensor, ...], context: Context
) -> str | None:
    """None if outputs of a layer are drawn here, else the reason why not."""
    x, dtype = inputs[0], context.autocast
    if dtype is None or dtype.itemsize != 2 or context.compiling or facts.factors is not None:
        return "it is for eager code under autocast to 16 bits, where products sum in float32, and free scales"
    if not op.is_product or x.ndim < 2 or x.dtype not in (dtype, torch.float32):
        return "it is for rows that enter a linear layer"
    return supports_weight(kernel, q, facts, op, inputs, context)


def run_product(
    kernel: str, q: object, facts: Facts, inputs: tuple[Tensor, ...], bias: Tensor | None, context: Context
) -> tuple[Tensor, ...]:
    """Draw a weight, multiply by it and leave the KL, in one function that takes less memory in the backward pass."""
    from bayeslim.kernels.cuda.functions import DrawnProduct

    collection, prior = _given(q, context)
    x = inputs[0].to(context.autocast)
    rows = x.flatten(0, -2)
    rest = rows, collection.ones(rows), bias, collection.seed(x.device), prior
    output, collection.found[q] = DrawnProduct.apply(facts.loc, _log_std(facts), *rest)
    return (output.unflatten(0, x.shape[:-1]),)


def _given(q: object, context: Context) -> tuple[Collection, NormalPrior]:
    collection = context.collection
    prior = collection.prior_of(q) if collection is not None else None
    if collection is None or prior is None:
        raise RuntimeError("a kernel for CUDA was called although it had refused")
    return collection, prior


def _log_std(facts: Facts) -> Tensor:
    logs = facts.log_std() if facts.log_std is not None else torch.log(facts.std())  # pyright: ignore
    return logs.contiguous()  # a posterior may expand fewer scales
