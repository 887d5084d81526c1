"""`bayeslim predict`: right columns, right units, and a whole file or none."""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import torch

import bayeslim as bl
from bayeslim.cli import main
from bayeslim.cli.answers import answer_format, answers
from bayeslim.cli.overflow import refuse_overflow
from bayeslim.data.target import Target
from bayeslim.data.text_inputs import TextInputs
from bayeslim.runs import Run

Output = pytest.CaptureFixture[str]
NEW = "soil,id,width,length\nclay,1,0.1,0.9\nsand,2,0.3,-2\npeat,3,0,0\n"


def rows_of(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


def test_classes_with_their_doubt(tmp_path: Path, classes_run: Path) -> None:
    (tmp_path / "new.csv").write_text(NEW)
    arguments = ["predict", str(classes_run), "--input", str(tmp_path / "new.csv")]
    assert main([*arguments, "--out", str(tmp_path / "out.csv")]) == 0
    found = rows_of(tmp_path / "out.csv")
    assert list(found[0]) == ["prediction", "probability", "entropy", "mutual_information", "p_rose", "p_tulip"]
    for row in found:
        p = [float(row["p_rose"]), float(row["p_tulip"])]
        assert sum(p) == pytest.approx(1, abs=1e-6)
        assert row["prediction"] == ("rose", "tulip")[int(p[1] > p[0])] and float(row["probability"]) == max(p)
        assert float(row["entropy"]) == pytest.approx(-sum(v * np.log(v) for v in p), abs=1e-5)
    for method, out in (("sample", "out.parquet"), ("mean", "out.npz"), ("moments", "moments.csv")):
        assert main([*arguments, "--out", str(tmp_path / out), "--method", method]) == 0
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pydict()
    assert table["prediction"] == [row["prediction"] for row in found]
    assert table["p_rose"] == pytest.approx([float(row["p_rose"]) for row in found], abs=1e-6)
    assert not np.load(tmp_path / "out.npz")["mutual_information"].any()


def test_answers_do_not_depend_on_the_order_of_columns(tmp_path: Path, classes_run: Path) -> None:
    (tmp_path / "a.csv").write_text("length,width,soil\n0.9,0.1,clay\n")
    (tmp_path / "b.csv").write_text("soil,planet,length,width\nclay,mars,0.9,0.1\n")
    for name in "ab":
        files = ["--input", str(tmp_path / f"{name}.csv"), "--out", str(tmp_path / f"{name}.out.csv")]
        assert main(["predict", str(classes_run), *files]) == 0
    assert (tmp_path / "a.out.csv").read_bytes() == (tmp_path / "b.out.csv").read_bytes()


def test_numbers_are_in_the_unit_of_the_target(tmp_path: Path, regression_run: Path) -> None:
    (tmp_path / "new.csv").write_text("size\n50\n100\n150\n")
    files = ["--input", str(tmp_path / "new.csv"), "--out", str(tmp_path / "out.csv")]
    assert main(["predict", str(regression_run), *files]) == 0
    for row, size in zip(rows_of(tmp_path / "out.csv"), (50, 100, 150), strict=True):
        value = {name: float(cell) for name, cell in row.items()}
        assert value["prediction"] == pytest.approx(3000 * size, abs=40_000)  # noise 20 000
        assert 10_000 < value["std"] < 60_000
        assert value["lower95"] < value["prediction"] < value["upper95"]
        assert value["std"] ** 2 == pytest.approx(value["epistemic_std"] ** 2 + value["aleatoric_std"] ** 2, rel=1e-4)


def test_regression_answers_are_the_prediction_scaled() -> None:
    model = torch.nn.Linear(1, 1)
    x = torch.randn(4, 1)
    prediction = bl.predict(model, x, likelihood=bl.likelihoods.Gaussian(noise=0.5), samples=1)
    found = answers(prediction, Target("y", None, mean=100.0, std=10.0))
    np.testing.assert_allclose(found["prediction"], model(x).detach()[:, 0].double() * 10 + 100, rtol=1e-6)
    np.testing.assert_allclose(found["aleatoric_std"], 5.0, rtol=1e-6)
    np.testing.assert_allclose(found["upper95"] - found["lower95"], 2 * 1.959964 * 5, rtol=1e-4)


def test_csv_gives_every_number_back(tmp_path: Path, classes_run: Path, regression_run: Path) -> None:
    for run, text in ((classes_run, NEW), (regression_run, "size\n50\n100\n31.7\n")):
        (tmp_path / "new.csv").write_text(text)
        for suffix in ("csv", "npz"):
            files = ["--input", str(tmp_path / "new.csv"), "--out", str(tmp_path / f"out.{suffix}"), "--overwrite"]
            assert main(["predict", str(run), *files]) == 0
        found = rows_of(tmp_path / "out.csv")
        with np.load(tmp_path / "out.npz") as stored:
            for name, column in stored.items():
                cells = [row[name] for row in found]
                np.testing.assert_array_equal(np.array(cells).astype(column.dtype), column)  # bit by bit


def test_large_numbers_keep_their_small_doubt() -> None:
    """A time in seconds, 1.7e9, with a deviation of 27: seven digits would give one number thrice."""
    model = torch.nn.Linear(1, 1)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    prediction = bl.predict(model, torch.zeros(1, 1), likelihood=bl.likelihoods.Gaussian(noise=1.0), samples=1)
    part = answer_format(Path("out.csv")).part(answers(prediction, Target("y", None, 1.7e9, 27.0)), True)
    (row,) = csv.DictReader(part.decode().splitlines())
    half = 1.959964 * 27
    assert float(row["lower95"]) == pytest.approx(1.7e9 - half, abs=1e-4, rel=0)
    assert float(row["upper95"]) == pytest.approx(1.7e9 + half, abs=1e-4, rel=0)


def test_no_doubt_has_no_sign_and_overflow_of_words_no_size() -> None:
    part = answer_format(Path("out.csv")).part({"entropy": np.array([-0.0, 0.1], np.float32)}, True)
    assert part == b"entropy\n0.0\n0.1\n"
    words, inputs = torch.ones(2, 3, dtype=torch.int64), TextInputs(("to",), 3)
    refuse_overflow({"prediction": np.array(["a", "b"]), "p_a": np.array([1.0, 0.5])}, words, inputs, 0)
    with pytest.raises(ValueError, match="data row 12: the network overflows, its answer is not a finite number; corr"):
        refuse_overflow({"prediction": np.array(["a", "b"]), "p_a": np.array([1.0, np.inf])}, words, inputs, 10)


def test_images_take_tables_and_arrays(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert main(["train", "--data", "digits", "--quick", "--hidden", "8", "--out", str(run)]) == 0
    x = Run(run).splits().test[0][:3]
    np.save(tmp_path / "x.npy", x.numpy())
    np.savetxt(tmp_path / "x.csv", x.flatten(1), "%.9g", ",", header=",".join(f"x{i}" for i in range(64)), comments="")
    for name in ("x.npy", "x.csv"):
        files = ["--input", str(tmp_path / name), "--out", str(tmp_path / f"{name}.out.csv")]
        assert main(["predict", str(run), *files]) == 0
    assert (tmp_path / "x.npy.out.csv").read_bytes() == (tmp_path / "x.csv.out.csv").read_bytes()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("length,Width,soil\n1,2,clay\n", "missing: 'width'; not expected: 'Width'"),
        ("length,width,soil\n", "has no rows: there is nothing to predict"),
        ("", "is empty"),
        ("length,width,soil\n1,2,clay\n1,,clay\n", "column 'width' has no value in 1 of 2 rows, first in data row 2"),
        ("length,width,soil\n1,1e999,clay\n", "'1e999' is infinite"),
        ("length,width,soil\n" + "1,2,clay\n" * 9000 + "1,2\n", "line 9002: 2 cells"),
        ("length,width,soil\n1,2,clay\n1e25,0,clay\n", "data row 2: the network overflows, its answer is not a finite"),
        ("length,width,soil\n" + "1,2,clay\n" * 9000 + "1,-1e30,clay\n", "data row 9001: the network overflows"),
    ],
)
def test_bad_inputs_leave_no_file(
    tmp_path: Path, capsys: Output, classes_run: Path, content: str, message: str
) -> None:
    (tmp_path / "new.csv").write_text(content)
    files = ["--input", str(tmp_path / "new.csv"), "--out", str(tmp_path / "out.csv"), "--samples", "2"]
    assert main(["predict", str(classes_run), *files]) == 1
    assert message in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["new.csv"]


