"""Tables and a finished run that the commands are tried on."""

from pathlib import Path

import numpy as np
import pytest

from bayeslim.cli import main

QUICK = ["--hidden", "8", "--epochs", "3", "--samples", "5", "--device", "cpu"]


def flowers(file: Path, rows: int = 120, gaps: bool = False) -> Path:
    """A table with numbers, a text column, a constant one and a text target that both decide."""
    generator = np.random.default_rng(0)
    lines = ["length,width,soil,planet,species"]
    for index in range(rows):
        length, width = generator.normal(size=2)
        soil = generator.choice(["clay", "sand"])
        species = "rose" if length + (soil == "clay") > 0.5 else "tulip"
        shown = "" if gaps and index % 10 == 0 else f"{length:.4f}"
        lines.append(f"{shown},{width:.4f},{soil},earth,{species}")
    file.write_text("\n".join(lines) + "\n")
    return file


def houses(file: Path, rows: int = 120) -> Path:
    """A table with a price in the hundred thousands."""
    generator = np.random.default_rng(1)
    size = generator.uniform(30, 200, rows)
    price = 3000 * size + generator.normal(0, 20000, rows)
    lines = [f"{s:.1f},{p:.2f}" for s, p in zip(size, price, strict=True)]
    file.write_text("size,price\n" + "\n".join(lines) + "\n")
    return file


@pytest.fixture(scope="session")
def classes_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on `flowers`; tests must not change it."""
    folder = tmp_path_factory.mktemp("classes")
    table = flowers(folder / "flowers.csv")
    out = folder / "run"
    assert main(["train", "--data", str(table), "--target", "species", "--out", str(out), *QUICK]) == 0
    return out


@pytest.fixture(scope="session")
def regression_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on `houses`; tests must not change it."""
    folder = tmp_path_factory.mktemp("regression")
    table = houses(folder / "houses.csv")
    out = folder / "run"
    learning = ["--epochs", "80", "--lr", "0.03", "--batch-size", "16"]
    assert main(["train", "--data", str(table), "--target", "price", "--out", str(out), *QUICK, *learning]) == 0
    return out
