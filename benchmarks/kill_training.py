"""Kill a training run again and again, resume it, and compare the end with a run that nobody disturbed.

    python benchmarks/kill_training.py --kills 50 --out results/kill_training.json

`bayeslim train` on the digits of scikit-learn runs in a process that SIGKILL ends at a random moment: in turn after its
start, in its training, and while a half-written checkpoint lies on the disk. After each kill every checkpoint there is
must be readable. A run that comes to its end before the kills are used up is compared, and the next one begun. Then the
disk is full: the run must stop with a message and its last checkpoint load. Once by a limit on the size of files, and
where the system lets a user mount one (Linux namespaces), on a disk in memory of one MiB that is filled up.
"""

import argparse
import contextlib
import ctypes
import io
import multiprocessing
import os
import random
import resource
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from harness import run

from bayeslim.cli import main
from bayeslim.cli import train as _  # noqa: F401  (imported here, so that no process has to)
from bayeslim.storage import read_tensors
from bayeslim.training.checkpoint import checkpoint_file, previous_file

FORK = multiprocessing.get_context("fork")  # torch is imported once, not fifty times
MOMENTS = ("start", "training", "write")
NEW_USER, NEW_MOUNTS = 0x10000000, 0x00020000
"""Of unshare(2): namespaces of this process and its children alone."""
Filler = Callable[[Path], None]


def train(folder: Path, epochs: int) -> tuple[int, str]:
    """Begin or continue the run in `folder`; the exit code and what was said."""
    said = io.StringIO()
    arguments = ["--data", "digits", "--hidden", "32", "--epochs", str(epochs), "--quick", "--out", str(folder)]
    if (folder / "run.json").exists():
        arguments = ["--out", str(folder)]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        code = main(["train", *arguments, "--resume"])
    return code, said.getvalue()


def process(folder: Path, epochs: int, told: Connection | None = None, fill: Filler | None = None) -> None:
    """What a process does: train, and tell."""
    if fill is not None:
        threading.Thread(target=fill, args=(folder,), daemon=True).start()
    code, said = train(folder, epochs)
    if told is not None:
        told.send((code, said))
    os._exit(code)


def wait_for_three_epochs(folder: Path) -> None:
    """As its history tells."""
    history = folder / "history.jsonl"
    while not history.exists() or len(history.read_text().splitlines()) < 3:
        time.sleep(0.001)


def limit_files(folder: Path) -> None:
    """After three epochs, let no file of this process grow to half the size of a checkpoint."""
    wait_for_three_epochs(folder)
    size = checkpoint_file(folder).stat().st_size // 2
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def fill_disk(folder: Path) -> None:
    """After three epochs, take all room there is on the disk, and all that becomes free."""
    wait_for_three_epochs(folder)
    with (folder.parent / "filler").open("ab", buffering=0) as file:
        while True:
            try:
                file.write(bytes(4096))
            except OSError:
                time.sleep(0.0001)


def mount_small_disk(place: Path, size: int) -> bool:
    """Mount a disk in memory that this process and its children alone see; whether the system allows it."""
    identity, system = (os.getuid(), os.getgid()), ctypes.CDLL(None)
    if system.unshare(NEW_USER | NEW_MOUNTS) != 0:
        return False
    Path("/proc/self/setgroups").write_text("deny")
    for name, number in zip(("uid_map", "gid_map"), identity, strict=True):
        Path(f"/proc/self/{name}").write_text(f"0 {number} 1")
    return system.mount(b"tmpfs", os.fsencode(place), b"tmpfs", 0, f"size={size}".encode()) == 0


def on_small_disk(place: Path, whole: Path, epochs: int, told: Connection) -> None:
    """What a process does: mount a disk of one MiB, let it be full in the middle of a run, and tell."""
    mounted = mount_small_disk(place, 2**20)
    told.send(full_disk(place / "run", whole, epochs, fill_disk) if mounted else None)


def small_disk(place: Path, whole: Path, epochs: int) -> dict[str, Any] | None:
    """As `full_disk` on a disk that is; None where the system lets nobody mount one."""
    place.mkdir()
    here, there = FORK.Pipe(duplex=False)
    child = FORK.Process(target=on_small_disk, args=(place, whole, epochs, there))
    child.start()
    there.close()
    try:
        return here.recv()
    except EOFError:
        raise RuntimeError("the process on the small disk died: its error stands above") from None
    finally:
        child.join()


def finish(folder: Path, epochs: int, fill: Filler | None = None) -> tuple[int, str]:
    """Let the process come to its end; its exit code and what it said."""
    here, there = FORK.Pipe(duplex=False)
    child = FORK.Process(target=process, args=(folder, epochs, there, fill))
    child.start()
    there.close()
    try:
        return here.recv()
    except EOFError:
        return -1, "the process died"
    finally:
        child.join()


