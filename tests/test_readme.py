"""The README is short, its code prints what stands below it, and its figures are those of the page of results."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bayeslim.cli import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
OVERVIEW = (ROOT / "docs" / "results-overview.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"\d[\d.,]*\d|\d")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.S)


def commands() -> Iterator[tuple[list[str], list[str]]]:
    """The words of every command, and the lines that it prints."""
    for part in "".join(blocks("console")).split("$ bayeslim ")[1:]:
        command, *lines = part.strip().splitlines()
        yield command.split(), lines


def without_numbers(line: str) -> str:
    return " ".join(NUMBER.sub("#", line).split())


def test_code_prints_what_stands_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, outputs = blocks("python"), blocks("text")
    assert len(code) == len(outputs) == 2
    namespace: dict[str, object] = {}
    for block, output in zip(code, outputs, strict=True):
        exec(block, namespace)
        assert capsys.readouterr().out == output


def test_commands_print_lines_like_those_below_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With other numbers: a few epochs on a few rows."""
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    found = list(commands())
    assert [words[0] for words, _ in found] == ["train", "prune"]
    for words, lines in found:
        assert main([*words, *(["--quick"] if words[0] == "train" else [])]) == 0
        printed = [without_numbers(line) for line in capsys.readouterr().out.splitlines()]
        assert [line for line in lines if without_numbers(line) not in printed] == []


def test_it_is_short_and_has_one_small_picture() -> None:
    assert len(re.sub(r"```.*?```", "", README, flags=re.S).split()) <= 500
    pictures = re.findall(r"!\[[^]]{20,}\]\(([^)]+)\)", README)
    assert len(pictures) == 1 and (ROOT / pictures[0]).stat().st_size < 150_000


def test_figures_are_those_of_the_page_of_results() -> None:
    rows = re.findall(r"^\| (.*) \| (.*) \| `(.*)` \|$", README, flags=re.M)
    assert len(rows) == 6
    known = set(NUMBER.findall(OVERVIEW))
    for _, measured, command in rows:
        assert command in OVERVIEW
        assert set(NUMBER.findall(measured)) <= known, measured


def test_every_link_leads_somewhere() -> None:
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
