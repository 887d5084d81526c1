"""What a network costs: parameters, bytes, multiply-adds and time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from rich.table import Table
from safetensors.torch import save as serialise
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.utils.rnn import PackedSequence

from bayeslim.checks.networks import check_network
from bayeslim.estimators import mean_only
from bayeslim.layers.base import BayesLayer
from bayeslim.layers.recurrent import GRU, LSTM
from bayeslim.ops import ConvTransposeOp
from bayeslim.posteriors.base import Posterior
from bayeslim.predictive.inputs import as_tensor, device_of, float_type_of
from bayeslim.pruning.sparse import SparseLinear
from bayeslim.runtime.modes import evaluation_mode
from bayeslim.using import using

__all__ = ["Footprint", "compare", "footprint", "table"]

LARGE_BATCH = 1000
TIME_BUDGET = 2.0
"""Seconds per network and time, after which no further run is started."""
LEAST_REPEATS = 3
PLAIN_RECURRENT = nn.RNNBase, nn.RNNCellBase
RECURRENT = *PLAIN_RECURRENT, LSTM, GRU


@dataclass(frozen=True)
class Footprint:
    """What a network costs; times are those of its mean network, None where they were not measured."""

    parameters: int
    """All parameters: means, scales, biases and those of plain layers."""
    weights: int
    """Weights of linear, recurrent and attention layers, convolutions and embeddings, without biases; shared ones count
    once."""
    nonzero: int
    """Those of them whose mean is not zero."""
    mean_bytes: int
    """Bytes of the mean network as a safetensors file in float32."""
    bayesian_bytes: int
    """Bytes of the whole state as a safetensors file, scales and masks included, in the types it has."""
    multiply_adds: int | None = None
    """Per example, by the weights of linear, recurrent and attention layers and convolutions that are called; attention
    scores and gates are not counted."""
    seconds: float | None = None
    """Median time of one example."""
    seconds_large: float | None = None
    """Median time of a batch of 1000."""

    def __rich__(self) -> Table:
        """One row per quantity."""
        result = Table("", "network")
        for label, value in _rows(self):
            result.add_row(label, _shown(label, value))
        return result


@torch.no_grad()
def footprint(model: nn.Module, example: Tensor | np.ndarray | None = None, repeats: int = 20) -> Footprint:
    """Measure what a network costs.

    Args:
        model: any network, Bayesian or not; its modes and estimators are left as they are.
        example: an input batch, tensor or array in any float type, of which the first example is used; None leaves
            multiply-adds and times out.
        repeats: at most so many runs per time, after a warm-up; the median counts. When two seconds are over, three
            runs are enough. 0 leaves times out.

    Example:
        >>> footprint(model, x).nonzero
        266200
    """
    return _measured({"model": model}, example, repeats)[0]


def compare(before: nn.Module, after: nn.Module, example: Tensor | np.ndarray, repeats: int = 20) -> Table:
    """Measure two networks side by side: their runs alternate, so that both see the same machine.

    Args:
        before: for instance the pruned network.
        after: for instance `compact(before, example)`.
        example: an input batch for both.
        repeats: at most so many runs per time, as for `footprint`.

    Returns:
        A table for `rich.print`, with how many times less `after` needs.

    Example:
        >>> rich.print(compare(model, compact(model, x[:1]), x))
    """
    return table(*_measured({"before": before, "after": after}, example, repeats))


def table(before: Footprint, after: Footprint) -> Table:
    """Two footprints side by side, and how many times less the second is."""
    result = Table("", "before", "after", "times less")
    for (label, old), (_, new) in zip(_rows(before), _rows(after), strict=True):
        ratio = f"{old / new:.1f}" if old is not None and new else "-"
        result.add_row(label, _shown(label, old), _shown(label, new), ratio)
    return result


@torch.no_grad()
def _measured(named: Mapping[str, nn.Module], example: Tensor | np.ndarray | None, repeats: int) -> list[Footprint]:
    for name, model in named.items():
        check_network(model, "measure", name)
    models = list(named.values())
    if repeats < 0:
        raise ValueError(f"`repeats` must not be negative, got {repeats}: pass e.g. 20")
    if example is not None and (example.ndim < 1 or not len(example)):
        raise ValueError(f"`example` must be a batch of at least one input, got shape {tuple(example.shape)}")
    costs: list[dict[str, Any]] = []
    for model in models:
        weights = _weights(model)
        state = {name: tensor.contiguous().clone() for name, tensor in model.state_dict().items()}
        costs.append(
            {
                "parameters": sum(parameter.numel() for parameter in model.parameters()),
                "weights": sum(weight.numel() for weight in weights),
                "nonzero": sum(int(weight.count_nonzero()) for weight in weights),
                "mean_bytes": len(serialise(_mean_tensors(model))),
                "bayesian_bytes": len(serialise(state)),
            }
        )
    if example is not None:
        ones = [as_tensor("example", example[:1], float_type_of(model)).to(device_of(model)) for model in models]
        for cost, model, one in zip(costs, models, ones, strict=True):
            cost["multiply_adds"] = _multiply_adds(model, one)
        if repeats:
            many = [one.expand(LARGE_BATCH, *one.shape[1:]).contiguous() for one in ones]
            for name, inputs in (("seconds", ones), ("seconds_large", many)):
                for cost, value in zip(costs, _seconds(models, inputs, repeats), strict=True):
                    cost[name] = value
    return [Footprint(**cost) for cost in costs]


def _weights(model: nn.Module) -> list[Tensor]:
    """The mean weights that `Footprint.weights` counts."""
    found: dict[int, Tensor] = {}
    for module in model.modules():
        if isinstance(module, BayesLayer):
            found[id(module.weight)] = module.weight.mean()
        elif isinstance(module, SparseLinear):
            found[id(module)] = module.dense_weight()
        elif not isinstance(module, nn.LayerNorm | nn.RMSNorm):
            own = module.named_parameters(recurse=False)
            found |= {id(tensor): tensor for name, tensor in own if _is_weight(module, name) and tensor.ndim > 1}
    return list(found.values())


def _is_weight(module: nn.Module, name: str) -> bool:
    """Whether a parameter of a plain module with this name is a weight: `weight_ih_l0` in recurrent ones."""
    return name.startswith("weight_") if isinstance(module, PLAIN_RECURRENT) else name.endswith("weight")


def _mean_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of the mean network in float32, by their names in its state."""
    found: dict[str, Tensor] = {}
    inside: set[nn.Module] = set()
    for name, module in model.named_modules():
        prefix = f"{name}." if name else ""
        if isinstance(module, BayesLayer):
            weight, bias = module.mean_tensors()
            found[f"{prefix}weight"] = weight
            if bias is not None:
                found[f"{prefix}bias"] = bias
            inside.update(part for part in module.modules() if part is not module)
        elif module not in inside and not isinstance(module, Posterior):
            own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
            found |= {f"{prefix}{key}": tensor.detach().clone() for key, tensor in own}
    return {
        name: (tensor.float() if tensor.is_floating_point() else tensor).contiguous() for name, tensor in found.items()
    }


