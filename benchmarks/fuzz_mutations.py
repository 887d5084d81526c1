"""Valid files of every kind that bayeslim reads, and ways to spoil them.

`mutated(kind, samples, random)` gives the bytes of one spoilt file. Half of the spoilt files are damaged as bytes; the
others are taken apart, changed inside and put together again with a checksum that fits, so that they get past it.
"""

import gzip
import io
import json
import lzma
import re
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch import nn

import bayeslim as bl
from bayeslim.data.named import load_problem
from bayeslim.export import save_slim
from bayeslim.storage import read_tensors, write_tensors
from bayeslim.train_config import TrainConfig, to_toml

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


def make_samples(folder: Path) -> dict[str, list[bytes]]:
    """Small valid files, by kind."""
    torch.manual_seed(0)
    x, y = torch.randn(12, 3), torch.arange(12) % 2
    network = bl.mlp([3, 4, 2], method="ard")
    bl.fit(network, (x, y), likelihood=bl.Categorical(), epochs=1, checkpoint=folder / "run", seed=0, progress=False)
    picture = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))
    bl.bayesianize_(picture, prior=bl.priors.ScaleMixture())
    tied = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2))
    bl.bayesianize_(tied, posterior=partial(bl.posteriors.KTied, k=1))
    pruned = bl.mlp([6, 5, 2], method="molchanov")
    bl.prune_(pruned, threshold=0.0)
    for name, model in {"a": network, "b": picture, "c": tied, "d": pruned}.items():
        bl.save(
            model,
            folder / f"{name}.model",
            likelihood=bl.likelihoods.Gaussian(learn_noise=True) if name == "c" else None,
        )
        save_slim(model, folder / f"{name}.slim", bits=8 if name == "a" else 16)
    first = nn.Linear(40, 30)
    sparse = nn.Sequential(first, nn.Tanh(), nn.Linear(30, 2))
    with torch.no_grad():
        first.weight.mul_(torch.rand(30, 40) < 0.05)
    save_slim(sparse, folder / "e.slim")
    table = "size,kind,price\n" + "".join(f"{i}.5,{'ab'[i % 2]},{2 * i}\n" for i in range(12))
    (folder / "t.csv").write_text(table)
    tabular = load_problem(str(folder / "t.csv"), target="price").preprocessing
    images = load_problem("digits", rows=60).preprocessing
    arrays = {"x": np.arange(24.0).reshape(12, 2), "y": np.arange(12) % 2}
    splits = {"train_idx": np.arange(8).reshape(1, 8), "test_idx": np.arange(8, 12).reshape(1, 4)}
    idx = b"\0\0\x08\x03" + np.array([2, 3, 4], ">u4").tobytes() + bytes(24)
    review = [{"text": "good film", "label": 1, "rating": 9, "split": "train"}] * 3
    settings = TrainConfig(data="houses.csv", target="price", rows=100, hidden=(8, 4))
    run = {"command": "bayeslim train", "versions": {"torch": "2"}, "threshold": 3.0, "trained": {"test": {"nll": 1.0}}}
    samples = {
        "model": [(folder / f"{name}.model").read_bytes() for name in "abcd"],
        "slim": [(folder / f"{name}.slim").read_bytes() for name in "abcde"],
        "checkpoint": [(folder / "run" / "checkpoint.safetensors").read_bytes()],
        "config": [to_toml(settings)],
        "run": [json.dumps(run).encode()],
        "preprocessing": [tabular.to_json(), images.to_json()],
        "csv": [table.encode(), table.replace(",", ";").encode()],
        "npy": [_npy(arrays["x"])],
        "npz": [_npz(arrays)],
        "splits": [_npz(arrays | splits)],
        "idx": [gzip.compress(idx, mtime=0)],
        "cifar": [lzma.compress(bytes(3073 * 2))],
        "reviews": [lzma.compress("\n".join(map(json.dumps, review)).encode())],
        "tar": [gzip.compress(_tar(), mtime=0), lzma.compress(_tar())],
        "png": [_png()],
        "parquet": [_parquet()],
    }
    for kind in ("model", "slim", "checkpoint"):
        samples[kind] = [_ordered(content) for content in samples[kind]]
    return samples


def _ordered(content: bytes) -> bytes:
    """A safetensors file with its header in alphabetical order: it is written in any order, and files must repeat."""
    length = int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8 : 8 + length]), sort_keys=True).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + content[8 + length :]


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


def _edited_tar(content: bytes, random: Random, scratch: Path) -> bytes:
    """Members with odd names, types, sizes and dates, or damage under the compression."""
    if random.random() < 0.5:
        return gzip.compress(damaged(_tar(), random), mtime=0)
    member = tarfile.TarInfo(random.choice(("../x", "/x", "a/../../x", "C:/x", "x" * 300, "a/\0b", "set", "é")))
    member.type = random.choice((tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE))
    member.linkname, member.size = "/etc/passwd", random.choice((0, 5, 2**33))
    member.mtime, member.mode = random.choice((0, 2**40, 2**62)), random.choice((0o644, 0o7777))
    return gzip.compress(_tar(member, random.choice((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))), mtime=0)


def _edited_npz(content: bytes, random: Random, scratch: Path) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = random.choice(sorted(members))
    inner = members.pop(name)
    if random.random() < 0.2:
        inner = _npy(random.choice([np.array(["a", "b"]), np.zeros((0, 2)), np.zeros((2, 2), complex), np.array(3)]))
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
    "tar": _edited_tar,
}
"""Kind -> what changes its content and packs it again."""


def _npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def _npz(arrays: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def _tar(extra: tarfile.TarInfo | None = None, form: int = tarfile.GNU_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as tar:
        for name in ("set/one.txt", "set/two.txt"):
            member = tarfile.TarInfo(name)
            member.size = 5
            tar.addfile(member, io.BytesIO(b"hello"))
        if extra is not None:
            tar.addfile(extra, io.BytesIO(b"hello" if extra.size == 5 else b"") if extra.size <= 5 else None)
    return file.getvalue()


def _png() -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(file, "PNG")
    return file.getvalue()


def _parquet() -> bytes:
    import pyarrow
    import pyarrow.parquet

    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"a": [1.0, 2.0, None], "b": ["x", "y", "z"]}), file)
    return file.getvalue()
