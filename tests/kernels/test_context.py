"""Functions with a gradient of their own, called the short way."""

from typing import Any

import torch
from torch import Tensor

from bayeslim.kernels.context import applied


class Cube(torch.autograd.Function):
    """`x^3`, with twice its gradient, to be told from torch's own."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, count: int) -> Tensor:
        return x**3

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return 6 * ctx.saved_tensors[0] ** 2 * gradients[0], None


def test_values_and_gradients_are_the_functions_own() -> None:
    x = torch.tensor([1.0, -2.0], requires_grad=True)
    output = applied(Cube, x, 1)
    output.sum().backward()
    assert torch.equal(output, x**3) and torch.equal(x.grad, 6 * x**2)  # pyright: ignore[reportArgumentType]
    assert not applied(Cube, x.detach(), 1).requires_grad


def test_transforms_and_compilers_follow() -> None:
    x = torch.tensor([1.0, -2.0, 0.5])
    assert torch.equal(torch.vmap(lambda part: applied(Cube, part, 1))(x), x**3)
    assert torch.equal(torch.func.grad(lambda part: applied(Cube, part, 1).sum())(x), 6 * x**2)
    compiled = torch.compile(lambda part: applied(Cube, part, 1) + 1, backend="aot_eager", fullgraph=True)
    x.requires_grad_()
    compiled(x).sum().backward()
    assert torch.equal(x.grad, 6 * x.detach() ** 2)  # pyright: ignore[reportArgumentType]
