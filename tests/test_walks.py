"""The walks of CONTRIBUTING.md, followed word by word on a copy, with the classes of docs/extending.md."""

import ast
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
STEP = re.compile(r"^\d\. `(?P<file>[\w/.]+)`(?P<text>.*?)(?=^\d\. `|^#|\Z)", re.M | re.S)


def section(page: str, title: str) -> str:
    """What stands under a heading, up to the next of its level or above."""
    found = re.search(rf"^(#+) {title}\n(.*?)(?=^#{{1,3}} [A-Z]|\Z)", (ROOT / page).read_text(), re.M | re.S)
    assert found, title
    return found[2]


def blocks(text: str, language: str) -> list[str]:
    """The blocks of code in a language, without the indentation of a list."""
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```", text, re.M | re.S)
    return [textwrap.dedent(block) for block in found]


def changed(text: str, diff: str) -> str:
    """A text after a diff without line numbers: every part must fit at one place, and at no other."""
    for part in diff.split("@@\n"):
        lines = part.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] in " -")
        after = "".join(line[1:] for line in lines if line[0] in " +")
        assert text.count(before) == 1, f"{before!r} stands in {text.count(before)} places"
        text = text.replace(before, after)
    return text


def follow(axis: str, root: Path) -> list[str]:
    """Take the steps of one walk; returns the files that it touched."""
    code, touched = blocks(section("docs/extending.md", axis), "python"), []
    for step in STEP.finditer(section("CONTRIBUTING.md", axis)):
        file = root / step["file"]
        touched.append(step["file"])
        if not file.exists():
            number = {"first": 0, "third": 2}[re.search(r"the (first|third) block", step["text"])[1]]  # pyright: ignore
            listed = re.search(r"`(__all__ = \[.*?\])`", step["text"])
            file.write_text(f'"""A walk."""\n\n{code[number]}\n{listed[1] if listed else ""}\n')
            continue
        text = file.read_text()
        if above := re.search(r"the class of the first block .*?, above `(.*?)`", step["text"]):
            (kind,) = (node for node in ast.parse(code[0]).body if isinstance(node, ast.ClassDef))
            text = text.replace(above[1], f"{ast.get_source_segment(code[0], kind)}\n\n\n{above[1]}")
        for diff in blocks(step["text"], "diff"):
            text = changed(text, diff)
        file.write_text(text)
    return touched


AXES = ["A prior", "A posterior", "An estimator", "A kernel"]
USED = """
import sys
import warnings
import torch
import bayeslim as bl
from bayeslim.estimators import per_example

bl.estimators.__file__.startswith(sys.argv[1]) or sys.exit(f"{bl.estimators.__file__} is not the copy")
x = torch.randn(8, 3)
for options in ({"prior": bl.priors.Laplace(0.3)}, {"posterior": bl.posteriors.PerUnit}, {"estimator": per_example}):
    torch.manual_seed(0)
    model = bl.mlp([3, 5, 2], **{"prior": bl.priors.Normal()} | options)
    bl.nelbo(model, x, torch.zeros(8).long(), likelihood=bl.Categorical(), num_data=8).loss.backward()
    bl.predict(model, x, likelihood=bl.Categorical(), samples=4)
    bl.save(model, "net")
    again = bl.load("net")
    assert repr(again) == repr(model) and torch.equal(bl.kl(again), bl.kl(model))
    bl.prune_(model, bl.pruning.MAGNITUDE, amount=0.5, structure="output", where=lambda name, _: name == "0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a posterior that cannot be cut
        smaller = bl.footprint(bl.compact(model, x)).parameters < bl.footprint(model).parameters
    assert smaller is ("posterior" not in options), options
"""


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package and its tests in which all walks were taken."""
    root = tmp_path_factory.mktemp("repository")
    for folder in ("src/bayeslim", "tests/contracts", "tests/kernels"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for axis in AXES:
        touched = follow(axis, root)
        assert 2 <= len(touched) <= 3, touched
        assert len([file for file in touched if not (ROOT / file).exists()]) <= 2, touched
    return root


def run(root: Path, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": f"{root / 'src'}{os.pathsep}{root / 'tests'}"}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_new_members_are_saved_loaded_and_cut(walked: Path) -> None:
    run(walked, "-c", USED, str(walked))


def test_a_new_path_is_taken_and_computes_the_same(walked: Path) -> None:
    run(walked, "tests/kernels/test_rank_one.py")


QUICK = [f"tests/contracts/test_{name}.py" for name in ("members", "prior", "posterior")]


@pytest.mark.parametrize(
    "suites", [pytest.param(QUICK, id="quick"), pytest.param(["tests/contracts"], id="all", marks=pytest.mark.slow)]
)
def test_the_shared_suites_take_new_members(walked: Path, suites: list[str]) -> None:
    found = run(
        walked,
        "-m",
        "pytest",
        "-v",
        "-p",
        "no:cacheprovider",
        "-k",
        "Laplace or PerUnit or per_example or listed",
        *suites,
    )
    passed = [line for line in found.splitlines() if " PASSED " in line]
    least = {"Laplace": 8, "PerUnit": 8, "listed": 3} | ({} if suites is QUICK else {"per_example": 8})
    assert all(sum(name in line for line in passed) >= count for name, count in least.items()), found
