"""A network is looked at once: plans that are kept answer like new ones, and go when anything about it changes."""

from __future__ import annotations

import copy
import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.estimators import Estimator
from bayeslim.layers import Linear
from bayeslim.posteriors import MeanField
from bayeslim.predictive import plan
from contracts.cases import each

NOISE = bl.likelihoods.Gaussian(noise=0.1)
MeanField03 = functools.partial(MeanField, scale=0.3)
X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))


class Counted(nn.Tanh):
    """Counts the passes."""

    calls = 0

    def forward(self, input: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(input)


def network(estimator: Callable[..., Any] = bl.local_reparam) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), Counted(), nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.Linear(8, 2))
    bl.bayesianize_(model, posterior=MeanField03, estimator=estimator)
    return model


def samples_of(model: nn.Module, x: Tensor, samples: int = 7, **options: Any) -> Tensor:
    likelihood = copy.deepcopy(NOISE).to(next(model.parameters()).dtype)
    found = bl.predict(model, x, samples=samples, likelihood=likelihood, seed=0, keep_samples=True, **options)
    assert found.samples is not None
    return found.samples


def passes(model: Any, x: Tensor, **options: Any) -> int:
    """How often a prediction runs the network; it says what that of a new copy says."""
    new, before = copy.deepcopy(model), model[1].calls
    found = samples_of(model, x, **options)
    assert torch.equal(found, samples_of(new, x, **options))
    return model[1].calls - before


@each("estimator", [bl.local_reparam, bl.weight_sample, bl.flipout])
def test_the_second_prediction_runs_the_network_once(estimator: Callable[..., Any]) -> None:
    model = network(estimator)
    assert [passes(model, X) for _ in range(3)] == [2, 1, 1]
    assert [passes(model, X[:1]), passes(model, X.repeat(20, 1))] == [1, 1]  # other numbers of examples
    assert [passes(model, X[:, None]), passes(model, X[:, None]), passes(model, X)] == [2, 1, 1]  # other examples


def replace_a_module(model: Any) -> None:
    model[2][1] = nn.ReLU()


def replace_a_layer(model: Any) -> None:
    model[2] = Linear(8, 8, posterior=MeanField03, estimator=bl.weight_sample)


def assign_a_state(model: Any) -> None:
    state = {name: 2 * tensor for name, tensor in model.state_dict().items()}
    model.load_state_dict(state, assign=True)


def give_data_of_another_type(model: Any) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.data.double()


def prune(model: Any) -> None:
    bl.prune_(model, amount=0.5)


def add_a_hook(model: Any) -> None:
    model[3].register_forward_hook(lambda module, inputs, output: output - 3 * module.op(*inputs, module.weight.mean()))


def add_a_hook_before(model: Any) -> None:
    model[3].register_forward_pre_hook(lambda module, inputs: (inputs[0].flip(0),))


class Stubborn(nn.Dropout):
    """Stays in training if it is told to."""

    stays = False

    def train(self, mode: bool = True) -> Stubborn:
        return super().train(mode or self.stays)


def stay_in_training(model: Any) -> None:
    model[2][1].stays = True


def change_an_estimator(model: Any) -> None:
    model[0].estimator = bl.mean_only


def there_and_back(layer: Any, x: Tensor) -> Tensor:
    return Linear.forward(layer, x) + Linear.forward(layer, 0.5 - x)


class Slotted:
    """Draws weights, and cannot be referred to weakly."""

    __slots__ = ()

    def __call__(self, *arguments: Any) -> Tensor:
        return bl.weight_sample(*arguments)


def use_an_estimator_of_ones_own(model: Any) -> None:
    model[0].estimator = Slotted()


def change_an_operation(model: Any) -> None:
    model[0].op = type(model[0].op)()


def write_another_forward(model: Any) -> None:
    model[0].forward = functools.partial(there_and_back, model[0])


def double(model: Any) -> None:
    model.double()


CHANGES = [
    replace_a_module,
    replace_a_layer,
    assign_a_state,
    give_data_of_another_type,
    prune,
    bl.unprune_,
    add_a_hook,
    add_a_hook_before,
    stay_in_training,
    change_an_estimator,
    use_an_estimator_of_ones_own,
    change_an_operation,
    write_another_forward,
    double,
]


@each("change", CHANGES)
@each("estimator", [bl.local_reparam, bl.weight_sample])
def test_any_change_of_the_network_ends_its_plans(change: Callable[..., Any], estimator: Callable[..., Any]) -> None:
    model = network(estimator)
    if change is bl.unprune_:
        bl.prune_(model, amount=0.5)
    if change is stay_in_training:
        model[2][1] = Stubborn(0.5)
    samples_of(model, X)
    change(model)
    assert [passes(model, X), passes(model, X)] == [2, 1]


def test_modes_that_predictions_set_anyway_and_values_of_parameters_change_no_plan() -> None:
    model = network()
    before = samples_of(model, X)
    model.eval()
    assert passes(model, X) == 1 and torch.equal(samples_of(model, X), before)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.data.mul_(2)
    assert passes(model, X) == 1 and not torch.allclose(samples_of(model, X), before)


