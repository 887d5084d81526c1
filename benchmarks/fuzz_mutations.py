"""Ways to spoil the files of `fuzz_samples.py`.

`mutated(kind, samples, random)` gives the bytes of one spoilt file. Half of the spoilt files are damaged as bytes; the
others are taken apart, changed inside and put together again with a checksum that fits, so that they get past it.
"""

import gzip
import io
import json
import lzma
import re
import tomllib
import zipfile
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from fuzz_samples import npy_bytes

from bayeslim.storage import read_tensors, write_tensors

NUMBERS = [0, -1, 1, 2**31 - 1, 2**32, 2**63 - 1, 2**63, -(2**63), 10**30, 10**400, 1e-320, 1e308, -1e308]
ODD: list[Any] = [
    *NUMBERS,
    float("nan"),
    float("inf"),
    None,
    True,
    "",
    "..",
    "../../x",
    "/etc/passwd",
    "\0",
    "a" * 70_000,
]
ODD += ["<script>", "é\u2028", "__class__", "float64", [], {}, [[]], [0] * 5000, {"a": 1}]
TOKENS = [
    b"\0",
    b"\xff" * 8,
    b"\xff\xff\xff\x7f",
    b"\x7f\xff\xff\xff",
    b"9" * 40,
    b"9" * 6000,
    b"1e999",
    b"NaN",
    b"../",
]
TOKENS += [b"-1", b"[" * 3000, b'{"a":' * 3000, b'"', b",", b"\r", b"\n", "\u202e".encode(), b"\x1f\x8b", b"PK\3\4"]


def nested(depth: int) -> list[Any]:
    """A list in a list in a list ..."""
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def mutated(kind: str, samples: list[bytes], random: Random, scratch: Path) -> bytes:
    """One spoilt file of a kind."""
    sample = random.choice(samples)
    if kind in INSIDE and random.random() < 0.5:
        return INSIDE[kind](sample, random, scratch)
    return damaged(sample, random)


def damaged(content: bytes, random: Random) -> bytes:
    """Flipped bits, a cut, a splice, a hole, a token, a larger number; up to four of them."""
    found = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 4))):
        if not found:
            return bytes(found)
        place, other = random.randrange(len(found)), random.randrange(len(found))
        match random.randrange(7):
            case 0:
                for _ in range(random.choice((1, 1, 8))):
                    found[random.randrange(len(found))] ^= 1 << random.randrange(8)
            case 1:
                del found[place:]
            case 2:
                size = random.choice((1, 4, 64))
                found[place:place] = found[other : other + size] * random.choice((1, 1, 100))
            case 3:
                del found[place : place + random.choice((1, 4, 64))]
            case 4:
                found[place:place] = random.choice(TOKENS)
            case 5:
                token = random.choice(TOKENS)[:8]
                found[place : place + len(token)] = token
            case _:
                digits = list(re.finditer(rb"\d+", bytes(found)))
                if digits:
                    start, end = random.choice(digits).span()
                    found[start:end] = str(random.choice(NUMBERS[:9])).encode()
    return bytes(found)


