"""Layers of every kind compile into one graph, export and vectorise."""

import copy
import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.export.moments import MomentsNetwork
from contracts.cases import each
from contracts.members import POSTERIORS
from contracts.statistics import assert_gaussian_moments
from system.compiled_noise import compiled_noise
from system.matrix import (
    ESTIMATORS,
    KINDS,
    NETWORKS,
    SAMPLING,
    example,
    layer,
    moments_network,
    output,
    with_tensor_output,
)


def gradients(module: nn.Module, function: Any, x: Tensor) -> tuple[Tensor, list[Tensor | None]]:
    """The output for given noise, and the gradients of a sum that weighs every element."""
    module.zero_grad()
    found = output(function, x)
    (found * torch.linspace(-1, 1, found.numel()).view_as(found)).sum().backward()
    return found, [None if p.grad is None else p.grad.clone() for p in module.parameters()]


def assert_compiles(module: nn.Module, x: Tensor, **options: Any) -> None:
    """One graph, and the output and gradients of eager mode for the same noise."""
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, **options)
    with compiled_noise():
        expected, ours = gradients(module, module, x), gradients(module, compiled, x)
    assert torch.allclose(ours[0], expected[0], atol=1e-5)
    for a, b in zip(ours[1], expected[1], strict=True):
        assert (a is None) == (b is None)
        assert a is None or b is None or torch.allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("estimator", ["weight_sample", "local_reparam"])
def test_every_layer_compiles(kind: str, estimator: str) -> None:
    assert_compiles(layer(kind, estimator=ESTIMATORS[estimator]), example(kind), backend="aot_eager")


@pytest.mark.parametrize("kind", ["Linear", "Conv2d"])
@pytest.mark.parametrize("estimator", ["flipout", "mean_only", "moments"])
def test_every_estimator_compiles(kind: str, estimator: str) -> None:
    module = with_tensor_output(layer(kind, estimator=ESTIMATORS[estimator]))
    assert_compiles(module, example(kind), backend="aot_eager")


OTHER_RANKS = ("KTied-1", "KTied-3")
"""They take the same steps as `KTied-2`."""


@pytest.mark.parametrize(
    "posterior", [pytest.param(name, marks=[pytest.mark.slow] if name in OTHER_RANKS else []) for name in POSTERIORS]
)
@pytest.mark.parametrize("estimator", ["weight_sample", "local_reparam"])
def test_every_posterior_compiles(posterior: str, estimator: str) -> None:
    module = layer("Conv2d", posterior=POSTERIORS[posterior], estimator=ESTIMATORS[estimator])
    assert_compiles(module, example("Conv2d"), backend="aot_eager")


@pytest.mark.parametrize(("kind", "estimator"), [("Linear", "local_reparam"), ("Conv2d", "weight_sample")])
def test_inductor_gives_the_eager_results(kind: str, estimator: str) -> None:
    module = layer(kind, estimator=ESTIMATORS[estimator])
    assert_compiles(module, example(kind), options={"fallback_random": True})


def exports() -> list[Any]:
    """Every layer with every estimator; strictly each at least once, as the other way knows the pairs."""
    crossed = [(kind, estimator, True) for kind in KINDS for estimator in ESTIMATORS]
    once = [case for case in crossed if case[0] == "Conv2d" or case[1] == "weight_sample"]
    slow = [pytest.param(*case, marks=pytest.mark.slow) for case in crossed if case not in once]
    return [*((kind, estimator, False) for kind in KINDS for estimator in ESTIMATORS), *once, *slow]


@pytest.mark.parametrize(("kind", "estimator", "strict"), exports())
def test_every_layer_exports(kind: str, estimator: str, strict: bool) -> None:
    """The exported program draws fresh noise on every call, as the layer does."""
    module, x = with_tensor_output(layer(kind, estimator=ESTIMATORS[estimator])), example(kind)
    program = torch.export.export(module, (x,), strict=strict).module()
    for seed in (0, 1):
        assert torch.allclose(output(program, x, seed), output(module, x, seed), atol=1e-5)
    assert torch.equal(output(program, x, 0), output(program, x, 1)) == (estimator not in SAMPLING)


