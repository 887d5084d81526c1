"""Odd command lines: whatever is typed ends with an answer or a message, soon, and writes only where it was told to."""

import contextlib
import dataclasses
import importlib
import inspect
import io
import itertools
import os
import resource
import shutil
import signal
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bayeslim.cli import COMMANDS, main
from bayeslim.cli.train import Train
from bayeslim_papers.reproduce import EXPERIMENTS
from cli.conftest import flowers
from fuzz.sandbox import Sandbox

SECONDS = 20
MEMORY = 4 * 2**30
often = partial(settings, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)

TEXTS = [
    "",
    " ",
    "x",
    "=",
    "--",
    "--x",
    "%s",
    "{0}",
    "[/red]",
    "[bold]",
    "\x00",
    "\x1b[2J",
    "\n",
    "\udcff",
    "日本🌹",
    "a" * 5000,
]
NUMBERS = [
    "nan",
    "inf",
    "-inf",
    "-1",
    "0",
    "1",
    "2",
    "1.5",
    "-0.0",
    "1e400",
    "1e-320",
    "0x10",
    "1_0",
    "\u0661",
    "9" * 5000,
]
HUGE = [str(2**31), str(2**63), str(-(2**63) - 1), str(2**70)]
FILES = [
    "flowers.csv",
    "flowers.csv",
    "flowers.csv",
    "empty.csv",
    "binary.csv",
    "binary.npz",
    "binary.png",
    "folder",
    "absent.csv",
    "[red].csv",
    "日本.csv",
]
FOLDERS = [
    "run",
    "run",
    "run",
    "run",
    "run",
    "folder",
    "absent",
    "flowers.csv",
    "spoilt",
    "[/run]",
    "/dev/null",
    "run/model.safetensors",
]
OUTS = [
    "out",
    "out",
    "out.csv",
    "out.csv",
    "out.npz",
    "out.parquet",
    "folder",
    "absent/out.csv",
    "flowers.csv",
    "/dev/full",
    "/proc/x",
    "[/red]",
]
PATIENT = ("epochs", "samples", "workers", "rounds", "kl_warmup", "kl_ramp", "hidden", "sizes")
"""Options of which a large value is a wish for long work, and granted."""
DESTINATIONS = ("out", "json_out", "figures")
BASE: dict[str, list[str]] = {
    "train": ["--data", "flowers.csv", "--target", "species", "--hidden", "3", "--epochs", "1", "--samples", "1"],
    "evaluate": ["--samples", "1"],
    "export": ["--format", "slim"],
    "prune": ["--samples", "1", "--threshold", "3"],
    "predict": ["--samples", "1"],
    "bench": ["--sizes", "2", "2", "--rounds", "1", "--device", "absent"],
}
"""What keeps a command short, and a measurement from being begun; an odd option after it wins."""


@cache
def options(command: str) -> dict[str, str]:
    """The options of a command, with their types as written."""
    if command == "train":
        return {field.name: str(field.type) for field in dataclasses.fields(Train)}
    found = inspect.signature(importlib.import_module(COMMANDS[command][0]).command).parameters.values()
    named = {part.name: str(part.annotation) for part in found if part.kind is part.KEYWORD_ONLY}
    return {name: kind for name, kind in named.items() if (command, name) != ("bench", "device")}  # else it measures


