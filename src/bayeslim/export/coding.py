"""One tensor as values and, where that is smaller, the places of its non-zeros.

A record says how: `[shape, index, values]`. `index` is None (dense: every element has a value), `["bitmap"]` or
`["gaps", width, symbols]`. `values` names the stream that holds them: "float16", "float32", "int8" (each row, that is
index of the first axis, times a float32 scale of its own) or "int64".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayeslim.export.indices import WIDTHS, cheapest, decode, encode, index_size

__all__ = ["STREAMS", "Reader", "Writer", "elements"]

STREAMS: dict[str, Any] = {
    "index": np.uint8,
    "scale": np.float32,
    "float16": np.float16,
    "float32": np.float32,
    "int8": np.int8,
    "int64": np.int64,
}
"""The tensors of a file: each holds everything of its kind, in the order of the records."""

HALF_NORMAL = 2.0**-14
"""The smallest float16 with full precision; below it the spacing is 2^-24."""
HALF_MOST = 65504.0
"""The largest float16."""

Array = np.ndarray[Any, Any]
Record = list[Any]


class Writer:
    """Collects tensors into streams.

    Args:
        bits: 16 for float16 values, 8 to allow int8 as well.
    """

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self._parts: dict[str, list[Array]] = {name: [] for name in STREAMS}

    def add(self, name: str, tensor: Tensor) -> Record:
        """Code one tensor the smallest way and return its record.

        Raises:
            ValueError: if the tensor is complex or holds NaN or infinite values.
        """
        tensor = tensor.detach().cpu()
        shape = list(tensor.shape)
        if tensor.is_complex():
            raise ValueError(f"`model` holds the complex tensor {name!r}, which this format cannot store")
        if not tensor.is_floating_point():
            self._parts["int64"].append(tensor.to(torch.int64).flatten().numpy())
            return [shape, None, "int64"]
        tensor = tensor.to(torch.float32)
        if not bool(tensor.isfinite().all()):
            raise ValueError(f"`model` holds NaN or infinite values in {name!r}: it has diverged, train it again")
        values = tensor.reshape(shape[0] if shape else 1, math.prod(shape[1:])).numpy()
        candidates = [_coded(shape, _float_type(values, len(shape) > 1), {}, values)]
        if self.bits == 8 and len(shape) > 1:
            candidates.append(_coded(shape, "int8", *_quantised(values)))
        record, streams = min(candidates, key=lambda found: sum(part.nbytes for part in found[1].values()))
        for stream, part in streams.items():
            self._parts[stream].append(part)
        return record

    def streams(self) -> dict[str, Tensor]:
        """Every stream that holds anything, as a tensor."""
        joined = {name: np.concatenate(parts) for name, parts in self._parts.items() if parts}
        return {name: torch.from_numpy(part) for name, part in joined.items() if len(part)}


def _float_type(values: Array, weight: bool) -> str:
    """float16 where it holds the values: a weight up to 2^-25, a vector (bias, norm statistics) to full precision."""
    sizes = np.abs(values[values != 0])
    fits = not len(sizes) or (sizes.max() <= HALF_MOST and (weight or sizes.min() >= HALF_NORMAL))
    return "float16" if fits else "float32"


def _quantised(values: Array) -> tuple[dict[str, Array], Array]:
    """Scales `max |row| / 127` and the values in units of them."""
    scale = (np.abs(values).max(1, initial=0) / 127).astype(np.float32)
    units = np.rint(values / np.where(scale > 0, scale, 1)[:, None])
    return {"scale": scale}, np.clip(units, -127, 127)


def _coded(shape: list[int], kind: str, extra: dict[str, Array], values: Array) -> tuple[Record, dict[str, Array]]:
    """Dense or sparse, whichever is smaller; what rounds to zero counts as zero."""
    flat = values.reshape(-1).astype(STREAMS[kind])
    positions = np.flatnonzero(flat)
    coding = cheapest(positions, len(flat))
    sparse = index_size(coding, len(flat)) + len(positions) * flat.itemsize
    if sparse >= flat.nbytes:
        return [shape, None, kind], {**extra, kind: flat}
    return [shape, coding, kind], {**extra, "index": encode(positions, len(flat), coding), kind: flat[positions]}


class Reader:
    """Takes tensors out of streams again, in the order in which they were written.

    Every length is checked before anything is allocated.

    Args:
        tensors: the streams of a file.

    Raises:
        ValueError: if a stream is not one of `STREAMS` or has the wrong type.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._left: dict[str, Array] = {}
        for name, tensor in tensors.items():
            expected = None if name not in STREAMS else torch.from_numpy(np.empty(0, STREAMS[name])).dtype
            if tensor.dtype != expected or tensor.ndim != 1:
                raise ValueError(f"the stream {name!r} of type {tensor.dtype} and {tensor.ndim} axes does not belong")
            self._left[name] = tensor.numpy()

    def take(self, record: Any) -> Tensor:
        """The tensor of one record, float32 or int64.

        Raises:
            ValueError: if the record makes no sense or the streams are too short for it.
        """
        size = elements(record)
        shape, coding, kind = record
        if kind not in ("float16", "float32", "int8", "int64"):
            raise ValueError(f"values of type {kind!r} are not known")
        scale = self._next("scale", shape[0] if shape else 1) if kind == "int8" else None
        dtype = np.int64 if kind == "int64" else np.float32
        if coding is None:
            found = self._next(kind, size).astype(dtype)
        else:
            positions = decode(self._next("index", _index_bytes(coding, size)), size, coding)
            values = self._next(kind, len(positions))
            found = np.zeros(size, dtype)
            found[positions] = values
        if scale is not None and size:
            found = (found.reshape(len(scale), -1) * scale[:, None]).reshape(-1)
        return torch.from_numpy(found).reshape(shape)

    def finish(self) -> None:
        """Raise ValueError if something is left that no record asked for."""
        rest = [f"{len(array)} of {name}" for name, array in self._left.items() if len(array)]
        if rest:
            raise ValueError(f"{', '.join(rest)} belong to no tensor")

    def _next(self, stream: str, count: int) -> Array:
        array = self._left.get(stream, np.empty(0, STREAMS[stream]))
        if count > len(array):
            raise ValueError(f"the stream {stream!r} ends {count - len(array)} values too early")
        self._left[stream] = array[count:]
        return array[:count]


def elements(record: Any) -> int:
    """The number of elements of a record's tensor.

    Raises:
        ValueError: if the record does not start with a shape.
    """
    if not isinstance(record, list) or len(record) != 3 or not isinstance(record[0], list):
        raise ValueError(f"{str(record)[:80]} is not [shape, index, values]")
    if not all(_is_count(length) for length in record[0]):
        raise ValueError(f"{str(record[0])[:80]} is not a shape")
    return math.prod(record[0])


def _index_bytes(coding: Any, size: int) -> int:
    """The bytes that an index takes, from a coding that may be anything."""
    valid = isinstance(coding, list) and coding == ["bitmap"]
    if isinstance(coding, list) and len(coding) == 3 and coding[0] == "gaps":
        valid = _is_count(coding[1]) and coding[1] in WIDTHS and _is_count(coding[2])
    if not valid:
        raise ValueError(f"{str(coding)[:80]} is not an index coding")
    return index_size(coding, size)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
