"""`bayeslim train --resume` where no run began: nothing is trained that nobody asked for."""

from pathlib import Path

import pytest

from bayeslim.cli import main
from bayeslim.runs import Run
from cli.conftest import QUICK

Output = pytest.CaptureFixture[str]


@pytest.mark.parametrize("left", ["no folder", "an empty folder", "settings of a run that did not begin"])
def test_a_folder_without_a_run_is_an_error(tmp_path: Path, capsys: Output, left: str, classes_run: Path) -> None:
    out = tmp_path / "a"
    if left != "no folder":
        out.mkdir()
    if left.startswith("settings"):
        (out / "config.toml").write_bytes((classes_run / "config.toml").read_bytes())
    before = sorted(tmp_path.rglob("*"))
    for arguments in (["--out", str(out)], [f"--out={out}", "--epochs", "1"]):
        assert main(["train", "--resume", *arguments]) == 1
        said = capsys.readouterr()
        assert f"bayeslim train: {out} holds no run to resume" in said.err and "with --data" in said.err
        assert not said.out and sorted(tmp_path.rglob("*")) == before


def test_with_data_or_settings_the_run_is_begun(tmp_path: Path, capsys: Output, classes_run: Path) -> None:
    """A command that torchrun starts again after a failure says --resume from the first time on."""
    data = ["train", "--resume", "--data", "moons", "--rows", "60", *QUICK, "--out", str(tmp_path / "a")]
    assert main(data) == 0 and len(Run(tmp_path / "a").history()) == 3
    settings = ["train", "--resume", f"--config={classes_run / 'config.toml'}", "--samples", "2"]
    assert main([*settings, "--out", str(tmp_path / "b")]) == 0
    assert Run(tmp_path / "b").config == Run(classes_run).config
    assert main(data) == 0  # the same again: nothing is left to do
    assert "after training" in capsys.readouterr().out
