"""The dissertation's experiments at a tiny size, and the pieces they are made of."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import bayeslim as bl
from bayeslim.data import ImageData, TextData
from bayeslim_papers import experiment
from bayeslim_papers.command import command as main_of
from bayeslim_papers.dissertation import command
from bayeslim_papers.dissertation.command import QUICK, Dissertation
from bayeslim_papers.dissertation.networks import Networks
from bayeslim_papers.dissertation.results import table
from bayeslim_papers.record import read_record, write_record

MOONS = QUICK["moons"]


assert isinstance(MOONS, Networks)


ONE_OBJECTIVE = dataclasses.replace(MOONS, objectives=("elbo",))  # the images have all of them


PARTS = {name: part for name, part in QUICK.items() if name != "fashion-mnist"} | {"moons": ONE_OBJECTIVE}


SMALL = Dissertation((0,), PARTS)


def images(split: str, root: Path | None = None) -> ImageData:
    """Ten noisy patterns."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.rand(10, 1, 28, 28, generator=generator)
    y = torch.arange(300) % 10
    noise = torch.randn(300, 1, 28, 28, generator=generator.manual_seed(len(split)))
    return ImageData(patterns[y] + 0.2 * noise, y, tuple("0123456789"))


def reviews(split: str, root: Path | None = None) -> TextData:
    """Praise and blame, a word each, among others."""
    generator = torch.Generator().manual_seed(len(split))
    y = torch.arange(200) % 2
    fill = torch.randint(20, (200, 5), generator=generator).tolist()
    texts = tuple(
        f"{'fine' if label else 'poor'} " * 5 + " ".join(f"w{i}" for i in row)
        for label, row in zip(y, fill, strict=True)
    )
    return TextData(texts, y, y)


def run(config: Dissertation, out: Path | None = None) -> dict[str, Any]:
    """A run that goes on from what `out` holds."""
    data, save = config.load(None, "cpu"), functools.partial(write_record, out)
    return experiment.run(config, data, earlier=read_record(out), save=save)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `--quick` measures, on made-up images and reviews."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bl.data, "mnist", images)
        patch.setattr(bl.data, "imdb", reviews)
        out = tmp_path_factory.mktemp("quick") / "record.json"
        result = run(SMALL, out=out)
        assert json.loads(out.read_text()) == result
    return result


def runs_of(record: dict[str, Any], part: str) -> dict[str, dict[str, Any]]:
    return {one["variant"]: one for one in record["runs"] if one["part"] == part}


def test_the_record(record: dict[str, Any]) -> None:
    assert set(record) == {"experiment", "config", "device", "torch", "paper", "tolerance", "runs"}
    assert record["config"] == json.loads(json.dumps(dataclasses.asdict(SMALL)))
    for part, settings in SMALL.parts.items():
        runs = runs_of(record, part)
        assert list(runs) == settings.variants()
        assert all(one["seed"] == 0 and one["seconds"] > 0 for one in runs.values())
    for part in ("mnist", "moons"):
        for variant, one in runs_of(record, part).items():
            layers = 3 if part == "moons" else 2
            assert not one["diverged"] and set(one["accuracy"]) == {"none", "principled", "random"}
            assert all(len(one[key]) == layers for key in ("sparsity", "sparsity_initial", "sparsity_log_alpha"))
            assert set(one["sweep"]) == {"2", "4"} and ("plain_accuracy" in one) == variant.endswith("frequentist")
            assert [point["epoch"] for point in one["path"]] == list(range(8 if variant.endswith("bayesian") else 5))
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_networks_learn(record: dict[str, Any]) -> None:
    for part, least in (("mnist", 50), ("moons", 75)):
        for variant, one in runs_of(record, part).items():
            if variant.startswith("elbo"):
                assert one["accuracy"]["none"] > least, (part, variant)
    for variant, one in runs_of(record, "imdb").items():
        assert one["accuracy"]["none"] > 75, variant
    variance = bl.data.dissertation_curve().y_test.var().item()
    for method in ("molchanov", "graves", "frequentist"):
        assert runs_of(record, "regression")[f"elbo/{method}"]["mse"] < 0.5 * variance


def test_the_dissertations_start_is_called_sparse_before_training(record: dict[str, Any]) -> None:
    runs = runs_of(record, "mnist")
    assert min(runs["dissertation/molchanov/frequentist"]["sparsity_initial"]) > 0.7
    assert max(runs["elbo/molchanov/frequentist"]["sparsity_initial"]) < 0.1
    names = [f"{objective}/molchanov/frequentist" for objective in ("dissertation", "dissertation-3", "dissertation-4")]
    for starts in zip(*(runs[name]["sparsity_initial"] for name in names), strict=True):
        assert starts[0] > starts[1] > starts[2]
    assert not any("dissertation-" in name and ("kingma" in name or "bayesian" in name) for name in runs)
    assert runs["elbo/kingma/frequentist"]["sparsity"] == [0.0, 0.0]  # alpha <= 1


