"""`.slim.safetensors`: the mean weights of a pruned network in as few bytes as they need."""

from __future__ import annotations

import os
from typing import Any, Literal

from torch import Tensor, nn

from bayeslim.architecture import describe
from bayeslim.checks.networks import check_network
from bayeslim.export.coding import Reader, Writer, elements
from bayeslim.export.plain import mean_network
from bayeslim.layers.base import BayesLayer
from bayeslim.likelihoods.base import note_lost_likelihood_
from bayeslim.parts import describe_parts, take_parts_, undone_on_error
from bayeslim.runtime.modes import making_normal_tensors
from bayeslim.saving import assign_, described_network, load_state_, valid_parts
from bayeslim.storage import named_file, read_tensors, write_tensors

__all__ = ["MOST_WEIGHTS", "load_slim", "save_slim"]

MOST_WEIGHTS = 2**28
"""Weights that `load_slim` unpacks unless told otherwise: 1 GiB in float32."""


def save_slim(model: nn.Module, path: str | os.PathLike[str], bits: Literal[16, 8] = 16) -> int:
    r"""Write the mean network of a pruned, perhaps compacted, model to a small file.

    Only means are stored: neither the posterior's variances nor the likelihood and its learned noise. `bl.save` keeps
    them, and `export_onnx` with samples takes them elsewhere.

    One checksummed safetensors file. Its header holds the architecture of the plain network and one record per tensor;
    the bytes stand in at most six streams, each a tensor of its own: index, scale, float16, float32, int8, int64. A
    tensor is stored dense, or as non-zero values with a bitmap or with the gaps between them in symbols of 2 to 16
    bits: whichever is smallest.

    Errors of a stored weight `w`:

    - `bits=16`: float16, `|error| <= max(2^-11 |w|, 2^-25)`. A tensor with a magnitude above 65504, or a vector (bias,
      norm statistics) with one below 2^-14, is stored in float32 instead.
    - `bits=8`: a weight of two or more axes is rounded to multiples of `max |row| / 127`, so
      `|error| <= max |row| / 254` up to float32 rounding, a row being one index of the first axis; as float16 where
      that is smaller. Vectors as for 16.

    Args:
        model: network, Bayesian or not; left as it is.
        path: the file, usually `*.slim.safetensors`; replaced atomically.
        bits: 16 or 8.

    Returns:
        The size of the file in bytes.

    Raises:
        ValueError: for other `bits`, or weights that are complex, NaN or infinite.
        OSError: if the file cannot be written.

    Example:
        >>> save_slim(model, "net.slim.safetensors")
        >>> network = load_slim("net.slim.safetensors")
    """
    check_network(model, "export")
    if isinstance(bits, bool) or bits not in (16, 8):
        raise ValueError(f"`bits` must be 16 or 8, got {bits!r}: pass 16 for float16 values")
    file = named_file(path)
    plain = mean_network(model)
    writer = Writer(bits)
    records = {name: writer.add(name, tensor) for name, tensor in plain.state_dict().items()}
    facts = {"kind": "slim", "architecture": describe(plain), "records": records}
    if facts["architecture"] is None:
        facts["parts"] = describe_parts(plain)
    write_tensors(file, writer.streams(), facts)
    return file.stat().st_size


@making_normal_tensors
def load_slim(
    path: str | os.PathLike[str], model: nn.Module | None = None, most_weights: int = MOST_WEIGHTS
) -> nn.Module:
    """Read a network that `save_slim` wrote, as plain torch modules with dense float32 weights.

    Args:
        path: the file.
        model: load into this plain network, which must have the same structure; of a network of your own class the
            layers may be larger than in the file, as before `bl.compact`, and get its sizes. None builds a new one
            from the stored architecture, which is there for networks of `nn.Sequential` and torch's common layers.
        most_weights: refuse a file that unpacks to more than this: zeros take no room in the file, but do in memory.

    Returns:
        The network, in evaluation mode.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged, is not a slim network, is too large or does not fit `model`, which is
            then unchanged.

    Example:
        >>> load_slim("net.slim.safetensors")(x)
    """
    if model is not None:
        check_network(model, "load into")
    file = named_file(path)
    tensors, facts = read_tensors(file)
    if facts.get("kind") != "slim":
        raise ValueError(f"{file} holds {facts.get('kind')!r}, not a slim network: try bl.load")
    built = model is None
    if model is None:
        model = described_network(facts, file, "make the plain network yourself and call load_slim(path, model)")
    with undone_on_error(model):
        if not built and facts.get("parts"):
            take_parts_(model, valid_parts(model, facts["parts"], file))
        if any(isinstance(module, BayesLayer) for module in model.modules()):
            raise ValueError(f"{file} is no slim network, or `model` is Bayesian: pass a plain one, as it was made")
        try:
            state = _unpacked(model, tensors, facts.get("records"), most_weights)
        except ValueError as error:
            raise ValueError(f"{file} is not a usable slim network: {error}") from error
    own = model.state_dict(keep_vars=True)
    if not built and any(tensor.is_meta for tensor in own.values()):
        assign_(model, own, state)
    else:
        load_state_(model, state, file, assign=built)
    why = "a slim network is mean weights alone, without uncertainty or learned noise; keep these by bl.save, or"
    note_lost_likelihood_(model, why)
    return model.eval()


def _unpacked(model: nn.Module, tensors: dict[str, Tensor], records: Any, most_weights: int) -> dict[str, Tensor]:
    """The state of `model` out of the streams; shapes are compared before anything is allocated."""
    own = model.state_dict()
    if not isinstance(records, dict):
        raise ValueError("it has no records")
    if records.keys() != own.keys():
        odd = sorted(records.keys() ^ own.keys())
        raise ValueError(f"its tensors are not those of the network: {', '.join(odd[:3])}")
    total = sum(elements(record) for record in records.values())
    if total > most_weights:
        raise ValueError(
            f"it unpacks to {total} weights, more than `most_weights`={most_weights}: raise it if you trust it"
        )
    for name, record in records.items():
        if record[0] != list(own[name].shape):
            raise ValueError(
                f"{name} has shape {record[0]}, the network needs {list(own[name].shape)}: make `model` of the "
                "sizes of the file, or keep the network by bl.save and bl.load, which resizes the layers"
            )
    reader = Reader(tensors)
    state: dict[str, Tensor] = {}
    for name, record in records.items():
        found = reader.take(record)
        if found.is_floating_point() != own[name].is_floating_point():
            raise ValueError(f"{name} is {found.dtype}, the network needs {own[name].dtype}")
        state[name] = found if found.is_floating_point() else found.to(own[name].dtype)
    reader.finish()
    return state
