"""Record the operations of a network between its layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn

from bayeslim import layers
from bayeslim.select import Select

__all__ = ["shapes_of", "tied_modules", "traced"]

LEAVES = (layers.BayesLayer, layers.MultiheadAttention, layers.LSTM, layers.GRU, Select)


class _Tracer(fx.Tracer):
    """Stops at Bayesian layers, torch's own modules, and modules that cannot be followed."""

    def __init__(self, opaque: set[nn.Module]) -> None:
        super().__init__()
        self.opaque = opaque

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether the call of `m` is one node."""
        return m in self.opaque or isinstance(m, LEAVES) or super().is_leaf_module(m, module_qualified_name)


def traced(root: nn.Module) -> fx.Graph:
    """The graph of `root`; parts with data-dependent control flow become single nodes.

    Raises:
        ValueError: if the outermost module itself cannot be followed.
    """
    try:
        return _Tracer(set()).trace(root)
    except Exception:
        opaque: set[nn.Module] = set()
    for module in reversed([part for part in root.modules() if part is not root]):  # children before their parents
        tracer = _Tracer(opaque)
        if tracer.is_leaf_module(module, ""):
            continue
        try:
            tracer.trace(module)
        except Exception:
            opaque.add(module)
    graph = _Tracer(opaque).trace(root)
    model = next(root.children())
    if model in opaque:
        try:
            _Tracer(opaque - {model}).trace(model)
        except Exception as error:
            raise ValueError(
                f"`model` ({type(model).__name__}) cannot be compacted: its forward cannot be traced "
                f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}). Move what "
                "depends on the data into a submodule, which is then left as it is, or compact the parts one by one"
            ) from error
    return graph


class _Shapes(fx.Interpreter):
    """Runs a graph and notes the shapes of all tensors."""

    def __init__(self, root: nn.Module, graph: fx.Graph) -> None:
        super().__init__(root, graph=graph)
        self.shapes: dict[fx.Node, torch.Size] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Run one node and note what it gave."""
        result = super().run_node(n)
        if isinstance(result, Tensor):
            self.shapes[n] = result.shape
        return result


def shapes_of(root: nn.Module, graph: fx.Graph, example: Tensor) -> dict[fx.Node, torch.Size]:
    """The shape of every tensor in `graph` for an input like `example`."""
    interpreter = _Shapes(root, graph)
    interpreter.run(example)
    return interpreter.shapes


def tied_modules(root: nn.Module) -> set[nn.Module]:
    """Modules that share a parameter with another place of the network; they cannot be cut on their own."""
    names: dict[int, list[str]] = {}
    for name, parameter in root.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    tied: set[nn.Module] = set()
    for places in names.values():
        if len(places) > 1:
            for place in places:
                parts = place.split(".")[:-1]
                tied.update(root.get_submodule(".".join(parts[:end])) for end in range(1, len(parts) + 1))
    return tied
