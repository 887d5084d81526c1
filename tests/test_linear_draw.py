"""Draw, product and KL as one function against plain operations: values, gradients, and where it is not used."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import bayeslim as bl
from bayeslim.joint_draw import kl_alongside
from bayeslim.linear_draw import draw_outputs, draw_weights
from bayeslim.posteriors import MeanField
from bayeslim.priors import Normal
from bayeslim.training import Nelbo

ESTIMATORS = [bl.weight_sample, bl.local_reparam]
FUNCTIONS = [draw_weights, draw_outputs]


def network(method: str = "graves", **options: Any) -> nn.Sequential:
    torch.manual_seed(0)
    settings: dict[str, Any] = {"estimator": bl.local_reparam} | options
    return bl.mlp([5, 4, 3], method=method, **settings).double()


def objective(model: nn.Module, x: Tensor, samples: int = 1) -> Nelbo:
    y = torch.arange(len(x)) % 3
    torch.manual_seed(2)
    return bl.nelbo(model, x, y, likelihood=bl.Categorical(), num_data=50, beta=0.7, samples=samples)


def inputs(*shape: int) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(*shape, dtype=torch.float64)


@pytest.fixture
def uses(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether one function was the way, for every layer that asked."""
    found: list[bool] = []

    def noted(function: Callable[..., Tensor | None], *args: Any) -> Tensor | None:
        output = function(*args)
        found.append(output is not None)
        return output

    for function in FUNCTIONS:
        monkeypatch.setattr(f"bayeslim.posteriors.mean_field.{function.__name__}", partial(noted, function))
    return found


