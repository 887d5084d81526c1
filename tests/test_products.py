"""Products by oneDNN against torch's own: values, gradients of two orders, compiled code, and who stays out."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

import bayeslim as bl
from bayeslim import products
from bayeslim.products import linear, product

if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
    pytest.skip("this torch comes without oneDNN", allow_module_level=True)


@pytest.fixture
def uses(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Let oneDNN multiply whatever it may, on any machine; note the shapes of the rows it is given."""
    found: list[tuple[int, ...]] = []

    def noted(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        found.append((*x.shape, len(weight)))
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")

    for name, value in {"ONEDNN_IS_FASTER": True, "LARGE": 1, "SUMS": 1, "LEAST": 1, "by_onednn": noted}.items():
        monkeypatch.setattr(products, name, value)
    return found


def matrices(*shapes: tuple[int, ...]) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape) for shape in shapes]


def assert_close(found: Any, expected: Any) -> None:
    """As sums of some hundred float32 products agree."""
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize(("turned_x", "turned_weight"), [(False, False), (True, False), (False, True), (True, True)])
def test_products_are_those_in_double_precision(
    with_bias: bool, turned_x: bool, turned_weight: bool, uses: list[Any]
) -> None:
    x, weight, bias = matrices(
        (33, 130) if not turned_x else (130, 33), (130, 65) if turned_weight else (65, 130), (65,)
    )
    x, weight = x.T if turned_x else x, weight.T if turned_weight else weight
    found = product(x, weight, bias if with_bias else None)
    expected = F.linear(x.double(), weight.double(), bias.double() if with_bias else None)
    assert uses == [(33, 130, 65)] and found.is_contiguous()
    assert_close(found.double(), expected)


@pytest.mark.parametrize("shape", [(7, 20), (2, 3, 20)])
def test_gradients_of_two_orders_are_those_of_torch(shape: tuple[int, ...], uses: list[Any]) -> None:
    tensors = [(0.3 * tensor).requires_grad_() for tensor in matrices(shape, (9, 20), (9,))]

    def derivatives(function: Callable[..., Tensor]) -> list[Tensor]:
        output = function(*tensors)
        first = torch.autograd.grad(output.sin().sum(), tensors, create_graph=True)
        second = torch.autograd.grad(torch.stack([g.square().sum() for g in first]).sum(), tensors)
        return [output, *first, *second]

    found = derivatives(linear)
    assert len(uses) >= 6
    assert_close(found, derivatives(F.linear))


def test_only_wanted_gradients_are_computed(uses: list[Any]) -> None:
    x, weight = matrices((7, 20), (9, 20))
    linear(x, weight.requires_grad_()).sum().backward()
    assert uses == [(7, 20, 9), (9, 7, 20)] and x.grad is None


def test_samples_that_share_a_weight_are_one_product(uses: list[Any]) -> None:
    x, weight, bias = matrices((4, 5, 3, 20), (9, 20), (9,))
    with torch.no_grad():
        found = torch.vmap(lambda rows: linear(rows, weight, bias), in_dims=1, out_dims=1)(x)
    assert uses == [(60, 20, 9)]
    assert_close(found, F.linear(x, weight, bias))


def test_samples_with_weights_of_their_own_stay_a_batch(uses: list[Any]) -> None:
    x, weights, bias, biases = matrices((5, 20), (4, 9, 20), (9,), (4, 9))
    with torch.no_grad():
        found = torch.vmap(lambda weight: linear(x, weight, bias))(weights)
        assert_close(torch.vmap(lambda b: linear(x, weights[0], b))(biases), F.linear(x, weights[0]) + biases[:, None])
    assert not uses
    assert_close(found, torch.stack([F.linear(x, weight, bias) for weight in weights]))


def test_torch_multiplies_where_somebody_follows(uses: list[Any]) -> None:
    """Other transforms, tangents, modes that note functions, autocast, tracing, other types."""
    x, weight, bias = matrices((7, 20), (9, 20), (9,))
    expected = F.linear(x, weight, bias)
    assert_close(torch.func.grad(lambda w: linear(x, w, bias).sum())(weight), x.sum(0).expand(9, 20))
    jacobian: Any = torch.func.jacrev(lambda rows: linear(rows, weight))(x)
    assert jacobian.shape == (7, 9, 7, 20)
    with forward_ad.dual_level():
        dual = linear(forward_ad.make_dual(x, x), weight)
        assert_close(forward_ad.unpack_dual(dual).tangent, F.linear(x, weight))
    with FlopCounterMode(display=False) as counter:
        linear(x, weight)
    assert counter.get_total_flops() == 2 * 7 * 20 * 9
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(x, weight).dtype == torch.bfloat16
    traced: Any = torch.jit.trace(lambda rows: linear(rows, weight, bias), x, check_trace=False)
    assert_close(traced(x + 1), F.linear(x + 1, weight, bias))
    for dtype in (torch.float64, torch.bfloat16):
        assert linear(x.to(dtype), weight.to(dtype)).dtype == dtype
        assert product(x.to(dtype), weight.to(dtype)).dtype == dtype
    assert_close(linear(x[0], weight, bias), expected[0])
    assert not uses


