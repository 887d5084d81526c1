"""The folder of a run: nothing is overwritten, and everything comes back."""

import json
import math
from pathlib import Path

import pytest
import torch

import bayeslim as bl
from bayeslim.checks.names import check_name
from bayeslim.data.named import load_problem
from bayeslim.data.preprocessing import Preprocessing
from bayeslim.data.target import Target
from bayeslim.data.text_inputs import TextInputs
from bayeslim.named_models import MODELS, build_network, likelihood_for, resolved_device
from bayeslim.pruning import MAGNITUDE
from bayeslim.runs import Run, json_document
from bayeslim.train_config import TrainConfig

CONFIG = TrainConfig(data="moons", rows=60, hidden=(8,), epochs=2)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A finished run."""
    problem = load_problem("moons", rows=60)
    run = Run.create(tmp_path / "run", CONFIG, problem.preprocessing, "bayeslim train --data moons")
    network = build_network(CONFIG, problem.preprocessing)
    bl.fit(
        network,
        problem.splits.train,
        likelihood=likelihood_for(problem.preprocessing),
        epochs=2,
        checkpoint=run.folder,
        seed=0,
        progress=False,
    )
    run.save_model(network)
    return run


def test_everything_comes_back(run: Run) -> None:
    again = Run(run.folder)
    assert again.config == CONFIG and again.command == "bayeslim train --data moons"
    assert again.versions["torch"] == torch.__version__ or torch.__version__.startswith(again.versions["torch"])
    assert len(again.history()) == 2 and again.history()["nll"][1] > 0
    assert again.metrics() == {} and again.pruning() == {} and again.finished
    x, y = again.splits().test
    assert again.preprocessing.target.classes == ("0", "1") and len(x) == len(y) == 9
    assert bl.evaluate(again.model(), (x, y), samples=3)["nll"] > 0


def test_metrics_are_merged(run: Run) -> None:
    run.write_metrics({"trained": {"nll": 1.0}})
    run.write_metrics({"pruned": {"nll": 2.0}})
    assert run.metrics() == {"trained": {"nll": 1.0}, "pruned": {"nll": 2.0}}


def test_numbers_that_are_not_finite_are_null(run: Run) -> None:
    scores = {"nll": math.inf, "parts": [math.nan, -math.inf, 1.5], "pair": (1, {"rmse": math.nan}), "name": "NaN"}
    expected = {"nll": None, "parts": [None, None, 1.5], "pair": [1, {"rmse": None}], "name": "NaN"}
    assert json.loads(json_document(scores)) == expected
    run.write_metrics({"trained": scores})
    run.save_pruned(run.model(), scores)
    assert run.metrics() == {"trained": expected} and run.pruning() == expected
    (run.folder / "metrics.json").write_text('{"trained": {"nll": Infinity}}')  # of an earlier version
    run.write_metrics({"pruned": {}})
    assert run.metrics()["trained"]["nll"] is None


def test_epochs_with_scores_that_are_not_finite_come_back(run: Run) -> None:
    history, file = run.history(), run.folder / "history.jsonl"
    history.last["validation_nll"] = math.inf
    history.write(file)
    assert "Infinity" not in file.read_text()
    assert run.history()["validation_nll"] == [None, None] and run.history()["nll"] == history["nll"]


def test_pruned_network_is_what_comes_back(run: Run) -> None:
    with pytest.raises(FileNotFoundError, match="has no pruned network"):
        run.model("pruned")
    pruned = run.model()
    bl.prune_(pruned, MAGNITUDE, amount=0.5)
    run.save_pruned(bl.compact(pruned, torch.zeros(2, 2)), {"threshold": 1.0})
    assert run.pruning() == {"threshold": 1.0}
    x = torch.randn(5, 2)
    with bl.using(pruned, bl.mean_only), bl.using(loaded := run.model(), bl.mean_only):
        torch.testing.assert_close(loaded(x), pruned(x))
    assert bl.footprint(run.model("trained")).nonzero > bl.footprint(loaded).nonzero


@pytest.mark.parametrize("model", ["transformer", "lstm"])
def test_networks_that_no_file_describes_are_built_from_the_settings(tmp_path: Path, model: str) -> None:
    inputs = TextInputs(("good", "bad"), 4)
    preprocessing = Preprocessing(inputs, Target("mood", ("sad", "glad")))
    config = TrainConfig(data="imdb", model=model)
    run = Run.create(tmp_path / "run", config, preprocessing, "")
    network = build_network(config, preprocessing)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1)
    run.save_model(network)
    tokens = inputs.encode(["good", "bad bad"])
    with bl.using(network, bl.mean_only), bl.using(loaded := run.model(), bl.mean_only):
        torch.testing.assert_close(loaded(tokens), network.eval()(tokens))
    bl.prune_(network, MAGNITUDE, amount=0.5)
    run.save_pruned(network, {})
    with bl.using(network, bl.mean_only), bl.using(loaded := run.model("pruned"), bl.mean_only):
        torch.testing.assert_close(loaded(tokens), network.eval()(tokens))


def test_folders_that_hold_something_are_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(FileExistsError, match="already holds a run: pass --resume"):
        Run.create(run.folder, CONFIG, run.preprocessing, "")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "letter.txt").write_text("keep me")
    for folder in (tmp_path / "foreign", tmp_path / "foreign" / "letter.txt"):
        with pytest.raises(FileExistsError, match="exists and is not an empty folder"):
            Run.create(folder, CONFIG, run.preprocessing, "")
    assert [file.name for file in (tmp_path / "foreign").iterdir()] == ["letter.txt"]
    with pytest.raises(OSError, match="cannot write to the folder"):
        Run.create(tmp_path / "foreign" / "letter.txt" / "run", CONFIG, run.preprocessing, "")
    with pytest.raises(FileNotFoundError, match="holds no run: make one by"):
        Run(tmp_path / "foreign")


def test_changed_data_and_damaged_files_are_refused(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("a,y\n" + "".join(f"{i},{i % 2}\n" for i in range(40)))
    config = TrainConfig(data=str(table), target="y")
    problem = load_problem(str(table), target="y")
    run = Run.create(tmp_path / "run", config, problem.preprocessing, "")
    assert torch.equal(run.splits().test[0], problem.splits.test[0])
    with pytest.raises(FileNotFoundError, match="is not finished: `bayeslim train --resume"):
        run.model()
    table.write_text(table.read_text() + "3,1\n")
    with pytest.raises(ValueError, match="has changed since the run"):
        run.splits()
    (run.folder / "run.json").write_text("{")
    with pytest.raises(ValueError, match="run.json holds no valid JSON"):
        _ = run.command
    (run.folder / "preprocessing.json").unlink()
    with pytest.raises(FileNotFoundError, match="preprocessing.json: the run is not complete"):
        _ = Run(run.folder).preprocessing


def test_scores_of_a_regression_are_in_the_unit_of_the_target(tmp_path: Path) -> None:
    problem = load_problem("blundell-curve", rows=50)
    run = Run.create(tmp_path / "run", TrainConfig(data="blundell-curve"), problem.preprocessing, "")
    network = build_network(TrainConfig(method="none"), problem.preprocessing)
    bl.likelihoods.remember_likelihood_(network, likelihood_for(problem.preprocessing))
    x, y = problem.splits.test
    target = problem.preprocessing.target
    found = run.scores(network, (x, y), samples=0)
    raw, predicted = y * target.std + target.mean, network(x).detach() * target.std + target.mean
    assert found["rmse"] == pytest.approx((raw - predicted).square().mean().sqrt().item(), rel=1e-5)
    noise = 0.5 * target.std
    density = torch.distributions.Normal(predicted, noise).log_prob(raw).mean().item()
    assert found["nll"] == pytest.approx(-density, rel=1e-5)


def test_names_get_suggestions_and_devices_are_tried() -> None:
    with pytest.raises(ValueError, match="--model 'lenet5' is not known: did you mean lenet-5"):
        check_name("--model", "lenet5", MODELS)
    with pytest.raises(ValueError, match="--device 'gpu' cannot be used"):
        resolved_device("gpu")
    assert resolved_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("model", [name for name in MODELS if name not in ("mlp", "lenet-300-100")])
def test_networks_that_do_not_fit_the_data_are_refused(model: str) -> None:
    preprocessing = load_problem("moons", rows=60).preprocessing
    with pytest.raises(ValueError, match=f"--model {model} takes .*the data are a table of 2 inputs: use --model mlp"):
        build_network(TrainConfig(model=model), preprocessing)


def test_damaged_json_of_another_kind(run: Run) -> None:
    (run.folder / "metrics.json").write_text(json.dumps([1]))
    with pytest.raises(ValueError, match=r"metrics\.json holds list where facts belong"):
        run.metrics()
    (run.folder / "history.jsonl").write_text('{"nll": 1}\n{"nll"')
    with pytest.raises(ValueError, match=r"history\.jsonl holds no valid JSON"):
        run.history()
    (run.folder / "run.json").write_text('{"versions": ["torch"]}')
    assert run.versions == {} and run.command == ""
    (run.folder / "metrics.json").write_text('{"a": [' + "[]," * 400_000 + "[]]}")  # a second to parse
    with pytest.raises(ValueError, match=r"metrics\.json has 1200011 bytes of JSON, more than 1048576"):
        run.metrics()
    (run.folder / "run.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"run\.json holds no valid JSON"):
        _ = run.command


def test_a_run_that_cannot_begin_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bayeslim import runs

    really = runs.write_atomically

    def full_disk(path: Path, content: bytes) -> None:
        if path.name == "run.json":
            raise OSError("no space left")
        really(path, content)

    monkeypatch.setattr(runs, "write_atomically", full_disk)
    preprocessing = load_problem("moons", rows=60).preprocessing
    with pytest.raises(OSError, match="no space left"):
        Run.create(tmp_path / "run", CONFIG, preprocessing, "")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "made").mkdir()
    with pytest.raises(OSError, match="no space left"):
        Run.create(tmp_path / "made", CONFIG, preprocessing, "")
    assert list((tmp_path / "made").iterdir()) == []


def test_a_run_that_is_killed_at_its_beginning_does_not_stand_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen from the moment of every write: there is no folder, or one with a whole run."""
    from bayeslim import runs

    really = runs.write_atomically
    seen: list[bool] = []
    monkeypatch.setattr(
        runs, "write_atomically", lambda *file: seen.append((tmp_path / "run").exists()) or really(*file)
    )
    Run.create(tmp_path / "run", CONFIG, load_problem("moons", rows=60).preprocessing, "")
    assert seen == [False] * 3
    assert sorted(file.name for file in (tmp_path / "run").iterdir()) == [
        "config.toml",
        "preprocessing.json",
        "run.json",
    ]
    assert [file.name for file in tmp_path.iterdir()] == ["run"]


def test_commands_to_type_are_quoted(run: Run, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"--out '.*/no \$\(run\)'`"):
        Run(tmp_path / "no $(run)")
    odd = Run(run.folder.rename(tmp_path / "a; run"))
    with pytest.raises(FileNotFoundError, match=r"`bayeslim prune '.*/a; run'`"):
        odd.model("pruned")
    (odd.folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"`bayeslim train --resume --out '.*/a; run'`"):
        odd.model()
