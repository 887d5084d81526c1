"""Samples that are subgraphs of their own: torch's exporter sees one network, and the file holds them all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.export import export_onnx, onnx_graph, sample_networks
from bayeslim.export.samples import LoopedSamples
from bayeslim.likelihoods import Gaussian, HeteroscedasticGaussian, Likelihood
from export.networks import bayesian, convolutional


class Attending(nn.Module):
    """Attention, whose batching rule fixes the batch size."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(x).mean(1))


class Odd(nn.Module):
    """A parameter with the name of the graph's input, a weight in two places, an unsaved buffer, a constant."""

    factor: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.input = nn.Parameter(torch.randn(3))
        self.conv, self.first, self.second = nn.Conv1d(3, 3, 2), nn.Linear(3, 3), nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("factor", torch.tensor([1.5, 2.5, 3.5]), persistent=False)
        self.head = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.second(self.first(self.conv(x)[:, :, 0]).tanh()) * self.factor + self.input
        return self.head(mixed + torch.tensor([0.5, -0.5, 1.0]))


class Branching(nn.Module):
    """A condition on the data, whose branches are graphs inside a node."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv1d(3, 4, 1), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        features = self.conv(x).amax(2)
        chosen = torch.cond(features.sum() > 0, lambda f: self.head(f), lambda f: -2 * self.head(f), (features,))
        return chosen + features


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolutional": (convolutional, (2, 8, 8)),
    "attending": (Attending, (4, 8)),
    "odd": (Odd, (3, 2)),
    "branching": (Branching, (3, 2)),
}


def network(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    torch.manual_seed(0)
    build, shape = NETWORKS[name]
    return bayesian(build(), 0.3), shape


def exported(model: nn.Module, path: Path, shape: tuple[int, ...], samples: int, likelihood: Likelihood) -> Any:
    """The ONNX model, which does not depend on the comparison with the network."""
    export_onnx(model, path, torch.randn(3, *shape), samples, likelihood, seed=5)
    return onnx.load(path)


def assert_right(model: nn.Module, path: Path, shape: tuple[int, ...], samples: int, likelihood: Likelihood) -> None:
    """The answers of the file are those of the drawn networks, for other batch sizes as well."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    looped = LoopedSamples(sample_networks(model, samples, 5), likelihood).eval()
    names = ["mean", "epistemic", "aleatoric"]
    assert [part.name for part in session.get_outputs()] == names
    for batch in (1, 2, 7):
        x = torch.randn(batch, *shape)
        with torch.no_grad():
            expected = looped(x)
        assert batch == 1 or expected[1].max() > 1e-6  # the samples differ
        for found, wanted in zip(session.run(names, {"input": x.numpy()}), expected, strict=True):
            np.testing.assert_allclose(np.asarray(found), wanted.numpy(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_answers_are_those_of_the_drawn_networks(name: str, tmp_path: Path) -> None:
    model, shape = network(name)
    path = tmp_path / "net.onnx"
    content = exported(model, path, shape, 5, bl.Categorical()).SerializeToString()
    assert b".py" not in content and b"bayeslim" not in content
    assert_right(model, path, shape, 5, bl.Categorical())


@pytest.mark.parametrize("likelihood", [Gaussian(0.3), HeteroscedasticGaussian()])
def test_likelihoods(likelihood: Likelihood, tmp_path: Path) -> None:
    model, shape = network("convolutional")
    plain: Any = model
    plain[-1] = bl.layers.Linear(16, 4)
    exported(model, tmp_path / "net.onnx", shape, 3, likelihood)
    assert_right(model, tmp_path / "net.onnx", shape, 3, likelihood)


def test_the_exporter_sees_one_network_however_many_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, shape = network("convolutional")
    seen: list[int] = []
    translated = onnx_graph._translated

    def counted(program: torch.export.ExportedProgram, outputs: list[str]) -> Any:
        seen.append(len(program.graph.nodes))
        return translated(program, outputs)

    monkeypatch.setattr(onnx_graph, "_translated", counted)
    exported(model, tmp_path / "two.onnx", shape, 2, bl.Categorical())
    two, seen[:] = list(seen), []
    exported(model, tmp_path / "nine.onnx", shape, 9, bl.Categorical())
    assert two == seen and len(two) == 2


def test_tensors_that_networks_share_are_stored_once(tmp_path: Path) -> None:
    model, shape = network("odd")
    graph = exported(model, tmp_path / "net.onnx", shape, 5, bl.Categorical()).graph
    sizes = [int(np.prod(tensor.dims)) for tensor in graph.initializer]
    # five draws of the three weights; the biases, the parameter, the buffer and the constant once
    assert all(sizes.count(size) == 5 for size in (9, 12, 18)) and sizes.count(3) == 5 and sizes.count(4) == 1


def test_half_precision(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = bayesian(nn.Sequential(nn.Conv1d(3, 4, 1), nn.Flatten(), nn.Linear(8, 2)), 0.3).half()
    x = torch.randn(3, 3, 2).half()
    export_onnx(model, tmp_path / "net.onnx", x, 4, bl.Categorical())
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"])
    with torch.no_grad():
        expected = LoopedSamples(sample_networks(model, 4), bl.Categorical()).eval()(x)
    found: Any = session.run(["mean"], {"input": x.numpy()})[0]
    np.testing.assert_allclose(found, expected[0].numpy(), atol=1e-2)
