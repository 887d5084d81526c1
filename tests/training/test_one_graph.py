"""Updates compiled as one function: those of plain steps, and who falls back to these."""

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.likelihoods import Gaussian
from bayeslim.likelihoods.base import Likelihood
from bayeslim.training.one_graph import OneGraph, fits_one_graph
from bayeslim.training.step import Stepper
from training.problems import blobs, distance, line, small

Adam = partial(torch.optim.Adam, lr=1e-2)


@pytest.fixture(autouse=True)
def cheaper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile without generating code, which takes seconds; test_compiled_training does."""
    compile = torch.compile

    def without_code(function: Callable[..., Any], *, fullgraph: bool, **_: Any) -> Any:
        return compile(function, backend="aot_eager", fullgraph=fullgraph)

    monkeypatch.setattr(torch, "compile", without_code)


def steppers(model: nn.Module, likelihood: Likelihood, optimizer: Any = Adam, **options: Any) -> list[Stepper]:
    """One that takes plain steps and one that compiles, of copies of a network."""
    found: list[Stepper] = []
    for compile in (False, True):
        parts = nn.ModuleList([copy.deepcopy(model), copy.deepcopy(likelihood)])
        network, own = parts
        assert isinstance(own, Likelihood)
        found.append(Stepper(network, own, optimizer(parts.parameters()), 48, compile=compile, **options))
    return found


def states(stepper: Stepper) -> list[Tensor]:
    """Everything that a step changes."""
    moments = [stepper.optimizer.state[p] for p in stepper.parameters]
    return [*stepper.parameters, *(state[name] for state in moments for name in ("step", "exp_avg", "exp_avg_sq"))]


def assert_same(plain: Stepper, whole: Stepper, rtol: float) -> None:
    torch.testing.assert_close(states(whole), states(plain), rtol=rtol, atol=0.1 * rtol)
    assert whole.whole is not None and plain.whole is None
    assert all(parameter.grad is None for parameter in whole.parameters)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_are_those_of_torchs_adam(dtype: torch.dtype) -> None:
    """Two learning rates, settings of Adam's own, a schedule, a likelihood with a parameter, batches of two sizes."""

    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        first, *rest = parameters
        groups = [{"params": [first], "lr": 0.1, "betas": (0.5, 0.9), "eps": 0.1}, {"params": rest}]
        return torch.optim.Adam(groups, lr=1e-2, fused=True)

    torch.manual_seed(0)
    model = bl.mlp([3, 8, 2], method="graves", estimator=bl.moments).to(dtype)
    pair = steppers(model, Gaussian(0.5, learn_noise=True, outputs=2).to(dtype), optimizer)
    x, y = (part.to(dtype) for part in line())
    for number in range(6):
        rows = slice(0, 32) if number % 2 else slice(32, 48)
        for stepper in pair:
            stepper.step([(x[rows], y[rows])], beta=0.3 * number, lr_factor=1 / (1 + number))
    assert_same(*pair, rtol=1e-5 if dtype == torch.float32 else 1e-9)
    summaries = [stepper.epoch_summary() for stepper in pair]
    assert summaries[1] == pytest.approx(summaries[0], rel=1e-5)


def test_parameters_without_a_part_stay() -> None:
    """Scales in pre-training: momentum of before must not move them, nor their count of steps grow."""
    pair = steppers(small(method="graves"), bl.Categorical())
    for stepper in pair:
        for estimator, beta in ((bl.moments, 1.0), (bl.mean_only, 0.0), (bl.mean_only, 0.0), (bl.moments, 1.0)):
            with bl.using(stepper.model, estimator):
                torch.manual_seed(1)
                stepper.step([blobs()], beta, 1.0)
    plain, whole = ([int(s.optimizer.state[p]["step"]) for p in s.parameters] for s in pair)
    assert plain == whole and set(plain) == {2, 4}


def test_a_loss_that_is_not_finite_changes_nothing() -> None:
    _, whole = steppers(small(), bl.Categorical())
    x, y = blobs()
    whole.step([(x, y)], 1.0, 1.0)
    before = [tensor.clone() for tensor in states(whole)]
    with pytest.raises(FloatingPointError, match="the nll became nan in batch 2"):
        whole.step([(torch.full_like(x, torch.nan), y)], 1.0, 1.0)
    counts = {id(whole.optimizer.state[p]["step"]) for p in whole.parameters}
    for tensor, old in zip(states(whole), before, strict=True):
        assert torch.equal(tensor, old) or id(tensor) in counts


