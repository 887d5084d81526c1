"""What every plain network is checked for."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

Build = Callable[[], nn.Module]


def parameters(build: Build) -> int:
    """Number of parameters, without the memory."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build().parameters())


def check_module(build: Build, x: Tensor) -> None:
    """Copies and reloaded networks agree, `x` stays as it is, and no state is left by a forward in eval."""
    torch.manual_seed(0)
    model, other = build().eval(), build().eval()
    before, kept = x.clone(), {name: value.clone() for name, value in model.state_dict().items()}
    output = model(x)
    assert output.isfinite().all()
    assert torch.equal(x, before)
    assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())
    assert not torch.equal(other(x), output)
    other.load_state_dict(model.state_dict())
    for same in (other, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(same(x), output)


def check_gradients(build: Build, x: Tensor) -> None:
    """Every parameter has a gradient; in eval, where a batch normalisation does not cancel a bias."""
    torch.manual_seed(1)
    model = build().double().eval()
    model(x.double() if x.is_floating_point() else x).square().sum().backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert not without


def check_vmap(build: Build, x: Tensor) -> None:
    """`torch.vmap` over weights, and over inputs, equals a loop."""
    torch.manual_seed(2)
    models = [build().double().eval() for _ in range(2)]
    x = x.double() if x.is_floating_point() else x
    weights, buffers = stack_module_state(models)

    def call(weights: dict[str, Tensor], buffers: dict[str, Tensor]) -> Tensor:
        return functional_call(models[0], (weights, buffers), (x,))

    with torch.no_grad():
        torch.testing.assert_close(torch.vmap(call)(weights, buffers), torch.stack([m(x) for m in models]))
        batches = torch.stack([x, x.flip(0), x.roll(1, -1)])
        torch.testing.assert_close(torch.vmap(models[0])(batches), torch.stack([models[0](batch) for batch in batches]))


def check_compile(build: Build, x: Tensor) -> None:
    """One graph without breaks, in training and in eval, that computes the same."""
    torch.manual_seed(3)
    model = build()
    model(x)  # moves the running averages once, before both are compared
    torch.compiler.reset()  # every compiled nn.Sequential counts against one limit of recompilations
    twin = copy.deepcopy(model)
    compiled = torch.compile(twin, fullgraph=True, backend="eager")
    for mode in (True, False):
        twin.train(mode)
        model.train(mode)
        torch.manual_seed(4)
        expected = model(x)
        torch.manual_seed(4)
        assert torch.equal(compiled(x), expected)


def check_batches(build: Build, x: Tensor) -> None:
    """In eval an example's output does not depend on the others."""
    torch.manual_seed(5)
    model = build().double().eval()
    x = x.double() if x.is_floating_point() else x
    with torch.no_grad():
        torch.testing.assert_close(torch.cat([model(row[None]) for row in x]), model(x))


def image(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(6))
