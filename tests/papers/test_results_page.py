"""The page of the results is the one that the committed records give."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from bayeslim.cli import main as command
from bayeslim_papers.reproduce import EXPERIMENTS
from bayeslim_papers.results_page import SECTIONS, Entry, Section, page, read
from bayeslim_papers.results_page.entry import seeds_of
from bayeslim_papers.results_page.markdown import narrowed, wrapped

ROOT = Path(__file__).parent.parent.parent
ENTRIES = [entry for section in SECTIONS for entry in section.entries]
Records = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def records() -> Records:
    return read(ROOT / "results")


@pytest.fixture(scope="module")
def text(records: Records) -> str:
    return page(records)


def part(text: str, heading: str) -> str:
    """What stands under a heading, up to the next of its level or above."""
    level = heading.split(" ")[0]
    after = text.split(f"\n{heading}\n", 1)[1]
    return re.split(rf"^#{{1,{len(level)}}} ", after, maxsplit=1, flags=re.M)[0]


def test_committed_page_is_the_generated_one(text: str) -> None:
    committed = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert committed == text, "docs/results.md is old: run `make results`"


def test_every_record_is_on_the_page_and_every_other_is_not_run_yet(records: Records, text: str) -> None:
    above, below = text.split("\n## Not run yet\n")
    for entry in ENTRIES:
        assert (f"`results/{entry.record}.json`" in above) == (entry.record in records), entry.record
        waits = entry.record not in records and entry.command is not None
        assert (f"| {entry.title} | `{entry.command} --out results/{entry.record}.json` |" in below) == waits


def test_the_registry_names_each_record_once_and_commands_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert len({entry.record for entry in ENTRIES}) == len({entry.title for entry in ENTRIES}) == len(ENTRIES)
    for entry in ENTRIES:
        words = (entry.command or "bayeslim reproduce vdp").split()
        if words[0] == "python":
            assert (ROOT / words[1]).exists()
            continue
        assert words[:2] == ["bayeslim", "reproduce"] and words[2] in EXPERIMENTS
        assert command(["reproduce", words[2], "--help"]) == 0
        told = capsys.readouterr().out
        assert all(word in told for word in words[3:] if word.startswith("--")), entry.command


def test_tables_fit_and_have_equal_rows(text: str) -> None:
    count = 0
    for line in text.splitlines():
        if line.startswith("|"):
            count = count or line.count("|")
            assert line.count("|") == count <= 8, line
        else:
            count = 0
            assert len(line) <= 120, line
    assert "+-" not in text and "nan" not in text.lower().split()


def test_figures_in_the_notes_follow_the_record(records: Records) -> None:
    changed = copy.deepcopy(records)
    for run in changed["k_tied_mnist"]["runs"]:
        if run["posterior"] == "2-tied":
            run["annealed"] |= {"nelbo": 7.0, "accuracy": 90.12}
    notes = part(page(changed), "### k-tied: a perceptron on MNIST")
    kept = [run["annealed"] for run in records["k_tied_mnist"]["runs"] if run["posterior"] == "mean-field"]
    lost = sum(scores["accuracy"] for scores in kept) / len(kept) - 90.12
    assert f"2-tied loses {lost:.1f} points" in notes
    assert "is that of 2-tied" not in notes and "against 7.000" in notes
    assert "to 6.48 nats above" in notes  # 7 - 0.52, the paper's


def test_vdp_with_and_without_the_ard_prior(records: Records) -> None:
    record = copy.deepcopy(records["vdp_mnist"])
    record["runs"] = [run for run in record["runs"] if run["method"] != "vdp-ard"]
    without = part(page({"vdp_mnist": record}), "### VDP++: the methods")
    assert "vdp-ard" not in without and "An ARD prior closes it (other priors, below)" in " ".join(without.split())
    for run in [run for run in record["runs"] if run["method"] == "vdp"]:
        pruned = [{"fraction": 0.9, "accuracy": 0.625}]
        record["runs"].append(copy.deepcopy(run) | {"method": "vdp-ard", "accuracy": 93.0, "pruned": pruned})
    both = part(page({"vdp_mnist": record}), "### VDP++: the methods")
    assert re.search(r"^\| vdp-ard \| 93 ", both, flags=re.M)
    assert "vdp-ard has 62.5 % without 90 % of its weights, 93.0 % with all" in " ".join(both.split())


def test_selection_counts_exact_supports(records: Records) -> None:
    record = copy.deepcopy(records["variable_selection_2"])
    run = next(run for run in record["runs"] if run["method"] == "DFP")
    run["restarts"][run["chosen"]]["selected"] = [0]
    told = " ".join(page({"variable_selection_2": record}).split())
    assert "found exactly on 9 (DFP) and 10 (DPF) of 10 data sets" in told


def test_a_new_record_needs_an_entry_alone(records: Records) -> None:
    entry = Entry("mine", "My experiment", "bayeslim reproduce mine", lambda record: f"### of {record['name']}")
    one, two = Section("Mine", (entry,)), Section("Both", (entry, ENTRIES[0]), "For both.")
    record = {"name": "a net", "device": "cpu", "torch": "9.9"}
    assert "\n## Mine\n\n`results/mine.json`; `bayeslim reproduce mine` (cpu, torch 9.9).\n\n### of a net\n" in page(
        {"mine": record}, [one]
    )
    assert "\n## Both\n\nFor both.\n\n### My experiment\n" in page({"mine": record}, [two])
    assert "\n#### of a net\n" in page({"mine": record}, [two])
    assert "## Mine" not in page({}, [one]) and "| My experiment |" in page({}, [one])
    assert "Not run yet" not in page({"mine": record}, [one])
    assert seeds_of(records["vdp_priors_mnist"]) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"vdp_mnist.json is damaged \(.*\): restore it, or measure it again"),
        ("[1]", "vdp_mnist.json must hold a JSON object, got a list"),
    ],
)
def test_a_damaged_record_is_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "vdp_mnist.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        read(tmp_path)


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "shrink.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"shrink\.json is damaged"):
        read(tmp_path)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.record)
def test_a_record_without_its_parts_is_named_with_its_command(entry: Entry) -> None:
    again = f" with `{entry.command}`" if entry.command else ""
    message = f"results/{entry.record}.json lacks what its section needs (KeyError: "
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        page({entry.record: {"torch": "2"}})
    assert str(caught.value).endswith(f"restore it, or measure it again{again}")


def test_an_unknown_record_is_refused_and_that_of_a_benchmark_left_out(tmp_path: Path) -> None:
    (tmp_path / "speed.json").write_text(json.dumps({"command": "python benchmarks/speed.py"}))
    assert read(tmp_path) == {}
    (tmp_path / "other.json").write_text(json.dumps({"runs": []}))
    with pytest.raises(ValueError, match=r"other\.json belongs to no experiment: add it to SECTIONS"):
        read(tmp_path)


def test_command_writes_the_page(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "docs" / "results.md"
    assert command(["reproduce", "report", "--results", str(ROOT / "results"), "--out", str(out)]) == 0
    assert out.read_text(encoding="utf-8") == text
    assert command(["reproduce", "report", "--results", str(tmp_path / "none"), "--out", str(out)]) == 1
    assert "`results` must be a folder of records" in capsys.readouterr().err
    assert out.read_text(encoding="utf-8") == text


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