BIASES: dict[str, Callable[[], Tensor]] = {
    "a column": lambda: torch.randn(9, 2)[:, 0],
    "every other": lambda: torch.randn(18)[::2],
    "expanded": lambda: torch.randn(1).expand(9),
    "one for all": lambda: torch.randn(1),
    "a number": lambda: torch.randn(()),
    "a row": lambda: torch.randn(1, 9),
    "one per row": lambda: torch.randn(7, 9),
}


@pytest.mark.parametrize("name", BIASES)
def test_unusual_biases_stay_with_torch(name: str, uses: list[Any]) -> None:
    """OneDNN reads memory as if a bias were contiguous and as long as the outputs."""
    x, weight = matrices((7, 20), (9, 20))
    bias = BIASES[name]()
    expected = x @ weight.T + bias
    assert_close(linear(x, weight, bias), expected)
    assert_close(product(x, weight, bias), expected)
    assert_close(torch.compile(linear, backend="aot_eager")(x, weight, bias), expected)
    with torch.no_grad():
        assert_close(torch.vmap(lambda rows: linear(rows, weight, bias))(x.expand(3, 7, 20)), expected.expand(3, 7, 9))
    assert not uses


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype")
def test_unusual_inputs_stay_with_torch(uses: list[Any]) -> None:
    """Sparse and nested tensors, subclasses, and values with a variance, compiled too."""
    x, weight, bias = matrices((7, 20), (9, 20), (9,))
    for sparse in (x.to_sparse(), x.to_sparse_csr()):
        assert_close(linear(sparse, weight, bias), F.linear(x, weight, bias))
    assert_close(linear(x, weight.to_sparse_csr()), F.linear(x, weight))
    nested = torch.nested.nested_tensor([x, x[:3]])
    assert_close(linear(nested, weight, bias).unbind()[1], F.linear(x[:3], weight, bias))

    class Own(torch.Tensor):
        pass

    assert type(linear(x.as_subclass(Own), weight)) is Own
    layer = bl.layers.Linear(20, 9, estimator=bl.mean_only)
    value: Any = bl.Gaussian(x, x.square())
    expected = layer(value)
    compiled = torch.compile(lambda m, v: layer(bl.Gaussian.of(m, v)).variance, backend="aot_eager", fullgraph=True)
    assert_close(compiled(x, x.square()), expected.variance)
    assert not uses


def test_small_and_narrow_products_stay_with_torch(uses: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = matrices((64, 64), (64, 64))
    monkeypatch.setattr(products, "LARGE", 64**3 + 1)
    linear(x, weight)
    product(x, weight)
    monkeypatch.setattr(products, "LARGE", 64**3)
    monkeypatch.setattr(products, "LEAST", 65)
    linear(x, weight)
    assert not uses
    monkeypatch.setattr(products, "LEAST", 64)
    monkeypatch.setattr(products, "SUMS", 64**2 + 1)
    linear(x, weight)
    assert not uses
    monkeypatch.setattr(products, "SUMS", 64**2)
    linear(x, weight)
    assert uses == [(64, 64, 64)]


@pytest.mark.parametrize("function", [linear, product])
def test_torchs_own_switch_counts(function: Any, uses: list[Any]) -> None:
    x, weight = matrices((7, 20), (9, 20))
    before = torch._C._get_mkldnn_enabled()
    try:
        torch._C._set_mkldnn_enabled(False)
        assert_close(function(x, weight), x @ weight.T)
        assert not uses
    finally:
        torch._C._set_mkldnn_enabled(before)
    function(x, weight)
    assert uses == [(7, 20, 9)]


@pytest.mark.parametrize("function", [linear, product])
def test_wrong_sizes_and_types_get_the_message_of_torch(function: Any, uses: list[Any]) -> None:
    x, weight = matrices((7, 20), (9, 21))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        function(x, weight)
    with pytest.raises(RuntimeError, match="dtype"):
        function(x, weight[:, :20].double())
    assert not uses


@pytest.mark.parametrize(
    ("vendor", "capability", "mkl", "faster"),
    [
        ("AuthenticAMD", "AVX512", True, True),
        ("AuthenticAMD", "AVX2", True, False),
        ("GenuineIntel", "AVX512", True, False),
        ("AuthenticAMD", "AVX512", False, False),
        (None, "AVX512", True, False),
    ],
)
def test_onednn_is_for_amd_with_avx512(
    vendor: str | None, capability: str, mkl: bool, faster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "processor", {"vendor_id": vendor}.get)
    monkeypatch.setattr("platform.processor", lambda: "")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    assert products._onednn_is_faster() is faster


def test_windows_names_the_vendor_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "processor", lambda fact: None)
    monkeypatch.setattr("platform.processor", lambda: "AMD64 Family 26 Model 2 Stepping 1, AuthenticAMD")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    assert products._onednn_is_faster()