class Loud(Estimator):
    """An estimator of ones own that draws outputs, for training."""

    kind = "outputs"

    def __call__(self, *arguments: Any) -> Tensor:
        return 2 * bl.local_reparam(*arguments)


def test_an_estimator_for_training_gives_way_whoever_wrote_it() -> None:
    expected = samples_of(network(), X)
    assert torch.equal(samples_of(network(Loud()), X), expected)
    assert not torch.allclose(samples_of(network(), X, estimator=Loud()), expected)


def test_compiled_networks_are_planned_without_a_warning() -> None:
    model = network()
    assert torch.equal(samples_of(torch.compile(model), X), samples_of(model, X))  # pyright: ignore[reportArgumentType]
    assert all(not module._forward_hooks for module in model.modules())


def test_an_estimator_that_is_asked_for_has_a_plan_of_its_own() -> None:
    model = network()
    samples_of(model, X)
    assert [passes(model, X, estimator=bl.weight_sample) for _ in range(2)] == [2, 1]


def test_plans_keep_no_network_alive_and_are_no_more_than_a_few() -> None:
    model = network()
    for length in range(2, 80):
        samples_of(model, X[:, None].expand(6, length, 4), samples=2)
    assert len(plan._PLANS[model].by_kind) <= plan.KINDS_AT_ONCE
    kept, count = weakref.ref(model), len(plan._PLANS)
    del model
    gc.collect()
    assert kept() is None and len(plan._PLANS) < count


class Ways(nn.Module):
    """A network whose way depends on its inputs: `way(model, x)` takes its layers."""

    def __init__(self, way: Callable[[Any, Tensor], Tensor], estimator: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.way = way
        options: dict[str, Any] = {"posterior": MeanField03, "estimator": estimator, "bias_posterior": MeanField03}
        self.first, self.second = Linear(4, 4, **options), Linear(4, 4, **options)

    def forward(self, x: Tensor) -> Tensor:
        return self.way(self, x)


def marked(x: Tensor) -> bool:
    """Whether the inputs of a block ask for the other way."""
    return bool(x[:, 0].max() > 100)


def twice(model: Ways, x: Tensor) -> Tensor:
    y = model.first(x)
    return y - model.first(x) if marked(x) else y


def another_layer(model: Ways, x: Tensor) -> Tensor:
    return model.second(x) - model.second(x) if marked(x) else model.first(x)


def another_draw(model: Ways, x: Tensor) -> Tensor:
    weight, bias = model.second.draw() if marked(x) else model.first.draw()
    again, _ = model.second.draw() if marked(x) else (weight, None)
    return nn.functional.linear(x, weight - again, None if marked(x) else bias)


def several_rows(model: Ways, x: Tensor) -> Tensor:
    if not marked(x):
        return model.first(x)
    first, second = model.first(torch.cat([x, x])).split(len(x))
    return first - second


def with_care(model: Ways, x: Tensor) -> Tensor:
    try:
        return twice(model, x)
    except Exception:
        return torch.ones(len(x), 4)


@each("way", [twice, another_layer, another_draw, several_rows, with_care])
@each("estimator", [bl.local_reparam, bl.weight_sample])
@each("count", [1, 6])
def test_another_way_through_the_network_is_noticed(
    way: Callable[..., Tensor], estimator: Callable[..., Any], count: int
) -> None:
    """On the way that the first pass did not take, every network subtracts something from itself."""
    model, x = Ways(way, estimator), X[:count].clone()
    assert samples_of(model, x).std(0).min() > 0.01
    x[-1, 0] = 1000
    for _ in range(2):
        torch.testing.assert_close(samples_of(model, x), torch.zeros(7, count, 4), rtol=0, atol=1e-4)
    assert samples_of(model, X).std(0).min() > 0.01


def test_a_way_that_only_some_examples_take_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """All examples see the same networks, whatever way their block takes."""
    monkeypatch.setattr("bayeslim.predictive.networks.ROWS_AT_ONCE", 14)  # two examples with seven networks
    model = Ways(lambda model, x: (model.first if marked(x) else model.second)(x * 1e-3), bl.local_reparam)
    x = torch.tensor([[0.0, 0, 0, 0], [0, 0, 0, 0], [1000.0, 0, 0, 0], [1000.0, 0, 0, 0]]).repeat(2, 1)
    found = samples_of(model, x)
    torch.testing.assert_close(found[:, :4], found[:, 4:])
    torch.testing.assert_close(found[:, 0], found[:, 1])
    assert not torch.allclose(found[:, 0], found[:, 2])


def test_fewer_uses_than_planned_are_right_too() -> None:
    model = Ways(lambda model, x: model.first(x) if marked(x) else model.second(model.first(x)), bl.local_reparam)
    samples_of(model, X)
    x = X.clone()
    x[:, 0] = 1000
    with bl.using(model, bl.moments), torch.no_grad():
        exact: Any = model.first(x)
    ratio = samples_of(model, x, 4000).var(0) / exact.variance
    assert (ratio - 1).abs().max() < 6 * (2 / 4000) ** 0.5