WHOLE = ["lenet", "vit", "resnet", "by hand", "lstm", "gru"]


def assert_same_moments(found: Any, network: nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        mean, variance = network(x)
    assert variance.min().item() >= 0 and variance.max().item() > 0
    torch.testing.assert_close(found[0], mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[1], variance, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("name", WHOLE)
def test_the_moments_of_a_network_compile_into_one_graph(name: str) -> None:
    network, x = moments_network(name)
    torch._dynamo.reset()
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    with torch.no_grad():  # as a prediction is: a graph of its gradient would take most of the time
        found = compiled(x)
    assert_same_moments(found, network, x)


@pytest.mark.parametrize("name", WHOLE)
def test_the_moments_of_a_network_export_strictly(name: str) -> None:
    network, x = moments_network(name)
    program = torch.export.export(network, (x,), strict=True).module()
    assert_same_moments(program(x), network, x)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_moments_of_a_network_export(name: str) -> None:
    network, x = moments_network(name)
    program = torch.export.export(network, (x,), strict=False).module()
    assert_same_moments(program(x), network, x)


def test_a_network_without_bayesian_layers_has_no_moments() -> None:
    with pytest.raises(
        ValueError, match=r"`model` has no Bayesian layer, so its output has no variance: convert it by"
    ):
        MomentsNetwork(nn.Linear(3, 2))


def test_a_moments_network_is_a_copy_in_evaluation() -> None:
    model = bl.mlp([3, 4, 2], estimator=bl.weight_sample).train()
    network = MomentsNetwork(model)
    assert model.training and not network.model.training
    assert {m.estimator for m in model.modules() if isinstance(m, bl.layers.BayesLayer)} == {bl.weight_sample}
    x = torch.randn(2, 3)
    with bl.using(model.eval(), bl.moments):
        expected: Any = model(x)
    mean, variance = network(x)
    assert torch.equal(mean, expected.loc) and torch.equal(variance, expected.variance)


def test_an_exported_program_survives_a_file() -> None:
    module, x = layer("Conv2d"), example("Conv2d")
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(module, (x,)), buffer)
    buffer.seek(0)
    again = torch.export.load(buffer).module()
    assert torch.allclose(output(again, x), output(module, x), atol=1e-5)


def test_the_batch_size_of_an_exported_network_may_vary() -> None:
    torch.manual_seed(0)
    model = bl.mlp([4, 8, 3], estimator=bl.mean_only)
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(model, (torch.randn(4, 4),), dynamic_shapes=({0: batch},)).module()
    for size in (1, 7, 64):
        x = torch.randn(size, 4)
        assert torch.allclose(program(x), model(x), atol=1e-6)


@each("kind", KINDS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_layer_vectorises(kind: str, estimator: str) -> None:
    """Draws of a vectorised pass have the moments that the layer propagates in closed form."""
    module = layer(kind, estimator=ESTIMATORS[estimator]).double()
    x = example(kind).double()
    with torch.no_grad():
        torch.manual_seed(0)
        if estimator == "moments":
            both = torch.vmap(with_tensor_output(module), in_dims=0)(x[:, None])
            assert torch.allclose(both[:, 0, 0], module(x).loc)
            return
        draws = torch.vmap(lambda _: module(x), randomness="different")(torch.zeros(1500))
        with bl.using(module, bl.moments):
            exact = module(x)
    variance = torch.zeros_like(exact.variance) if estimator == "mean_only" else exact.variance
    assert_gaussian_moments(draws, exact.loc, variance)


def test_networks_can_be_run_with_other_parameters() -> None:
    model, x = bl.mlp([4, 8, 3], estimator=bl.mean_only), torch.randn(5, 4)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(2)
    found = torch.func.functional_call(model, dict(other.named_parameters()), (x,))
    assert torch.allclose(found, other(x))
