"""The pages of the documentation: their code runs, their commands exist, and the site builds without a warning."""

import importlib
import importlib.util
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from bayeslim.cli import COMMANDS, main
from bayeslim.kernels import PATHS
from bayeslim.moment_rules import MOMENT_RULES
from contracts.cases import each

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
"""The first has a test of its own, which also looks at what it prints."""
FENCE = re.compile(
    r"(?P<before>[^\n]*\n\s*)?^(?P<indent> *)```(?P<language>\w*)\n(?P<code>.*?)^(?P=indent)```$", re.M | re.S
)
NOT_RUN = re.compile(r"<!-- not run: \S.* -->\s*$")
BROWSER_LOADS = re.compile(r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=\"(?:https?:)?//[^\"]*")


def blocks(text: str) -> list[tuple[int, str]]:
    """The Python blocks to run, each with the number of its first line of code."""
    return [
        (text[: found.start("code")].count("\n") + 1, textwrap.dedent(found["code"]))
        for found in FENCE.finditer(text)
        if found["language"] == "python" and not NOT_RUN.search(found["before"] or "")
    ]


def run_page(page: Path) -> dict[str, Any]:
    """Run the blocks of a page one after the other, in one namespace; errors show the page and its line."""
    namespace: dict[str, Any] = {"__name__": page.stem}
    for line, code in blocks(page.read_text(encoding="utf-8")):
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), namespace)
    return namespace


def with_code(page: Path) -> bool:
    return bool(blocks(page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", [page for page in PAGES[1:] if with_code(page)], ids=lambda page: page.name)
def test_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tables: list[dict[Any, Any]] = [MOMENT_RULES, PATHS]
    before = [dict(table) for table in tables]
    try:
        run_page(page)
    finally:  # a page may add rules and kernels of its own
        for table, own in zip(tables, before, strict=True):
            table.clear()
            table.update(own)


@each("page", PAGES)
def test_what_is_called_in_a_sentence_is_there_after_the_import(page: Path) -> None:
    """`bayeslim.runs.Run(...)` needs an import of its own, which the sentence must then name."""
    for name in re.findall(r"`bayeslim\.(\w+)[\w.]*\(", page.read_text(encoding="utf-8")):
        assert f"from bayeslim import {name} as {name}\n" in (ROOT / "src/bayeslim/__init__.pyi").read_text()


def test_blocks_are_found_and_left_out_only_with_a_reason() -> None:
    text = "\n".join(
        [
            *("```python", "a = 1", "```"),
            *("1. item", "", "    ```python", "    if a:", "        b = 2", "    ```"),
            *("<!-- not run: needs a GPU -->", "```python", "c", "```"),
            *("<!-- not run: -->", "", "```python", "d = 3", "```"),
            *("```console", "$ bayeslim", "```"),
        ]
    )
    assert blocks(text) == [(2, "a = 1\n"), (7, "if a:\n    b = 2\n"), (17, "d = 3\n")]


def test_an_error_names_the_page_and_the_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n\n```python\nx = 1\nx.wrong\n```\n")
    with pytest.raises(AttributeError) as caught:
        run_page(page)
    last = caught.traceback[-1]
    assert (str(last.path), last.lineno + 1) == (str(page), 5)


def test_code_is_marked_as_python() -> None:
    for page in PAGES:
        for found in FENCE.finditer(page.read_text(encoding="utf-8")):
            assert found["language"] or not re.search(r"\bbl\.\w+\(|^import ", found["code"], re.M), (
                f"{page.name}: mark this block as python, so that it is tested:\n{found['code']}"
            )


def test_commands_and_their_options_exist(capsys: pytest.CaptureFixture[str]) -> None:
    helps: dict[str, str] = {}
    count = 0
    for page in PAGES:
        for name, rest in re.findall(r"^\$ bayeslim (\w+)(.*)$", page.read_text(encoding="utf-8"), flags=re.M):
            assert name in COMMANDS, f"{page.name}: bayeslim {name}"
            if name not in helps:
                main([name, "--help"])
                helps[name] = capsys.readouterr().out
            for option in re.findall(r"--[a-z-]+", rest):
                assert option in helps[name] or option == "--debug", f"{page.name}: bayeslim {name} {option}"
                count += 1
    assert count > 10  # the page of the command line holds them


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("mkdocstrings") is None:
        pytest.skip("the site needs mkdocs-material and mkdocstrings: pip install bayeslim[docs]")
    folder = tmp_path_factory.mktemp("site")
    # Not --quiet: it drops the warnings before --strict counts them.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_site_has_every_page(site: Path) -> None:
    pages = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}
    assert pages <= {page.relative_to(site) for page in site.rglob("*.html")}


def test_reference_holds_what_the_packages_offer(site: Path) -> None:
    for page in sorted((ROOT / "docs" / "api").glob("*.md")):
        ids = set(re.findall(r'id="([\w.]+)"', (site / "api" / f"{page.stem}.html").read_text(encoding="utf-8")))
        for name in re.findall(r"^::: ([\w.]+)\n(?! +options)", page.read_text(encoding="utf-8"), flags=re.M):
            package = importlib.import_module(name)
            offered = [key for key in package.__all__ if isinstance(vars(package)[key], type | FunctionType)]
            # A function in a module of its own name is shown with that module.
            missing = [member for member in offered if not {f"{name}.{member}", f"{name}.{member}.{member}"} & ids]
            assert not missing, f"{page.name}: {name} lacks {missing}"


def test_site_needs_no_network_to_be_read(site: Path) -> None:
    for page in site.rglob("*.html"):
        loads = [found for found in BROWSER_LOADS.findall(page.read_text(encoding="utf-8")) if "canonical" not in found]
        assert not loads, f"{page.name} loads {loads}"