def interrupted(folder: Path, epochs: int, moment: str, seconds: float) -> bool:
    """Train and kill; whether the kill came before the end.

    Args:
        folder: of the run.
        epochs: of the run.
        moment: count `seconds` from the start of the process ("start") or of its training ("training"), or kill at the
            next checkpoint after that ("write").
        seconds: to wait.
    """
    before, leftovers = changed(folder), half_written(folder)
    child = FORK.Process(target=process, args=(folder, epochs))
    child.start()
    while child.is_alive() and moment != "start" and changed(folder) == before:
        time.sleep(0.0002)
    patience = time.perf_counter() + seconds
    while child.is_alive() and time.perf_counter() < patience:
        time.sleep(0.0002)
    while child.is_alive() and moment == "write" and not caught_writing(child, folder, leftovers):
        time.sleep(0.0001)
    child.kill()
    child.join()
    return child.exitcode != 0


def caught_writing(child: BaseProcess, folder: Path, leftovers: set[str]) -> bool:
    """Whether a process is halfway through a checkpoint; if so it is left there, stopped."""
    if half_written(folder) <= leftovers or child.pid is None:
        return False
    os.kill(child.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    if half_written(folder) <= leftovers:  # it was done before it could be stopped
        os.kill(child.pid, signal.SIGCONT)
        return False
    return True


def changed(folder: Path) -> int:
    """When the history was last written: training begins with it, also where it is resumed."""
    file = folder / "history.jsonl"
    return file.stat().st_mtime_ns if file.exists() else 0


def half_written(folder: Path) -> set[str]:
    """Temporary files of a checkpoint."""
    return {file.name for file in folder.glob(".checkpoint.safetensors.*")}


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints that a folder holds."""
    return [file for file in (checkpoint_file(folder), previous_file(folder)) if file.exists()]


def unreadable(folder: Path) -> int:
    """How many of its checkpoints cannot be read."""
    count = 0
    for file in checkpoints(folder):
        try:
            read_tensors(file)
        except ValueError:
            count += 1
    return count


def same_end(one: Path, other: Path) -> bool:
    """Whether two runs ended with the same weights and the same state of the optimiser, bit for bit."""
    for name in ("model.safetensors", "checkpoint.safetensors"):
        first, second = (read_tensors(folder / name)[0] for folder in (one, other))
        if first.keys() != second.keys() or not all(torch.equal(first[key], second[key]) for key in first):
            return False
    return True


def full_disk(folder: Path, whole: Path, epochs: int, fill: Filler) -> dict[str, Any]:
    """Let the disk be full in the middle of a run, and make room again."""
    code, said = finish(folder, epochs, fill)
    found = {
        "exit_code": code,
        "message": said.strip().replace(str(folder), "RUN"),
        "unreadable_checkpoints": unreadable(folder),
        "epochs_kept": read_tensors(checkpoint_file(folder))[1]["epoch"],
    }
    (folder.parent / "filler").unlink(missing_ok=True)
    finish(folder, epochs)
    return found | {"equal_after_resuming": same_end(folder, whole)}


def kill(folder: Path, whole: Path, kills: int, epochs: int, longest: float, seed: int) -> dict[str, Any]:
    """Kill so many times and count what happened."""
    dice = random.Random(seed)
    done, runs, equal, bad, mid_write, checked = 0, 0, 0, 0, 0, 0
    while done < kills:
        place = folder / f"run{runs}"
        leftovers = set[str]()
        while done < kills and interrupted(place, epochs, MOMENTS[done % 3], dice.uniform(0, longest)):
            done += 1
            mid_write += not half_written(place) <= leftovers
            leftovers = half_written(place)
            checked += len(checkpoints(place))
            bad += unreadable(place)
        code, said = finish(place, epochs)
        if code != 0:
            raise RuntimeError(f"the resumed run failed: {said}")
        runs += 1
        equal += same_end(place, whole)
    return {
        "kills": done,
        "kills_while_a_checkpoint_was_half_written": mid_write,
        "checkpoints_checked": checked,
        "unreadable_checkpoints": bad,
        "runs": runs,
        "runs_with_equal_weights": equal,
    }


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    start = time.perf_counter()
    torch.set_num_threads(1)
    kills, epochs = (5, 20) if chosen.quick else (chosen.kills, chosen.epochs)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole = folder / "whole"
        code, said = train(whole, epochs)  # in this process, which has then imported all that the others need
        if code != 0:
            raise RuntimeError(f"the run that nobody disturbs failed: {said}")
        seconds = (checkpoint_file(whole).stat().st_mtime - (whole / "run.json").stat().st_mtime) / epochs
        found = kill(folder, whole, kills, epochs, 4 * seconds, chosen.seed)
        disks = {
            "full_disk": full_disk(folder / "full", whole, epochs, limit_files),
            "small_disk": small_disk(folder / "small", whole, epochs),
        }
    return {"threads": 1, "epochs": epochs, **found, **disks, "minutes": round((time.perf_counter() - start) / 60, 1)}


if __name__ == "__main__":
    run(
        __doc__,
        measure,
        kills={"type": int, "default": 50, "help": "SIGKILLs in all"},
        epochs={"type": int, "default": 100, "help": "of one run"},
        seed={"type": int, "default": 0, "help": "of the moments"},
    )
