"""The other commands, exit codes and help."""

import dataclasses
import html
import json
import math
import shutil
import subprocess
import sys
import types
import warnings
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import bayeslim as bl
from bayeslim.cli import COMMANDS, main
from bayeslim.cli.export import FILES
from bayeslim.cli.prune import sparsest
from bayeslim.data.preprocessing import Preprocessing
from bayeslim.data.target import Target
from bayeslim.data.text_inputs import TextInputs
from bayeslim.named_models import build_network
from bayeslim.pruning.curve import CurvePoint
from bayeslim.runs import Run
from bayeslim.train_config import TrainConfig
from bayeslim_papers.reproduce import EXPERIMENTS

Output = pytest.CaptureFixture[str]


@pytest.fixture
def run(tmp_path: Path, classes_run: Path) -> Path:
    """A copy of the run, to be changed."""
    return Path(shutil.copytree(classes_run, tmp_path / "run"))


def test_overview_names_every_command(capsys: Output) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(f"  {name} " in said for name in COMMANDS) and len(said.splitlines()) < 30
    assert main([]) == 2
    assert main(["--version"]) == 0
    assert version("bayeslim") in capsys.readouterr().out


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("demo", "reproduce")])
def test_every_command_explains_itself(name: str, capsys: Output) -> None:
    assert main([name, "--help"]) == 0
    assert f"usage: bayeslim {name}" in capsys.readouterr().out


def test_unknown_commands_and_options_are_code_2(capsys: Output) -> None:
    assert main(["trian"]) == 2
    assert "did you mean train" in capsys.readouterr().err
    assert main(["prune", "--treshold", "3"]) == 2


