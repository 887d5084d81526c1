"""Every script runs at a small size and writes what the page reads."""

import json
import runpy
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parent.parent.parent
NOT_SCRIPTS = {
    *("harness.py", "limits.py"),
    *("performance_figure.py", "performance_goals.py", "performance_markdown.py", "performance_page.py"),
    *("fuzz_mutations.py", "fuzz_samples.py", "fuzz_worker.py"),
}
NEED_DATA = {"shrink.py", "sklearn_comparison.py"}
QUICK = {
    "train_step.py": ["steps", "speeds"],
    "modes_in_turns.py": ["steps"],
    "predict.py": ["many", "few", "moments"],
    "scaling.py": ["sweeps"],
    "dissertation_tables.py": ["ours", "paper"],
    "peers.py": ["train_step", "predict"],
    "optimizer_step.py": ["networks"],
    "many_networks.py": ["steps"],
    "predict_memory.py": ["peaks", "growth"],
    "ranks.py": ["examples_per_second", "speedup"],
    "fuzz_files.py": ["total", "kinds"],
    "kill_training.py": ["kills", "runs", "full_disk"],
}


def test_every_script_is_listed() -> None:
    assert {file.name for file in (ROOT / "benchmarks").glob("*.py")} == set(QUICK) | NOT_SCRIPTS | NEED_DATA


def run(name: str, out: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> dict[str, Any]:
    """Run a script as the command line does, in this process."""
    file = ROOT / "benchmarks" / name
    monkeypatch.setattr(sys, "argv", [str(file), "--quick", *arguments, "--out", str(out)])
    threads = torch.get_num_threads()
    try:
        runpy.run_path(str(file), run_name="__main__")
    finally:
        torch.set_num_threads(threads)
    return json.loads(out.read_text())


@pytest.mark.parametrize("name", QUICK)
def test_quick_form_writes_a_record(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = run(name, tmp_path / "new" / "record.json", monkeypatch)
    assert record["command"] == f"python benchmarks/{name} --quick"
    threads = 1 if name == "kill_training.py" else torch.get_num_threads()
    assert record["device"] == "cpu" and record["threads"] == threads
    assert all(record[key] for key in QUICK[name])


@pytest.mark.slow
def test_compiled_steps_are_beside_the_eager_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = run("train_step.py", tmp_path / "record.json", monkeypatch, "--compile")
    assert set(record["steps"]) == {"eager", "compiled"}
    assert record["steps"]["compiled"]["deterministic"]["ratio"] == 1.0


@pytest.mark.parametrize("name", sorted(NEED_DATA))
def test_scripts_that_need_data_take_their_arguments(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        run(name, tmp_path / "record.json", monkeypatch, "--help")
    assert "--out" in capsys.readouterr().out


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_exponents_are_those_of_the_larger_half(power: float) -> None:
    scaling: Any = import_module("scaling")
    sizes = [1, 2, 4, 8, 16, 32]
    seconds = [7.0, 7.0, 7.0, *(3 * size**power for size in sizes[3:])]
    assert scaling.exponent(sizes, seconds) == pytest.approx(power)


def test_the_command_is_what_was_typed_without_where_it_goes() -> None:
    harness: Any = import_module("harness")
    typed = ["/somewhere/benchmarks/train_step.py", "--compile", "--out", "a.json", "--quick"]
    assert harness.command(typed) == "python benchmarks/train_step.py --compile --quick"


def test_a_missing_peer_is_told_and_harms_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchbnn", None)
    record = run("peers.py", tmp_path / "record.json", monkeypatch)
    peers: Any = import_module("peers")
    assert set(record["missing"]) | set(record["train_step"]) == set(peers.PEERS) | set(peers.OURS)
    assert "torchbnn" in record["missing"] and "torchbnn" not in record["predict"]
