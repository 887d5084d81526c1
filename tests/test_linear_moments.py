"""Moments and KL as one function against plain operations: values, gradients, and where it is not used."""

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
from bayeslim.linear_moments import moments_of_gaussians, moments_of_vectors
from bayeslim.posteriors import MeanField
from bayeslim.training import Nelbo
from test_linear_draw import OBJECTIVES, Inherited, Zero, inputs, objective
from test_linear_draw import network as drawing_network

FUNCTIONS = [moments_of_vectors, moments_of_gaussians]

network = partial(drawing_network, estimator=bl.moments)


@pytest.fixture
def uses(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether one function was the way, for every layer that asked."""
    found: list[bool] = []

    def noted(function: Callable[..., Any], *args: Any) -> Any:
        moments = function(*args)
        found.append(moments is not None)
        return moments

    for function in FUNCTIONS:
        monkeypatch.setattr(f"bayeslim.posteriors.mean_field.{function.__name__}", partial(noted, function))
    return found


def with_slopes(model: nn.Module, x: Tensor) -> tuple[Nelbo, list[Tensor | None]]:
    """The objective, and its gradients by parameters and inputs."""
    result = objective(model, x)
    wanted = [*model.parameters(), x]
    return result, list(torch.autograd.grad(result.loss, wanted, allow_unused=True))


@pytest.mark.parametrize("bias_posterior", [None, MeanField])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_objective_and_gradients_are_those_of_plain_operations(
    name: str, bias_posterior: Any, uses: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    joint = network(**OBJECTIVES[name], bias_posterior=bias_posterior)
    if name == "no bias":
        for layer in joint:
            if isinstance(layer, bl.layers.Linear):
                layer.bias = None
    plain, x = copy.deepcopy(joint), inputs(7, 5).requires_grad_()
    result, slopes = with_slopes(joint, x)
    assert uses == [True, True]
    for method in ("output_moments", "propagated"):
        monkeypatch.setattr(MeanField, method, lambda *_: None)
    expected, expected_slopes = with_slopes(plain, x)
    torch.testing.assert_close(result[:3], expected[:3])
    torch.testing.assert_close(slopes, expected_slopes)


@pytest.mark.parametrize("shape", [(2, 3), (2, 2, 3)])
@pytest.mark.parametrize("beta", [0.0, 1.0])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_derivatives_by_finite_differences(function: Any, beta: float, shape: tuple[int, ...]) -> None:
    rows = [inputs(*shape), inputs(*shape).square() + 0.1][: FUNCTIONS.index(function) + 1]
    tensors = [tensor.requires_grad_() for tensor in (inputs(4, 3), inputs(4, 3) - 1, inputs(4), *rows)]

    def value(loc: Tensor, log_std: Tensor, bias: Tensor, *rows: Tensor) -> Tensor:
        with kl_alongside({"q": (0.1, 0.5)}) as found:
            mean, variance = function("q", loc, log_std, *rows, bias)
        assert mean.shape == variance.shape == (*shape[:-1], 4)
        return mean.sin().sum() + variance.cos().sum() + beta * found["q"]

    assert torch.autograd.gradcheck(value, tensors)


def test_moments_are_those_of_their_definition() -> None:
    """By drawn weights and inputs."""
    loc, log_std, mean, variance = inputs(3, 4), inputs(3, 4) - 1, inputs(1, 4), inputs(1, 4).square()
    count = 200_000
    torch.manual_seed(3)
    weights = loc + log_std.exp() * torch.randn(count, 3, 4, dtype=loc.dtype)
    drawn = mean + variance.sqrt() * torch.randn(count, 4, dtype=loc.dtype)
    with kl_alongside({}):
        certain = moments_of_vectors("q", loc.requires_grad_(), log_std, mean, None)
        uncertain = moments_of_gaussians("q", loc, log_std, mean, variance, None)
    for moments, outputs in ((certain, weights @ mean[0]), (uncertain, torch.einsum("soi,si->so", weights, drawn))):
        assert moments is not None
        spread = moments[1][0].detach()
        torch.testing.assert_close(
            outputs.mean(0), moments[0][0].detach(), atol=5 * (spread.max().item() / count) ** 0.5, rtol=0
        )
        torch.testing.assert_close(outputs.var(0), spread, rtol=0.03, atol=0)  # products have heavier tails


def test_inputs_that_are_data_get_no_gradient(uses: list[bool]) -> None:
    """Uncertain ones too; the weights' gradients are the same with and without."""
    model = network()
    data = bl.Gaussian(inputs(7, 5), inputs(7, 5).square())
    slopes: list[tuple[Tensor, ...]] = []
    for wanted in (False, True):
        data.loc.requires_grad_(wanted)
        slopes.append(torch.autograd.grad(objective(model, data).loss, list(model.parameters())))  # pyright: ignore[reportArgumentType]
    assert uses == [True] * 4
    torch.testing.assert_close(*slopes)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_first_use_alone_leaves_a_kl(function: Any) -> None:
    loc, log_std = (inputs(2, 3).requires_grad_() for _ in range(2))
    rows = [inputs(4, 3), inputs(4, 3).square()][: FUNCTIONS.index(function) + 1]
    with kl_alongside({"q": (0.0, 1.0)}) as found:
        function("q", loc, log_std, *rows, None)
        first = found["q"]
        function("q", loc, log_std, *rows, None)
        function("stranger", loc, log_std, *rows, None)
    assert found["q"] is first and list(found) == ["q"]


def test_other_ways_stay_plain(uses: list[bool]) -> None:
    x, y = inputs(7, 5).float(), torch.arange(7) % 3
    settings: dict[str, Any] = {"likelihood": bl.Categorical(), "num_data": 50}
    single = network().float()
    with torch.autocast("cpu", torch.bfloat16):
        bl.nelbo(single, x, y, **settings)
    with torch.no_grad():
        bl.nelbo(single, x, y, **settings)
    single(x)
    bl.nelbo(single.bfloat16(), x.bfloat16(), y, **settings)

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = network().float(), bl.layers.Linear(3, 3, estimator=bl.mean_only)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(checkpoint(lambda x: self.first(x).loc, x, use_reentrant=False))

    bl.nelbo(Checkpointed(), x, y, **settings).loss.backward()
    assert uses and not any(uses)


def test_a_class_with_moments_of_its_own_is_asked_for_them(uses: list[bool]) -> None:
    model = network(posterior=Zero)
    assert objective(model, inputs(7, 5)).nll.isclose(torch.tensor(3.0, dtype=torch.float64).log())
    assert not uses
    objective(network(posterior=Inherited), inputs(7, 5))
    assert uses == [True, True]


def test_second_derivatives_are_refused_inside_an_objective() -> None:
    model, x = network(), inputs(7, 5)
    with pytest.raises(RuntimeError, match=r"differentiate|twice"):
        torch.autograd.grad(objective(model, x).loss, list(model.parameters()), create_graph=True)
