"""The pages of the results are those that the committed records give."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from bayeslim.cli import main as command
from bayeslim_papers.pages import Entry, pages, read
from bayeslim_papers.pages.markdown import narrowed, wrapped
from bayeslim_papers.pages.page import PAPERS
from bayeslim_papers.reproduce import EXPERIMENTS

ROOT = Path(__file__).parent.parent.parent
RECORDS = read(ROOT / "results")
TEXTS, ENTRIES = pages(RECORDS)


def changed(name: str, page: str) -> tuple[dict[str, Any], Any]:
    """A copy of a record, and what shows its page, with single spaces."""
    record = copy.deepcopy(RECORDS[name])
    return record, lambda: " ".join(pages({name: record})[0][f"results/{page}.md"].split())


def test_committed_pages_are_the_generated_ones() -> None:
    committed = {str(file.relative_to(ROOT / "docs")) for file in (ROOT / "docs").glob("results/*.md")}
    assert committed | {"results.md"} == TEXTS.keys()
    for name, text in TEXTS.items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == text, f"docs/{name} is old: run `make results`"


def test_the_index_is_short_and_names_every_page_and_what_was_not_run() -> None:
    index = TEXTS["results.md"]
    assert len(index.splitlines()) <= 40
    assert all(f"]({name})" in index for name in TEXTS if name != "results.md")
    for entry in ENTRIES:
        shown = sum(f"`results/{entry.record}.json`" in text for text in TEXTS.values())
        assert shown == (entry.record in RECORDS), entry.record
        waits = entry.record not in RECORDS and entry.command is not None
        assert (f"| {entry.title} | `{entry.command} --out results/{entry.record}.json` |" in index) == waits


def test_entries_name_each_record_once_and_commands_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert len({entry.record for entry in ENTRIES}) == len(ENTRIES)
    for entry in ENTRIES:
        words = (entry.command or "bayeslim reproduce vdp").split()
        if words[0] == "python":
            assert (ROOT / words[1]).exists()
            continue
        assert words[:2] == ["bayeslim", "reproduce"] and words[2] in EXPERIMENTS
        assert command(["reproduce", words[2], "--help"]) == 0
        told = capsys.readouterr().out
        assert all(word in told for word in words[3:] if word.startswith("--")), entry.command


def test_tables_fit_and_have_equal_rows() -> None:
    for text in TEXTS.values():
        count = 0
        for line in text.splitlines():
            if line.startswith("|"):
                count = count or line.count("|")
                assert line.count("|") == count <= 8, line
            else:
                count = 0
                assert len(line) <= 120, line
        assert "+-" not in text and "{" not in text and "nan" not in text.lower().split()


def test_figures_in_the_notes_follow_the_record() -> None:
    record, shown = changed("k_tied_mnist", "k-tied")
    for run in record["runs"]:
        if run["posterior"] == "2-tied":
            run["annealed"] |= {"nelbo": 7.0, "accuracy": 90.12}
    kept = [run["annealed"]["accuracy"] for run in record["runs"] if run["posterior"] == "mean-field"]
    assert f"2-tied loses {sum(kept) / len(kept) - 90.12:.1f} points" in shown()
    assert "is that of 2-tied" not in shown() and "against 7.000" in shown()
    assert "to 6.48 nats above" in shown()  # 7 - 0.52, the paper's


def test_vdp_with_and_without_the_ard_prior() -> None:
    record, shown = changed("vdp_mnist", "vdp")
    record["runs"] = [run for run in record["runs"] if run["method"] != "vdp-ard"]
    assert "vdp-ard" not in shown() and "An ARD prior closes it (other priors, below)" in shown()
    for run in [run for run in record["runs"] if run["method"] == "vdp"]:
        pruned = [{"fraction": 0.9, "accuracy": 0.625}]
        record["runs"].append(copy.deepcopy(run) | {"method": "vdp-ard", "accuracy": 93.0, "pruned": pruned})
    assert "| vdp-ard | 93 ± 0 |" in shown()
    assert "vdp-ard has 62.5 % without 90 % of its weights, 93.0 % with all" in shown()


def test_selection_counts_exact_supports() -> None:
    record, shown = changed("variable_selection_2", "samplers")
    run = next(run for run in record["runs"] if run["method"] == "DFP")
    run["restarts"][run["chosen"]]["selected"] = [0]
    assert "found exactly on 9 (DFP) and 10 (DPF) of 10 data sets" in shown()


def test_a_new_record_needs_an_entry_alone(tmp_path: Path) -> None:
    for paper in PAPERS:
        (tmp_path / paper).mkdir()
        (tmp_path / paper / "results.md").write_text("# None\n")
    (tmp_path / "results.md").write_text("{% for one in missing %}{{ one.title }}: {{ one.command }}{% endfor %}")
    page = tmp_path / "vdp" / "results.md"
    page.write_text(
        '{% call(r) entry("mine", "My nets", "mine") %}\nOf {{ r.n|f("g") }} to {{ 2|f(2) }}.\n{% endcall %}'
        '{% call(r) entry("other", "Others") %}\n\n| {{ r.n }} |\n{% endcall %}'
    )
    record = {"n": 5, "device": "cpu", "torch": "9.9"}
    found, entries = pages({"mine": record, "other": record, "speed": {"command": "python benchmarks/x.py"}}, tmp_path)
    made = "`results/mine.json`; `bayeslim reproduce mine` (cpu, torch 9.9). Of 5 to 2.00."
    other = "`results/other.json`; no command in the repository makes it (cpu, torch 9.9)."
    assert found["results/vdp.md"] == f"## My nets\n\n{made}\n\n## Others\n\n{other}\n\n| 5 |\n"
    assert entries == [Entry("mine", "My nets", "bayeslim reproduce mine"), Entry("other", "Others", None)]
    assert pages({}, tmp_path)[0]["results.md"] == "My nets: bayeslim reproduce mine\n"
    with pytest.raises(ValueError, match=r"results/stray\.json belongs to no page: give it an entry in a results\.md"):
        pages({"stray": record}, tmp_path)


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    for content, message in (
        (b"{", r"shrink\.json is damaged \(.*\): restore it, or measure it again"),
        (b"[1]", r"shrink\.json must hold a JSON object, got a list"),
        (b"\xff\xfe\x00", r"shrink\.json is damaged"),
    ):
        (tmp_path / "shrink.json").write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read(tmp_path)


def test_a_record_without_its_parts_is_named_with_its_command() -> None:
    for entry in ENTRIES:
        again = f" with `{entry.command}`" if entry.command else ""
        message = re.escape(f"results/{entry.record}.json lacks what its section needs (")
        with pytest.raises(ValueError, match=f"{message}.* restore it, or measure it again{re.escape(again)}$"):
            pages({entry.record: {"torch": "2"}})


def test_command_writes_the_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "docs" / "results.md"
    assert command(["reproduce", "report", "--results", str(ROOT / "results"), "--out", str(out)]) == 0
    assert all((out.parent / name).read_text(encoding="utf-8") == text for name, text in TEXTS.items())
    assert command(["reproduce", "report", "--results", str(tmp_path / "none"), "--out", str(out)]) == 1
    assert "`results` must be a folder of records" in capsys.readouterr().err
    (tmp_path / "other.json").write_text(json.dumps({"runs": []}))
    assert command(["reproduce", "report", "--results", str(tmp_path), "--out", str(out)]) == 1
    assert out.read_text(encoding="utf-8") == TEXTS["results.md"]


@pytest.mark.parametrize("mark", [">", "-", "+", "*", "#"])
def test_no_line_begins_with_a_mark_of_the_text(mark: str) -> None:
    """As it would with some of these words: a comparison would become a quotation, a difference an item."""
    for words in range(30, 60):
        lines = wrapped(f"{'a' * (words % 3 + 1)} " + f"alpha {mark} 3, " * words).splitlines()
        assert len(lines) > 1
        assert all(line.startswith(("a", "3")) and len(line) <= 120 for line in lines)


def test_text_is_wrapped_by_paragraph_and_item() -> None:
    long = " ".join(["word"] * 40)
    lines = wrapped(f"\n    first\n    second\n\n- {long}\n- b\n  c\n\n| a |\n|---|\n").splitlines()
    assert lines[:2] == ["first second", ""]
    assert lines[2].startswith("- word") and lines[3].startswith("  word") and max(map(len, lines)) <= 120
    assert lines[4:] == ["- b c", "", "| a |", "|---|"]


def test_wide_tables_are_cut_where_rows_stay_distinct() -> None:
    heads = [f"c{i}" for i in range(9)]
    rows = [heads, ["---"] * 9, ["a", "x", *"1234567"], ["a", "y", *["8"] * 3, *[""] * 4]]
    cut = narrowed("before\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in rows))
    assert cut.split("\n\n") == [
        "before",
        "| c0 | c1 | c2 | c3 | c4 |\n| --- | --- | --- | --- | --- |\n| a | x | 1 | 2 | 3 |\n| a | y | 8 | 8 | 8 |",
        "| c0 | c1 | c5 | c6 | c7 | c8 |\n| --- | --- | --- | --- | --- | --- |\n| a | x | 4 | 5 | 6 | 7 |",
    ]