ESTIMATORS = [bl.mean_only, bl.weight_sample, bl.local_reparam, bl.flipout, bl.moments]


def objective(model: torch.nn.Module, x: Tensor, backend: str | None) -> tuple[Tensor, list[Tensor]]:
    """The loss and its gradients, with the same noise whoever multiplies."""
    torch.manual_seed(3)
    settings: dict[str, Any] = {"likelihood": bl.Categorical(), "num_data": 50}
    y = torch.arange(len(x)) % 3
    nelbo = torch.compile(bl.nelbo, fullgraph=True, backend=backend) if backend else bl.nelbo
    loss: Tensor = nelbo(model, x, y, **settings).loss
    model.zero_grad()
    loss.backward()
    return loss.detach(), [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize(
    ("estimator", "backend"),
    [*((e, None) for e in ESTIMATORS), *((e, "aot_eager") for e in ESTIMATORS[:3]), (bl.moments, "inductor")],
)
def test_training_is_the_same_whoever_multiplies(
    estimator: Any, backend: str | None, uses: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.compiler.reset()
    torch.manual_seed(1)
    model = bl.mlp([20, 17, 16, 3], method="graves", estimator=estimator)
    (x,) = matrices((33, 20))
    found = objective(copy.deepcopy(model), x, backend)
    assert len(uses) >= 3 + 5  # outputs of three layers, and gradients by weights and by inputs, but not by data
    monkeypatch.setattr(products, "ONEDNN_IS_FASTER", False)
    torch.compiler.reset()
    before = len(uses)
    expected = objective(copy.deepcopy(model), x, backend)
    assert len(uses) == before
    assert_close(found, expected)


@pytest.mark.parametrize("estimator", [bl.weight_sample, bl.local_reparam, bl.moments])
def test_compiled_steps_multiply_by_onednn(estimator: Any, uses: list[Any]) -> None:
    torch.compiler.reset()
    graphs: list[str] = []

    def noting(graph: Any, inputs: Any) -> Any:
        graphs.append(graph.print_readable(print_output=False))
        return graph.forward

    model = bl.mlp([20, 17, 3], method="graves", estimator=estimator)
    (x,) = matrices((33, 20))
    y, settings = torch.arange(33) % 3, {"likelihood": bl.Categorical(), "num_data": 50}
    torch.compile(bl.nelbo, backend=noting, fullgraph=True)(model, x, y, **settings)
    assert len(graphs) == 1 and "bayeslim.product" in graphs[0]


def test_exported_programs_hold_torchs_own_functions(uses: list[Any]) -> None:
    model = bl.mlp([20, 17, 3], method="graves", estimator=bl.mean_only).eval()
    (x,) = matrices((33, 20))
    for strict in (False, True):
        program = torch.export.export(model, (x,), strict=strict)
        assert not any("bayeslim" in str(node.target) or "mkldnn" in str(node.target) for node in program.graph.nodes)
        assert_close(program.module()(x), model(x))


def test_predictions_are_the_same_whoever_multiplies(uses: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    model = bl.mlp([20, 17, 3], method="ard").eval()
    (x,) = matrices((33, 20))
    settings: dict[str, Any] = {"likelihood": bl.Categorical(), "seed": 0}
    ways = [{"samples": 20}, {"samples": 20, "estimator": bl.weight_sample}, {"method": "moments"}, {"method": "mean"}]
    found = [bl.predict(model, x, **settings, **way).mean for way in ways]
    assert uses
    monkeypatch.setattr(products, "ONEDNN_IS_FASTER", False)
    assert_close(found, [bl.predict(model, x, **settings, **way).mean for way in ways])
