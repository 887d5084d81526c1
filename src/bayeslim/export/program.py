"""A `torch.export` program of the mean network, which torch alone can run."""

from __future__ import annotations

import io
import keyword
import os
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from bayeslim.export.plain import example_batch, mean_network
from bayeslim.storage import write_atomically

__all__ = ["captured", "export_program"]

NOT_IN_NAMES = frozenset("\"'\\;,[]")
"""Characters of a submodule's name that torch does not escape where it writes the name into code and files."""


def export_program(model: nn.Module, path: str | os.PathLike[str], example: Tensor) -> None:
    """Write the mean network as a `.pt2` program: weights and graph in one file, the batch size left open.

    `torch.export.load(path).module()` runs it in a process without bayeslim and without the network's source code.

    Args:
        model: network of one input, Bayesian or not; left as it is.
        path: the file, usually `*.pt2`; replaced atomically.
        example: an input (batch, ...), batch first; its values do not matter, only shape and type.

    Raises:
        TypeError: if the network returns something else than one tensor.
        ValueError: if it does not accept the example, or cannot be captured as a graph.
        OSError: if the file cannot be written.

    Example:
        >>> export_program(model, "net.pt2", x[:2])
        >>> network = torch.export.load("net.pt2").module()
    """
    plain = mean_network(model)
    program = captured(plain, example_batch(plain, example))
    content = io.BytesIO()
    torch.export.save(program, content)
    write_atomically(Path(path), content.getvalue())


@torch.no_grad()
def captured(module: nn.Module, x: Tensor, batch_axis: int = 0) -> torch.export.ExportedProgram:
    """The graph of `module` for any batch size, without a trace of the machine that made it.

    Args:
        module: of one input.
        x: the input.
        batch_axis: of `x`, the one that stays open.

    Raises:
        ValueError: if the module cannot be captured, or only for one batch size, or has a submodule with an odd name.
    """
    for name in (*(name for name, _ in module.named_modules()), *module.state_dict()):
        for part in name.split("."):
            if not part.isprintable() or NOT_IN_NAMES & set(part) or keyword.iskeyword(part):
                raise ValueError(f"torch cannot write a graph with the name {part!r}: rename it, e.g. to 'layer1'")
    batch = torch.export.Dim("batch")
    try:
        with warnings.catch_warnings():
            # Recurrent layers of torch note their weights in a list as well; the graph does not.
            warnings.filterwarnings("ignore", r"The tensor attributes? self\.\S*_flat_weights", UserWarning)
            program = torch.export.export(module, (x,), dynamic_shapes=({batch_axis: batch},))
    except Exception as error:  # whatever the network's own code raises while it is traced
        raise ValueError(
            f"the network cannot be captured as a graph with an open batch size ({type(error).__name__}: {error}): "
            "avoid control flow that depends on values or on the batch size"
        ) from error
    for graph in (part.graph for part in program.graph_module.modules() if isinstance(part, torch.fx.GraphModule)):
        for node in graph.nodes:
            node.meta.pop("stack_trace", None)  # absolute paths of source files
    return program