@pytest.mark.parametrize(
    "how",
    [
        (),
        ("--method", "moments"),
        # Errors of workers, whose start takes seconds: test_a_bad_row_is_named_by_its_place_in_the_file has one too.
        pytest.param(("--workers", "2"), marks=pytest.mark.slow),
    ],
)
def test_numbers_that_overflow_are_named(
    tmp_path: Path, capsys: Output, regression_run: Path, how: tuple[str, ...]
) -> None:
    (tmp_path / "new.csv").write_text("size\n" + "50\n" * 9000 + "1e25\n")
    files = ["--input", str(tmp_path / "new.csv"), "--out", str(tmp_path / "out.csv"), "--samples", "2"]
    assert main(["predict", str(regression_run), *files, *how]) == 1
    error = capsys.readouterr().err
    assert "data row 9001: the network overflows" in error and "unexpected" not in error
    assert float(error.split("reach ")[1].split(",")[0]) == pytest.approx(2e23, rel=0.1)  # size: uniform in 30..200
    assert [file.name for file in tmp_path.iterdir()] == ["new.csv"]


def test_outputs_are_not_replaced_unasked(tmp_path: Path, capsys: Output, classes_run: Path) -> None:
    (tmp_path / "new.csv").write_text(NEW)
    (tmp_path / "out.csv").write_text("keep me")
    arguments = ["predict", str(classes_run), "--input", str(tmp_path / "new.csv"), "--out"]
    assert main([*arguments, str(tmp_path / "out.csv")]) == 1
    assert "--overwrite" in capsys.readouterr().err and (tmp_path / "out.csv").read_text() == "keep me"
    assert main([*arguments, str(tmp_path / "out.csv"), "--overwrite"]) == 0
    assert main([*arguments, str(tmp_path / "out.xls")]) == 1
    assert "choose .csv, .parquet, .npz" in capsys.readouterr().err
    assert main([*arguments, str(tmp_path / "absent" / "out.csv")]) == 1
    assert "there is no folder" in capsys.readouterr().err
    assert {file.name for file in tmp_path.iterdir()} == {"new.csv", "out.csv"}


