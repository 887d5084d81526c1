"""A damaged checkpoint: the one before it takes over, and the run ends with the same weights."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import bayeslim as bl
from bayeslim.storage import copy_atomically, read_tensors
from bayeslim.training.checkpoint import checkpoint_file, previous_file
from training.problems import blobs, equal, small, state


def run(folder: Path, epochs: int, resume: bool = False) -> nn.Module:
    model = small()
    options: dict[str, Any] = {"epochs": epochs, "batch_size": 16, "seed": 0, "progress": False}
    bl.fit(model, blobs(48), likelihood=bl.Categorical(), checkpoint=folder, resume=resume, **options)
    return model


def cut_short(content: bytes) -> bytes:
    return content[: len(content) // 2]


def bit_flipped(content: bytes) -> bytes:
    place = len(content) - 100
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def emptied(content: bytes) -> bytes:
    return b""


def test_two_checkpoints_are_kept(tmp_path: Path) -> None:
    run(tmp_path, 3)
    assert read_tensors(checkpoint_file(tmp_path))[1]["epoch"] == 3
    assert read_tensors(previous_file(tmp_path))[1]["epoch"] == 2
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "checkpoint.previous.safetensors",
        "checkpoint.safetensors",
        "history.jsonl",
    ]


@pytest.mark.parametrize("damage", [cut_short, bit_flipped, emptied])
def test_the_one_before_takes_over(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", 4)
    run(tmp_path / "other", 3)
    file = checkpoint_file(tmp_path / "other")
    content = file.read_bytes()
    file.unlink()  # the file before may be a second link to it
    file.write_bytes(damage(content))
    with pytest.warns(RuntimeWarning, match=r"Going on from an earlier epoch, which checkpoint\.previous\.safetensors"):
        resumed = run(tmp_path / "other", 4, resume=True)
    assert equal(state(resumed), state(whole))


def test_if_both_are_damaged_nothing_is_changed(tmp_path: Path) -> None:
    run(tmp_path, 2)
    for file in (checkpoint_file(tmp_path), previous_file(tmp_path)):
        file.unlink()
        file.write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors is not a readable safetensors file"):
        run(tmp_path, 3, resume=True)
    assert checkpoint_file(tmp_path).read_bytes() == b"not a checkpoint"


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, 2)
    before = checkpoint_file(tmp_path).read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        run(tmp_path, 3, resume=True)
    monkeypatch.undo()
    assert checkpoint_file(tmp_path).read_bytes() == before
    assert equal(state(run(tmp_path, 4, resume=True)), state(run(tmp_path / "whole", 4)))


def test_copies_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    (tmp_path / "a").write_bytes(b"new")
    (tmp_path / "b").write_bytes(b"old")
    copy_atomically(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"new" and len(list(tmp_path.iterdir())) == 2
