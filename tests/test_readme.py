"""The README's example runs as printed."""

import re
from pathlib import Path

import pytest

import bayeslim

ROOT = Path(__file__).parent.parent


def test_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert len(blocks) == 1
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    exec(blocks[0], namespace)
    scores = bayeslim.evaluate(bayeslim.load("moons.safetensors"), bayeslim.data.moons(500, noise=0.15, seed=1))
    assert scores["accuracy"] > 0.9
    assert "epistemic" not in capsys.readouterr().err


def test_every_link_leads_somewhere() -> None:
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