def test_networks_that_diverge_are_reported() -> None:
    assert isinstance(MOONS, Networks)
    wild = dataclasses.replace(MOONS, objectives=("elbo",), methods=("graves",), pretraining=("bayesian",), lr=1e30)
    result = run(Dissertation((0, 1), {"moons": wild}))
    assert [one["diverged"] for one in result["runs"]] == [True, True]
    assert "all 2 diverged" in table(result) and "NaN" not in json.dumps(result)


@dataclass(frozen=True)
class Counting:
    """A part that notes what it is asked for; it breaks off at variant `b` if told so."""

    asked: tuple[str, ...] = ("a", "b")

    def variants(self) -> list[str]:
        """Two."""
        return list(self.asked)

    def load(self, root: Path | None, device: str) -> list[Any]:
        """A place for notes."""
        CALLS.append("load")
        return []

    def measured(self, variant: str, seeds: Sequence[int], data: Any) -> list[dict[str, Any]]:
        """The seeds."""
        if variant == "b" and BREAK:
            raise KeyboardInterrupt
        CALLS.append((variant, tuple(seeds)))
        return [{"energy": 0.0} for _ in seeds]


CALLS: list[Any] = []


BREAK: list[bool] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    CALLS.clear()
    BREAK.clear()


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    out, config = tmp_path / "r.json", Dissertation((0, 1), {"part": Counting()})
    BREAK.append(True)
    with pytest.raises(KeyboardInterrupt):
        run(config, out=out)
    assert CALLS == ["load", ("a", (0, 1))]
    BREAK.clear()
    run(config, out=out)
    assert CALLS == ["load", ("a", (0, 1)), "load", ("b", (0, 1))]
    CALLS.clear()
    result = run(Dissertation((1, 2), config.parts), out=out)
    assert CALLS == ["load", ("a", (2,)), ("b", (2,))] and result["config"]["seeds"] == [0, 1, 2]
    CALLS.clear()
    assert run(config, out=out)["runs"] == result["runs"] and not CALLS
    assert len(json.loads(out.read_text())["runs"]) == 6


def test_other_settings_do_not_mix(tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    run(Dissertation((0,), {"part": Counting()}), out=out)
    with pytest.raises(
        ValueError, match="`asked` of 'part' is .* in one and .* in another; write them to different files"
    ):
        run(Dissertation((0,), {"part": Counting(asked=("a",))}), out=out)


def test_objectives_may_differ() -> None:
    mnist = QUICK["mnist"]
    first, other = ({"seeds": [0], "parts": {"mnist": {"lr": 1.0, "objectives": [name]}}} for name in ("elbo", "other"))
    joined = Dissertation.merged([{"config": first, "runs": []}, {"config": other, "runs": []}])
    assert joined["config"]["parts"]["mnist"] == {"lr": 1.0, "objectives": ["elbo", "other"]}
    assert first["parts"]["mnist"]["objectives"] == ["elbo"] and "dissertation-3/graves/frequentist" in mnist.variants()


def test_merging_keeps_the_first_of_equal_runs() -> None:
    first = run(Dissertation((0,), {"one": Counting()}))
    second = run(Dissertation((0, 1), {"one": Counting(), "two": Counting()}))
    second["runs"][0]["energy"] = 9.0
    both = Dissertation.merged([first, second])
    assert len(both["runs"]) == 8 and both["runs"][0]["energy"] == 0.0
    assert both["config"]["seeds"] == [0, 1] and set(both["config"]["parts"]) == {"one", "two"}


def test_the_table_shows_ours_beside_the_papers(record: dict[str, Any]) -> None:
    one = copy.deepcopy(runs_of(record, "mnist")["elbo/molchanov/frequentist"])
    one["accuracy"] |= {"none": 98.0, "principled": 97.0}
    one["sparsity"] = [0.5, 0.25]
    other = copy.deepcopy(one)
    other["accuracy"]["none"] = 98.5
    text = table(record | {"runs": [one, other]})
    assert "### mnist (2 seeds)" in text and "### moons" not in text
    assert "| 50.0-25.0 (57.36-53.96-23.9) |" in text
    assert "| 98.25 ± 0.35 (98.44) | 97 ± 0 (98.44) |" in text and "| within 0.5 (-0.19) |" in text
    other["accuracy"]["none"] = 90.0
    assert "| beyond 0.5 (-4.44) |" in table(record | {"runs": [one, other]})
    for block in table(record).split("\n\n"):
        if block.startswith("|"):
            assert len({line.count("|") for line in block.splitlines()}) == 1


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    small = {name: Counting() for name in ("mnist", "moons")}
    monkeypatch.setattr(command, "QUICK", small)
    main = main_of(Dissertation, lambda record: f"{len(record['runs'])} runs")
    files = [tmp_path / "new" / f"{part}.json" for part in small]
    for file in files:
        main(["--quick", "--parts", file.stem, "--out", str(file)])
    both = tmp_path / "both.json"
    main(["--merge", *map(str, files), "--out", str(both)])
    assert list(json.loads(both.read_text())["config"]["parts"]) == ["mnist", "moons"]
    assert "dissertation mnist b seed 1: 0 s" in capsys.readouterr().out
    assert len(json.loads(both.read_text())["runs"]) == 8
    main(["--quick", "--parts", "moons", "--seeds", "5-5"])
    assert CALLS[-2:] == [("a", (5,)), ("b", (5,))]