OBJECTIVES: dict[str, dict[str, Any]] = {
    "normal prior": {},
    "a prior with a mean": {"prior": Normal(0.3, 0.2)},
    "a prior that is not asked for": {"method": "ard"},
    "bounded scales": {"posterior": lambda init: MeanField(init, scale=0.1, max_scale=0.2)},
    "no bias": {},
}


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_objective_and_gradients_are_those_of_plain_operations(
    name: str, estimator: Any, samples: int, uses: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    joint = network(**OBJECTIVES[name], estimator=estimator)
    if name == "no bias":
        for layer in (joint[0], joint[2]):
            layer.register_parameter("bias", None)
    plain = copy.deepcopy(joint)
    x = inputs(7, 5).requires_grad_()
    result = objective(joint, x, samples)
    result.loss.backward()
    assert uses == [True, True] * samples
    by_x, x.grad = x.grad, None
    for method in ("drawn_output", "locally_drawn_output"):
        monkeypatch.setattr(MeanField, method, lambda *_: None)
    expected = objective(plain, x, samples)
    expected.loss.backward()
    torch.testing.assert_close(result[:3], expected[:3])
    torch.testing.assert_close(by_x, x.grad)
    for own, other in zip(joint.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("shape", [(2, 3), (2, 2, 3)])
@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_derivatives_by_finite_differences(beta: float, shape: tuple[int, ...], function: Any) -> None:
    tensors = [inputs(*size).requires_grad_() for size in ((4, 3), (4, 3), shape, (4,))]

    def value(loc: Tensor, log_std: Tensor, x: Tensor, bias: Tensor) -> Tensor:
        torch.manual_seed(4)
        with kl_alongside({"q": (0.1, 0.5)}) as found:
            output = function("q", loc, log_std, x, bias)
        assert output is not None and output.shape == (*shape[:-1], 4)
        return output.sin().sum() + beta * found["q"]

    assert torch.autograd.gradcheck(value, tensors)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_outputs_have_the_moments_of_their_definition(function: Any) -> None:
    loc, log_std, x = inputs(3, 4), inputs(3, 4) - 1, inputs(1, 4)
    count = 200_000
    with kl_alongside({}):
        if function is draw_outputs:
            output = function("q", loc, log_std, x.expand(count, 4), None)
        else:  # every row of the weight is another draw
            repeated = loc.repeat(count, 1), log_std.repeat(count, 1)
            output = function("q", *repeated, x, None).reshape(count, 3)
    mean, variance = x @ loc.T, x.square() @ (2 * log_std).exp().T
    torch.testing.assert_close(output.mean(0), mean[0], atol=0.02, rtol=0)
    torch.testing.assert_close(output.var(0), variance[0], rtol=0.02, atol=0)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_weights_without_noise_have_finite_gradients(function: Any) -> None:
    loc, log_std = inputs(3, 4).requires_grad_(), torch.full((3, 4), -800.0, dtype=torch.float64, requires_grad=True)
    with kl_alongside({}):
        output = function("q", loc, log_std, inputs(2, 4), None)
    output.sum().backward()
    torch.testing.assert_close(output.detach(), (inputs(2, 4) @ loc.T).detach())
    assert log_std.grad is not None and not log_std.grad.any()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_second_derivatives_are_refused_inside_an_objective_and_right_outside(uses: list[bool], estimator: Any) -> None:
    model, x = network(estimator=estimator), inputs(7, 5)
    parameters = list(model.parameters())
    with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
        torch.autograd.grad(objective(model, x).loss, parameters, create_graph=True)
    bias = dict(model.named_parameters())["2.bias"]
    (slope,) = torch.autograd.grad(model(x).square().sum(), bias, create_graph=True)
    (second,) = torch.autograd.grad(slope.sum(), bias)
    torch.testing.assert_close(second, torch.full_like(bias, 2.0 * len(x)))
    assert uses == [True, True, False, False]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_first_use_alone_leaves_a_kl(function: Any) -> None:
    loc, log_std = (inputs(2, 3).requires_grad_() for _ in range(2))
    with kl_alongside({"q": (0.0, 1.0)}) as found:
        function("q", loc, log_std, inputs(4, 3), None)
        first = found["q"]
        function("q", loc, log_std, inputs(4, 3), None)
        function("stranger", loc, log_std, inputs(4, 3), None)
    assert found["q"] is first and list(found) == ["q"]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_other_ways_stay_plain(uses: list[bool], estimator: Any) -> None:
    x, y = inputs(7, 5).float(), torch.arange(7) % 3
    settings: dict[str, Any] = {"likelihood": bl.Categorical(), "num_data": 50}
    single = network(estimator=estimator).float()
    with torch.autocast("cpu", torch.bfloat16):
        bl.nelbo(single, x, y, **settings)
    with torch.no_grad():
        bl.nelbo(single, x, y, **settings)
    bl.nelbo(single.bfloat16(), x.bfloat16(), y, **settings)

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network(estimator=estimator).float()

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.inner, x, use_reentrant=False)  # pyright: ignore[reportReturnType]

    bl.nelbo(Checkpointed(), x, y, **settings).loss.backward()
    assert uses and not any(uses)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_bias_with_a_posterior_stays_plain(uses: list[bool], estimator: Any) -> None:
    model = nn.Sequential(nn.Linear(5, 3))
    bl.bayesianize_(model, estimator=estimator, bias_posterior=MeanField)
    bl.nelbo(model, inputs(7, 5).float(), torch.arange(7) % 3, likelihood=bl.Categorical(), num_data=50)
    assert not uses


class Zero(MeanField):
    """Draws and moments of its own."""

    def rsample(self) -> Tensor:
        return 0 * self.loc

    def mean(self) -> Tensor:
        return 0 * self.loc

    def variance(self) -> Tensor:
        return 0 * self.log_scale


class Inherited(MeanField):
    """Those of the class."""


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_class_with_draws_of_its_own_is_asked_for_them(uses: list[bool], estimator: Any) -> None:
    model = network(posterior=Zero, estimator=estimator)
    assert objective(model, inputs(7, 5)).nll.isclose(torch.tensor(3.0, dtype=torch.float64).log())
    assert not uses
    objective(network(posterior=Inherited, estimator=estimator), inputs(7, 5))
    assert uses == [True, True]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_inputs_of_a_wrong_width_are_named(estimator: Any) -> None:
    with pytest.raises(RuntimeError, match=r"shapes cannot be multiplied \(7x6 and 5x4\)"):
        objective(network(estimator=estimator), inputs(7, 6))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_graph_that_is_kept_can_be_used_again(estimator: Any) -> None:
    model = network(estimator=estimator)
    loss, parameters = objective(model, inputs(7, 5)).loss, list(model.parameters())
    first = torch.autograd.grad(loss, parameters, retain_graph=True)
    copies = [slope.clone() for slope in first]
    torch.testing.assert_close(torch.autograd.grad(loss, parameters), tuple(copies))
    torch.testing.assert_close(first, tuple(copies))
