"""Checkpoints with a valid checksum and content that makes no sense; how many are kept; what a kill leaves behind."""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.optim.param_groups import merged, param_groups
from bayeslim.storage import read_tensors, remove_leftovers, write_tensors
from bayeslim.training.checkpoint import RunState, checkpoint_file, load_checkpoint_, previous_file, save_checkpoint
from training.problems import blobs, equal, small, state

Content = tuple[dict[str, Tensor], dict[str, Any]]


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(merged(param_groups(nn.ModuleList([model, bl.Categorical()]), lr=1e-3)), fused=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    bl.fit(small(), blobs(), likelihood=bl.Categorical(), epochs=1, checkpoint=tmp_path, seed=0, progress=False)
    previous_file(tmp_path).unlink()
    return tmp_path


def resume(folder: Path) -> RunState:
    model = small(seed=4)
    before = state(model)
    try:
        return load_checkpoint_(folder, model, bl.Categorical(), optimizer_of(model), {})
    except BaseException:
        assert equal(model, before)
        raise


def fact(name: str, value: Any) -> Callable[[Content], None]:
    return lambda content: content[1].update({name: value})


def without(name: str) -> Callable[[Content], None]:
    return lambda content: content[1].pop(name)


def tensor(name: str, value: Tensor | None) -> Callable[[Content], None]:
    def change(content: Content) -> None:
        content[0].pop(name, None)
        if value is not None:
            content[0][name] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("settings"), "lacks a valid settings"),
        (without("optimizer"), "lacks a valid optimizer"),
        (fact("epoch", "one"), "lacks a valid epoch"),
        (fact("epoch", -1), "lacks a valid epoch"),
        (fact("seed", None), "lacks a valid seed"),
        (fact("seed", 2**70), "`seed` must be an integer in"),
        (fact("history", [1]), "lacks a valid history"),
        (fact("history", {}), "lacks a valid history"),
        (fact("trained", [["a"]]), "lacks a valid trained"),
        (fact("run", 3), "lacks a valid run"),
        (fact("scaler", {"scale": 1.0}), "lacks a valid scaler"),
        (fact("scaler", dict.fromkeys(("scale", "growth_factor"), "x")), "lacks a valid scaler"),
        (fact("optimizer", {"0": 1}), "state '0' is not numbers"),
        (fact("optimizer", {"0": {"step": "x"}}), "state '0' is not numbers"),
        (fact("optimizer", {"0": {"exp_avg": 1.0}}), "0.exp_avg is a number, expected a tensor"),
        (fact("optimizer", {"-1": {}}), "there is no parameter '-1'"),
        (fact("optimizer", {"9" * 5000: {}}), "there is no parameter '999"),
        (tensor("optimizer.999.step", torch.zeros(())), "there is no parameter '999'"),
        (tensor("optimizer.0.exp_avg", torch.zeros(1)), r"0.exp_avg is \(1,\), expected \("),
        (tensor("optimizer.0.exp_avg_sq", torch.zeros(0)), r"0.exp_avg_sq is \(0,\), expected \("),
        (tensor("optimizer.0.step", torch.zeros(5)), r"0.step is \(5,\), expected \(\)"),
        (tensor("optimizer.0.exp_avg", None), "parameter 0 lacks its exp_avg"),
        (tensor("best.model.x", torch.zeros(2)), "does not fit the network: missing"),
    ],
)
def test_content_that_makes_no_sense_is_refused(folder: Path, change: Callable[[Content], None], message: str) -> None:
    """A moment shorter than its parameter would let the fused step write beyond its memory."""
    resume(folder)
    content = read_tensors(checkpoint_file(folder))
    change(content)
    write_tensors(checkpoint_file(folder), *content)
    with pytest.raises(ValueError, match=message):
        resume(folder)


def test_numbers_that_are_not_finite_are_kept(folder: Path) -> None:
    """A diverged validation score is a fact like any other."""
    tensors, facts = read_tensors(checkpoint_file(folder))
    write_tensors(checkpoint_file(folder), tensors, facts | {"best_score": math.inf})
    assert resume(folder).best_score == math.inf


