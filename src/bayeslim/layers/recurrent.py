"""Bayesian recurrent layers: one network per sequence, not one per time step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from bayeslim.layers.base import BayesLayer
from bayeslim.layers.linear import Linear
from bayeslim.layers.scan import Cell, State, scan
from bayeslim.moment_rules.shapes import cat, stack
from bayeslim.ops import LinearOp

__all__ = ["GRU", "LSTM"]


class _Recurrent(nn.Module, ABC):
    """What LSTM and GRU share: layers, directions, lengths and the loop over time.

    The weights are drawn once per forward pass and used at every time step, whichever sampling estimator
    is set; `mean_only` uses their means, and `moments` takes the time steps as independent. torch's fused kernels
    run the drawn weights where they can; they block `vmap` and `torch.compile(fullgraph=True)` and know no lengths,
    where a loop over time steps does the same, the input products of all steps still in one matrix product.
    """

    plain_type: ClassVar[type[nn.RNNBase]]
    states: ClassVar[int]
    fused: ClassVar[Callable[..., tuple[Tensor, ...]]]
    """torch's kernel of one layer in one direction."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        **bayes: Any,
    ) -> None:
        super().__init__()
        kind: Any = self.plain_type
        self._adopt(kind(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional), bayes)

    @classmethod
    def from_torch(cls, plain: nn.RNNBase, **bayes: Any) -> Self:
        """Give the weights of a plain torch layer posteriors centred on them."""
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        layer._adopt(plain, bayes)
        return layer

    def _adopt(self, plain: nn.RNNBase, bayes: dict[str, Any]) -> None:
        if plain.proj_size:
            raise ValueError(
                f"`proj_size`={plain.proj_size} is not supported: use a {type(plain).__name__} without it, "
                "followed by a linear layer"
            )
        self.input_size, self.hidden_size, self.num_layers = (
            plain.input_size,
            plain.hidden_size,
            plain.num_layers,
        )
        self.bias, self.batch_first, self.bidirectional = plain.bias, plain.batch_first, plain.bidirectional
        self.dropout = nn.Dropout(plain.dropout)
        suffixes = [
            f"l{index}{direction}"
            for index in range(plain.num_layers)
            for direction in (("", "_reverse") if plain.bidirectional else ("",))
        ]
        self.cells = nn.ModuleList(self._cell(plain, suffix, bayes) for suffix in suffixes)

    @abstractmethod
    def _cell(self, plain: nn.RNNBase, suffix: str, bayes: dict[str, Any]) -> Cell:
        """The cell around the weights of `plain` with this suffix."""

    @abstractmethod
    def _step(self, gates: Tensor, state: State, from_hidden: Callable[[Tensor], Tensor]) -> State:
        """The state after one time step; `gates` is the input's part, `from_hidden` gives the state's."""

    @property
    def mode(self) -> str:
        """The name of torch's layer: "LSTM" or "GRU"."""
        return self.plain_type.__name__

    @property
    def proj_size(self) -> int:
        """Always 0: projections are not supported."""
        return 0

    def flatten_parameters(self) -> None:
        """Do nothing: the weights are drawn anew in every pass, so there is no chunk of memory to keep them in."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        """As torch's layer: `(output, state)`.

        Args:
            input: (time, batch, features), (batch, time, features) with `batch_first`, unbatched
                (time, features), or a `PackedSequence`.
            hx: initial state, (layers * directions, batch, hidden) each; zeros when None.
        """
        x, state = input, hx
        if isinstance(x, PackedSequence):
            return self._forward_packed(x, state)
        unbatched = x.ndim == 2
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size:
            raise ValueError(
                f"`input` must end in (time, {self.input_size}) with an optional batch axis, got {tuple(x.shape)}"
            )
        if unbatched:
            x, state = x[:, None], self._map(state, lambda part: part[:, None])
        elif self.batch_first:
            x = x.transpose(0, 1)
        output, final = self._run(x, state, None)
        if unbatched:
            return output[:, 0], self._map(final, lambda part: part[:, 0])
        return (output.transpose(0, 1) if self.batch_first else output), final

    def _forward_packed(self, packed: PackedSequence, state: Any) -> tuple[PackedSequence, Any]:
        # By indexing, since torch's own functions have no rule for `vmap`.
        times, rows = _places(packed)
        shape = len(packed.batch_sizes), int(packed.batch_sizes[0])
        x = packed.data.new_zeros(*shape, self.input_size).index_put((times, rows), packed.data)
        valid = torch.zeros(*shape, 1, dtype=torch.bool, device=x.device)
        valid[times, rows] = True
        output, final = self._run(x, state, valid)
        order = packed.sorted_indices, packed.unsorted_indices
        return PackedSequence(output[times, rows], packed.batch_sizes, *order), final

    def _run(self, x: Tensor, state: Any, valid: Tensor | None) -> tuple[Tensor, Any]:
        """All layers and directions over x (time, batch, features), where `valid` (time, batch, 1)."""
        start = self._start(x, state)
        directions = 2 if self.bidirectional else 1
        finals: list[State] = []
        for index in range(self.num_layers):
            outputs: list[Tensor] = []
            for direction in range(directions):
                number = index * directions + direction
                initial = tuple(part[number] for part in start)
                cell = cast(Cell, self.cells[number])
                output, final = scan(cell, x, initial, valid, direction == 1, self._step, type(self).fused)
                outputs.append(output)
                finals.append(final)
            x = cat(outputs, dim=-1)
            if index < self.num_layers - 1:
                x = self.dropout(x)
        stacked = tuple(stack(parts) for parts in zip(*finals, strict=True))
        return x, stacked if self.states > 1 else stacked[0]

    def _start(self, x: Tensor, state: Any) -> State:
        if state is None:
            zeros = x.new_zeros(len(self.cells), x.shape[1], self.hidden_size)
            return (zeros,) * self.states
        parts = state if self.states > 1 else (state,)
        expected = (len(self.cells), x.shape[1], self.hidden_size)
        for part in parts:
            if tuple(part.shape) != expected:
                raise ValueError(f"`hx` must have shape {expected}, got {tuple(part.shape)}")
        return tuple(parts)

    def _map(self, state: Any, function: Callable[[Tensor], Tensor]) -> Any:
        """Apply `function` to a state, which is a tensor, a pair or None."""
        if state is None:
            return None
        return tuple(map(function, state)) if isinstance(state, tuple) else function(state)

    def to_torch(self) -> nn.RNNBase:
        """The plain torch layer with the posterior means as its weights."""
        kind: Any = self.plain_type
        plain = kind(
            self.input_size,
            self.hidden_size,
            self.num_layers,
            self.bias,
            self.batch_first,
            self.dropout.p,
            self.bidirectional,
            device="meta",
        )
        for suffix, half, layer in self._halves():
            weight, bias = layer.mean_tensors()
            setattr(plain, f"weight_{half}_{suffix}", nn.Parameter(weight))
            if self.bias:
                bias = weight.new_zeros(len(weight)) if bias is None else bias
                setattr(plain, f"bias_{half}_{suffix}", nn.Parameter(bias))
        return plain

    def _halves(self) -> Iterator[tuple[str, str, BayesLayer]]:
        """The suffix and half of torch's parameter names, and the layer that stands for them."""
        directions = 2 if self.bidirectional else 1
        for number, cell in enumerate(cast(list[Cell], self.cells)):
            suffix = f"l{number // directions}{'_reverse' if number % directions else ''}"
            yield suffix, "ih", cell.input
            yield suffix, "hh", cell.hidden

    def sources(self, plain: nn.RNNBase) -> Iterator[tuple[BayesLayer, Tensor, Tensor | None]]:
        """The layers inside, each with the weight and bias of `plain` that it stands for."""
        for suffix, half, layer in self._halves():
            bias = getattr(plain, f"bias_{half}_{suffix}") if self.bias else None
            yield layer, getattr(plain, f"weight_{half}_{suffix}"), bias


