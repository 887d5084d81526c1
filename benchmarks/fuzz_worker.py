"""A process that reads spoilt files, one per line of its input, within limits of memory and under watch.

Started by `fuzz_files.py`: `python fuzz_worker.py FOLDER SEED`. Each input line is `KIND NUMBER`; each output line is
JSON: what happened. What a file makes the process do besides reading is an event of Python's audit hooks.
"""

import contextlib
import json
import os
import pickle
import random
import resource
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fuzz_mutations import mutated
from fuzz_samples import make_samples

import bayeslim as bl
from bayeslim.data.idx import read_idx
from bayeslim.data.image_inputs import read_image_files
from bayeslim.data.images import images_from_cifar
from bayeslim.data.named import load_problem
from bayeslim.data.preprocessing import Preprocessing
from bayeslim.data.sources import CIFAR10_CLASSES
from bayeslim.data.tables import read_table
from bayeslim.data.tabular import regression_npz
from bayeslim.data.text import _json_reviews  # imdb() itself refuses all but the published file
from bayeslim.export import load_slim
from bayeslim.optim.param_groups import merged, param_groups
from bayeslim.runs import Run
from bayeslim.train_config import read_config
from bayeslim.training.checkpoint import load_checkpoint_

MEMORY = 2 << 30
"""Bytes that reading a file may take."""
EXPECTED = (ValueError, OSError)
"""Documented errors; FileNotFoundError and UnicodeDecodeError are among them."""
FORBIDDEN = {
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "subprocess.Popen",
    "pickle.find_class",
    "socket.connect",
}
CHANGES = {"open", "os.remove", "os.rename", "os.mkdir", "os.symlink", "os.link", "os.chmod", "shutil.rmtree"}


def resume(path: Path) -> None:
    """Load a checkpoint and take the step that comes next."""
    model, likelihood = bl.mlp([3, 4, 2], method="ard"), bl.Categorical()
    groups = merged(param_groups(torch.nn.ModuleList([model, likelihood]), lr=1e-3))
    optimizer = torch.optim.Adam(groups, fused=True)  # as `bl.fit` does
    load_checkpoint_(path.parent, model, likelihood, optimizer, {})
    bl.kl(model).backward()
    optimizer.step()


def open_run(path: Path) -> None:
    """Everything that a run folder tells without its data."""
    for name in ("metrics.json", "pruning.json", "history.jsonl"):
        path.with_name(name).write_bytes(path.read_bytes())
    run = Run(path.parent)
    _ = run.command, run.versions, run.metrics(), run.pruning(), run.history()


LOADERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "model": ("net.safetensors", bl.load),
    "slim": ("net.slim.safetensors", load_slim),
    "checkpoint": ("checkpoint.safetensors", resume),
    "config": ("config.toml", read_config),
    "run": ("run.json", open_run),
    "preprocessing": ("preprocessing.json", lambda path: Preprocessing.from_json(path.read_bytes())),
    "csv": ("table.csv", lambda path: load_problem(str(path), target="price", impute=True)),
    "npy": ("table.npy", read_table),
    "npz": ("table.npz", read_table),
    "splits": ("splits.npz", lambda path: regression_npz(path, 0)),
    "idx": ("images.gz", read_idx),
    "cifar": ("batch.bin.xz", lambda path: images_from_cifar([path], CIFAR10_CLASSES)),
    "reviews": ("reviews.xz", lambda path: list(_json_reviews(path, "train"))),
    "png": ("image.png", lambda path: read_image_files([path])),
    "parquet": ("table.parquet", read_table),
}
"""Kind -> the name that its files have, and what reads them."""


class Planted:
    """What a pickle can do, to see that the watch notices."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.getenv, ("HOME",)


PLANTED: dict[str, Callable[[], Any]] = {
    "planted-crash": lambda: {}["no message"],
    "planted-silence": lambda: (_ for _ in ()).throw(ValueError()),
    "planted-death": lambda: os.abort(),
    "planted-hang": lambda: time.sleep(60),
    "planted-memory": lambda: np.ones(8 * MEMORY // 8),
    "planted-code": lambda: pickle.loads(pickle.dumps(Planted())),
    "planted-write": lambda: Path("/dev/null").write_text("x"),
}
"""Faults that every run of the tests plants: none may go unnoticed."""


class Watch:
    """Counts what reading a file must never do: start programs, unpickle, run text as code, write elsewhere."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.events, self.on = str(folder), [], False
        sys.addaudithook(self.hook)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """See `sys.addaudithook`."""
        if not self.on:
            return
        if event in FORBIDDEN or (event == "exec" and arguments[0].co_filename.startswith("<")):
            self.events.append(event)
        elif event in CHANGES and self.writes(event, arguments) and not self.inside(arguments[0]):
            self.events.append(f"{event} {arguments[0]!r}"[:200])

    def writes(self, event: str, arguments: tuple[Any, ...]) -> bool:
        """Whether an event changes the disk: all but opening to read."""
        return event != "open" or bool((arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))

    def inside(self, path: Any) -> bool:
        """Whether a path, perhaps relative to a folder that is open, lies in the folder for this."""
        name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else self.folder
        return not os.path.isabs(name) or os.path.realpath(name).startswith(self.folder)


def outcome(read: Callable[[], Any], watch: Watch) -> dict[str, Any]:
    """Read and say what happened: loaded, refused, crash or code."""
    watch.events, watch.on = [], True
    found = {"outcome": "loaded", "message": ""}
    try:
        read()
    except BaseException as error:
        told = isinstance(error, EXPECTED) and str(error).strip()
        found = {"outcome": "refused" if told else "crash", "message": f"{type(error).__name__}: {error}"[:300]}
    finally:
        watch.on = False
    return {"outcome": "code", "message": ", ".join(watch.events[:3])} if watch.events else found


def main() -> None:
    folder, seed = Path(sys.argv[1]).resolve(), int(sys.argv[2])
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    samples = make_samples(folder / "samples")
    place = folder / "case"
    for kind, (name, read) in LOADERS.items():  # what is imported on first use is imported now
        for content in (*samples[kind], b""):
            with fresh(place), contextlib.nullcontext() if content else contextlib.suppress(*EXPECTED):
                (place / name).write_bytes(content)
                read(place / name)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    watch = Watch(folder)
    print("ready", flush=True)
    for line in sys.stdin:
        kind, number = line.split()
        with fresh(place):
            if kind in PLANTED:
                found = outcome(PLANTED[kind], watch)
            else:
                name, read = LOADERS[kind]
                dice = random.Random(f"{seed} {kind} {number}")
                torch.manual_seed(dice.getrandbits(32))
                (place / name).write_bytes(mutated(kind, samples[kind], dice, folder / "scratch"))
                found = outcome(lambda: read(place / name), watch)  # noqa: B023
        print(json.dumps(found), flush=True)


@contextlib.contextmanager
def fresh(folder: Path) -> Any:
    """An empty folder, removed afterwards."""
    import shutil

    folder.mkdir()
    try:
        yield
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