def test_python_m_bayeslim() -> None:
    done = subprocess.run([sys.executable, "-m", "bayeslim", "evaluate", "absent"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("bayeslim evaluate: absent holds no run")


def test_warnings_show_what_they_say_and_not_where(monkeypatch: pytest.MonkeyPatch) -> None:
    module, shown = types.ModuleType("warner"), list[str]()
    module.__dict__["main"] = lambda _: shown.append(warnings.formatwarning("mind the step", UserWarning, "a.py", 1))
    monkeypatch.setitem(sys.modules, "warner", module)
    monkeypatch.setitem(COMMANDS, "data", ("warner", ""))
    usual = warnings.formatwarning
    assert main(["data"]) == main(["data", "--debug"]) == 0
    assert shown[0] == "bayeslim data: warning: mind the step\n"
    assert shown[1].startswith("a.py:1")
    assert warnings.formatwarning is usual


def test_commands_load_no_torch_before_they_are_known() -> None:
    script = (
        "import ast, sys, pathlib, importlib.util\n"
        "package = pathlib.Path(importlib.util.find_spec('bayeslim').origin).parent\n"
        "import types; stub = types.ModuleType('bayeslim'); stub.__path__ = [str(package)]\n"
        "sys.modules['bayeslim'] = stub\n"
        "from bayeslim.cli import COMMANDS, main\n"
        "codes = [main([name, '--help']) for name in COMMANDS if name not in ('demo',)]\n"
        "assert not any(codes), codes\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_interrupts_and_unexpected_errors_have_no_traceback(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(error: BaseException):
        def main(args: list[str]) -> None:
            raise error

        return types.SimpleNamespace(main=main)

    for error, code, message in [
        (KeyboardInterrupt(), 130, "interrupted"),
        (RuntimeError("odd"), 1, "unexpected RuntimeError: odd"),
        (MemoryError(), 1, "MemoryError"),
        (SystemExit(143), 143, ""),
    ]:
        monkeypatch.setitem(sys.modules, "bayeslim.cli.data", failing(error))
        assert main(["data", "list"]) == code
        assert message in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "bayeslim.cli.data", failing(RuntimeError("odd")))
    with pytest.raises(RuntimeError, match="odd"):
        main(["--debug", "data", "list"])


def test_evaluate_prints_and_writes_scores(classes_run: Path, tmp_path: Path, capsys: Output) -> None:
    scores = tmp_path / "scores.json"
    assert main(["evaluate", str(classes_run), "--samples", "7", "--json-out", str(scores)]) == 0
    run = Run(classes_run)
    assert json.loads(scores.read_text()) == bl.evaluate(run.model(), run.splits().test, samples=7)
    assert "accuracy" in capsys.readouterr().out
    table = run.config.data
    assert main(["evaluate", str(classes_run), "--data", table, "--samples", "0"]) == 0
    assert "120 rows" in " ".join(capsys.readouterr().out.split())
    (tmp_path / "bare.csv").write_text("length,width,soil\n1,2,clay\n")
    assert main(["evaluate", str(classes_run), "--data", str(tmp_path / "bare.csv")]) == 1
    assert "has no column 'species'" in capsys.readouterr().err


def test_prune_stores_a_smaller_network_beside_the_trained_one(run: Path, capsys: Output) -> None:
    before = (run / "model.safetensors").read_bytes()
    assert main(["prune", str(run), "--samples", "3"]) == 0
    said = capsys.readouterr().out
    assert "chosen" in said and "non-zero weights" in said and "before" in said
    assert (run / "model.safetensors").read_bytes() == before
    facts = Run(run).pruning()
    assert facts["compact"] and facts["after"]["nonzero"] <= facts["before"]["nonzero"]
    assert any(point["threshold"] == facts["threshold"] for point in facts["curve"])
    assert set(Run(run).metrics()) == {"trained", "pruned"}


def test_prune_at_a_threshold_of_the_user(run: Path, capsys: Output) -> None:
    assert main(["prune", str(run), "--threshold", "-2", "--samples", "0", "--keep-shape"]) == 0
    facts = Run(run).pruning()
    assert facts["threshold"] == -2 and "curve" not in facts and not facts["compact"]
    model = Run(run).model("trained")
    bl.prune_(model, threshold=-2.0)
    assert facts["after"]["nonzero"] == bl.footprint(model).nonzero
    assert main(["prune", str(run), "--threshold", "-90"]) == 1
    assert "would lose all its" in capsys.readouterr().err
    assert Run(run).pruning() == facts


def test_the_sparsest_point_within_the_tolerance_is_chosen() -> None:
    rises = {0.1: (0.0, 0.0), 0.5: (0.004, 0.001), 0.8: (0.009, 0.010), 0.9: (0.02, 0.001)}
    points = [CurvePoint(part, part, {}, rise, error, None, {}) for part, (rise, error) in rises.items()]
    assert sparsest(points, 0.0).sparsity == 0.8  # its rise is within its own error
    assert sparsest(points[:2], 0.002).sparsity == 0.1
    assert sparsest(points[:2], 0.005).sparsity == 0.5
    assert sparsest(points[3:], 0.0).sparsity == 0.9  # none is good: the best of them
    with pytest.raises(ValueError, match="--tolerance must not be negative, got -1"):
        sparsest(points, -1)
    lost = CurvePoint(0.99, 0.99, {}, math.inf, math.nan, None, {})
    assert sparsest([*points, lost], 0.0).sparsity == 0.8
    with pytest.raises(ValueError, match="no threshold is better than another: correct the rows"):
        sparsest([dataclasses.replace(lost, nll_rise=math.nan)], 0.0)


def test_a_plain_network_cannot_be_pruned(tmp_path: Path, capsys: Output) -> None:
    arguments = ["--data", "moons", "--rows", "60", "--method", "none", "--epochs", "1", "--out", str(tmp_path / "a")]
    assert main(["train", *arguments]) == 0
    assert main(["prune", str(tmp_path / "a")]) == 1
    assert "no Bayesian layers" in capsys.readouterr().err


def test_export_in_every_format(run: Path, capsys: Output) -> None:
    x = Run(run).splits().test[0]
    with bl.using(model := Run(run).model(), bl.mean_only):
        expected = model(x).detach()
    for kind in ("safetensors", "slim", "program"):
        assert main(["export", str(run), "--format", kind]) == 0
    plain = bl.export.load_slim(run / "network.slim.safetensors")
    torch.testing.assert_close(plain(x), expected, rtol=1e-2, atol=1e-2)
    plain.load_state_dict(load_file(run / "network.plain.safetensors"))
    torch.testing.assert_close(plain(x), expected)
    torch.testing.assert_close(torch.export.load(run / "network.pt2").module()(x), expected)
    assert main(["export", str(run), "--format", "slim", "--samples", "3"]) == 1
    assert "--samples and --moments are for --format onnx" in capsys.readouterr().err


def test_export_needs_no_data(run: Path, tmp_path: Path) -> None:
    settings = (run / "config.toml").read_text()
    (run / "config.toml").write_text(settings.replace("flowers.csv", "moved.csv"))
    with pytest.raises(FileNotFoundError):
        Run(run).splits()
    for kind in FILES:
        assert main(["export", str(run), "--format", kind]) == 0
        assert (run / FILES[kind]).is_file()
    inputs = TextInputs(("good", "bad"), 4)
    preprocessing, config = Preprocessing(inputs, Target("mood", ("sad", "glad"))), TrainConfig(model="transformer")
    texts = Run.create(tmp_path / "texts", config, preprocessing, "")
    texts.save_model(network := build_network(config, preprocessing))
    assert main(["export", str(texts.folder), "--format", "program"]) == 0
    tokens = inputs.encode(["good", "bad bad", "other"])
    program = torch.export.load(texts.folder / FILES["program"]).module()
    with bl.using(network.eval(), bl.mean_only):
        torch.testing.assert_close(program(tokens), network(tokens).detach())


def test_export_onnx_with_uncertainty(run: Path, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    x = Run(run).splits().test[0]
    assert main(["export", str(run)]) == 0
    session = onnxruntime.InferenceSession(run / "network.onnx")
    with bl.using(model := Run(run).model(), bl.mean_only):
        torch.testing.assert_close(
            torch.from_numpy(session.run(None, {"input": x.numpy()})[0]), model(x).detach(), rtol=1e-4, atol=1e-5
        )
    assert main(["export", str(run), "--samples", "3", "--out", str(tmp_path / "s.onnx")]) == 0
    session = onnxruntime.InferenceSession(tmp_path / "s.onnx")
    assert [output.name for output in session.get_outputs()] == ["mean", "epistemic", "aleatoric"]


def test_report_writes_a_page_and_figures(run: Path, tmp_path: Path, capsys: Output) -> None:
    assert main(["report", str(run), "--out", str(tmp_path / "page.html"), "--figures", str(tmp_path / "figures")]) == 0
    text = (tmp_path / "page.html").read_text()
    assert html.escape(Run(run).command) in text and "every feature shuffled among them" in text
    assert {file.suffix for file in (tmp_path / "figures").iterdir()} == {".pdf", ".svg"}
    assert "page.html" in capsys.readouterr().out


def test_data_list_where_and_fetch(tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESLIM_DATA", str(tmp_path))
    assert main(["data", "list"]) == 0
    assert "fashion-mnist" in capsys.readouterr().out
    assert main(["data", "where"]) == 0
    assert str(tmp_path) in capsys.readouterr().out
    assert main(["data", "fetch", "digits"]) == 0
    assert "digits is here" in capsys.readouterr().out
    assert main(["data", "fetch"]) == 1
    assert main(["data", "fetch", "digit"]) == 1
    assert "did you mean digits" in capsys.readouterr().err
    assert main(["data", "drop"]) == 2


def test_reproduce_lists_and_runs_experiments(capsys: Output) -> None:
    assert main(["reproduce", "list"]) == 0
    assert all(name in capsys.readouterr().out for name in ["k-tied"])
    assert main(["reproduce"]) == 2
    assert main(["reproduce", "k-tide"]) == 1
    assert "did you mean k-tied" in capsys.readouterr().err
    for name in EXPERIMENTS:
        assert main(["reproduce", name, "--help"]) == 0
        assert "--out" in capsys.readouterr().out


def test_demo_takes_its_own_options(capsys: Output) -> None:
    assert main(["demo", "--help"]) == 0
    assert "--quick" in capsys.readouterr().out
    assert main(["demo", "--fast"]) == 2


def test_bench_measures_every_method(capsys: Output) -> None:
    arguments = ["bench", "--sizes", "4", "8", "2", "--batch-size", "8", "--rounds", "2", "--device", "cpu"]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "deterministic" in said and all(name in said for name in bl.METHODS)
    assert main(["bench", "--rounds", "0"]) == 1
