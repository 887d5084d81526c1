"""A file that does not answer as the network is never written."""

import importlib.util
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.baselines import MCDropout
from bayeslim.export import export_onnx, export_program
from bayeslim.export.onnx_check import check_answers
from export.networks import bayesian, convolutional


def pooled(**options: Any) -> nn.Module:
    torch.manual_seed(0)
    pool: Any = nn.AvgPool2d(2, **options)
    return bayesian(nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), pool, nn.Flatten(), nn.Linear(27, 2)))


def images() -> Tensor:
    return torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("options", [{}, {"samples": 3, "likelihood": bl.Categorical()}], ids=["mean", "samples"])
def test_an_option_that_the_exporter_loses_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    """torch drops `divisor_override`: 4 instead of 3."""
    path = tmp_path / "net.onnx"
    export_onnx(pooled(), path, images(), **options)
    before = path.read_bytes()
    with pytest.raises(
        ValueError, match=r"does not answer as the network: its '(output|mean)' is off by .*so it was not"
    ):
        export_onnx(pooled(divisor_override=3), path, images(), **options)
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1
    export_program(pooled(divisor_override=3), tmp_path / "net.pt2", images())


def test_without_onnxruntime_there_is_no_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert importlib.util.find_spec("onnx") is not None
    export_onnx(pooled(divisor_override=3), tmp_path / "net.onnx", images())
    assert (tmp_path / "net.onnx").exists()


def scaled(factor: float, outputs: list[str]) -> bytes:
    """A file whose outputs are its input times a factor."""
    names = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 2]) for name in outputs]
    given = onnx.helper.make_tensor_value_info("input", onnx.TensorProto.FLOAT, ["batch", 2])
    value = onnx.helper.make_tensor("factor", onnx.TensorProto.FLOAT, [], [factor])
    nodes = [onnx.helper.make_node("Mul", ["input", "factor"], [name]) for name in outputs]
    graph = onnx.helper.make_graph(nodes, "scaled", [given], names, [value])
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9
    ).SerializeToString()


class Moments(nn.Module):
    """Mean and variance by hand, both proportional to the input."""

    def __init__(self, mean: float, variance: float) -> None:
        super().__init__()
        self.mean, self.variance = mean, variance

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.mean * x, self.variance * x


@pytest.mark.parametrize(
    ("mean", "variance", "wrong"),
    [
        (1.0, 1.0, None),
        (1.0005, 1.0005, None),  # rounding, at most
        (1.01, 1.0, "mean"),
        (1.0, 1.01, "variance"),
        (math.nan, 1.0, None),  # nothing to compare by
    ],
)
def test_the_bound_of_rounding(mean: float, variance: float, wrong: str | None) -> None:
    outputs, x = ["mean", "variance"], torch.tensor([[0.1, 0.5], [1.0, 2.0]])
    content, network = scaled(1.0, outputs), Moments(mean, variance)
    if wrong is None:
        check_answers(content, network, x, outputs)
    else:
        with pytest.raises(ValueError, match=f"its '{wrong}' is off by 0.0[12].* largest value is 2"):
            check_answers(content, network, x, outputs)


def test_answers_that_are_not_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="its 'output' is off by nan"):
        check_answers(scaled(math.nan, ["output"]), nn.Identity(), torch.ones(2, 2), ["output"])


def test_a_random_network_is_not_compared(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 50), MCDropout(0.5), nn.Linear(50, 2))
    export_onnx(net, tmp_path / "net.onnx", torch.randn(2, 3))
    assert (tmp_path / "net.onnx").exists()


def test_what_onnxruntime_cannot_run_is_written_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    net, x = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten()).double(), images().double()
    with pytest.warns(RuntimeWarning, match="onnxruntime cannot run the ONNX file, which was not compared") as caught:
        export_onnx(net, path, x)
    assert caught[0].filename == __file__
    with pytest.raises(Exception, match="NOT_IMPLEMENTED"):
        onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


class Positive(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x > 0


TYPES: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "double": (lambda: bl.models.mlp([3, 8, 2]).double(), torch.randn(4, 3).double()),
    "half": (lambda: bl.models.mlp([3, 8, 2]).half(), torch.randn(4, 3).half()),
    "words": (lambda: nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(8, 2)), torch.ones(2, 2).long()),
    "truth values": (Positive, torch.randn(4, 3)),
    "zeros": (convolutional, torch.zeros(1, 2, 8, 8)),
    "large": (convolutional, 1e4 * torch.randn(2, 2, 8, 8)),
}


@pytest.mark.parametrize("name", TYPES)
def test_sound_files_of_every_type_pass(tmp_path: Path, name: str) -> None:
    torch.manual_seed(0)
    build, x = TYPES[name]
    export_onnx(build(), tmp_path / "net.onnx", x)
    assert (tmp_path / "net.onnx").exists()
