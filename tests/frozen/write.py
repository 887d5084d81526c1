"""Write files/ by the version of today, and what the networks in them say; written by commit c0af58f.

`python tests/frozen/write.py` refuses to overwrite. The same version writes the same numbers again, but for the last
digits on another processor and the times in pruning.json.
"""

from __future__ import annotations

import csv
import importlib
import json
import os
import re
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent.parent))

import bayeslim as bl
from bayeslim.cli import main
from bayeslim.runs import Run
from frozen.answers import FILES, KIND, closed_forms, drawn, numbers
from frozen.designs import LIKELIHOODS, designs
from frozen.trainings import TRAININGS, Stopped

DRAWS = 20_000
SHAPES = {
    "vectors": (4, 3),
    "rows": (24, 3),
    "images": (4, 1, 6, 6),
    "sequences": (4, 5, 3),
    "signals": (4, 2, 6),
    "volumes": (4, 1, 3, 3, 3),
    "columns": (4, 8),
    "slim": (4, 40),
}


def write_networks(inputs: dict[str, Tensor]) -> dict[str, Any]:
    """Save every network, and say what it says."""
    found: dict[str, Any] = {}
    for number, (name, build) in enumerate(designs(inputs).items()):
        torch.manual_seed(number)
        model, x = build().eval(), inputs[KIND.get(name, "vectors")]
        bl.save(model, FILES / "networks" / f"{name}.safetensors", likelihood=LIKELIHOODS.get(name))
        forms = closed_forms(model, x)
        draws = drawn(model.double(), x.double() if x.is_floating_point() else x, DRAWS, seed=number)
        centred = draws - draws.mean(0)
        moments = {"draws": draws.mean(0), "second": centred.square().mean(0), "fourth": centred.pow(4).mean(0)}
        found[name] = numbers(forms | moments)
        if name in LIKELIHOODS:
            answer = bl.predict(model, x.double(), method="mean", likelihood=LIKELIHOODS[name].double())
            found[name]["remembered"] = numbers({"mean": answer.mean, "aleatoric": answer.aleatoric})
        print(f"{name}: {found[name].get('kl')}")
    return found


