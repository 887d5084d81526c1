"""Products by oneDNN against torch's own, and who stays out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

import bayeslim as bl
from bayeslim.kernels import linear, onednn
from bayeslim.kernels.onednn import LARGE, product_by_onednn

if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
    pytest.skip("this torch comes without oneDNN", allow_module_level=True)


@pytest.fixture(autouse=True)
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let oneDNN multiply on any processor."""
    monkeypatch.setattr(onednn, "FASTER", True)


def multiplies(run: Callable[[], Any]) -> bool:
    """Whether oneDNN's operator ran."""
    with torch.profiler.profile() as found:
        run()
    return any("mkldnn" in event.name for event in found.events() or ())


def matrices(*shapes: tuple[int, ...]) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape) for shape in shapes]


def test_products_are_those_in_double_precision() -> None:
    for turned_x in (False, True):
        for turned_weight in (False, True):
            x, weight, bias = matrices((70, 130), (65, 130), (65,))
            x = x.T.contiguous().T if turned_x else x
            weight = weight.T.contiguous().T if turned_weight else weight
            for b in (bias, None):
                expected = F.linear(x.double(), weight.double(), None if b is None else b.double())
                torch.testing.assert_close(product_by_onednn(x, weight, b).double(), expected, rtol=1e-4, atol=1e-4)
            assert multiplies(lambda x=x, weight=weight: product_by_onednn(x, weight, None))


BIASES: dict[str, Callable[[], Tensor]] = {
    "a column": lambda: torch.randn(65, 2)[:, 0],
    "every other": lambda: torch.randn(130)[::2],
    "expanded": lambda: torch.randn(1).expand(65),
    "one for all": lambda: torch.randn(1),
    "a row": lambda: torch.randn(1, 65),
    "double": lambda: torch.randn(65, dtype=torch.float64),
}


def test_unusual_tensors_stay_with_torch() -> None:
    """OneDNN reads memory as if a bias were contiguous and as long as the outputs."""
    x, weight = matrices((70, 130), (65, 130))
    for name, make in BIASES.items():
        if name == "double":
            continue
        bias = make()
        torch.testing.assert_close(product_by_onednn(x, weight, bias), x @ weight.T + bias, rtol=1e-4, atol=1e-4)
    for dtype in (torch.float64, torch.bfloat16):
        assert product_by_onednn(x.to(dtype), weight.to(dtype), None).dtype == dtype
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        product_by_onednn(x[:, 1:], weight, None)
    torch.backends.mkldnn.enabled = False  # pyright: ignore[reportAttributeAccessIssue]
    try:
        assert not multiplies(lambda: product_by_onednn(x, weight, None))
    finally:
        torch.backends.mkldnn.enabled = True  # pyright: ignore[reportAttributeAccessIssue]


def test_torch_multiplies_where_somebody_follows() -> None:
    """Gradients, transforms, tangents, modes that note functions, autocast, tracing, compilers, other types."""
    rows, columns, outputs = 130, 200, 170
    assert rows * columns * outputs >= LARGE
    x, weight, bias = matrices((rows, columns), (outputs, columns), (outputs,))
    expected = F.linear(x, weight, bias)
    close: Any = lambda found, wanted=expected: torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)  # noqa: E731
    with torch.no_grad():
        assert multiplies(lambda: close(linear(x, weight, bias)))
        assert multiplies(lambda: close(linear(x.view(2, 65, columns), weight, bias), expected.view(2, 65, outputs)))
        runs: dict[str, Callable[[], Any]] = {
            "vmap": lambda: close(torch.vmap(lambda part: linear(part, weight, bias))(x[None])[0]),
            "compiled": lambda: close(torch.compile(linear, backend="aot_eager", fullgraph=True)(x, weight, bias)),
            "double": lambda: linear(x.double(), weight.double()),
            "sparse": lambda: linear(x.to_sparse(), weight),
        }
        torch.compiler.reset()  # other tests may have compiled it as often as torch allows
        for name, run in runs.items():
            assert not multiplies(run), name
        traced: Any = torch.jit.trace(lambda part: linear(part, weight, bias), x, check_trace=False)
        close(traced(x + 1), F.linear(x + 1, weight, bias))
        with FlopCounterMode(display=False) as counter:
            linear(x, weight)
        assert counter.get_total_flops() == 2 * rows * columns * outputs
        with forward_ad.dual_level():
            dual = linear(forward_ad.make_dual(x, x), weight)
            close(forward_ad.unpack_dual(dual).tangent, F.linear(x, weight))
        with torch.autocast("cpu", torch.bfloat16):
            assert linear(x, weight).dtype == torch.bfloat16
    x.requires_grad_()
    (slope,) = torch.autograd.grad(linear(x, weight).sum(), x, create_graph=True)
    close(slope, weight.sum(0).expand(rows, columns))


def test_training_uses_it_and_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, x, y = bl.mlp([256, 128, 3], method="graves"), torch.randn(160, 256), torch.arange(160) % 3
    results: list[list[Tensor]] = []

    def step() -> None:
        torch.manual_seed(1)
        loss = bl.nelbo(model, x, y, likelihood=bl.Categorical(), num_data=160).loss
        results.append([loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))])

    assert multiplies(step)
    monkeypatch.setattr(onednn, "FASTER", False)
    assert not multiplies(step)
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-4)
