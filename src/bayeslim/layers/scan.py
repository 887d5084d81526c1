"""One layer of a recurrent network in one direction over time: by torch's fused kernel, or step by step."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

from bayeslim.estimators import kind_of
from bayeslim.kernels.context import may_be_followed
from bayeslim.layers.base import BayesLayer
from bayeslim.moment_rules.shapes import stack

__all__ = ["Cell", "State", "scan"]

State = tuple[Tensor, ...]
Step = Callable[[Tensor, State, Callable[[Tensor], Tensor]], State]
"""The state after one time step, of the input's part of the gates, the state and a function that gives the state's."""
Kernel = Callable[..., tuple[Tensor, ...]]
"""`torch.lstm` or `torch.gru`."""


class Cell(nn.Module):
    """The two weights of one layer and direction: `input` (gates, in) and `hidden` (gates, hidden)."""

    def __init__(self, input: BayesLayer, hidden: BayesLayer) -> None:
        super().__init__()
        self.input, self.hidden = input, hidden


def scan(
    cell: Cell, x: Tensor, state: State, valid: Tensor | None, backwards: bool, step: Step, kernel: Kernel
) -> tuple[Tensor, State]:
    """Outputs (time, batch, hidden) and the last state, with one draw of the weights for all time steps.

    Past the end of a sequence the state stands still and the output is zero.

    Args:
        cell: the weights.
        x: (time, batch, features).
        state: (batch, hidden) each, at the start.
        valid: (time, batch, 1), whether a sequence is that long; None if all are.
        backwards: from the last time step to the first.
        step: what happens at a time step.
        kernel: what does the same for all of them.

    Example:
        >>> output, (hidden,) = scan(cell, x, (torch.zeros(4, 16),), None, False, gru._step, torch.gru)
    """
    if valid is None and _runs_fused(cell, x):
        return _fused(cell, x, state, backwards, kernel)
    gates, from_hidden = _one_draw(cell.input)(x), _one_draw(cell.hidden)
    outputs: list[Tensor] = []
    order = range(len(x) - 1, -1, -1) if backwards else range(len(x))
    for time in order:
        new = step(gates[time], state, from_hidden)
        if valid is None:
            state, output = new, new[0]
        else:
            state = tuple(torch.where(valid[time], a, b) for a, b in zip(new, state, strict=True))
            output = torch.where(valid[time], new[0], 0.0)
        outputs.append(output)
    return stack(outputs[::-1] if backwards else outputs), state


def _fused(cell: Cell, x: Tensor, state: State, backwards: bool, kernel: Kernel) -> tuple[Tensor, State]:
    """Whole sequences by torch's kernel, which is told to train wherever a gradient may be wanted."""
    drawn = [half.draw() for half in (cell.input, cell.hidden)]
    weights = [weight for weight, _ in drawn]
    if any(bias is not None for _, bias in drawn):
        weights += [weight.new_zeros(len(weight)) if bias is None else bias for weight, bias in drawn]
    initial = tuple(part[None] for part in state)
    start = initial if len(state) == 2 else initial[0]  # torch.gru takes its one state as it is
    options = len(weights) > 2, 1, 0.0, torch.is_grad_enabled(), False, False
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "RNN module weights are not part", UserWarning)  # drawn: never one chunk
        output, *final = kernel(x.flip(0) if backwards else x, start, weights, *options)
    return output.flip(0) if backwards else output, tuple(part[0] for part in final)


def _runs_fused(cell: Cell, x: Tensor) -> bool:
    """Whether torch's kernel may run: on plain numbers of one type, where nothing has to look into the loop."""
    kind = x.device.type
    return (
        type(x) is Tensor
        and kind in ("cpu", "cuda")
        and not torch.is_autocast_enabled(kind)
        and not may_be_followed()
        and all(kind_of(half.estimator) != "moments" for half in (cell.input, cell.hidden))
    )


def _one_draw(layer: BayesLayer) -> Callable[[Tensor], Tensor]:
    """The map of `layer` for a whole pass, with one draw for all calls; moments have nothing to draw."""
    if kind_of(layer.estimator) == "moments":
        return layer
    weight, bias = layer.draw()
    return lambda x: nn.functional.linear(x, weight, bias)
