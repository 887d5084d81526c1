"""Valid files of every kind that bayeslim reads, which `fuzz_mutations.py` spoils."""

import gzip
import io
import json
import lzma
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import bayeslim as bl
from bayeslim.data.named import load_problem
from bayeslim.export import save_slim
from bayeslim.train_config import TrainConfig, to_toml


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
        "npy": [npy_bytes(arrays["x"])],
        "npz": [npz_bytes(arrays)],
        "splits": [npz_bytes(arrays | splits)],
        "idx": [gzip.compress(idx, mtime=0)],
        "cifar": [lzma.compress(bytes(3073 * 2))],
        "reviews": [lzma.compress("\n".join(map(json.dumps, review)).encode())],
        "png": [png_bytes()],
        "parquet": [parquet_bytes()],
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


def npy_bytes(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def npz_bytes(arrays: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def png_bytes() -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(file, "PNG")
    return file.getvalue()


def parquet_bytes() -> bytes:
    import pyarrow
    import pyarrow.parquet

    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"a": [1.0, 2.0, None], "b": ["x", "y", "z"]}), file)
    return file.getvalue()
