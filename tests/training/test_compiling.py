"""Compiled functions: which conditions are checked before every call, and which cannot change."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.training.compiling import _may_change, compiled

FACTOR = 1.0
"""A setting of a network that somebody wrote, in a module of their own."""


class Scaled(nn.Module):
    """Reads a global of its module, an attribute of its own and another module's function."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = bl.layers.Linear(3, 2, estimator=bl.mean_only)
        self.offset = 0.0

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * FACTOR + self.offset


def applied(model: nn.Module, x: Tensor) -> Tensor:
    return model(x)


@pytest.fixture
def cheaper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without generating code, and with the conditions."""
    compile = torch.compile

    def without_code(function: Any, *, options: dict[str, Any], fullgraph: bool) -> Any:
        kept = {"guard_filter_fn": options["guard_filter_fn"]}
        return compile(function, backend="aot_eager", options=kept, fullgraph=fullgraph)

    monkeypatch.setattr(torch, "compile", without_code)


@pytest.mark.usefixtures("cheaper")
def test_what_users_change_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Globals of their modules, attributes, modes of layers and estimators, from one call to the next."""
    torch.manual_seed(0)
    model, x = Scaled(), torch.randn(4, 3)
    fast = compiled(applied, torch.device("cpu"), whole=True)
    plain = fast(model, x)
    torch.testing.assert_close(plain, model(x))
    monkeypatch.setattr(f"{__name__}.FACTOR", 2.0)
    torch.testing.assert_close(fast(model, x), 2 * plain)
    model.offset = 1.5
    torch.testing.assert_close(fast(model, x), 2 * plain + 1.5)
    with bl.using(model, bl.weight_sample):
        assert not torch.equal(fast(model, x), fast(model, x))
    torch.testing.assert_close(fast(model, x), 2 * plain + 1.5)


@pytest.mark.parametrize(
    ("name", "kind", "checked"),
    [
        ("G['__import_bayeslim_dot_noise'].SINE", "SEQUENCE_LENGTH", False),
        ("G['__import_bayeslim_dot_kl'].kl_divergence", "CLOSURE_MATCH", False),
        ("G['__import_torch_dot_nn_dot_modules_dot_activation'].F.relu", "CLOSURE_MATCH", False),
        ("G['__builtins_dict___0']['isinstance']", "BUILTIN_MATCH", False),
        ("G['__import_math'].log", "BUILTIN_MATCH", False),
        ("G['__import_torch_dot_nn_dot_modules_dot_module']._global_forward_hooks", "TYPE_MATCH", True),
        ("G['__import_torch_dot_backends_dot_mha']._is_fastpath_enabled", "CONSTANT_MATCH", True),
        ("G['__import_mathematics'].FLAG", "BUILTIN_MATCH", True),
        ("G['__import___main__'].activation", "CLOSURE_MATCH", True),
        ("G['__import_torchish'].activation", "CLOSURE_MATCH", True),
        ("G['activation']", "CLOSURE_MATCH", True),
    ],
)
def test_names_that_cannot_change_are_not_checked(name: str, kind: str, checked: bool) -> None:
    guard = SimpleNamespace(name=name, guard_type=kind, is_global=True)
    own = SimpleNamespace(name="model._modules['0'].estimator", guard_type=kind, is_global=False)
    assert _may_change([guard, own]) == [checked, True]


@pytest.mark.usefixtures("cheaper")
def test_some_conditions_are_left_out_and_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a real network: what is left out is global, what the network holds stays."""
    seen: list[Any] = []

    def noting(guards: Any) -> list[bool]:
        chosen = _may_change(guards)
        seen.extend(zip(guards, chosen, strict=True))
        return chosen

    monkeypatch.setattr("bayeslim.training.compiling._may_change", noting)
    fast = compiled(applied, torch.device("cpu"), whole=True)
    fast(bl.mlp([3, 4, 2], method="ard"), torch.randn(4, 3))
    left_out = [guard for guard, checked in seen if not checked]
    assert 0.2 < len(left_out) / len(seen) < 0.8
    assert all(guard.is_global for guard in left_out)
    assert any("estimator" in guard.name for guard, checked in seen if checked)
