"""Columns, classes, files and folders with names made to break out of wherever they are shown."""

import csv
import os
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.cli.conftest import QUICK, flowers

from bayeslim.cli import main

Output = pytest.CaptureFixture[str]
COLUMNS = (r"$\frac{$ <script>alert(1)</script>", "\x1b[31m[/red]\u202e=1+1")
TARGET = """../../x"'><b>"""
CLASSES = ("a", "a.npy", "</title></script><img src=x onerror=alert(2)>", "[/x]\u202e\x1b[2J", "two\nlines", "L" * 5000)


class Elements(HTMLParser):
    """The kinds of element on a page, and their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {tag, *(f"{tag} {name}" for name, _ in attrs)}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A table and a folder for a run, both with odd names."""
    folder = tmp_path_factory.mktemp("[bold] $(exit)")
    table, generator = folder / "[red] $x$ in.csv", np.random.default_rng(0)
    with table.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow([*COLUMNS, TARGET])
        for index in range(120):
            label = index % len(CLASSES)
            rows.writerow([*(generator.normal(size=2) + label), CLASSES[label]])
    return table, folder / "run; [bold] 'x'"


def test_every_command_shows_hostile_names_as_text(hostile: tuple[Path, Path], capsys: Output) -> None:
    table, run = hostile
    figures = run / "figures"
    assert main(["train", "--data", str(table), "--target", TARGET, "--out", str(run), *QUICK]) == 0
    said = capsys.readouterr().out
    assert r"[/x]\u202e\x1b[2J" in said and "two lines" in said and "L" * 100 not in said
    assert shlex.split(said.splitlines()[-1].partition("next: ")[2]) == ["bayeslim", "prune", str(run)]
    commands = (
        ["evaluate", str(run), "--data", str(table), "--samples", "3"],
        ["prune", str(run), "--threshold", "3", "--samples", "3"],
        ["report", str(run), "--figures", str(figures)],
        ["export", str(run)],
    )
    for command in commands:
        assert main(list(command)) == 0, command
        said += capsys.readouterr().out
    assert not re.search("[\x1b\u202e]", said) and "[red] $x$ in.csv" in said
    text = (run / "report.html").read_text()
    elements = Elements(text).found
    assert not {"b class", "img onerror", "script src"} & elements and text.count("<script") == 2
    assert "&lt;script&gt;alert(1)" in text and not re.search("[\x1b\u202e]", text)
    drawn = [xml.etree.ElementTree.parse(file) for file in figures.glob("*.svg")]
    assert any(r"$\frac{$ <script>" in "".join(figure.getroot().itertext()) for figure in drawn)
    graph = onnx.load(run / "network.onnx")
    assert [value.name for value in (*graph.graph.input, *graph.graph.output)] == ["input", "output"]
    assert not graph.metadata_props


@pytest.mark.parametrize("suffix", [".csv", ".npz"])
def test_answers_keep_every_class_apart(hostile: tuple[Path, Path], suffix: str, tmp_path: Path) -> None:
    table, _ = hostile
    run, out = tmp_path / "run; [bold] 'x'", tmp_path / f"out{suffix}"
    assert main(["train", "--data", str(table), "--target", TARGET, "--out", str(run), *QUICK]) == 0
    assert main(["predict", str(run), "--input", str(table), "--out", str(out), "--samples", "3"]) == 0
    names = [f"p_{name}" for name in sorted(CLASSES)]
    if suffix == ".csv":
        with out.open(newline="") as file:
            header, *rows = csv.reader(file)
        assert header[4:] == names
        probabilities = np.array([row[4:] for row in rows], np.float64)
    else:
        with np.load(out) as arrays:  # by the names of the members: numpy itself takes p_a.npy for p_a
            probabilities = np.stack([arrays[f"{name}.npy"] for name in names], 1)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)


def test_errors_do_not_command_the_terminal(tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "x.csv"
    file.write_text("a\x1b[31m,b\n1,2\n")
    assert main(["train", "--data", str(file), "--target", "c", "--out", str(tmp_path / "run")]) == 1
    assert r"'a\x1b[31m', 'b'" in capsys.readouterr().err
    assert main(["prune", str(tmp_path / "\x1b[2J \u202e")]) == 1
    said = capsys.readouterr().err
    assert r"\x1b[2J \u202e holds no run" in said and not re.search("[\x1b\u202e]", said)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse names that are not UTF-8")
def test_folders_that_are_not_utf8_are_no_reason_to_stop(tmp_path: Path) -> None:
    table, out = flowers(tmp_path / "flowers.csv"), os.fsencode(tmp_path) + b"/run\xff"
    command = [sys.executable, "-m", "bayeslim", "train", "--data", table, "--target", "species", "--out", out, *QUICK]
    strict = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(command, capture_output=True, text=True, env=strict)
    assert done.returncode == 0, done.stderr
    assert r"next: bayeslim prune" in done.stdout and r"run\udcff" in done.stdout