@pytest.mark.slow
def test_a_million_rows_in_bounded_memory(tmp_path: Path, classes_run: Path) -> None:
    generator = np.random.default_rng(0)
    numbers = generator.normal(size=(1_000_000, 2)).round(3).tolist()
    with (tmp_path / "new.csv").open("w") as file:
        file.write("length,width,soil\n")
        file.writelines(f"{a},{b},{'clay' if a > b else 'sand'}\n" for a, b in numbers)
    del numbers
    peaks = []
    for name, rows in (("short.csv", 20_000), ("new.csv", 1_000_000)):
        source = tmp_path / name
        if not source.is_file():
            with (tmp_path / "new.csv").open() as file:
                source.write_text("".join(line for line, _ in zip(file, range(rows + 1), strict=False)))
        script = (
            "import resource, sys\nfrom bayeslim.cli import main\n"
            "code = main(sys.argv[1:])\nprint(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\nsys.exit(code)"
        )
        files = ["--input", str(source), "--out", str(tmp_path / f"out.{name}"), "--samples", "3"]
        done = subprocess.run(
            [sys.executable, "-c", script, "predict", str(classes_run), *files], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        peaks.append(int(done.stdout.split()[-1]))
    with (tmp_path / "out.new.csv").open() as file:
        assert sum(1 for _ in file) == 1_000_001
    assert peaks[1] < peaks[0] + 50_000  # KiB: the file has 19 MB, its rows as Python objects some 300
