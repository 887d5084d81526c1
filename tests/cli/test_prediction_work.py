"""`bayeslim predict` stopped, resumed and shared: always the file of one undisturbed process."""

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayeslim.cli import main, prediction_parts, prediction_work
from bayeslim.cli.prediction_work import PredictionJob, predict_in_workers

Output = pytest.CaptureFixture[str]
PART = 8192


def sizes(file: Path, rows: int) -> Path:
    """Houses to be priced."""
    values = np.random.default_rng(0).uniform(30, 200, rows)
    file.write_text("size\n" + "".join(f"{value:.2f}\n" for value in values))
    return file


def arguments(run: Path, source: Path, out: Path, *more: str) -> list[str]:
    files = ["predict", str(run), "--input", str(source), "--out", str(out)]
    return [*files, "--samples", "3", "--device", "cpu", *more]


def failing_at(call: int, error: BaseException, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which raises at its `call`-th call."""
    calls = 0

    def counted(*args: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            raise error
        return function(*args, **named)

    return counted


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of four rows, in this process."""
    monkeypatch.setattr(prediction_work, "ROWS", 4)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_interrupted_answers_are_gone_on_with(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch, regression_run: Path, suffix: str
) -> None:
    source, out, whole = sizes(tmp_path / "new.csv", 18), tmp_path / f"out{suffix}", tmp_path / f"whole{suffix}"
    assert main(arguments(regression_run, source, whole)) == 0
    with monkeypatch.context() as patch:
        patch.setattr(prediction_work, "predict", failing_at(3, KeyboardInterrupt(), prediction_work.predict))
        assert main(arguments(regression_run, source, out)) == 130
    assert "stopped; 2 finished parts are kept in" in capsys.readouterr().err
    assert not out.exists()
    with monkeypatch.context() as patch:  # 5 parts, 2 of them finished: a fourth call would fail
        patch.setattr(prediction_work, "predict", failing_at(4, AssertionError(), prediction_work.predict))
        assert main(arguments(regression_run, source, out)) == 0
    told = capsys.readouterr().out
    assert "going on after 2 finished parts" in told and f"{out}: 18 rows" in told
    assert out.read_bytes() == whole.read_bytes()
    assert {file.name for file in tmp_path.iterdir()} == {"new.csv", out.name, whole.name}


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("explained", [False, True])
def test_a_full_disk_keeps_the_parts(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch, regression_run: Path, explained: bool
) -> None:
    source, out = sizes(tmp_path / "new.csv", 18), tmp_path / "out.csv"
    full = OSError(errno.ENOSPC, "No space left on device")
    error = OSError("cannot write the part") if explained else full
    error.__cause__ = full if explained else None
    with monkeypatch.context() as patch:  # the first call writes the manifest
        patch.setattr(prediction_parts, "write_atomically", failing_at(4, error, prediction_parts.write_atomically))
        assert main(arguments(regression_run, source, out)) == 1
    assert "no space is left for" in (told := capsys.readouterr().err) and "2 finished parts are kept" in told
    with monkeypatch.context() as patch:
        patch.setattr("bayeslim.cli.answers.shutil.copyfileobj", failing_at(2, full, lambda source, target: None))
        assert main(arguments(regression_run, source, out)) == 1
    assert "5 finished parts are kept" in capsys.readouterr().err and not out.exists()
    assert main(arguments(regression_run, source, out)) == 0
    assert len(out.read_text().splitlines()) == 19


@pytest.mark.usefixtures("small_parts")
def test_changed_settings_or_inputs_are_not_mixed(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch, regression_run: Path
) -> None:
    source, out = sizes(tmp_path / "new.csv", 18), tmp_path / "out.csv"
    with monkeypatch.context() as patch:
        patch.setattr(prediction_work, "predict", failing_at(3, KeyboardInterrupt(), prediction_work.predict))
        assert main(arguments(regression_run, source, out)) == 130
    assert main(arguments(regression_run, source, out, "--seed", "1", "--method", "mean")) == 1
    assert "(method was 'sample', now 'mean'; seed was 0, now 1)" in capsys.readouterr().err
    source.write_text(source.read_text() + "50\n")
    assert main(arguments(regression_run, source, out)) == 1
    assert "input size was" in (told := capsys.readouterr().err) and "pass --overwrite to start over" in told
    assert not out.exists()
    assert main(arguments(regression_run, source, out, "--overwrite")) == 0
    fresh = tmp_path / "fresh.csv"
    assert main(arguments(regression_run, source, fresh)) == 0
    assert out.read_bytes() == fresh.read_bytes() and len(out.read_text().splitlines()) == 20


def test_another_network_is_noticed(tmp_path: Path, regression_run: Path, classes_run: Path) -> None:
    source = sizes(tmp_path / "new.csv", 2)
    jobs = [
        PredictionJob(run, source, tmp_path / "out.csv", 3, "mean", "auto", "cpu", 0)
        for run in (regression_run, classes_run)
    ]
    one, other = (job.manifest() for job in jobs)
    assert {name for name in one if one[name] != other[name]} == {"network"}


def test_workers_write_the_same_file(tmp_path: Path, regression_run: Path) -> None:
    source = sizes(tmp_path / "new.csv", 2 * PART + 100)
    for workers in ("1", "2"):
        assert main(arguments(regression_run, source, tmp_path / f"{workers}.npz", "--workers", workers)) == 0
    assert (tmp_path / "1.npz").read_bytes() == (tmp_path / "2.npz").read_bytes()
    with np.load(tmp_path / "2.npz") as arrays:
        assert len(arrays["prediction"]) == 2 * PART + 100


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_bad_row_is_named_by_its_place_in_the_file(
    tmp_path: Path, capsys: Output, regression_run: Path, workers: str
) -> None:
    source = sizes(tmp_path / "new.csv", PART)
    source.write_text(source.read_text() + "1\n2\nthree\n4\n")
    assert main(arguments(regression_run, source, tmp_path / "out.csv", "--workers", workers)) == 1
    assert f"column 'size', data row {PART + 3}: 'three' is not a number" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["new.csv"]


def test_kill_in_the_middle_and_resume(tmp_path: Path, regression_run: Path) -> None:
    source, out, whole = sizes(tmp_path / "new.csv", 6 * PART), tmp_path / "out.csv", tmp_path / "whole.csv"
    more = ("--samples", "10")
    command = [sys.executable, "-m", "bayeslim", *arguments(regression_run, source, out, *more), "--workers", "2"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    folder = tmp_path / "out.csv.parts"
    wait_until(lambda: len(list(folder.glob("0*.csv"))) >= 2)
    children = children_of(process.pid)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL and children
    wait_until(lambda: not any(alive(child) for child in children))  # nobody goes on writing unseen
    assert not out.exists() and 2 <= len(list(folder.glob("0*.csv"))) < 6
    assert main(arguments(regression_run, source, out, *more)) == 0
    assert main(arguments(regression_run, source, whole, *more)) == 0
    assert out.read_bytes() == whole.read_bytes() and not folder.exists()


def wait_until(true: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def alive(pid: str) -> bool:
    """Whether a process runs; one that ended may be listed until its parent asks."""
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("parts", [0, 1])
def test_interrupted_workers_end_without_a_word(tmp_path: Path, regression_run: Path, parts: int) -> None:
    source, out = sizes(tmp_path / "new.csv", 40 * PART), tmp_path / "out.csv"
    command = [sys.executable, "-m", "bayeslim", *arguments(regression_run, source, out), "--workers", "2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_until(lambda: len(children_of(process.pid)) > 2)  # two workers and multiprocessing's own helper
    wait_until(lambda: len(list((tmp_path / "out.csv.parts").glob("0*.csv"))) >= parts)
    workers = children_of(process.pid)
    time.sleep(0.2)  # with no parts yet, the workers are still loading
    os.killpg(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in told and told.endswith("bayeslim: interrupted\n")
    assert ("finished parts are kept" in told) == bool(parts)
    wait_until(lambda: not any(alive(worker) for worker in workers))
    assert not out.exists()


@pytest.mark.slow
def test_a_killed_worker_ends_the_others(tmp_path: Path, regression_run: Path) -> None:
    source, out = sizes(tmp_path / "new.csv", 12 * PART), tmp_path / "out.csv"
    job = PredictionJob(regression_run, source, out, 10, "sample", "auto", "cpu", 0)
    prediction_parts.PredictionParts(out).begin(job.manifest(), start_over=False)
    work = predict_in_workers(job, 2)
    assert next(work) == PART
    first, second = multiprocessing.active_children()
    os.kill(first.pid or 0, signal.SIGKILL)
    with pytest.raises(ChildProcessError, match=r"ended from outside \(exit code -9.*finished parts are kept"):
        list(work)
    assert not second.is_alive() and not out.exists()


def test_wrong_numbers_of_workers_are_refused(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch, regression_run: Path
) -> None:
    command = arguments(regression_run, sizes(tmp_path / "new.csv", 3), tmp_path / "out.csv")
    assert main([*command, "--workers", "0"]) == 1
    assert "--workers must be at least 1, got 0" in capsys.readouterr().err
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main([*command, "--workers", "2"]) == 1
    assert "torchrun starts the processes already" in capsys.readouterr().err


def test_progress_is_shown_on_a_terminal_only(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch, regression_run: Path
) -> None:
    source = sizes(tmp_path / "new.csv", 3)
    assert main(arguments(regression_run, source, tmp_path / "quiet.csv")) == 0
    assert not capsys.readouterr().err
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(arguments(regression_run, source, tmp_path / "shown.csv")) == 0
    assert "rows/s" in capsys.readouterr().err


@pytest.mark.slow
def test_torchrun_shares_the_parts(tmp_path: Path, regression_run: Path) -> None:
    source, alone, shared = sizes(tmp_path / "new.csv", 3 * PART), tmp_path / "alone.csv", tmp_path / "shared.csv"
    assert main(arguments(regression_run, source, alone)) == 0
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "bayeslim"]
    done = subprocess.run(
        [*launch, *arguments(regression_run, source, shared)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{shared}: {3 * PART} rows"
    assert shared.read_bytes() == alone.read_bytes() and not (tmp_path / "shared.csv.parts").exists()