def edited(tree: Any, random: Random) -> Any:
    """Change a few places of a JSON-like tree: an odd value, a missing or renamed key, a swap, a nest."""
    holder = [tree]
    for _ in range(random.choice((1, 1, 2, 3))):
        places = [(holder, 0), *_places(holder[0])]
        parent, key = random.choice(places[1:] or places)
        match random.randrange(6):
            case 0 if isinstance(parent, dict):
                del parent[key]
            case 1 if isinstance(parent, dict):
                parent[random.choice(("../x", "", "\0", "device", "a.b", f"{key}_"))] = parent.pop(key)
            case 2:
                source, name = random.choice(places)
                parent[key] = json.loads(json.dumps(source[name]))
            case 3:
                parent[key] = nested(random.choice((3, 50, 200)))
            case 4 if isinstance(parent[key], list) and parent[key]:
                parent[key] = parent[key] * random.choice((2, 500)) if random.random() < 0.5 else parent[key][:-1]
            case _:
                parent[key] = deepcopy(random.choice(ODD))
    return holder[0]


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Every place in a tree: what holds it, and its key there."""
    found: list[tuple[Any, Any]] = []
    rest = [tree]
    while rest:
        part = rest.pop()
        keys = list(part) if isinstance(part, dict) else list(range(len(part))) if isinstance(part, list) else []
        found += [(part, key) for key in keys]
        rest += [part[key] for key in keys]
    return found


def _edited_json(content: bytes, random: Random, scratch: Path) -> bytes:
    return json.dumps(edited(json.loads(content), random)).encode()


def _edited_toml(content: bytes, random: Random, scratch: Path) -> bytes:
    values = edited(tomllib.loads(content.decode()), random)
    pairs = values.items() if isinstance(values, dict) else [("data", values)]
    return "".join(f"{json.dumps(str(name))} = {json.dumps(value)}\n" for name, value in pairs).encode()


def _edited_tensors(content: bytes, random: Random, scratch: Path) -> bytes:
    """Facts or tensors changed, the checksum made anew."""
    scratch.write_bytes(content)
    tensors, facts = read_tensors(scratch)
    if tensors and random.random() < 0.4:
        name = random.choice(sorted(tensors))
        tensor = tensors.pop(name)
        match random.randrange(6):
            case 0:
                tensors[random.choice(("../x", "\0", "", f"{name}.a", name[:-1]))] = tensor
            case 1:
                tensors[name] = tensor.reshape(-1)[: random.randrange(4)]
            case 2:
                tensors[name] = tensor.to(random.choice((torch.int8, torch.float64, torch.bool, torch.float16)))
            case 3:
                tensors[name] = torch.zeros(random.choice(((), (0,), (1,), (2, 0, 3), (1000,), (1, 1, 1, 1, 1, 1))))
            case 4:
                tensors[name] = torch.randint(0, 256, (tensor.nbytes,), dtype=torch.uint8).view(tensor.dtype)
                tensors[name] = tensors[name].reshape(tensor.shape)
            case _:
                pass
    else:
        facts = edited(facts, random)
    write_tensors(scratch, tensors, facts)
    return scratch.read_bytes()


def _repacked(pack: Callable[[bytes], bytes], unpack: Callable[[bytes], bytes]) -> Callable[..., bytes]:
    return lambda content, random, scratch: pack(damaged(unpack(content), random))


def _edited_npz(content: bytes, random: Random, scratch: Path) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = random.choice(sorted(members))
    inner = members.pop(name)
    if random.random() < 0.2:
        inner = npy_bytes(
            random.choice([np.array(["a", "b"]), np.zeros((0, 2)), np.zeros((2, 2), complex), np.array(3)])
        )
    elif random.random() < 0.5:  # numpy's header is Python text: state another shape
        inner = re.sub(rb"\(\d+", b"(%d" % random.choice((0, 1, 10**6, 10**12, 10**30)), inner, count=1)
    else:
        inner = damaged(inner, random)
    members[random.choice((name, name, "../x.npy", "x", "z.npy"))] = inner
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for member, value in members.items():
            archive.writestr(member, value)
    return packed.getvalue()


def _edited_csv(content: bytes, random: Random, scratch: Path) -> bytes:
    cells = [line.split(",") for line in content.decode().splitlines()]
    for _ in range(random.choice((1, 3))):
        row = random.choice(cells)
        text = str(random.choice(ODD))
        row[random.randrange(len(row))] = random.choice((text, f'"{text}', "x" * 200_000, "1e400", "nan", "-inf"))
    return "\n".join(",".join(row) for row in cells).encode(errors="replace")


INSIDE: dict[str, Callable[[bytes, Random, Path], bytes]] = {
    "model": _edited_tensors,
    "slim": _edited_tensors,
    "checkpoint": _edited_tensors,
    "config": _edited_toml,
    "run": _edited_json,
    "preprocessing": _edited_json,
    "csv": _edited_csv,
    "npz": _edited_npz,
    "splits": _edited_npz,
    "idx": _repacked(lambda raw: gzip.compress(raw, mtime=0), gzip.decompress),
    "cifar": _repacked(lzma.compress, lzma.decompress),
    "reviews": _repacked(lzma.compress, lzma.decompress),
}
"""Kind -> what changes its content and packs it again."""