def test_a_run_goes_on_either_way(tmp_path: Path) -> None:
    """Resumed with compiled steps after plain ones and back: the state is Adam's own."""
    settings: dict[str, Any] = {"data": blobs(), "likelihood": bl.Categorical(), "seed": 0}
    whole, mixed = without_noise(), without_noise()
    bl.fit(whole, epochs=6, **settings)
    for epochs, compile in ((2, False), (4, True), (6, False)):
        bl.fit(mixed, epochs=epochs, compile=compile, checkpoint=tmp_path, resume=True, **settings)
    assert distance(whole, mixed) < 1e-5 < 1e-3 < distance(whole, without_noise())


def without_noise() -> nn.Module:
    torch.manual_seed(0)
    return bl.mlp([3, 8, 3], method="graves", estimator=bl.mean_only)


def with_gradient_hook() -> tuple[nn.Module, Any]:
    model = small()
    next(model.parameters()).register_hook(lambda gradient: 2 * gradient)
    return model, Adam


def with_module_hook() -> tuple[nn.Module, Any]:
    model = small()
    model[0].register_full_backward_hook(lambda *_: None)
    return model, Adam


def with_step_hook() -> tuple[nn.Module, Any]:
    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        made = Adam(parameters)
        made.register_step_post_hook(lambda *_: None)
        return made

    return small(), optimizer


def with_another_step() -> tuple[nn.Module, Any]:
    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        made = Adam(parameters)
        torch.optim.lr_scheduler.StepLR(made, 1)
        return made

    return small(), optimizer


@pytest.mark.parametrize(
    "build",
    [
        with_another_step,
        with_gradient_hook,
        with_module_hook,
        with_step_hook,
        lambda: (small(), torch.optim.AdamW),
        lambda: (small(), torch.optim.SGD),
        lambda: (small(), partial(Adam, weight_decay=0.1)),
        lambda: (small(), partial(Adam, amsgrad=True)),
        lambda: (small(), partial(Adam, maximize=True)),
        lambda: (small(), partial(Adam, lr=torch.tensor(0.1))),
    ],
)
def test_other_updates_are_left_to_torch(build: Callable[[], tuple[nn.Module, Any]]) -> None:
    model, optimizer = build()
    assert fits_one_graph(small(), bl.Categorical(), Adam(small().parameters()))
    assert not fits_one_graph(model, bl.Categorical(), optimizer(model.parameters()))


def test_scalars_in_float64_are_left_to_torch() -> None:
    """Compiled code changes a copy of them (torch 2.13): here the learned noise."""
    x, y = (part.double() for part in line())
    model = bl.mlp([3, 8, 2], method="graves", estimator=bl.moments)
    pair = steppers(model.double(), Gaussian(learn_noise=True).double())
    for stepper in pair:
        stepper.step([(x, y)], 1.0, 1.0)
    plain, other = pair
    torch.testing.assert_close(states(other), states(plain))


@pytest.mark.parametrize("option", [{"clip_norm": 1.0}, {"autocast": torch.bfloat16}, {"one_graph": False}])
def test_settings_that_change_gradients_are_left_to_torch(option: dict[str, Any]) -> None:
    assert steppers(small(), bl.Categorical(), **option)[1].whole is None


def test_accumulated_batches_are_left_to_torch() -> None:
    pair = steppers(without_noise(), bl.Categorical())
    x, y = blobs()
    for stepper in pair:
        stepper.step([(x[:20], y[:20]), (x[20:], y[20:])], 1.0, 1.0)
        stepper.step([(x, y)], 1.0, 1.0)
    plain, whole = pair
    torch.testing.assert_close(whole.parameters, plain.parameters, rtol=1e-5, atol=1e-6)


class Branching(nn.Module):
    """No compiler follows a branch on a value as one graph."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        return y if y.sum() > 0 else -y


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # of torch about itself
def test_a_network_that_is_no_single_graph_is_compiled_in_pieces() -> None:
    plain, pieces = steppers(Branching(), bl.Categorical())
    assert isinstance(pieces.whole, OneGraph)
    for stepper in (plain, pieces):
        for _ in range(3):
            stepper.step([blobs()], 1.0, 1.0)
    assert pieces.whole is None
    torch.testing.assert_close(states(pieces), states(plain), rtol=1e-5, atol=1e-6)


def test_an_error_of_the_network_is_its_own() -> None:
    _, whole = steppers(small(), bl.Categorical())
    with pytest.raises(RuntimeError, match="same reduction dim"):
        whole.step([(torch.randn(5, 7), torch.zeros(5, dtype=torch.long))], 1.0, 1.0)
