"""Training runs of the first edition go on from their checkpoints, and end where they would have ended."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from frozen.answers import FILES, agree, closed_forms, recorded
from frozen.trainings import EPOCHS, STOPPED_AFTER, TRAININGS

RECORDED = recorded()
X = torch.tensor(RECORDED["inputs"]["vectors"])


def copied(name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(FILES / "checkpoints" / name, tmp_path / "run"))


@pytest.mark.parametrize("name", TRAININGS)
def test_a_run_goes_on(name: str, tmp_path: Path) -> None:
    training, folder, expected = TRAININGS[name], copied(name, tmp_path), RECORDED["checkpoints"][name]
    before = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    stopped, history = training.fit(folder, epochs=STOPPED_AFTER)
    assert history.records == before and len(before) == STOPPED_AFTER
    found = closed_forms(stopped, X)
    assert not [form for form, value in found.items() if not agree(value, expected["stopped"][form], 1e-6)]

    ended, history = training.fit(folder)
    assert history.records[:STOPPED_AFTER] == before and history["epoch"] == list(range(EPOCHS))
    assert [history[column] for column in ("beta", "lr")] == [expected["history"][column] for column in ("beta", "lr")]
    found = closed_forms(ended, X)
    if training.noisy:  # other noise, and steps of Adam that are no longer than a few times the learning rate
        moved = (found["mean"] - torch.tensor(expected["stopped"]["mean"])).abs().max()
        assert 0 < moved < 0.1
        return
    assert not [form for form, value in found.items() if not agree(value, expected["ended"][form], training.tolerance)]
    losses = {column: torch.tensor(history[column]) for column in ("nll", "kl")}
    assert not [one for one in losses if not agree(losses[one], expected["history"][one], training.tolerance)]
    if training.pruned:
        weights = [parameter for parameter in ended.parameters() if parameter.ndim == 2]
        zeros = sum(int((weight == 0).sum()) for weight in weights)
        assert zeros == sum(weight.numel() for weight in weights) // 2


def test_the_checkpoint_before_stands_in_for_a_damaged_one(tmp_path: Path) -> None:
    folder = copied("adam", tmp_path)
    file = folder / "checkpoint.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.warns(RuntimeWarning, match=r"checkpoint.previous.safetensors holds"):
        ended, history = TRAININGS["adam"].fit(folder)
    expected = RECORDED["checkpoints"]["adam"]["ended"]
    assert len(history) == EPOCHS and agree(closed_forms(ended, X)["mean"], expected["mean"], 1e-3)
