"""Compiled training gives the weights of eager training."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import bayeslim as bl
from system.compiled_noise import compiled_noise
from training.problems import blobs, distance, small


@pytest.fixture(autouse=True)
def same_noise() -> Iterator[None]:
    with compiled_noise():
        yield


def trained(model: nn.Module, compile: bool, **options: Any) -> nn.Module:
    options = {"epochs": 3, "kl_schedule": bl.schedules.warmup_linear(1, 1)} | options
    bl.fit(model, blobs(48), likelihood=bl.Categorical(), batch_size=16, lr=0.01, compile=compile, seed=0, **options)
    return model


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Compile without generating code, which takes seconds per graph; the graphs are collected."""
    seen: list[Any] = []
    compile = torch.compile

    def backend(graph: Any, inputs: Any) -> Any:
        seen.append(graph)
        return graph.forward

    def cheaper(function: Callable[..., Any], **options: Any) -> Any:
        return compile(function, backend=backend)

    monkeypatch.setattr(torch, "compile", cheaper)
    return seen


def test_inductor_and_eager_training_agree() -> None:
    """The noise is the same, so only rounding differs."""
    eager, compiled = (trained(small(method="graves"), compile) for compile in (False, True))
    assert distance(eager, compiled) < 1e-4 < 1e-2 < distance(eager, small(method="graves"))
    assert list(compiled.state_dict()) == list(eager.state_dict())
    prediction = bl.predict(compiled, blobs()[0], samples=3, seed=0)
    assert torch.allclose(prediction.mean, bl.predict(eager, blobs()[0], samples=3, seed=0).mean, atol=1e-3)


@pytest.mark.parametrize("method", bl.METHODS)
def test_every_method_compiles_into_whole_graphs(method: str, graphs: list[Any]) -> None:
    """The estimator is switched after pre-training and the KL after the warm-up: three graphs."""
    options: dict[str, Any] = {"epochs": 4, "pretrain_epochs": 1}
    eager = trained(small(method=method), False, **options)
    compiled = trained(small(method=method), True, **options)
    assert len(graphs) == 3
    assert distance(eager, compiled) < 1e-5


def test_the_ninth_network_is_compiled_too(graphs: list[Any]) -> None:
    """torch stops compiling a function after eight recompilations, without a word."""
    for width in range(3, 14):
        before = len(graphs)
        model = bl.mlp([3, width, 3], method="graves")
        trained(model, True, epochs=1, kl_schedule=None)
        assert len(graphs) == before + 1, width


def test_a_schedule_of_many_values_does_not_recompile(graphs: list[Any]) -> None:
    trained(small(method="graves"), True, epochs=15, kl_schedule=lambda progress: 0.01 + progress.fraction)
    assert len(graphs) == 1
