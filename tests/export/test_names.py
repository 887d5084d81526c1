"""Odd names of submodules and files: the graph loads and answers as torch does, or is refused with a message."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim.export import export_onnx, export_program, mean_network
from export.networks import outputs

HARMLESS = ["日本🌹", "a b/c", "<b>&", "{0}%s", "input", "output", "mean", "inner_output", "1"]
REFUSED = ["class", '"', "'", "\\", ";", ",", "[0]", "\n", "\x00", "\x1b"]


def named(name: str) -> nn.Sequential:
    torch.manual_seed(0)
    network = nn.Sequential()
    network.add_module(name, nn.Linear(3, 4))
    network.add_module("last", nn.Linear(4, 2))
    bl.bayesianize_(network)
    return network


@pytest.mark.parametrize("name", HARMLESS)
def test_odd_names_load_elsewhere(name: str, tmp_path: Path) -> None:
    model, x = named(name), torch.randn(5, 3)
    expected = outputs(mean_network(model), x).numpy()
    path = tmp_path / f"<{name.replace('/', ' ')}>.onnx"
    export_onnx(model, path, x)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [part.name for part in (*session.get_inputs(), *session.get_outputs())] == ["input", "output"]
    assert np.abs(session.run(None, {"input": x.numpy()})[0] - expected).max() < 1e-6
    export_program(model, tmp_path / "net.pt2", x)
    program = torch.export.load(tmp_path / "net.pt2").module()
    with torch.no_grad():
        assert np.abs(program(x).numpy() - expected).max() < 1e-6


@pytest.mark.parametrize("name", REFUSED)
def test_names_that_torch_would_not_escape_are_refused(name: str, tmp_path: Path) -> None:
    model, x = named(f"x{name}" if name != "class" else name), torch.randn(5, 3)
    for export in (export_onnx, export_program):
        with pytest.raises(ValueError, match="torch cannot write a graph with the name"):
            export(model, tmp_path / "net", x)
    assert not any(tmp_path.iterdir())
