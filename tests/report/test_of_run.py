"""Reports of runs in their folders."""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import bayeslim as bl
from bayeslim.cli import main
from bayeslim.data.image_inputs import ImageInputs
from bayeslim.data.preprocessing import Preprocessing
from bayeslim.data.target import Target
from bayeslim.data.text_inputs import TextInputs
from bayeslim.report import of_run, write_report
from bayeslim.report.of_run import collect_run, names_of
from bayeslim.runs import Run

HOSTILE = "</script><b>area"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A regression on a table of numbers and text, pruned at a threshold of its own."""
    folder = tmp_path_factory.mktemp("table")
    generator = np.random.default_rng(0)
    lines = [f"{HOSTILE},place,price"]
    for area, place in zip(generator.uniform(20, 90, 200), generator.choice(["north", "south"], 200), strict=True):
        lines.append(f"{area:.3f},{place},{1000 * area + 9000 * (place == 'north') + generator.normal(0, 900):.2f}")
    (folder / "homes <1>.csv").write_text("\n".join(lines) + "\n")
    arguments = ["--data", str(folder / "homes <1>.csv"), "--target", "price", "--hidden", "8", "--epochs", "20"]
    main(["train", *arguments, "--samples", "5", "--device", "cpu", "--out", str(folder / "run")])
    main(["prune", str(folder / "run"), "--threshold", "4.5"])
    return Run(folder / "run")


def test_report_of_a_run(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "new" / "report.html"
    assert write_report(run, file, tmp_path / "figures") == file
    text = file.read_text()
    assert "homes &lt;1&gt;.csv" in text and "<b>area" not in text and text.count("<script") == 2
    assert (tmp_path / "figures" / "observed.pdf").is_file() and (tmp_path / "figures" / "observed.svg").is_file()
    assert [found.name for found in file.parent.iterdir()] == ["report.html"]


def test_content_of_a_run(run: Run) -> None:
    content = collect_run(run)
    direct = bl.evaluate(run.model("trained"), run.splits().test, samples=100)
    assert content.scores["rmse"] == pytest.approx(direct["rmse"] * run.preprocessing.target.std)
    assert content.pruning is not None
    assert content.pruning.points[content.pruning.chosen].threshold == 4.5
    assert content.origin.command == run.command and content.origin.seed == 0
    assert content.origin.versions["torch"] == run.versions["torch"]
    assert content.origin.settings["hidden"] == "(8,)" and "rows" not in content.origin.settings
    assert content.features == [HOSTILE, "place=north", "place=south"]
    cells = dict(content.certain[0].cells)
    assert 20 <= float(cells[HOSTILE]) <= 90 and cells["place"] in ("north", "south")
    assert content.observed is not None and 20_000 < np.median(content.observed.observed) < 90_000
    assert content.training is not None and len(content.training.epochs) == 20


@pytest.mark.parametrize("data", ["blundell-curve", "moons", "digits"])
def test_report_of_a_plain_network(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One network, whatever number of samples a report asks for: no draws, no posterior, and the page says so."""
    arguments = ["--data", data, "--rows", "200", "--method", "none", "--hidden", "8", "--epochs", "2"]
    assert main(["train", *arguments, "--device", "cpu", "--out", str(tmp_path / "run")]) == 0
    plain = Run(tmp_path / "run")
    content = collect_run(plain)
    assert content.samples == 1 and content.draws is None and content.pruning is None and not content.layers
    direct = bl.evaluate(plain.model(), plain.splits().test, samples=0)
    assert content.scores["nll"] == pytest.approx(direct["nll"] + np.log(plain.preprocessing.target.std))
    assert content.training is not None and set(content.training.series) == {"energy", "nll", "validation_nll", "lr"}
    monkeypatch.setattr(of_run, "collect_run", lambda run: content)  # not once more
    write_report(plain, tmp_path / "report.html", tmp_path / "figures")
    text = (tmp_path / "report.html").read_text()
    assert "Every answer comes from one network" in text and "remember as little as possible" not in text
    assert "Bayesian average" not in text and "Average over the posterior" not in text
    if data == "blundell-curve":  # the same noise everywhere: no example is more certain than another
        assert content.band is not None and "where the curve lies" not in text and not content.certain
    else:
        assert len(content.certain) == len(content.doubtful) == 6
        assert (content.boundary is not None and content.boundary.plain) == (data == "moons")


@pytest.mark.parametrize("epochs", [1, 20], ids=["one epoch", "all epochs"])
def test_report_of_a_run_with_infinite_scores(
    run: Run, tmp_path: Path, epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(run.folder, tmp_path / "run")
    other, history = Run(tmp_path / "run"), run.history()
    for record in history.records[:epochs]:
        record["validation_nll"] = math.inf
    history.write(other.folder / "history.jsonl")
    content = collect_run(other)
    assert content.training is not None
    scores = content.training.series["validation_nll"]
    assert [math.isnan(score) for score in scores] == [epoch < epochs for epoch in range(20)]
    monkeypatch.setattr(of_run, "collect_run", lambda run: content)  # not once more
    write_report(other, tmp_path / "report.html", tmp_path / "figures")
    assert "NaN" not in (tmp_path / "report.html").read_text()


def test_unfinished_run(run: Run, tmp_path: Path) -> None:
    started = Run.create(tmp_path / "started", run.config, run.preprocessing, "bayeslim train")
    with pytest.raises(FileNotFoundError, match="is not finished"):
        write_report(started, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_names_of_texts_and_images() -> None:
    target = Target("mood", ("bad", "good"))
    texts = names_of(Preprocessing(TextInputs(("to", "be"), 4), target), "texts")
    assert texts.describe is not None
    assert texts.describe(torch.tensor([0, 3, 1, 2])) == [("text", "be ? to")]
    images = names_of(Preprocessing(ImageInputs((1, 2, 3)), target), "images")
    assert images.image_shape == (1, 2, 3) and images.classes == ("bad", "good")