def write_slim(inputs: dict[str, Tensor]) -> dict[str, Any]:
    """Slim files, between them with every way of coding a tensor."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(40, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 2)
    )
    for layer, part in (("0", 0.97), ("3", 0.6)):
        weight = model.get_submodule(layer).get_parameter("weight")
        weight.data *= torch.rand_like(weight) > part
    model.get_submodule("5").get_parameter("bias").data[0] = 1e-6
    found: dict[str, Any] = {}
    sizes: dict[str, Literal[16, 8]] = {"sixteen": 16, "eight": 8}
    for name, bits in sizes.items():
        file = FILES / "slim" / f"{name}.slim.safetensors"
        bl.export.save_slim(model.eval(), file, bits)
        found[name] = numbers(closed_forms(bl.export.load_slim(file), inputs["slim"]))
    return found


def write_snapshots(inputs: dict[str, Tensor]) -> dict[str, Any]:
    """Three networks along a path, each with a noise of its own."""
    torch.manual_seed(0)
    model, likelihood = bl.models.mlp([3, 6, 2]), bl.likelihoods.Gaussian(0.5, learn_noise=True)
    snapshots, x = bl.Snapshots(model, FILES / "snapshots"), inputs["rows"]
    bl.fit(model, (x, x[:, :2]), likelihood=likelihood, epochs=3, lr=0.1, seed=0, progress=False, after_epoch=snapshots)
    again = bl.Snapshots(bl.models.mlp([3, 6, 2]).double(), FILES / "snapshots")
    answer = bl.predict(again, inputs["vectors"].double())
    return numbers({"mean": answer.mean, "epistemic": answer.epistemic, "aleatoric": answer.aleatoric})


def write_checkpoints(inputs: dict[str, Tensor]) -> dict[str, Any]:
    """Runs stopped after three epochs, and where they end if nobody stops them."""
    found: dict[str, Any] = {}
    for name, training in TRAININGS.items():
        folder = FILES / "checkpoints" / name
        with suppress(Stopped):
            training.fit(folder, stop=True)
        with tempfile.TemporaryDirectory() as copied:
            shutil.copytree(folder, copied, dirs_exist_ok=True)
            stopped, _ = training.fit(Path(copied), epochs=3)
        if name != "adam":  # one is enough to fall back on
            (folder / "checkpoint.previous.safetensors").unlink()
        ended, history = training.fit(None)
        columns = {column: history[column] for column in ("nll", "kl", "beta", "lr")}
        found[name] = {
            "stopped": numbers(closed_forms(stopped, inputs["vectors"])),
            "ended": numbers(closed_forms(ended, inputs["vectors"])),
            "history": json.loads(json.dumps(columns)),
        }
    return found


def write_data() -> None:
    """Two tables and an archive of images to train on, and new rows of either kind."""
    generator = np.random.default_rng(0)
    with open("species.csv", "w") as species, open("prices.csv", "w") as prices:
        species.write("length,width,soil,species\n")
        prices.write("length,width,soil,price\n")
        for _ in range(60):
            (length, width), clay = generator.normal(size=2), generator.random() < 0.5
            row = f"{length:.3f},{width:.3f},{'clay' if clay else 'sand'}"
            species.write(f"{row},{'rose' if length + clay > 0.5 else 'tulip'}\n")
            prices.write(f"{row},{300_000 + 50_000 * length - 20_000 * width:.2f}\n")
    labels = generator.integers(0, 2, 60)
    images = generator.integers(0, 100, (60, 1, 5, 5)) + 150 * (labels[:, None, None, None] == [0, 0, 1, 1, 1])
    np.savez_compressed("images.npz", x=images.astype(np.uint8), y=labels)
    np.save("new.npy", images[:3].astype(np.uint8))
    Path("new.csv").write_text("soil,width,length\nclay,0.1,0.9\nsand,-0.3,-2\npeat,0,0\n")


def write_runs() -> dict[str, Any]:
    """Folders of `bayeslim train`: one stopped, one pruned, one of images; and what `bayeslim predict` says."""
    folder = FILES / "runs"
    folder.mkdir(parents=True)
    os.chdir(folder)
    write_data()
    quick = ["--hidden", "4", "--epochs", "5", "--samples", "5", "--device", "cpu", "--lr", "0.02"]
    train = ["train", *quick, "--data"]
    assert main([*train, "images.npz", "--method", "k-tied", "--out", "images"]) == 0
    assert main([*train, "prices.csv", "--target", "price", "--out", "prices"]) == 0
    assert main(["prune", "prices", "--threshold", "1"]) == 0
    save = importlib.import_module("bayeslim.training.loop").save_checkpoint

    def save_or_stop(*arguments: Any) -> None:
        if arguments[4].epoch > 3:
            raise KeyboardInterrupt
        save(*arguments)

    with mock.patch("bayeslim.training.loop.save_checkpoint", save_or_stop):
        assert main([*train, "species.csv", "--target", "species", "--out", "species"]) == 130
    found: dict[str, Any] = {}
    for name, new in (("prices", "new.csv"), ("images", "new.npy")):
        found[name] = {"kl": bl.kl(Run(Path(name)).model("trained")).item()}
        for method in ("mean", "moments", "sample"):
            many = ["--samples", str(DRAWS), "--method", method, "--out", "answers.csv"]
            assert main(["predict", name, "--input", new, *many]) == 0
            with open("answers.csv", newline="") as file:
                found[name][method] = list(csv.DictReader(file))
            Path("answers.csv").unlink()
    for config in folder.glob("*/config.toml"):
        config.write_text(re.sub(r'^data = ".*/', 'data = "', config.read_text(), flags=re.M))
        (config.parent / "checkpoint.previous.safetensors").unlink()
    return found


def everything() -> None:
    """Write all files, the answers last."""
    if FILES.exists():
        raise SystemExit(f"{FILES} exists: what is frozen is not written again")
    torch.manual_seed(0)
    lists: dict[str, Any] = {
        name: torch.randn(shape).double().round(decimals=2).tolist() for name, shape in SHAPES.items()
    }
    lists["tokens"] = [[1, 2, 3, 0, 0], [4, 5, 6, 1, 0], [2, 2, 5, 3, 1], [6, 0, 0, 0, 0]]
    inputs = {name: torch.tensor(values) for name, values in lists.items()}
    FILES.mkdir()
    store, answers = FILES / "answers.json", {"inputs": lists}
    store.write_text(json.dumps(answers))  # the trainings read their inputs there
    answers |= {"draws": DRAWS, "networks": write_networks(inputs), "slim": write_slim(inputs)}
    answers |= {"snapshots": write_snapshots(inputs), "checkpoints": write_checkpoints(inputs), "runs": write_runs()}
    store.write_text(json.dumps(answers, separators=(",", ":")).replace('},"', '},\n"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    with mock.patch("secrets.token_hex", lambda count: "0" * 2 * count):  # names of runs
        everything()
