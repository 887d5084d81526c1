"""A run that is killed and resumed ends like one that was left alone; a full disk harms nothing."""

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent.parent.parent / "benchmarks" / "kill_training.py"


def check(tmp_path: Path, kills: int, *options: str) -> dict[str, Any]:
    out = tmp_path / "record.json"
    command = [sys.executable, str(SCRIPT), *options, "--out", str(out)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=600)
    found = json.loads(out.read_text())
    assert found["kills"] == kills and found["checkpoints_checked"] >= kills
    assert found["kills_while_a_checkpoint_was_half_written"] > 0 and found["unreadable_checkpoints"] == 0
    assert found["runs"] == found["runs_with_equal_weights"] > 0
    check_disk(found["full_disk"], "File too large")
    return found


def check_disk(found: dict[str, Any], reason: str) -> None:
    assert found["exit_code"] == 1 and re.search(rf"cannot write RUN/\S+ \({reason}\), which is left", found["message"])
    assert found["unreadable_checkpoints"] == 0 and found["equal_after_resuming"]
    assert found["epochs_kept"] >= 3


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return check(tmp_path_factory.mktemp("kills"), 5, "--quick")


def test_five_kills_and_a_limit_on_files(record: dict[str, Any]) -> None:
    assert record["epochs"] == 20
    assert record["command"] == "python benchmarks/kill_training.py --quick"
    assert record["device"] == "cpu" and record["threads"] == 1


def test_a_disk_without_room(record: dict[str, Any]) -> None:
    if record["small_disk"] is None:
        pytest.skip("this system lets no user mount a disk in memory (unshare, tmpfs)")
    check_disk(record["small_disk"], "No space left on device")


@pytest.mark.slow
def test_fifty_kills_and_full_disks(tmp_path: Path) -> None:
    check(tmp_path, 50, "--kills", "50")


def test_a_difference_would_be_noticed(tmp_path: Path) -> None:
    import torch

    from bayeslim.storage import write_tensors

    script = import_module("kill_training")
    for name, value in (("a", 1.0), ("b", 1.0), ("c", 1.0 + 2**-23)):
        for file in ("model.safetensors", "checkpoint.safetensors"):
            write_tensors(tmp_path / name / file, {"w": torch.tensor([value])}, {})
    assert script.same_end(tmp_path / "a", tmp_path / "b") and not script.same_end(tmp_path / "a", tmp_path / "c")
    (tmp_path / "b" / "checkpoint.safetensors").write_bytes(b"half")
    assert script.unreadable(tmp_path / "b") == 1 and script.unreadable(tmp_path / "a") == 0
