"""Networks trained side by side by compiled code and CUDA graphs, against plain steps."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.training import replay, stack
from bayeslim.training.many import fit_many
from bayeslim.training.stack import Objective, Stack
from training.problems import blobs, distance, small, state
from training.stacks import EVERY_WAY, SETTINGS, noisy, plain


@EVERY_WAY
@pytest.mark.parametrize("build", [noisy, plain])
def test_compiled_losses_and_gradients_are_the_plain_ones(
    monkeypatch: pytest.MonkeyPatch, few_weights: int, build: Callable[[int], nn.Module]
) -> None:
    """Also after a change of phase, which compiles anew; running statistics advance as well."""
    if (build, bool(few_weights)) != (noisy, True):  # code is generated once, which takes seconds, else only graphs
        compile = torch.compile
        monkeypatch.setattr(torch, "compile", lambda function, **options: compile(function, backend="aot_eager"))
    monkeypatch.setattr(stack, "FEW_WEIGHTS", few_weights)
    x, y, beta = torch.randn(2, 7, 3), torch.arange(14).view(2, 7) % 3, torch.tensor([0.5, 2.0])
    ends: list[list[Tensor]] = []
    for whether in (False, True):
        models = [build(seed) for seed in range(2)]
        joint = Stack([Objective(model, bl.Categorical(), num_data=50) for model in models], compile=whether)
        found: list[Tensor] = []
        for kl in (True, False):
            with bl.using(nn.ModuleList(models), bl.mean_only) if not kl else nullcontext():
                found += joint.set_gradients_(x, y, beta, kl)
            found += [p.grad for model in models for p in model.parameters() if p.grad is not None]
        assert joint.vectorised == bool(few_weights)
        ends.append([*found, *(tensor for model in models for tensor in model.state_dict().values())])
    torch.testing.assert_close(ends[1], ends[0], rtol=1e-4, atol=1e-5, equal_nan=True)  # the KL of no use


def test_compiled_networks_draw_noise_of_their_own() -> None:
    models = [small(0) for _ in range(2)]
    fit_many(models, blobs(), seeds=[7, 7], lr=1e-2, compile=True, **SETTINGS)
    assert distance(models[0], models[1]) > 1e-3


@pytest.mark.cuda
@pytest.mark.parametrize("method", ["ard", "graves", "k-tied"])
def test_compiled_networks_learn_on_cuda(method: str) -> None:
    """The joint draws have kernels of their own there, which no vectorised code can use."""
    models = [small(seed, method) for seed in range(3)]
    options: dict[str, Any] = SETTINGS | {"epochs": 12, "lr": 1e-2}
    histories = fit_many(models, blobs(43), seeds=range(3), device="cuda", compile=True, **options)
    assert all(history["nll"][-1] < 0.7 * history["nll"][0] for history in histories)


@pytest.mark.cuda
@pytest.mark.parametrize("method", ["ard", "graves"])
def test_a_cuda_graph_gives_what_plain_steps_give(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    ends = []
    for warm_up in (10**9, 3):
        monkeypatch.setattr(replay, "WARM_UP", warm_up)
        models = [small(seed, method) for seed in range(3)]
        options: dict[str, Any] = SETTINGS | {"epochs": 12, "pretrain_epochs": 5, "kl_weight": [0.5, 1.0, 2.0]}
        fit_many(models, blobs(43), seeds=range(3), device="cuda", **options)
        ends.append([state(model) for model in models])
    assert max(distance(a, b) for a, b in zip(*ends, strict=True)) < 1e-4
