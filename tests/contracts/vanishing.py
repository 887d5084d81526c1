"""A converted network whose scales vanish is the original one, and collapsing gives that back."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from bayeslim import bayesianize_, collapse_, kl, local_reparam, mean_only, using, weight_sample
from bayeslim.layers import BayesLayer
from bayeslim.posteriors import MeanField

PRECISION = {torch.float32: (1e-9, 1e-6), torch.float64: (1e-15, 1e-12)}
"""Scale of the posteriors, and tolerance of the outputs, absolute and relative."""


def tensors(output: Any) -> list[Tensor]:
    """The tensors in an output, in order."""
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, PackedSequence):
        return [part for part in output if part is not None]
    return [] if output is None else [tensor for part in output for tensor in tensors(part)]


def cast(value: Any, dtype: torch.dtype) -> Any:
    """`value` with its floating tensors as `dtype`."""
    if isinstance(value, PackedSequence):
        return value.to(dtype)
    if isinstance(value, Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    return tuple(cast(part, dtype) for part in value) if isinstance(value, tuple) else value


def assert_same(found: Any, expected: Any, tolerance: float) -> None:
    """The same tensors, up to `tolerance`."""
    ours, theirs = tensors(found), tensors(expected)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)


def check_vanishing(
    plain: nn.Module,
    *inputs: Any,
    estimator: Callable[..., Any] = weight_sample,
    bias_posterior: bool = False,
    same_values: bool = True,
    convert: dict[str, Any] | None = None,
    **options: Any,
) -> None:
    """Compare `plain` in eval mode with its converted and its collapsed self, in both precisions.

    Args:
        plain: the network; not changed.
        *inputs: what to call it with.
        estimator: how the Bayesian layers draw.
        bias_posterior: whether biases are Bayesian too.
        same_values: whether collapsing gives every entry of the state_dict back, not only its keys.
        convert: further options of `bayesianize_`.
        **options: keyword arguments of the call.
    """
    for dtype, (scale, tolerance) in PRECISION.items():
        # Local reparameterisation keeps its standard deviations above 1e-8, in float64 too.
        tolerance = 1e-6 if estimator is local_reparam else tolerance
        torch.manual_seed(1000)
        net = copy.deepcopy(plain).to(dtype).eval()
        with torch.no_grad():
            for parameter in net.parameters():  # values that float32 does not have
                parameter.mul_(1 + 1e-9 * torch.randn_like(parameter))
        args, kwargs = cast(inputs, dtype), {name: cast(value, dtype) for name, value in options.items()}
        expected = net(*args, **kwargs)
        state = {name: value.clone() for name, value in net.state_dict().items()}
        kinds = [(name, type(module)) for name, module in net.named_modules()]
        posterior = functools.partial(MeanField, scale=scale)
        model = bayesianize_(
            net,
            posterior=posterior,
            estimator=estimator,
            bias_posterior=posterior if bias_posterior else None,
            **convert or {},
        )
        assert any(isinstance(module, BayesLayer) for module in model.modules())
        assert kl(model).item() > 0
        assert_same(model(*args, **kwargs), expected, tolerance)
        with using(model, mean_only):
            assert_same(model(*args, **kwargs), expected, tolerance)
        back = collapse_(model)
        assert [(name, type(module)) for name, module in back.named_modules()] == kinds
        assert list(back.state_dict()) == list(state)
        if same_values:
            assert all(torch.equal(value, state[name]) for name, value in back.state_dict().items())
        assert_same(back(*args, **kwargs), expected, 0.0 if same_values else tolerance)