def _places(packed: PackedSequence) -> tuple[Tensor, Tensor]:
    """The time and the row in the batch, as it was before sorting, of every entry of `packed.data`."""
    times, rows = (torch.arange(int(packed.batch_sizes[0])) < packed.batch_sizes[:, None]).nonzero(as_tuple=True)
    times, rows = times.to(packed.data.device), rows.to(packed.data.device)
    return times, rows if packed.sorted_indices is None else packed.sorted_indices[rows]


class LSTM(_Recurrent):
    """A Bayesian LSTM; options as in `torch.nn.LSTM`, then `BayesLayer`'s.

    torch adds two bias vectors where one suffices; here their sum is one bias.

    Example:
        >>> layer = LSTM(8, 16, num_layers=2, bidirectional=True, batch_first=True, prior=ARD())
        >>> layer(torch.randn(4, 10, 8))[0].shape
        torch.Size([4, 10, 32])
    """

    plain_type = nn.LSTM
    states = 2
    fused = staticmethod(torch.lstm)

    def _cell(self, plain: nn.RNNBase, suffix: str, bayes: dict[str, Any]) -> Cell:
        weights = getattr(plain, f"weight_ih_{suffix}"), getattr(plain, f"weight_hh_{suffix}")
        bias = None
        if plain.bias:
            bias = getattr(plain, f"bias_ih_{suffix}") + getattr(plain, f"bias_hh_{suffix}")
        return Cell(
            Linear.around(LinearOp(), weights[0], bias, **bayes),
            Linear.around(LinearOp(), weights[1], None, **bayes),
        )

    def _step(self, gates: Tensor, state: State, from_hidden: Callable[[Tensor], Tensor]) -> State:
        hidden, cell = state
        gates = gates + from_hidden(hidden)
        enter, forget, candidate, leave = gates.chunk(4, dim=-1)
        cell = forget.sigmoid() * cell + enter.sigmoid() * candidate.tanh()
        return leave.sigmoid() * cell.tanh(), cell


class GRU(_Recurrent):
    """A Bayesian GRU; options as in `torch.nn.GRU`, then `BayesLayer`'s.

    Example:
        >>> layer = GRU(8, 16)
        >>> layer(torch.randn(10, 4, 8))[0].shape
        torch.Size([10, 4, 16])
    """

    plain_type = nn.GRU
    states = 1
    fused = staticmethod(torch.gru)

    def _cell(self, plain: nn.RNNBase, suffix: str, bayes: dict[str, Any]) -> Cell:
        halves = [
            Linear.around(
                LinearOp(),
                getattr(plain, f"weight_{half}_{suffix}"),
                getattr(plain, f"bias_{half}_{suffix}") if plain.bias else None,
                **bayes,
            )
            for half in ("ih", "hh")
        ]
        return Cell(*halves)

    def _step(self, gates: Tensor, state: State, from_hidden: Callable[[Tensor], Tensor]) -> State:
        (hidden,) = state
        reset_in, update_in, new_in = gates.chunk(3, dim=-1)
        reset_h, update_h, new_h = from_hidden(hidden).chunk(3, dim=-1)
        reset, update = (reset_in + reset_h).sigmoid(), (update_in + update_h).sigmoid()
        candidate = (new_in + reset * new_h).tanh()
        # in the type of the state, which autocast leaves alone
        return (torch.lerp(candidate.to(hidden.dtype), hidden, update.to(hidden.dtype)),)
