"""The example scripts run at a small size."""

import runpy
import sys
import warnings
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parent.parent / "examples"
ARGUMENTS = {
    "autoencoder.py": ["--epochs", "2", "--out", "picture.png"],
    "regression_bands.py": ["--quick", "--out", "bands.png"],
    "shrink_a_cnn.py": ["--quick", "--out", "shrunk"],
    "variable_selection.py": ["--epochs", "5", "--restarts", "2"],
    "vit_fsdp.py": ["--small", "--out", "vit"],
}


def test_every_example_is_listed() -> None:
    assert {file.name for file in EXAMPLES.glob("*.py")} == set(ARGUMENTS)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_example_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the command line runs it, in this process, which has imported torch already."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(EXAMPLES / name), *ARGUMENTS[name]])
    threads = torch.get_num_threads()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    finally:
        torch.set_num_threads(threads)
    assert list(tmp_path.iterdir()) and capsys.readouterr().out