def epochs_kept(folder: Path) -> dict[str, int]:
    return {file.name: read_tensors(file)[1]["epoch"] for file in sorted(folder.glob("*.safetensors"))}


def save(folder: Path, epoch: int, keep: int) -> None:
    model = small()
    save_checkpoint(folder, model, bl.Categorical(), optimizer_of(model), RunState(0, epoch), keep=keep)


def test_as_many_are_kept_as_asked_for(tmp_path: Path) -> None:
    for epoch in range(6):
        save(tmp_path, epoch, keep=4)
    assert epochs_kept(tmp_path) == {
        "checkpoint.safetensors": 5,
        "checkpoint.previous.safetensors": 4,
        "checkpoint.previous-2.safetensors": 3,
        "checkpoint.previous-3.safetensors": 2,
    }
    save(tmp_path, 6, keep=2)
    assert epochs_kept(tmp_path) == {"checkpoint.safetensors": 6, "checkpoint.previous.safetensors": 5}
    save(tmp_path, 7, keep=1)
    assert epochs_kept(tmp_path) == {"checkpoint.safetensors": 7}
    for keep in (0, -1, True, 1.5):
        with pytest.raises(ValueError, match="`keep` must be a positive integer"):
            save(tmp_path, 8, keep=keep)  # pyright: ignore[reportArgumentType]
    assert epochs_kept(tmp_path) == {"checkpoint.safetensors": 7}


def test_fit_keeps_as_many_as_asked_for(tmp_path: Path) -> None:
    options: dict[str, Any] = {"likelihood": bl.Categorical(), "epochs": 4, "seed": 0, "progress": False}
    for keep, kept in ((1, {4}), (2, {4, 3}), (3, {4, 3, 2})):
        bl.fit(small(), blobs(), checkpoint=tmp_path / str(keep), keep=keep, **options)
        assert set(epochs_kept(tmp_path / str(keep)).values()) == kept
    with pytest.raises(ValueError, match="`keep` must be a positive integer, got 0"):
        bl.fit(small(), blobs(), checkpoint=tmp_path / "none", keep=0, **options)
    assert not (tmp_path / "none").exists()


def test_the_newest_whole_one_is_taken(tmp_path: Path) -> None:
    for epoch in range(4):
        save(tmp_path, epoch, keep=4)
    for file in (checkpoint_file(tmp_path), previous_file(tmp_path)):
        file.unlink()
        file.write_bytes(b"damaged")
    with pytest.warns(RuntimeWarning, match=r"which checkpoint\.previous-2\.safetensors holds"):
        assert resume(tmp_path).epoch == 1


def test_damage_to_a_name_in_the_header_counts_as_damage(tmp_path: Path) -> None:
    """One flipped bit there makes the file look like somebody else's."""
    for epoch in range(2):
        save(tmp_path, epoch, keep=2)
    content = checkpoint_file(tmp_path).read_bytes()
    checkpoint_file(tmp_path).unlink()
    checkpoint_file(tmp_path).write_bytes(content.replace(b"bayeslim_version", b"bayeslim_versioo"))
    with pytest.warns(RuntimeWarning, match="was not written by bayeslim"):
        assert resume(tmp_path).epoch == 0


def test_what_a_kill_left_half_written_is_removed(tmp_path: Path) -> None:
    save(tmp_path, 0, keep=2)
    for name in ("checkpoint.safetensors", "checkpoint.previous.safetensors", "history.jsonl"):
        (tmp_path / f".{name}.0123456789abcdef").write_bytes(b"half")
    others = {".checkpoint.safetensors.mine", ".other.0123456789abcdef"}
    for name in others:
        (tmp_path / name).write_bytes(b"keep me")
    save(tmp_path, 1, keep=2)
    assert {name for name in os.listdir(tmp_path) if name.startswith(".")} == others
    remove_leftovers(tmp_path / "absent" / "file")
