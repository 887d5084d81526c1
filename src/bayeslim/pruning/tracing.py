"""Record the operations of a network between its layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx, nn

from bayeslim import layers
from bayeslim.pruning.containers import traceable_forward
from bayeslim.pruning.linear_map import BAYESIAN, PLAIN
from bayeslim.runtime.swapping import swapped
from bayeslim.select import Select

__all__ = ["attributes_read", "parameters_read", "shapes_of", "tied_modules", "traced"]

SIZES = ("in_features", "out_features", "in_channels", "out_channels", "kernel_size")
"""Of layers: numbers while the network is traced, also where a layer computes them from its parameters."""
LEAVES = (layers.BayesLayer, layers.MultiheadAttention, layers.LSTM, layers.GRU, Select)


class _Tracer(fx.Tracer):
    """Stops at Bayesian layers, torch's own modules but its containers, and modules that cannot be followed."""

    def __init__(self, opaque: set[nn.Module]) -> None:
        super().__init__()
        self.opaque = opaque

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether the call of `m` is one node."""
        if m in self.opaque or isinstance(m, LEAVES):
            return True
        return traceable_forward(m) is None and super().is_leaf_module(m, module_qualified_name)

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Follow a container of torch by what it calls, in place of its own forward."""
        return super().call_module(m, traceable_forward(m) or forward, args, kwargs)


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
        if tracer.is_leaf_module(module, "") or traceable_forward(module) is not None:
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


@contextmanager
def attributes_read(root: nn.Module) -> Iterator[dict[nn.Module, set[str]]]:
    """Note which attributes of linear layers and convolutions are read inside the block, in which nothing calls them.

    A network may ask a layer for its `in_features` or its weight, which a `Select` in front of it would hide.
    """
    layers_of = [module for module in root.modules() if type(module) in (*BAYESIAN, *PLAIN)]
    read: dict[nn.Module, set[str]] = {module: set() for module in layers_of}
    common = set(dir(nn.Module)) | {"training"}

    def noting(module: nn.Module) -> type[nn.Module]:
        kind = type(module)
        sizes = {name: getattr(module, name) for name in SIZES if hasattr(module, name)}

        def look_up(self: Any, name: str) -> Any:
            if not name.startswith("_") and name not in common:
                read[self].add(name)
            return sizes[name] if name in sizes else kind.__getattribute__(self, name)

        return type(kind.__name__, (kind,), {"__getattribute__": look_up, "__module__": kind.__module__})

    with swapped((module, "__class__", noting(module)) for module in layers_of):
        yield read


def parameters_read(root: nn.Module, graph: fx.Graph) -> set[nn.Module]:
    """Modules with a parameter that the network uses in a way of its own, besides asking for its type or device."""
    found: set[nn.Module] = set()
    for node in graph.nodes:
        asks = all(user.target is getattr and user.args[1] in ("dtype", "device") for user in node.users)
        if node.op == "get_attr" and not asks:
            parts = str(node.target).split(".")[:-1]
            found.update(root.get_submodule(".".join(parts[:end])) for end in range(1, len(parts) + 1))
    return found
