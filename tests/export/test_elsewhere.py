"""Plain weights and torch.export programs work in a process that never imports bayeslim."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.export import export_program, export_torch, mean_network
from export.networks import bayesian, convolutional, outputs, pruned

READ_WEIGHTS = """
import sys
import torch
from safetensors.torch import load_file, save_file
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 2)
    def forward(self, x):
        return self.second(torch.relu(self.first(x)))

folder = sys.argv[1]
net = Net()
net.load_state_dict(load_file(folder + "/plain.safetensors"))
y = net(load_file(folder + "/x.safetensors")["x"])
save_file({"y": y.detach()}, folder + "/y.safetensors")
assert "bayeslim" not in sys.modules
"""

RUN_PROGRAM = """
import sys
import torch
from safetensors.torch import load_file, save_file
folder = sys.argv[1]
found = {}
for name, x in load_file(folder + "/x.safetensors").items():
    network = torch.export.load(f"{folder}/{name.split()[0]}.pt2").module()
    found[name] = network(x).detach().contiguous()
save_file(found, folder + "/y.safetensors")
assert "bayeslim" not in sys.modules
"""


def elsewhere(script: str, folder: Path) -> dict[str, Tensor]:
    subprocess.run([sys.executable, "-W", "ignore", "-c", script, str(folder)], check=True, timeout=120)
    return safetensors.torch.load_file(folder / "y.safetensors")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))


def test_plain_weights_load_elsewhere(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = pruned(bayesian(Net()), 0.4), torch.randn(4, 6)
    plain = export_torch(model, tmp_path / "plain.safetensors")
    assert type(plain.get_submodule("first")) is nn.Linear and not plain.training
    assert isinstance(model.get_submodule("first"), bl.layers.Linear)
    safetensors.torch.save_file({"x": x}, tmp_path / "x.safetensors")
    assert torch.allclose(elsewhere(READ_WEIGHTS, tmp_path)["y"], outputs(plain, x), atol=1e-6)
    with bl.using(model, bl.mean_only):
        assert torch.allclose(outputs(model, x), outputs(plain, x), atol=1e-6)
    header = (tmp_path / "plain.safetensors").read_bytes()[:400]
    assert b"bayeslim" not in header


def test_tied_weights_are_written(tmp_path: Path) -> None:
    net = Net()
    net.first = nn.Linear(6, 6)
    net.second = nn.Linear(6, 6)
    net.second.weight = net.first.weight
    export_torch(bayesian(net), tmp_path / "plain.safetensors")
    found = safetensors.torch.load_file(tmp_path / "plain.safetensors")
    assert torch.equal(found["first.weight"], found["second.weight"])


PROGRAMS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "perceptron": (lambda: bl.models.mlp([6, 5, 2], "sin"), (6,)),
    "convolutional": (convolutional, (2, 8, 8)),
}


def test_programs_run_elsewhere_at_any_batch_size(tmp_path: Path) -> None:
    torch.manual_seed(0)
    inputs: dict[str, Tensor] = {}
    expected: dict[str, Tensor] = {}
    for name, (build, shape) in PROGRAMS.items():
        model = pruned(bayesian(build()), 0.3)
        export_program(model, tmp_path / f"{name}.pt2", torch.zeros(1, *shape))
        for batch in (1, 2, 5):
            inputs[f"{name} {batch}"] = torch.randn(batch, *shape)
            expected[f"{name} {batch}"] = outputs(mean_network(model), inputs[f"{name} {batch}"])
    safetensors.torch.save_file(inputs, tmp_path / "x.safetensors")
    found = elsewhere(RUN_PROGRAM, tmp_path)
    assert found.keys() == expected.keys()
    assert all(torch.allclose(found[name], expected[name], atol=1e-5) for name in expected)
    assert b"test_elsewhere.py" not in (tmp_path / "perceptron.pt2").read_bytes()
    assert b"site-packages" not in (tmp_path / "perceptron.pt2").read_bytes()


def test_a_bad_example_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not accept inputs of shape \\(N, 7\\)"):
        export_program(Net(), tmp_path / "net.pt2", torch.zeros(3, 7))
    assert not (tmp_path / "net.pt2").exists()