def values(name: str, kind: str) -> st.SearchStrategy[str]:
    """Odd values for an option, mostly of its type."""
    if name in DESTINATIONS:
        return st.sampled_from(OUTS)  # only there may anything be written
    fitting = FILES if "Path" in kind or name == "data" else TEXTS
    if name == "workers":
        fitting = [number for number in NUMBERS if number != "2"]  # starting processes takes seconds
    elif any(part in kind for part in ("int", "float")):
        fitting = NUMBERS if name in PATIENT else NUMBERS + HUGE
    return st.one_of(st.sampled_from(fitting), st.sampled_from(fitting), st.sampled_from(TEXTS))


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """A command with odd options, sometimes two of the same, sometimes unknown ones."""
    command = draw(st.sampled_from([*COMMANDS, *COMMANDS, *TEXTS]))
    if command not in COMMANDS or command in ("demo", "reproduce", "data"):
        # These begin to work or to fetch at once: they are only given what they must refuse.
        first = draw(st.sampled_from([*EXPERIMENTS, *TEXTS, "list"])) if command == "reproduce" else "fetch"
        return [command, *([] if command == "demo" else [first]), draw(st.sampled_from([*TEXTS[2:], "--seed=x"]))]
    line = [command]
    known = options(command)
    if command not in ("train", "bench"):
        line += draw(st.lists(st.sampled_from(FOLDERS), min_size=1, max_size=draw(st.sampled_from([1, 1, 1, 2]))))
    line += BASE.get(command, [])
    if command in ("train", "predict") and draw(st.integers(0, 9)):
        line += ["--out", draw(st.sampled_from(OUTS))]
    if command == "predict" and draw(st.integers(0, 9)):
        line += ["--input", draw(st.sampled_from(FILES))]
    for name in draw(st.lists(st.sampled_from([*known, "unknown"]), max_size=draw(st.sampled_from([1, 1, 1, 3])))):
        option, kind = f"--{name.replace('_', '-')}", known.get(name, "str")
        value = draw(values(name, kind))
        line += [option] if kind == "bool" else [f"{option}={value}"] if draw(st.booleans()) else [option, value]
    return line


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    folder = tmp_path_factory.mktemp("cli")
    table = flowers(folder / "flowers.csv")
    line = ["train", "--data", str(table), "--target", "species", "--hidden", "4", "--epochs", "2", "--samples", "2"]
    assert main([*line, "--out", str(folder / "run")]) == 0
    found = Sandbox(folder / "sandbox", folder / "run")
    found.fill()
    before = os.getcwd()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_in_use() + MEMORY, limits[1]))
    os.chdir(found.folder)
    try:
        yield found
    finally:
        os.chdir(before)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def _in_use() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _too_long(number: int, frame: FrameType | None) -> NoReturn:
    raise AssertionError(f"no answer within {SECONDS} s")


def allowed(line: list[str], name: str) -> bool:
    """Whether a command line says that a file may be written."""
    places = [
        value for option, value in itertools.pairwise(line) if option.lstrip("-").replace("-", "_") in DESTINATIONS
    ]
    places += [
        part.partition("=")[2] for part in line if part.partition("=")[0].lstrip("-").replace("-", "_") in DESTINATIONS
    ]
    if line[0] in ("prune", "export", "report"):
        places += line[1:2]  # the folder of the run is their default
    return any(place and (name == place or name.startswith((f"{place}/", f"{place}.parts/"))) for place in places)


def check(sandbox: Sandbox, line: list[str]) -> int:
    """Run a command line; its exit code."""
    before = sandbox.content()
    said, told = io.StringIO(), io.StringIO()
    sandbox.watching, sandbox.elsewhere = True, []
    listening = signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(told):
            code = main(line)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, listening)
        sandbox.watching = False
    text = said.getvalue() + told.getvalue()
    assert code in (0, 1, 2), line
    assert "Traceback" not in text and "this should not happen" not in text, (line, text)
    assert code == 0 or len(text.strip()) > 10, (line, text)
    assert not sandbox.elsewhere, (line, sandbox.elsewhere)
    after = sandbox.content()
    if after != before or sorted(p.name for p in sandbox.folder.iterdir() if p.is_dir()) != [
        "[",
        "folder",
        "run",
        "spoilt",
    ]:
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        assert all(allowed(line, name) for name in changed), (line, changed)
        os.chdir("/")
        sandbox.fill()
        os.chdir(sandbox.folder)
    return code


@often(max_examples=100)
@given(command_lines())
def test_odd_command_lines(sandbox: Sandbox, line: list[str]) -> None:
    check(sandbox, line)


@pytest.mark.slow
@often(max_examples=1500)
@given(command_lines())
def test_many_odd_command_lines(sandbox: Sandbox, line: list[str]) -> None:
    check(sandbox, line)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("bench --sizes 5", "--sizes must be at least two positive widths, got (5,)"),
        ("bench --sizes -1 2", "--sizes must be at least two positive widths, got (-1, 2)"),
        ("bench --sizes 99999999999 2 --rounds 1", "not enough memory"),
        ("train --data flowers.csv --target species --hidden 99999999999 --out out", "not enough memory"),
        ("predict run --input flowers.csv --out out.csv --workers 1000", "--workers must be at most 256, got 1000"),
    ],
)
def test_wishes_that_cannot_be_granted(
    sandbox: Sandbox, line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", ["[/run]", "日本"])
def test_names_in_tables_are_text(sandbox: Sandbox, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Not the markup of the terminal."""
    place = sandbox.folder / name
    if not place.exists():
        shutil.copytree(sandbox.run, place)
    assert main(["evaluate", name, "--data", "[red].csv", "--samples", "1"]) == 0
    said = capsys.readouterr().out
    assert name in said and "[red].csv" in said