@contextmanager
def _mean_network(model: nn.Module) -> Iterator[None]:
    """Evaluation mode and posterior means inside the block."""
    with evaluation_mode(model), using(model, mean_only):
        yield


def _multiply_adds(model: nn.Module, one: Tensor) -> int:
    """Count by hooks: each call of a layer adds what `_products` says."""
    total = 0

    def count(module: Any, args: tuple[Any, ...], given: dict[str, Any], output: Any) -> None:
        nonlocal total
        total += _products(module, args, given, output)

    kinds = (BayesLayer, nn.Linear, _ConvNd, SparseLinear, nn.MultiheadAttention, *RECURRENT)
    found = [module for module in model.modules() if isinstance(module, kinds)]
    hooks = [module.register_forward_hook(count, with_kwargs=True) for module in found]
    try:
        with _mean_network(model):
            model(one)
    finally:
        for hook in hooks:
            hook.remove()
    return total


def _products(module: Any, args: tuple[Any, ...], given: dict[str, Any], output: Any) -> int:
    """Multiply-adds of one call: every position of the output (of the input, if transposed) takes all weights once."""
    if isinstance(module, SparseLinear):
        return output.numel() // module.out_features * len(module.values)
    if isinstance(module, RECURRENT):  # every time step takes all weights once
        x = args[0] if args else given["input"]
        x = x.data if isinstance(x, PackedSequence) else x
        return x.numel() // x.shape[-1] * sum(weight.numel() for weight in _weights(module))
    if isinstance(module, nn.MultiheadAttention):  # calls none of its projections as a layer
        named = dict(zip(("query", "key", "value"), args, strict=False)) | given
        inner = sum(named[name].numel() for name in ("query", "key", "value"))
        return (inner + named["query"].numel()) * module.embed_dim
    bayesian = isinstance(module, BayesLayer)
    if bayesian and not module.op.numeric_input:
        return 0
    weight = module.weight.mean() if bayesian else module.weight
    transposed = isinstance(module.op, ConvTransposeOp) if bayesian else isinstance(module, _ConvTransposeNd)
    if not transposed:
        return output.numel() // weight.shape[0] * weight.numel()
    inputs = weight.shape[1] * module.op.groups if bayesian else weight.shape[0]
    x = args[0] if args else given["input"]
    return x.numel() // inputs * weight.numel()


def _seconds(models: Sequence[nn.Module], inputs: Sequence[Tensor], repeats: int) -> list[float]:
    """Median times, the networks taking turns, until the repeats are done or the time is up."""
    times: list[list[float]] = [[] for _ in models]
    end = time.perf_counter() + TIME_BUDGET * len(models)
    for attempt in range(repeats + 2):
        if attempt >= LEAST_REPEATS + 2 and time.perf_counter() > end:
            break
        for model, x, own in zip(models, inputs, times, strict=True):
            with _mean_network(model):
                _wait(x)
                start = time.perf_counter()
                model(x)
                _wait(x)
                taken = time.perf_counter() - start
            if attempt > 1:  # the first two only warm up
                own.append(taken)
    return [statistics.median(own) for own in times]


def _wait(x: Tensor) -> None:
    """Let the accelerator finish."""
    if x.is_cuda:
        torch.cuda.synchronize(x.device)


def _rows(cost: Footprint) -> list[tuple[str, float | None]]:
    return [
        ("parameters", cost.parameters),
        ("weights", cost.weights),
        ("non-zero weights", cost.nonzero),
        ("mean network, KiB", cost.mean_bytes),
        ("Bayesian network, KiB", cost.bayesian_bytes),
        ("multiply-adds", cost.multiply_adds),
        ("batch 1, ms", cost.seconds),
        (f"batch {LARGE_BATCH}, ms", cost.seconds_large),
    ]


def _shown(label: str, value: float | None) -> str:
    if value is None:
        return "-"
    if label.endswith("KiB"):
        return f"{value / 1024:.1f}"
    return f"{1000 * value:.3f}" if label.endswith("ms") else f"{value:,}"
