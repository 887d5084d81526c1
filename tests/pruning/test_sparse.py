"""Sparse layers give the dense outputs and are used only where they were measured to be faster."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.pruning import MAGNITUDE, prune_, sparse
from bayeslim.pruning.sparse import SparseLinear, sparsify_
from contracts.cases import each


def thin(inputs: int, outputs: int, keep: float = 0.05, bias: bool = True) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, bias)
    with torch.no_grad():
        layer.weight.mul_(torch.rand(outputs, inputs) < keep)
    return layer


def set_times(monkeypatch: pytest.MonkeyPatch, dense: float, csr: float) -> None:
    monkeypatch.setattr(sparse, "_times", lambda first, second, x: (dense, csr))


@each("shape", [(30,), (1, 30), (7, 30), (2, 3, 30), (0, 30)])
@each("bias", [True, False])
@each("keep", [0.0, 0.1, 1.0])
def test_outputs_are_the_dense_ones(shape: tuple[int, ...], bias: bool, keep: float) -> None:
    torch.manual_seed(0)
    plain, x = thin(30, 20, keep, bias), torch.randn(shape)
    layer = SparseLinear(plain)
    with torch.no_grad():
        found = layer(x)
        assert found.shape == plain(x).shape
        assert torch.allclose(found, plain(x), atol=1e-5)
        assert torch.equal(layer.dense_weight(), plain.weight)
    assert len(layer.values) == int(plain.weight.count_nonzero())


def test_copies_and_states() -> None:
    torch.manual_seed(0)
    plain, x = thin(30, 20), torch.randn(4, 30)
    layer = SparseLinear(plain)
    expected = layer(x)
    for copied in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(copied(x), expected)
    other = nn.Linear(30, 20)
    with torch.no_grad():
        other.weight.copy_(plain.weight.roll(1, 1))
    twin = SparseLinear(other)
    assert not torch.allclose(twin(x), expected)
    twin.load_state_dict(layer.state_dict())
    assert torch.equal(twin(x), expected)
    assert all(not tensor.is_sparse_csr for tensor in layer.state_dict().values())
    assert not list(layer.parameters())
    assert "sparsity=0.9" in repr(layer)


def test_layers_are_replaced_where_csr_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(thin(30, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), thin(20, 3))
    x = torch.randn(5, 30)
    with torch.no_grad():
        expected = model(x)
    seen: list[torch.Size] = []

    def times(dense: nn.Module, csr: nn.Module, x: Tensor) -> tuple[float, float]:
        seen.append(x.shape)
        return (2e-3, 1e-3) if len(seen) == 1 else (1e-3, 0.96e-3)

    monkeypatch.setattr(sparse, "_times", times)
    choices = sparsify_(model, x)
    assert choices == {
        "0": "csr (1.000 ms, dense 2.000 ms)",
        "2": "dense (sparsity 0.000)",
        "4": "dense (1.000 ms, csr 0.960 ms)",
    }
    assert seen == [torch.Size([5, 30]), torch.Size([5, 20])]
    assert [type(model[index]) for index in (0, 2, 4)] == [SparseLinear, nn.Linear, nn.Linear]
    assert not model[2]._forward_pre_hooks
    with torch.no_grad():
        assert torch.allclose(model(x), expected, atol=1e-5)


def test_the_threshold_decides_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    set_times(monkeypatch, 1.0, 0.1)
    layer = nn.Linear(10, 10)
    with torch.no_grad():
        layer.weight[:5] = 0
    x = torch.randn(2, 10)
    assert sparsify_(nn.Sequential(copy.deepcopy(layer)), x, threshold=0.5) == {"0": "dense (sparsity 0.500)"}
    assert sparsify_(nn.Sequential(copy.deepcopy(layer)), x, threshold=0.49)["0"].startswith("csr")


def test_a_real_measurement_prefers_csr_for_a_large_sparse_layer() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(thin(1500, 1500, keep=0.002))
    choices = sparsify_(model, torch.randn(200, 1500))
    assert choices["0"].startswith("csr (")
    assert isinstance(model[0], SparseLinear)


def test_a_real_measurement_prefers_dense_for_a_tiny_layer() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(thin(10, 10, keep=0.1))
    assert sparsify_(model, torch.randn(1, 10))["0"].startswith("dense (0.")


class Twice(nn.Module):
    """One layer under two names, and one that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.first = self.second = thin(6, 6, 0.1)
        self.unused = thin(6, 6, 0.1)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


def test_shared_and_unused_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    set_times(monkeypatch, 1.0, 0.1)
    torch.manual_seed(0)
    model, x = Twice(), torch.randn(3, 6)
    with torch.no_grad():
        expected = model(x)
        choices = sparsify_(model, x)
        assert choices["first"].startswith("csr") and choices["unused"] == "dense (not reached by the example)"
        assert model.first is model.second and isinstance(model.first, SparseLinear)
        assert torch.allclose(model(x), expected, atol=1e-5)


def test_fused_layers_keep_their_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    set_times(monkeypatch, 1.0, 0.1)
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with torch.no_grad():
        model.linear1.weight.zero_()
    x = torch.randn(2, 3, 8)
    choices = sparsify_(model, x)
    assert choices["linear1"] == "dense (used by a fused layer)"
    with torch.no_grad():
        assert model(x).shape == x.shape


def test_a_pruned_network_runs_sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    set_times(monkeypatch, 1.0, 0.1)
    torch.manual_seed(0)
    model = bl.bayesianize_(bl.models.mlp([20, 30, 5]))
    prune_(model, MAGNITUDE, amount=0.9, scope="layer")
    x = torch.randn(6, 20)
    with pytest.raises(ValueError, match="call collapse_"):
        sparsify_(model, x)
    plain = bl.collapse_(model)
    with torch.no_grad():
        expected = plain(x)
        assert all(choice.startswith("csr") for choice in sparsify_(plain, x).values())
        assert torch.allclose(plain(x), expected, atol=1e-5)


def test_bad_arguments_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for threshold in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="`threshold` must lie in"):
            sparsify_(nn.Sequential(), torch.zeros(1), threshold)
    with pytest.raises(ValueError, match="on the CPU"):
        sparsify_(nn.Linear(2, 2, device="meta"), torch.zeros(1, 2))
    set_times(monkeypatch, 1.0, 0.1)
    bare: Any = thin(10, 10, 0.1)
    with pytest.raises(ValueError, match="wrap it in nn.Sequential"):
        sparsify_(bare, torch.zeros(1, 10))
