"""Records of experiments as files."""

import json
from dataclasses import fields
from pathlib import Path

import pytest

from bayeslim.cli import main
from bayeslim_papers.comparison.command import Comparison
from bayeslim_papers.dissertation.command import Dissertation
from bayeslim_papers.experiment import Experiment
from bayeslim_papers.k_tied.command import PARTS
from bayeslim_papers.record import check_joinable, commands_of, made_by, united, write_record
from bayeslim_papers.samplers.images import Samplers
from bayeslim_papers.samplers.mnist import SamplersMnist
from bayeslim_papers.samplers.variable_selection import Selection
from bayeslim_papers.sparse_vd.command import SparseVd
from bayeslim_papers.vdp.images import VdpCifar, VdpVit
from bayeslim_papers.vdp.mnist import VdpMnist


def test_a_record_comes_back_and_folders_are_made(tmp_path: Path) -> None:
    write_record(tmp_path / "new" / "a.json", {"x": [1, 2.5]})
    assert json.loads((tmp_path / "new" / "a.json").read_text()) == {"x": [1, 2.5]}


def test_without_a_path_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_record(None, {"x": 1})
    assert not list(tmp_path.iterdir())


def test_what_json_cannot_hold_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_record(file, {"x": 1})
    with pytest.raises(TypeError):
        write_record(file, {"x": object()})
    assert json.loads(file.read_text()) == {"x": 1}


def test_records_join_if_they_differ_in_choices_only() -> None:
    check_joinable({"epochs": 3, "seeds": [0]}, {"epochs": 3, "seeds": [1]}, {"seeds"})
    with pytest.raises(ValueError, match="`epochs` is 3 in one and 4 in another"):
        check_joinable({"epochs": 3}, {"epochs": 4}, {"seeds"})
    with pytest.raises(ValueError, match="`lr` is None in one and 0.1 in another"):
        check_joinable({"epochs": 3}, {"epochs": 3, "lr": 0.1}, {"seeds"})
    with pytest.raises(ValueError, match="`epochs` of 'mnist' is 3 in one and 4 in another; write them to different"):
        check_joinable({"epochs": 3}, {"epochs": 4}, {"seeds"}, "mnist")


def test_lists_of_what_was_run_are_united_in_order() -> None:
    both = [{"seeds": [2, 0], "epochs": 3}, {"seeds": [0, 1], "epochs": 3}]
    assert united(both, ["seeds"]) == {"seeds": [2, 0, 1]} and both[0]["seeds"] == [2, 0]


def test_a_record_tells_the_commands_that_made_it(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    with made_by("bayeslim reproduce vdp --seeds 1"):
        write_record(file, {"runs": [1]})
        write_record(file, {"runs": [1, 2]})
    assert json.loads(file.read_text()) == {"runs": [1, 2], "commands": ["bayeslim reproduce vdp --seeds 1"]}
    with made_by("bayeslim reproduce vdp --seeds 2"):
        write_record(file, json.loads(file.read_text()))
    assert [line[-1] for line in json.loads(file.read_text())["commands"]] == ["1", "2"]
    write_record(file, {"runs": []})
    assert "commands" not in json.loads(file.read_text())


def test_commands_of_several_records_count_once() -> None:
    assert commands_of([{"commands": ["one"]}, {}, {"commands": ["two", "one"]}]) == {"commands": ["one", "two"]}
    assert commands_of([{}, {}]) == {}


def test_reproduce_tells_what_was_typed_without_places(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    options = ["--quick", "--seeds", "1", "--root", str(tmp_path), "--example", "2", "--out", str(file)]
    assert main(["reproduce", "variable-selection", *options, "--epochs", "2"]) == 0
    record = json.loads(file.read_text())
    said = "bayeslim reproduce variable-selection --quick --seeds 1 --example 2 --epochs 2"
    assert record["commands"] == [said]
    both = tmp_path / "b.json"
    assert main(["reproduce", "variable-selection", "--merge", str(file), str(file), "--out", str(both)]) == 0
    assert json.loads(both.read_text()) == record


def test_committed_records_are_of_this_code() -> None:
    """Each can be gone on from: its settings have the names of today's; two early ones have one that went."""
    kinds: list[type[Experiment]] = [VdpMnist, VdpCifar, VdpVit, SamplersMnist, Samplers, Selection, SparseVd]
    kinds += [Comparison, Dissertation, *PARTS.values()]
    known = {
        kind.name.replace("-", "_") if kind not in PARTS.values() else f"k_tied_{kind.name}": kind for kind in kinds
    }
    count = 0
    for file in sorted((Path(__file__).parents[2] / "results").glob("*.json")):
        record = json.loads(file.read_text())
        names = [name for name in known if file.stem.startswith(name)]
        if not names or "runs" not in record or "config" not in record:
            continue
        kind, count = known[max(names, key=len)], count + 1
        assert kind.merged([record, record])["runs"] == record["runs"], file
        free = {*kind.choices, *kind.technical, "images", "tune_lr", "compile"}
        assert {field.name for field in fields(kind)} - free == record["config"].keys() - free, file
    assert count >= 30
