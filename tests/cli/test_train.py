"""`bayeslim train`: what it says, what it keeps, and how it goes on after Ctrl-C."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from PIL import Image

from bayeslim.cli import main
from bayeslim.cli.train import constant_note
from bayeslim.data.tables import read_table
from bayeslim.runs import Run
from bayeslim.storage import read_tensors
from bayeslim.train_config import read_config
from cli.conftest import QUICK, flowers, houses

Output = pytest.CaptureFixture[str]


def same_weights(one: Path, other: Path) -> bool:
    first, second = (read_tensors(folder / "model.safetensors")[0] for folder in (one, other))
    return first.keys() == second.keys() and all(first[name].equal(second[name]) for name in first)


def files(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_a_table_is_explained_trained_and_kept(tmp_path: Path, capsys: Output) -> None:
    table = flowers(tmp_path / "flowers.csv")
    assert main(["train", "--data", str(table), "--target", "species", "--out", str(tmp_path / "a"), *QUICK]) == 0
    said = capsys.readouterr().out
    assert "84 rows to train on, 18 for validation, 18 for the test" in said
    assert "task: 2 classes of 'species' (inferred; --task overrides it): rose, tulip" in said
    assert "text columns as one input per value: soil" in said and "left out, constant: planet" in said
    assert "accuracy" in said and "bayeslim prune" in said
    kept = {"run.json", "config.toml", "preprocessing.json", "model.safetensors", "metrics.json"}
    assert files(tmp_path / "a") == kept | {
        "checkpoint.safetensors",
        "checkpoint.previous.safetensors",
        "history.jsonl",
    }
    run = Run(tmp_path / "a")
    assert run.config.data == str(table) and len(run.history()) == 3
    assert run.command.startswith("bayeslim train --data") and set(run.metrics()["trained"]) >= {"test", "validation"}


def test_stored_settings_give_the_same_weights(tmp_path: Path, classes_run: Path) -> None:
    config = str(classes_run / "config.toml")
    assert main(["train", "--config", config, "--out", str(tmp_path / "same"), "--samples", "2"]) == 0
    assert same_weights(classes_run, tmp_path / "same")
    assert main(["train", f"--config={config}", "--seed", "1", f"--out={tmp_path / 'other'}", "--samples", "2"]) == 0
    assert not same_weights(classes_run, tmp_path / "other")
    assert read_config(tmp_path / "other" / "config.toml").seed == 1


def test_missing_values_need_a_word(tmp_path: Path, capsys: Output) -> None:
    table = flowers(tmp_path / "flowers.csv", gaps=True)
    arguments = ["train", "--data", str(table), "--target", "species", "--out", str(tmp_path / "a"), *QUICK]
    assert main(arguments) == 1
    assert "values are missing in 'length'" in capsys.readouterr().err and not (tmp_path / "a").exists()
    assert main([*arguments, "--impute"]) == 0


def test_task_can_be_overridden(tmp_path: Path, capsys: Output) -> None:
    table = tmp_path / "t.csv"
    table.write_text("a,y\n" + "".join(f"{i % 7},{i % 3}\n" for i in range(60)))
    out = ["--target", "y", *QUICK, "--task", "regression", "--out", str(tmp_path / "a")]
    assert main(["train", "--data", str(table), *out]) == 0
    said = capsys.readouterr().out
    assert "task: regression of 'y'" in said and "inferred" not in said and "rmse" in said


@pytest.mark.parametrize("method", ["none", "graves", "molchanov", "kingma", "gamma", "k-tied", "vdp", "bbb"])
def test_every_method_trains_by_name(tmp_path: Path, method: str) -> None:
    arguments = ["--data", "moons", "--rows", "60", "--method", method, "--out", str(tmp_path / "a"), *QUICK]
    assert main(["train", *arguments]) == 0
    assert Run(tmp_path / "a").model() is not None


def test_parquet_gives_the_same_network_as_csv(tmp_path: Path, regression_run: Path) -> None:
    table = read_table(Path(Run(regression_run).config.data))
    columns = {name: [float(cell) for cell in cells] for name, cells in table.columns.items()}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "houses.parquet")
    data = ["--config", str(regression_run / "config.toml"), "--data", str(tmp_path / "houses.parquet")]
    assert main(["train", *data, "--out", str(tmp_path / "a"), "--samples", "2"]) == 0
    assert same_weights(regression_run, tmp_path / "a")


def test_a_folder_of_images_is_learnt_and_predicted(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    for name, level in (("dark", 50), ("light", 200)):
        (tmp_path / "set" / name).mkdir(parents=True)
        for index in range(20):
            pixels = (level + generator.integers(-40, 40, (4, 4))).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "set" / name / f"{index:02}.png")
    learning = ["--epochs", "40", "--lr", "0.02", "--hidden", "4", "--kl-warmup", "20", "--samples", "2"]
    assert main(["train", "--data", str(tmp_path / "set"), "--out", str(tmp_path / "a"), *learning]) == 0
    for name in ("dark", "light"):
        files = ["--input", str(tmp_path / "set" / name), "--out", str(tmp_path / f"{name}.csv")]
        assert main(["predict", str(tmp_path / "a"), *files]) == 0
        answers = (tmp_path / f"{name}.csv").read_text().splitlines()[1:]
        assert len(answers) == 20 and all(row.startswith(name) for row in answers)


def test_quick_settings_are_written_out(tmp_path: Path) -> None:
    assert main(["train", "--data", "digits", "--quick", "--hidden", "8", "--out", str(tmp_path / "a")]) == 0
    config = read_config(tmp_path / "a" / "config.toml")
    assert (config.epochs, config.rows, config.kl_warmup, config.kl_ramp) == (5, 1000, 0, 4)
    assert Run(tmp_path / "a").history()["beta"] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert main(["train", "--resume", "--quick", "--out", str(tmp_path / "a")]) == 0
    again = ["--quick", "--epochs", "3", "--kl-ramp", "1", "--out", str(tmp_path / "b")]
    assert main(["train", "--data", "digits", "--hidden", "8", *again]) == 0
    assert Run(tmp_path / "b").history()["beta"] == [0.0, 0.0, 1.0]


def test_short_runs_reach_the_whole_kl(tmp_path: Path, capsys: Output) -> None:
    data = ["train", "--data", "moons", "--rows", "60", *QUICK, "--epochs", "12", "--kl-weight", "0.5"]
    assert main([*data, "--out", str(tmp_path / "a")]) == 0
    assert "note:" not in capsys.readouterr().out
    config = read_config(tmp_path / "a" / "config.toml")
    assert (config.kl_warmup, config.kl_ramp) == (1, 10) and Run(tmp_path / "a").history()["beta"][-1] == 0.5


def test_given_epochs_of_the_kl_hold_and_a_ramp_without_end_is_noted(tmp_path: Path, capsys: Output) -> None:
    """As in the folder of a run from before the defaults followed the epochs."""
    data = ["train", "--data", "moons", "--rows", "60", *QUICK, "--epochs", "20", "--kl-warmup", "5", "--kl-ramp", "50"]
    assert main([*data, "--out", str(tmp_path / "a")]) == 0
    note = "note: the weight of the KL ends at 28 % of --kl-weight: --kl-warmup 5 and --kl-ramp 50 do not fit into 20"
    assert note in capsys.readouterr().out
    settings = (tmp_path / "a" / "config.toml").read_bytes()
    assert b"kl_warmup = 5\nkl_ramp = 50\n" in settings
    assert Run(tmp_path / "a").history()["beta"][-1] == pytest.approx(0.28)
    assert main(["train", "--resume", "--samples", "2", "--out", str(tmp_path / "a")]) == 0
    assert note in capsys.readouterr().out and (tmp_path / "a" / "config.toml").read_bytes() == settings
    assert main([*data, "--out", str(tmp_path / "b"), "--method", "none"]) == 0
    assert "note:" not in capsys.readouterr().out


def test_nothing_is_overwritten(tmp_path: Path, capsys: Output, classes_run: Path) -> None:
    before = {file: file.read_bytes() for file in classes_run.iterdir()}
    assert main(["train", "--data", "moons", "--out", str(classes_run)]) == 1
    assert "already holds a run: pass --resume" in capsys.readouterr().err
    assert {file: file.read_bytes() for file in classes_run.iterdir()} == before
    (tmp_path / "letter").write_text("keep me")
    assert main(["train", "--data", "moons", "--out", str(tmp_path)]) == 1
    assert "not an empty folder" in capsys.readouterr().err
    assert main(["train", "--data", "moons", "--rows", "60", "--out", str(tmp_path / "letter" / "run")]) == 1
    assert "cannot write to the folder" in capsys.readouterr().err and files(tmp_path) == {"letter"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "minst"], "did you mean mnist"),
        (["--data", "moons", "--model", "ml"], "did you mean mlp"),
        (["--data", "moons", "--method", "molchanow"], "did you mean molchanov"),
        (["--data", "moons", "--model", "lenet-5"], "use --model mlp"),
        (["--data", "moons", "--device", "abacus"], "--device 'abacus' cannot be used"),
        (["--config", "absent.toml"], "there is no file absent.toml"),
    ],
)
def test_wrong_names_are_errors_without_traceback(
    tmp_path: Path, capsys: Output, arguments: list[str], message: str
) -> None:
    assert main(["train", *arguments, "--out", str(tmp_path / "a")]) == 1
    error = capsys.readouterr().err
    assert message in error and error.startswith("bayeslim train: ") and "Traceback" not in error
    assert not (tmp_path / "a").exists()
    with pytest.raises((ValueError, OSError)):
        main(["train", *arguments, "--out", str(tmp_path / "a"), "--debug"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"a,y\n", "have 0 rows: training needs at least 10"),
        (b"a,y\n1,2\n", "have 1 rows"),
        (b"a,a,y\n1,1,2\n", "names columns twice: 'a'"),
        (b"caf\xe9,y\n1,2\n", "not UTF-8"),
        (b"a,y\n" + b"1,2\n" * 20 + b"1\n", "line 22: 1 cells"),
        (b"a,y\n" + b"1,2\n2,3\n" * 20 + b"inf,2\n", "'inf' is infinite"),
        (b"a,y\n" + b"1,2\n2,3\n" * 20 + b"9" * 400 + b",2\n", "is infinite or beyond"),
        (b"a,b\n1,2\n", "there is no column 'y'"),
        (b"a;y\n" + b"".join(b"%d;0,%03d\n" % (i, i) for i in range(60)), "the target 'y' holds cells such as '0,000'"),
        (b"a;y\n" + b"".join(b"0,%03d;%d\n" % (i, i % 2) for i in range(60)), "column 'a' holds cells such as '0,"),
        (b"a,y\n" + b"".join(b"%d,id%d\n" % (i, i) for i in range(60)), "60 different values in 60 rows and is text"),
    ],
)
def test_bad_tables_are_explained_and_leave_nothing(
    tmp_path: Path, capsys: Output, content: bytes, message: str
) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    assert main(["train", "--data", str(tmp_path / "t.csv"), "--target", "y", "--out", str(tmp_path / "a")]) == 1
    assert message in capsys.readouterr().err and files(tmp_path) == {"t.csv"}


def test_wrong_usage_is_code_2(tmp_path: Path, capsys: Output) -> None:
    assert main(["train", "--data", "moons"]) == 2  # no --out
    assert main(["train", "--out", str(tmp_path / "a"), "--epochs", "0"]) == 2
    assert main(["train", "--out", str(tmp_path / "a"), "--epochs", "many"]) == 2
    assert "--epochs" in capsys.readouterr().err and not (tmp_path / "a").exists()


def test_ctrl_c_keeps_the_epochs_and_resume_ends_the_same(tmp_path: Path, capsys: Output) -> None:
    table = houses(tmp_path / "houses.csv", rows=2000)
    arguments = ["train", "--data", str(table), "--target", "price", "--epochs", "15", "--samples", "2"]
    broken, whole = tmp_path / "broken", tmp_path / "whole"
    process = subprocess.Popen(
        [sys.executable, "-m", "bayeslim", *arguments, "--out", str(broken)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        text=True,
    )
    history = broken / "history.jsonl"
    deadline = time.monotonic() + 60
    while not (history.is_file() and len(history.read_text().splitlines()) >= 2):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert f"bayeslim train --resume --out {broken}" in error and "Traceback" not in error
    assert 2 <= len(Run(broken).history()) < 15 and not Run(broken).finished
    assert main(["evaluate", str(broken)]) == 1
    assert "is not finished" in capsys.readouterr().err
    assert main(["train", "--resume", "--epochs", "9", "--out", str(broken)]) == 1
    assert "has other settings: epochs was 15, now 9" in capsys.readouterr().err
    assert main(["train", "--resume", "--out", str(broken), "--samples", "2"]) == 0
    assert main([*arguments, "--out", str(whole)]) == 0
    assert same_weights(broken, whole) and len(Run(broken).history()) == 15
    assert main(["train", "--resume", "--out", str(broken), "--samples", "2"]) == 0  # nothing left to do
    assert same_weights(broken, whole)


def test_a_network_that_learns_nothing_is_told(tmp_path: Path, capsys: Output) -> None:
    """Noise for targets, and a step size that does nothing; then something to learn."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(120, 2))
    for name, target in (("noise", generator.normal(size=120)), ("sum", x.sum(1))):
        rows = [f"{a},{b},{'up' if y > 0 else 'down'}" for (a, b), y in zip(x, target, strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,b,y", *rows]))
        learning = ["--epochs", "2", "--lr", "1e-9"] if name == "noise" else ["--epochs", "60", "--kl-ramp", "30"]
        arguments = ["--data", str(tmp_path / f"{name}.csv"), "--target", "y", "--hidden", "10", "--samples", "20"]
        main(["train", *arguments, *learning, "--out", str(tmp_path / name)])
        told = "no better than one answer for all of them" in capsys.readouterr().out.replace("\n", " ")
        assert told == (name == "noise")


@pytest.mark.parametrize(("rmse", "told"), [(5.0, True), (4.99, False)])
def test_the_one_answer_to_a_regression_is_the_mean_of_the_training_rows(rmse: float, told: bool) -> None:
    splits = SimpleNamespace(train=(None, torch.tensor([[0.5], [1.5]])), test=(None, torch.tensor([[3.5], [-1.5]])))
    target = SimpleNamespace(task="regression", std=2.0)  # targets lie 2.5 deviations of 2 from the mean of 1
    problem: Any = SimpleNamespace(splits=splits, preprocessing=SimpleNamespace(target=target))
    note = constant_note(problem, {"rmse": rmse})
    assert ("rmse 5, that has 5" in note if note else False) == told
