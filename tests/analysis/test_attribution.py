"""Saliency, infidelity and sensitivity against their formulas."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.analysis import infidelity, saliency, sensitivity_max
from bayeslim.posteriors import MeanField
from bayeslim.runtime.seeds import seeded
from contracts.cases import each


def network(scale: float = 0.4) -> nn.Sequential:
    torch.manual_seed(0)
    return bl.mlp([5, 12, 3], "tanh", posterior=lambda init: MeanField(init, scale=scale)).double()


def inputs(count: int = 6) -> Tensor:
    return torch.randn(count, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def outputs(model: nn.Module, method: str) -> Callable[[Tensor], Tensor]:
    """The mean outputs, written out: no captum."""

    def function(x: Tensor) -> Tensor:
        with bl.using(model, bl.mean_only if method == "mean" else bl.moments):
            output: Any = model(x)
        return output if isinstance(output, Tensor) else output.loc

    return function


def gradients(function: Callable[[Tensor], Tensor], x: Tensor, classes: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    return torch.autograd.grad(function(x)[torch.arange(len(x)), classes].sum(), x)[0]


@pytest.mark.parametrize("method", ["mean", "moments"])
def test_saliency_is_the_gradient_of_the_predicted_class(method: Any) -> None:
    model, x = network(), inputs()
    function = outputs(model, method)
    classes = function(x).argmax(1)
    torch.testing.assert_close(saliency(model, x, method=method), gradients(function, x, classes))
    chosen = torch.tensor([0, 1, 2, 0, 1, 2])
    torch.testing.assert_close(saliency(model, x, method=method, target=chosen), gradients(function, x, chosen))
    assert bool((saliency(model, x, method=method) < 0).any())  # signed


def test_the_uncertainty_of_weights_changes_what_is_explained() -> None:
    model, x = network(), inputs()
    target = torch.zeros(6, dtype=torch.long)
    mean, moments = (saliency(model, x, method=cast(Any, method), target=target) for method in ("mean", "moments"))
    assert (mean - moments).abs().max() > 0.01


def test_smoothgrad_is_the_average_of_noisy_gradients() -> None:
    model, x = network(), inputs(2)
    function = outputs(model, "mean")
    classes = function(x).argmax(1)
    found = saliency(model, x, smooth=20_000, noise=0.5, seed=1)
    torch.manual_seed(2)
    many = x.repeat(20_000, 1) + 0.5 * torch.randn(40_000, 5, dtype=torch.float64)
    draws = gradients(function, many, classes.repeat(20_000)).view(20_000, 2, 5)
    error = (found - draws.mean(0)) / (draws.std(0) * math.sqrt(2 / 20_000))  # both are averages of as many draws
    assert bool((error.abs() < 5).all())
    assert (found - saliency(model, x)).abs().max() > 0.02
    assert torch.equal(saliency(model, x, smooth=5, seed=3), saliency(model, x, smooth=5, seed=3))
    assert not torch.equal(saliency(model, x, smooth=5, seed=3), saliency(model, x, smooth=5, seed=4))


def test_a_linear_network_is_explained_perfectly() -> None:
    model = bl.bayesianize_(nn.Sequential(nn.Linear(5, 3))).double()
    x = inputs()
    with bl.using(model, bl.mean_only):
        classes = model(x).argmax(1)
    torch.testing.assert_close(saliency(model, x), cast(Any, model)[0].weight.mean()[classes].detach())
    assert infidelity(model, x, radius=1.0).max() < 1e-24
    assert sensitivity_max(model, x, radius=1.0).max() < 1e-14


@pytest.mark.parametrize("method", ["mean", "moments"])
def test_infidelity_by_its_formula(method: Any) -> None:
    model, x = network(), inputs(3)
    function = outputs(model, method)
    classes = function(x).argmax(1)
    phi = gradients(function, x, classes)
    found = infidelity(model, x, method=method, radius=0.5, draws=4000, seed=1)
    change = 0.5 * torch.randn(4000, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        pairs = [function(part.flatten(0, 1)).view(4000, 3, 3) for part in (x.expand_as(change), x - change)]
    before, after = (part[:, torch.arange(3), classes] for part in pairs)
    terms = ((change * phi).sum(-1) - (before - after)).square()
    assert found.shape == (3,)
    error = (found - terms.mean(0)) / (terms.std(0) * math.sqrt(2 / 4000))
    assert bool((error.abs() < 5).all())


@pytest.mark.parametrize("method", ["mean", "moments"])
def test_sensitivity_by_its_formula(method: Any) -> None:
    model, x = network(), inputs(3)
    function = outputs(model, method)
    classes = function(x).argmax(1)
    phi = gradients(function, x, classes)
    found = sensitivity_max(model, x, method=method, draws=7, seed=4)
    with seeded(4):  # the same draws: examples repeated one by one
        near = x.repeat_interleave(7, 0)
        near = near + 0.02 * (2 * torch.rand_like(near) - 1)
    changes = gradients(function, near, classes.repeat_interleave(7)) - phi.repeat_interleave(7, 0)
    expected = changes.norm(dim=1).view(3, 7).amax(1) / phi.norm(dim=1)
    torch.testing.assert_close(found, expected)


def test_images_training_mode_and_parameters() -> None:
    torch.manual_seed(3)
    model = bl.bayesianize_(
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(64, 3))
    ).train()
    x = torch.rand(4, 1, 6, 6)
    before = torch.get_rng_state()
    for function in (saliency, infidelity, sensitivity_max):
        first, again = function(model, x), function(model, x)
        assert torch.equal(first, again)
        assert not first.requires_grad
        assert first.shape == (x.shape if function is saliency else (4,))
        assert bool((function(model, x, smooth=3) != first).any())
    assert torch.equal(before, torch.get_rng_state())
    assert all(module.training for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not x.requires_grad


@each(
    ("x", "options", "error", "message"),
    [
        (inputs().int(), {}, TypeError, r"`x` must be floating point to have a gradient, got torch\.int32: convert it"),
        (inputs().bool(), {}, TypeError, "`x` must be floating point"),
        (inputs().to(torch.complex64), {}, TypeError, "`x` must be real"),
        (np.array([["a"] * 5]), {}, TypeError, "`x` must hold numbers"),
        (torch.randn(6, 4), {}, ValueError, r"does not accept inputs of shape \(N, 4\) and dtype torch\.float64"),
        (torch.randn(0, 5), {}, ValueError, r"`x` must have at least one row, got shape \(0, 5\)"),
        (torch.tensor(1.0), {}, ValueError, "`x` must have at least one row"),
        (torch.full((2, 5), torch.nan), {}, ValueError, "`x` holds NaN or infinite values in 2 of 2 rows"),
        (inputs(), {"target": torch.full((6,), 3)}, ValueError, r"the class 3, but .* 3 outputs: .* in \[0, 2\]"),
        (inputs(), {"target": torch.full((6,), -1)}, ValueError, "`target` holds the class -1"),
        (inputs(), {"target": torch.zeros(5).long()}, ValueError, r"must hold 6 integer classes, .* of shape \(5,\)"),
        (inputs(), {"target": torch.zeros(6)}, ValueError, r"must hold 6 integer classes, .* got torch\.float32"),
        (inputs(), {"target": 0}, ValueError, "`target` must have at least one row"),
    ],
)
@each("function", [saliency, infidelity, sensitivity_max])
def test_odd_inputs_are_refused(
    function: Any, x: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        function(network(), x, **options)


def test_inputs_take_the_type_of_the_network() -> None:
    """As for `bl.predict`; classes may be of any integer type."""
    model, x = network(), inputs()
    torch.testing.assert_close(saliency(model, x.float()), saliency(model, x.float().double()))
    torch.testing.assert_close(saliency(model, cast(Any, x.numpy())), saliency(model, x))
    chosen = torch.tensor([0, 1, 2, 0, 1, 2])
    torch.testing.assert_close(saliency(model, x, target=chosen.to(torch.uint8)), saliency(model, x, target=chosen))


def test_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = network(), inputs()
    with pytest.raises(ValueError, match="`method` must be 'mean' or 'moments', got 'sample'"):
        saliency(model, x, method=cast(Any, "sample"))
    with pytest.raises(ValueError, match="`smooth` must not be negative, got -1"):
        saliency(model, x, smooth=-1)
    with pytest.raises(ValueError, match="`noise` must be finite and not negative, got -0.1"):
        saliency(model, x, smooth=2, noise=-0.1)
    with pytest.raises(TypeError, match=r"got Snapshots: explain the network that they are of, snapshots\.model"):
        saliency(cast(Any, bl.Snapshots(model, [])), x)
    with pytest.raises(TypeError, match="the network must return one tensor, not tuple"):
        saliency(nn.LSTM(5, 3).double(), x)
    with pytest.raises(ValueError, match="`radius` must be positive, got 0"):
        infidelity(model, x, radius=0)
    with pytest.raises(ValueError, match="`draws` must be a positive integer, got 0"):
        sensitivity_max(model, x, draws=0)
    with pytest.raises(ValueError, match=r"outputs \(N, classes\), got shape \(6, 3, 1\)"):
        saliency(nn.Sequential(model, nn.Unflatten(1, (3, 1))), x)
    monkeypatch.setitem(sys.modules, "captum", None)
    with pytest.raises(ModuleNotFoundError, match=r"attributions need captum: pip install bayeslim\[explain\]"):
        saliency(model, x)
