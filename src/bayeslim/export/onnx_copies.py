"""One network in an ONNX graph several times over, each time with other weights.

All copies have the same nodes, but torch's exporter would take as long for every one as for the first: it sees one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["free_weights_", "repeated"]

Rename = Callable[[str], str]
AXIS, STACK = "first_axis", "stack"
"""Names in the new graph: all others have a prefix with a dot, but for its input and outputs."""


def free_weights_(one: torch.onnx.ONNXProgram, network: nn.Module) -> None:
    """Make the weights of a translated network inputs of its graph, in place, so that nothing is computed from them.

    Args:
        one: not optimised, so that its initializers have the names of parameters and buffers.
        network: what it was made from.
    """
    graph = one.model.graph
    for name in [name for name in graph.initializers if name in _tensors(network)]:
        value = graph.initializers.pop(name)
        value.const_value = None
        graph.inputs.append(value)


def repeated(one: Any, head: Any, networks: Sequence[nn.Module]) -> Any:
    """Run every network on one input, and `head` on their outputs, stacked along a new first axis.

    Args:
        one: ONNX model of a network with free weights; its first input is that of the network, and it has one output.
        head: ONNX model of one input, the stack.
        networks: of one structure; a tensor that several of them hold is stored once.

    Returns:
        The ONNX model, with the input of the network and the outputs of `head`.

    Example:
        >>> free_weights_(one, networks[0])
        >>> repeated(one.model_proto, head.model_proto, networks)
    """
    import onnx
    from onnx import helper

    (given, *weights), result = one.graph.input, one.graph.output[0].name
    graph = onnx.GraphProto(name=one.graph.name, input=[given], output=head.graph.output)
    graph.initializer.append(helper.make_tensor(AXIS, onnx.TensorProto.INT64, [1], [0]))
    shared = {tensor.name: f"networks.{tensor.name}" for tensor in one.graph.initializer}
    graph.initializer.extend(_named(tensor, shared.__getitem__) for tensor in one.graph.initializer)
    stored: dict[int, str] = {}
    rows: list[str] = []
    for index, network in enumerate(networks):
        tensors, names = _tensors(network), {"": "", given.name: given.name} | shared
        for weight in weights:
            tensor = tensors[weight.name]
            if id(tensor) not in stored:
                stored[id(tensor)] = f"network{index}.{weight.name}"
                graph.initializer.append(_stored(stored[id(tensor)], tensor, weight.type.tensor_type.elem_type))
            names[weight.name] = stored[id(tensor)]
        own = _renaming(names, f"network{index}.")
        _extend(graph, one.graph, own)
        rows.append(own(f"{result}.row"))
        graph.node.append(helper.make_node("Unsqueeze", [own(result), AXIS], rows[-1:]))
    graph.node.append(helper.make_node("Concat", rows, [STACK], axis=0))
    names = {"": "", head.graph.input[0].name: STACK} | {value.name: value.name for value in head.graph.output}
    rest = _renaming(names, "moments.")
    _extend(graph, head.graph, rest)
    graph.initializer.extend(_named(tensor, rest) for tensor in head.graph.initializer)
    versions = {part.domain: part for part in (*one.opset_import, *head.opset_import)}
    functions = {(part.domain, part.name, part.overload): part for part in (*one.functions, *head.functions)}
    return onnx.ModelProto(
        ir_version=head.ir_version,
        producer_name=head.producer_name,
        producer_version=head.producer_version,
        graph=graph,
        opset_import=versions.values(),
        functions=functions.values(),
    )


def _tensors(network: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by every name they have."""
    found: dict[str, Tensor] = dict(network.named_parameters(remove_duplicate=False))
    return found | dict(network.named_buffers(remove_duplicate=False))


def _stored(name: str, tensor: Tensor, kind: int) -> Any:
    """A tensor for an ONNX file, which calls its type `kind`."""
    import onnx

    content = tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return onnx.TensorProto(name=name, dims=list(tensor.shape), data_type=kind, raw_data=content)


def _renaming(names: Mapping[str, str], prefix: str) -> Rename:
    """The names of one copy: those given, and others with a prefix."""
    return lambda name: names.get(name, f"{prefix}{name}")


def _extend(graph: Any, part: Any, new: Rename) -> None:
    """Add the nodes of `part`, and what is known of their values, under new names."""
    graph.node.extend(_renamed(node, new) for node in part.node)
    graph.value_info.extend(_named(value, new) for value in part.value_info)


def _renamed(node: Any, new: Rename) -> Any:
    """The node with its values renamed, also in the graphs inside it, such as the branches of a condition."""
    copy = _named(node, new)
    for values in (copy.input, copy.output):
        values[:] = [new(name) for name in values]
    for attribute in copy.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
            inner = [_renamed(part, new) for part in graph.node]
            del graph.node[:]
            graph.node.extend(inner)
            for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
                value.name = new(value.name)
    return copy


def _named(value: Any, new: Rename) -> Any:
    """A copy under a new name."""
    copy = type(value)()
    copy.CopyFrom(value)
    copy.name = new(value.name)
    return copy
