"""What is computed with weights that are distributions: the few calls that everything else makes.

Each is defined in `reference` in plain operations. A fast path says for which posteriors and surroundings it is; the
first that does not refuse computes the call. `explain` shows which path each layer takes and why not a faster one,
`reference()` switches all of them off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from bayeslim.kernels import eager_cpu
from bayeslim.kernels import reference as plain
from bayeslim.kernels.closed_form import differentiated
from bayeslim.kernels.context import Context, NormalPrior, collecting, now, reference
from bayeslim.kernels.cuda import paths
from bayeslim.kernels.explanation import NOTES, explain
from bayeslim.kernels.facts import NOTHING, Facts, stands_for
from bayeslim.kernels.noise import normal_like, normals
from bayeslim.kernels.normal_kl import normal_kl_sum
from bayeslim.kernels.onednn import LARGE, product_by_onednn
from bayeslim.kernels.reference import outer_products

__all__ = [
    "NOTHING",
    "Facts",
    "NormalPrior",
    "Path",
    "collecting",
    "differentiated",
    "draw_by_output",
    "draw_by_weight",
    "draw_weight",
    "explain",
    "linear",
    "normal_kl_sum",
    "normal_like",
    "normals",
    "outer_products",
    "output_moments",
    "propagate",
    "reference",
    "stands_for",
    "weight_variance",
]


class Path(NamedTuple):
    """A fast way to compute a kernel."""

    name: str
    supports: Callable[[str, object, Facts, Any, tuple[Tensor, ...], Context], str | None]
    """Of (kernel, posterior, facts, op, inputs, context): None if this is a way, else the reason why not."""
    run: Callable[[str, object, Facts, tuple[Tensor, ...], Tensor | None, Context], tuple[Tensor, ...]]
    """Of (kernel, posterior, facts, inputs, bias, context)."""
    gain: str
    """What it was worth when it was measured last."""


PLAIN = (Tensor, torch.nn.Parameter)
"""Types of a weight that is no more than it seems."""
STEP = "of a training step on two cores: LeNet-300-100 15 to 18 %, LeNet-5 6 to 8 %, a small encoder 7 to 15 %"
ON_H200 = "a step of 3 x 4096 units, eager, 1.35 of the plain one before and 1.22 with it"
EAGER_CPU = Path("eager_cpu", eager_cpu.supports, eager_cpu.run, STEP)
TRITON_WEIGHT = Path("triton draw", paths.supports_weight, paths.run_weight, ON_H200)
TRITON_PRODUCT = Path("triton draw and product", paths.supports_product, paths.run_product, ON_H200)
PATHS: dict[str, tuple[Path, ...]] = {
    "draw_weight": (EAGER_CPU, TRITON_WEIGHT),
    "weight_variance": (EAGER_CPU,),
    "draw_by_weight": (EAGER_CPU, TRITON_PRODUCT),
    "draw_by_output": (EAGER_CPU,),
    "output_moments": (EAGER_CPU,),
    "propagate": (EAGER_CPU,),
}
"""The ways to compute each kernel, the first that does not refuse wins."""


def draw_weight(q: Any) -> Tensor:
    """One draw of the weight of a posterior that states facts; its first use leaves the KL, where it is collected."""
    way = _chosen("draw_weight", q, None, ())
    if way is None:
        return plain.draw_weight(q)
    return way.path.run("draw_weight", q, way.facts, (), None, way.context)[0]


def weight_variance(q: Any) -> Tensor:
    """The variance of every weight of a posterior that states facts."""
    way = _chosen("weight_variance", q, None, ())
    if way is None:
        return plain.weight_variance(q)
    return way.path.run("weight_variance", q, way.facts, (), None, way.context)[0]


def draw_by_weight(q: Any, op: Any, x: Tensor, bias: Tensor | None) -> Tensor:
    """`op(x, W, bias)` for one draw of the weight."""
    way = _chosen("draw_by_weight", q, op, (x,))
    if way is None:
        return plain.draw_by_weight(q, op, x, bias)
    return way.path.run("draw_by_weight", q, way.facts, (x,), bias, way.context)[0]


def draw_by_output(q: Any, op: Any, x: Tensor, bias: Tensor | None) -> Tensor:
    """A draw of every output of `op(x, W, bias)` on its own, from its mean and variance."""
    way = _chosen("draw_by_output", q, op, (x,))
    if way is None:
        return plain.draw_by_output(q, op, x, bias)
    return way.path.run("draw_by_output", q, way.facts, (x,), bias, way.context)[0]


def output_moments(q: Any, op: Any, x: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Mean and variance of `op(x, W, bias)`."""
    way = _chosen("output_moments", q, op, (x,))
    if way is None:
        return plain.output_moments(q, op, x, bias)
    mean_out, variance_out = way.path.run("output_moments", q, way.facts, (x,), bias, way.context)
    return mean_out, variance_out


def propagate(q: Any, op: Any, mean: Tensor, variance: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Mean and variance of `op(x, W, bias)` for an input of independent Gaussians."""
    way = _chosen("propagate", q, op, (mean, variance))
    if way is None:
        return plain.propagate(q, op, mean, variance, bias)
    mean_out, variance_out = way.path.run("propagate", q, way.facts, (mean, variance), bias, way.context)
    return mean_out, variance_out


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`F.linear`, a large one without gradients by the library that is the faster one on this processor."""
    if torch.is_grad_enabled() or x.device.type != "cpu" or type(x) is not Tensor or x.layout != torch.strided:
        return F.linear(x, weight, bias)
    context = now(x)
    if context.recorded or context.transformed or context.autocast is not None or type(weight) not in PLAIN:
        return F.linear(x, weight, bias)
    if x.ndim < 2 or x.numel() * weight.shape[0] < LARGE:
        return F.linear(x, weight, bias)
    output = product_by_onednn(x.flatten(0, -2), weight, bias)
    return output.unflatten(0, x.shape[:-1])


class Way(NamedTuple):
    """The path of one call, and what it wants to know."""

    path: Path
    facts: Facts
    context: Context


def _chosen(kernel: str, q: Any, op: Any, inputs: tuple[Tensor, ...]) -> Way | None:
    """The first path that does not refuse; None where the reference is the way."""
    facts, refusals = q.facts(), {}
    if facts.unknown:
        refusals["all"] = facts.unknown
    else:
        context = now(inputs[0] if inputs else facts.loc)
        for path in () if context.only_reference else PATHS[kernel]:
            reason = path.supports(kernel, q, facts, op, inputs, context)
            if reason is None:
                if NOTES:
                    NOTES[-1].append((q, kernel, path.name, refusals))
                return Way(path, facts, context)
            refusals[path.name] = reason
    if NOTES:
        NOTES[-1].append((q, kernel, "reference", refusals))
    return None
