"""Feature selection: stacks train as single networks do, the right inputs are found, bad data are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bayeslim.feature_selection import FeatureSelection, Recipe, select_features
from bayeslim.feature_selection import stack as stack_module
from bayeslim.feature_selection.selection import selection_errors, zero_part
from bayeslim.feature_selection.stack import (
    StackedLinear,
    Task,
    fit_stack,
    inputs_used,
    network_of,
    stack_losses,
    stacked_mlp,
)

RECIPE = Recipe(
    epochs=200,
    cycles=3,
    batch_size=256,
    lr=0.1,
    spike_decay=5e-2,
    soft_threshold=2e-2,
    hard_threshold=3e-3,
    warm_up=20,
)
FEW = Recipe(epochs=3, batch_size=16, warm_up=0)


def problem(seed: int, binary: bool = False) -> tuple[Tensor, Tensor]:
    """Thirty inputs of correlation 1/2, of which 3 and 7 matter; in units far from standard."""
    generator = torch.Generator().manual_seed(seed)
    x = (torch.randn(2000, 30, generator=generator) + torch.randn(2000, 1, generator=generator)) / 2**0.5
    y = 2 * torch.tanh(2 * x[:, 3]) - 2 * x[:, 7].abs() + 0.3 * torch.randn(2000, generator=generator)
    return 5 * x + 3, (y > y.median()).float() if binary else 100 * y + 7


@pytest.fixture(scope="module")
def found() -> FeatureSelection:
    return select_features(*problem(1), hidden=(6, 3), restarts=3, recipe=RECIPE, truth=[3, 7], seed=1)


def test_the_right_inputs_are_found(found: FeatureSelection) -> None:
    assert found.chosen.tolist() == [3, 7]
    assert (found.false_discovery_rate, found.false_nondiscovery_rate) == (0, 0)
    assert found.chosen_by_restart[found.restart] == [3, 7]
    assert 0.7 < found.sparsity < 1


def test_values_far_from_zero_lose_no_digits(found: FeatureSelection) -> None:
    """Times in seconds since 1970 and the like: in float32 nothing would be left of their differences."""
    x, y = (part.double() for part in problem(1))
    moved = select_features(x + 1e9, y + 1e9, hidden=(6, 3), restarts=3, recipe=RECIPE, seed=1)
    assert moved.chosen.tolist() == found.chosen.tolist()
    assert moved.validation_losses == pytest.approx(found.validation_losses, rel=1e-2)
    with torch.no_grad():
        error = moved.network(x + 1e9)[:, 0] - (y + 1e9)
    assert error.var() < 0.15 * y.var()
    assert {parameter.dtype for parameter in found.network.parameters()} == {torch.float32}


def test_the_restart_is_chosen_on_held_out_rows(found: FeatureSelection) -> None:
    """One of the three is trapped: its loss is the variance of the target."""
    assert len(found.validation_losses) == 3
    assert found.validation_losses[found.restart] == min(found.validation_losses) < 0.15
    assert max(found.validation_losses) > 0.9


def test_the_network_works_in_the_units_of_the_data(found: FeatureSelection) -> None:
    x, y = problem(100)  # fresh data
    with torch.no_grad():
        error = (found.network(x)[:, 0] - y).square().mean() / y.var()
    assert error < 0.15
    changed = x.clone()
    others = [column for column in range(30) if column not in (3, 7)]
    changed[:, others] = torch.randn(2000, 28)
    with torch.no_grad():
        assert torch.equal(found.network(changed), found.network(x))


@pytest.mark.parametrize("feedback", [False, True])
def test_binary_targets(feedback: bool) -> None:
    recipe = Recipe(**{**vars(RECIPE), "feedback": feedback})
    x, y = problem(0, binary=True)
    result = select_features(x, y[:, None], hidden=(6, 3), task="binary", restarts=3, recipe=recipe, seed=4)
    assert result.chosen.tolist() == [3, 7]
    assert result.false_discovery_rate is None and result.false_nondiscovery_rate is None
    with torch.no_grad():
        accuracy = ((result.network(x)[:, 0] > 0) == (y > 0.5)).double().mean()
    assert accuracy > 0.8


def test_runs_are_reproducible_and_leave_the_random_state() -> None:
    x, y = (part[:100] for part in problem(0))
    torch.manual_seed(5)
    first = select_features(x.numpy(), y.double().numpy(), hidden=(3,), restarts=2, recipe=FEW, seed=4)
    after = torch.rand(1)
    second = select_features(x, y, hidden=(3,), restarts=2, recipe=FEW, seed=np.int64(4))  # pyright: ignore[reportArgumentType]
    torch.manual_seed(5)
    assert torch.rand(1) == after
    other = select_features(x, y, hidden=(3,), restarts=2, recipe=FEW, seed=5)
    assert first.validation_losses == second.validation_losses != other.validation_losses


def test_errors_of_a_selection() -> None:
    assert selection_errors([0, 1, 5, 6], [0, 1, 2], inputs=10) == (2 / 4, 1 / 6)
    assert selection_errors([], [0, 1], inputs=4) == (0, 0.5)
    assert selection_errors([0, 1], [0], inputs=2) == (0.5, 0)


def test_a_stack_computes_what_its_networks_do() -> None:
    torch.manual_seed(0)
    stack = stacked_mlp((7, 4, 3, 1), sets=2, restarts=3)
    x, y = torch.randn(2, 11, 7), torch.rand(2, 11).round()
    outputs = stack(x.mT)
    assert outputs.shape == (2, 3, 1, 11)
    tasks: dict[Task, nn.Module] = {"regression": nn.MSELoss(), "binary": nn.BCEWithLogitsLoss()}
    for task, loss in tasks.items():
        losses = stack_losses(stack, x, y, task)
        for chosen_set, restart in [(0, 0), (1, 2)]:
            alone = network_of(stack, chosen_set, restart)(x[chosen_set])[:, 0]
            torch.testing.assert_close(outputs[chosen_set, restart, 0], alone)
            torch.testing.assert_close(losses[chosen_set, restart], loss(alone, y[chosen_set]))


def test_initial_weights() -> None:
    torch.manual_seed(0)
    layers = [layer for layer in stacked_mlp((100, 50, 1), 1, 40, first_bound=0.01) if isinstance(layer, nn.Linear)]
    for layer, bound in zip(layers, (0.01, 50**-0.5), strict=True):
        assert isinstance(layer, StackedLinear)
        for tensor in (layer.weight, layer.bias):
            assert tensor.abs().max() <= bound
            # The variance of a squared uniform number is 4/45 of the fourth power of its bound.
            error = 5 * bound**2 * (4 / 45 / tensor.numel()) ** 0.5
            assert tensor.square().mean().item() == pytest.approx(bound**2 / 3, abs=error)
    plain = stacked_mlp((100, 50, 1), 1, 40)[0].weight
    assert isinstance(plain, Tensor) and 0.099 < plain.abs().max() <= 0.1


def test_networks_of_a_stack_do_not_disturb_each_other() -> None:
    """Without noise a network ends the same whatever stands beside it."""
    torch.manual_seed(0)
    x, y = torch.randn(2, 40, 6), torch.randn(2, 40)
    pair, alone = stacked_mlp((6, 4, 1), 2, 2), stacked_mlp((6, 4, 1), 1, 1)
    with torch.no_grad():
        for one, many in zip(alone.parameters(), pair.parameters(), strict=True):
            one.copy_(many[1:, 1:])
    recipe = Recipe(epochs=20, cycles=2, batch_size=40, lr=1e-6, warm_up=5)  # noise of order lr^(3/4) / sqrt(N)
    fit_stack(pair, x, y, "regression", recipe, seed=0)
    fit_stack(alone, x[1:], y[1:], "regression", recipe, seed=0)
    used = inputs_used(pair)[1, 1], inputs_used(alone)[0, 0]
    assert torch.equal(*used)
    for one, many in zip(alone.parameters(), pair.parameters(), strict=True):
        torch.testing.assert_close(one[0, 0], many[1, 1], rtol=0, atol=1e-3)


def test_the_recipe_reaches_sampler_and_pruner(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def spy(kind: Callable[..., Any]) -> Callable[..., Any]:
        def build(*arguments: Any, **options: Any) -> Any:
            seen.update(options)
            return kind(*arguments, **options)

        return build

    for name in ("CVAdam", "SpikeAndSlab"):
        monkeypatch.setattr(stack_module, name, spy(getattr(stack_module, name)))
    shared = {"lr": 0.07, "spike_decay": 0.06, "soft_threshold": 0.05, "hard_threshold": 0.04, "warm_up": 1}
    recipe = Recipe(epochs=8, batch_size=16, decay=0.03, feedback=True, **shared)
    fit_stack(stacked_mlp((4, 2, 1), 1, 2), X[None], Y[None], "regression", recipe, seed=6)
    sampler = {"num_data": 30, "weight_decay": 0.03, "seed": 6}
    assert seen == shared | sampler | {"group": "input_unit", "feedback": True, "feedback_until": 6}


def test_the_default_recipe_is_the_published_one() -> None:
    """Example 1 of arXiv 2210.12957."""
    when = {"epochs": 3000, "cycles": 6, "batch_size": 1024, "lr": 0.01, "warm_up": 50, "feedback": False}
    prior = {"decay": 2e-4, "spike_decay": 1e-2, "soft_threshold": 1e-2, "hard_threshold": 1e-3}
    assert vars(Recipe()) == when | prior


def test_inputs_that_reach_the_output() -> None:
    stack = stacked_mlp((3, 2, 1), 1, 2)
    first, last = (layer.weight for layer in stack if isinstance(layer, nn.Linear))
    with torch.no_grad():
        first[0, 0] = torch.tensor([[1.0, 0, 0], [0, -2.0, 0]])
        last[0, 0] = torch.tensor([[0.0, 3.0]])  # the hidden unit that input 0 enters is cut off
        first[0, 1] = torch.tensor([[1.0, 0, 1.0], [-1.0, 0, 0]])  # signs do not cancel
        last[0, 1] = torch.tensor([[1.0, 1.0]])
    assert inputs_used(stack)[0].tolist() == [[False, True, False], [True, False, True]]


def test_the_part_that_is_zero() -> None:
    network = nn.Sequential(nn.Linear(3, 2))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(1.0)
        next(network.parameters())[:, 0] = 0
    assert zero_part(network) == 2 / 8


X, Y = torch.randn(30, 4), torch.randn(30)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.full((30, 4), torch.nan)}, "`x` holds NaN or infinite values in 30 of 30 rows"),
        ({"y": torch.cat([Y[:29], torch.tensor([torch.inf])])}, "`y` holds NaN or infinite values in 1 of 30 rows"),
        ({"x": torch.randn(30)}, "`x` must have the shape \\(rows, inputs\\), got \\(30,\\)"),
        ({"y": torch.randn(29)}, "`y` must have the shape \\(30,\\) or \\(30, 1\\), as `x` has, got \\(29,\\)"),
        ({"y": torch.randn(30, 2)}, "`y` must have the shape .*, got \\(30, 2\\)"),
        ({"x": X[:19], "y": Y[:19]}, "`x` must have at least 20 rows, got 19"),
        ({"x": torch.cat([X, torch.ones(30, 1)], 1)}, "`x` has 1 constant columns, first column 4: leave them out"),
        ({"y": torch.full((30,), 2.0)}, "`y` is 2 in all rows"),
        ({"task": "binary"}, "`y` must be 0 or 1 if `task` is 'binary'"),
        ({"task": "ranking"}, "`task` must be one of 'regression', 'binary', got 'ranking'"),
        ({"restarts": 0}, "`restarts` must be a positive integer, got 0"),
        ({"validation": 0.6}, "`validation` must lie in \\(0, 0.5\\], got 0.6"),
        ({"truth": [4]}, "`truth` must hold columns from 0 to 3, got \\[4\\]"),
        ({"hidden": (0,)}, "`sizes` must be at least two positive integers"),
        ({"seed": -1}, "`seed` must be an integer"),
    ],
)
def test_bad_arguments(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"x": X, "y": Y, "recipe": FEW} | changes
    with pytest.raises(ValueError, match=message):
        select_features(**arguments)


def test_text_is_refused() -> None:
    with pytest.raises(TypeError, match="`x` must hold numbers"):
        select_features(np.array([["a"]] * 30), Y)


def test_divergence_is_reported() -> None:
    with pytest.raises(FloatingPointError, match="not finite"):
        select_features(X, Y, recipe=Recipe(epochs=50, lr=1e12, warm_up=100))


def test_a_loss_that_is_not_finite_is_reported() -> None:
    x, y = torch.randn(1, 30, 4), torch.full((1, 30), 1e30)  # its square is beyond float32, its gradient is not
    with pytest.raises(FloatingPointError, match="the loss of all restarts is not finite after epoch 1: lower `lr`"):
        fit_stack(stacked_mlp((4, 2, 1), 1, 2), x, y, "regression", Recipe(epochs=2, lr=1e-12), seed=0)
