"""The example scripts run at a small size."""

import subprocess
import sys
from pathlib import Path

import pytest

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
def test_example_runs(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / name), *ARGUMENTS[name]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()), done.stdout
