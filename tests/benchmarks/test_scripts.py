"""Every script runs at a small size and writes what the page reads."""

import json
import runpy
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bayeslim.data.tables import read_table

ROOT = Path(__file__).parent.parent.parent
NOT_SCRIPTS = {
    *("compare.py", "harness.py", "limits.py", "speeds.py"),
    *("performance_figure.py", "performance_goals.py", "performance_markdown.py", "performance_page.py"),
    *("fuzz_mutations.py", "fuzz_samples.py", "fuzz_worker.py"),
}
NEED_DATA = {"shrink.py", "sklearn_comparison.py"}
CHECKED_ELSEWHERE = {"kill_training.py", "fuzz_files.py"}
"""They are run, and their records judged, in `tests/fuzz/`."""
QUICK = {
    "train_step.py": ["steps", "speeds"],
    "modes_in_turns.py": ["steps"],
    "predict.py": ["many", "few", "moments"],
    "scaling.py": ["sweeps"],
    "dissertation_tables.py": ["ours", "paper"],
    "peers.py": ["train_step", "predict"],
    "optimizer_step.py": ["networks"],
    "products.py": ["layers"],
    "many_networks.py": ["steps"],
    "predict_memory.py": ["peaks", "growth"],
    "ranks.py": ["examples_per_second", "speedup"],
}
FEWER = {"predict_memory.py": ["--formats", "csv"]}
"""Options that leave out repetitions, each of which starts a process."""
LAUNCHES = {"ranks.py"}
"""Those that start torchrun: slow, with a test of their parts beside."""


def test_every_script_is_listed() -> None:
    listed = set(QUICK) | NOT_SCRIPTS | NEED_DATA | CHECKED_ELSEWHERE
    assert {file.name for file in (ROOT / "benchmarks").glob("*.py")} == listed


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


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LAUNCHES else []) for name in QUICK]
)
def test_quick_form_writes_a_record(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = FEWER.get(name, [])
    record = run(name, tmp_path / "new" / "record.json", monkeypatch, *options)
    assert record["command"] == " ".join([f"python benchmarks/{name} --quick", *options])
    assert record["device"] == "cpu" and record["threads"] == torch.get_num_threads()
    assert all(record[key] for key in QUICK[name])


def test_ranks_are_launched_and_compared_with_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each launch by this process, as the only rank; the speeds that it finds are then given by hand."""
    launched: list[list[str]] = []

    def launch(command: list[str], **options: Any) -> None:
        launched.append(command)
        script = command.index(str(ROOT / "benchmarks" / "ranks.py"))
        with monkeypatch.context() as typed:
            typed.setattr(sys, "argv", command[script:])
            runpy.run_path(command[script], run_name="__main__")
        file = Path(command[command.index("--worker") + 1])
        (speed,) = json.loads(file.read_text()).values()
        assert speed > 0
        file.write_text(json.dumps({"128": 100.0 * len(launched) ** 0.5}))

    monkeypatch.setattr(subprocess, "run", launch)
    record = run("ranks.py", tmp_path / "record.json", monkeypatch)
    assert record["command"] == "python benchmarks/ranks.py --quick" and record["device"] == "cpu"
    assert [command[1:6] for command in launched] == [
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count] for count in ("1", "2")
    ]
    assert record["examples_per_second"] == {"1": {"128": 100.0}, "2": {"128": 100 * 2**0.5}}
    assert record["speedup"] == {"1": {"128": 1.0}, "2": {"128": pytest.approx(2**0.5)}}


@pytest.mark.parametrize("kind", ["csv", "npy", "parquet"])
def test_files_of_any_length_repeat_their_rows(kind: str, tmp_path: Path) -> None:
    """As `bayeslim predict` reads them, whose memory is measured."""
    predict_memory: Any = import_module("predict_memory")
    block = np.arange(12, dtype=np.float32).reshape(3, 4) / 8
    write, answered = predict_memory.FORMATS[kind]
    write(tmp_path / f"input.{kind}", block, 2)
    assert answered == {"npy": "npz"}.get(kind, kind)
    if kind == "npy":
        found = np.load(tmp_path / "input.npy")
    else:
        rows = read_table(tmp_path / f"input.{kind}")
        found = np.array([[float(cell) for cell in rows.columns[name]] for name in predict_memory.COLUMNS]).T
    np.testing.assert_array_equal(found, np.tile(block, (2, 1)))


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
