"""Two products as one batch in compiled code against one after the other: values, gradients, and who stays apart."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.ops import LinearOp
from bayeslim.posteriors import MeanField
from bayeslim.two_products import MANY_EXAMPLES, draw_by_two_products, two_products


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Without generating code, which takes seconds; test_compiled_training does."""
    torch.compiler.reset()  # cases share their code, which is compiled eight times at most
    return torch.compile(function, backend="aot_eager", fullgraph=True)


@pytest.fixture
def uses(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether products were one batch, for every layer that asked."""
    found: list[bool] = []

    def noting(way: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any) -> Any:
            result = way(*args)
            found.append(result is not None)
            return result

        return noted

    for way in (two_products, draw_by_two_products):
        monkeypatch.setattr(f"bayeslim.posteriors.mean_field.{way.__name__}", noting(way))
    return found


@pytest.mark.parametrize("posterior", [MeanField, partial(MeanField, scale=0.1, max_scale=0.2)])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("shape", [(7, 5), (2, 3, 5)])
def test_moments_and_gradients_are_those_of_the_two_apart(
    shape: tuple[int, ...], has_bias: bool, posterior: Callable[[Tensor], MeanField], uses: list[bool]
) -> None:
    torch.manual_seed(0)
    weight, x = posterior(torch.randn(4, 5, dtype=torch.float64)), torch.randn(shape, dtype=torch.float64)
    x.requires_grad_()
    bias = torch.randn(4, dtype=torch.float64, requires_grad=True) if has_bias else None
    wanted = [*weight.parameters(), x, *([bias] if bias is not None else [])]

    def moments(x: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        result = bl.moments(weight, LinearOp(), x, bias)
        return result.loc, result.variance

    found, expected = compiled(moments)(x, bias), moments(x, bias)
    assert uses == [True]  # eager code does not ask
    torch.testing.assert_close(found, expected)
    slopes, expected_slopes = (
        torch.autograd.grad(mean.sin().sum() + variance.cos().sum(), wanted) for mean, variance in (found, expected)
    )
    torch.testing.assert_close(slopes, expected_slopes)


def test_local_reparameterisation_uses_them(uses: list[bool]) -> None:
    torch.manual_seed(0)
    model, x = bl.mlp([5, 4, 3], method="ard"), torch.randn(1, 5).expand(50_000, 5)
    found = compiled(lambda x: model(x))(x)
    assert uses == [True, True]
    expected = model(x)
    torch.testing.assert_close(found.mean(0), expected.mean(0), atol=1e-3, rtol=0)
    torch.testing.assert_close(found.var(0), expected.var(0), atol=0, rtol=0.05)


def stays_apart(layer: nn.Module, x: Tensor) -> Tensor:
    return compiled(lambda x: layer(x))(x)


def test_others_stay_apart(uses: list[bool]) -> None:
    torch.manual_seed(0)
    layer = bl.layers.Linear(5, 4, estimator=bl.local_reparam)
    convolution = bl.layers.Conv2d(1, 2, 3, estimator=bl.local_reparam)
    assert stays_apart(layer, torch.randn(5)).shape == (4,)
    assert stays_apart(convolution, torch.randn(2, 1, 4, 4)).shape == (2, 2, 2, 2)
    with torch.autocast("cpu", torch.bfloat16):
        assert stays_apart(layer, torch.randn(2, 5)).dtype == torch.bfloat16
    vectorised = compiled(torch.vmap(lambda x: layer(x), randomness="different"))
    assert vectorised(torch.randn(3, 2, 5)).shape == (3, 2, 4)
    assert layer(torch.randn(2, 5)).shape == (2, 4)
    torch.export.export(layer, (torch.randn(2, 5),))
    assert uses and not any(uses)


def test_inputs_of_a_wrong_width_are_named() -> None:
    layer = bl.layers.Linear(5, 4, estimator=bl.local_reparam)
    with pytest.raises(RuntimeError, match="same reduction dim"):
        stays_apart(layer, torch.randn(2, 6))


def ramp(like: Tensor) -> Tensor:
    """In place of noise: numbers that say where they lie in a tensor (examples, features)."""
    return (
        torch.arange(like.shape[-1], dtype=like.dtype) + 10 * torch.arange(like.shape[-2])[:, None]
    ).sin() + like * 0


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("shape", [(7, 5), (2, 3, 5), (64, 5), (2, 32, 5)])
def test_draws_features_first_are_those_of_plain_operations(
    shape: tuple[int, ...], has_bias: bool, computed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same noise; of few examples and of many, data or what the layer before has computed."""
    torch.manual_seed(0)
    weight, x = MeanField(torch.randn(4, 5, dtype=torch.float64), 0.3), torch.randn(shape, dtype=torch.float64)
    x.requires_grad_(computed)
    bias = torch.randn(4, dtype=torch.float64, requires_grad=True) if has_bias else None
    wanted = [*weight.parameters(), *([x] if computed else []), *([bias] if bias is not None else [])]
    features_first = len(x.flatten(0, -2)) >= MANY_EXAMPLES
    of_draws = (lambda like: ramp(like.mT).mT) if features_first else ramp
    monkeypatch.setattr("bayeslim.two_products.normal_like", of_draws)
    monkeypatch.setattr("bayeslim.estimators.normal_like", ramp)

    def drawn(x: Tensor, bias: Tensor | None) -> Tensor:
        return bl.local_reparam(weight, LinearOp(), x, bias)

    found, expected = compiled(drawn)(x, bias), drawn(x, bias)
    torch.testing.assert_close(found, expected)
    assert found.is_contiguous()
    slopes, expected_slopes = (torch.autograd.grad(drawn.sin().sum(), wanted) for drawn in (found, expected))
    torch.testing.assert_close(slopes, expected_slopes)
