"""A run that is killed and resumed ends with the same weights as one that never stopped."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from bayeslim.storage import read_tensors
from training import killable
from training.problems import equal

Ends = tuple[tuple[signal.Signals, tuple[int, ...]], ...]
"""Signals, and the exit codes that they may lead to."""


def epochs_done(folder: Path) -> int:
    try:
        return read_tensors(folder / "checkpoint.safetensors")[1]["epoch"]
    except FileNotFoundError:
        return -1


def kill_after(folder: Path, whole: int, epochs: int, delay: float, number: int) -> int:
    """Start the run of `whole` epochs in a process of its own, kill it `epochs` epochs and `delay` seconds later."""
    goal, deadline = max(0, epochs_done(folder)) + epochs, time.monotonic() + 120
    command = [sys.executable, killable.__file__, folder, str(whole)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            while epochs_done(folder) < goal:
                assert process.poll() is None, "the run ended before it could be killed"
                assert time.monotonic() < deadline
                time.sleep(0.005)
            time.sleep(delay)
            process.send_signal(number)
            return process.wait(timeout=30)
        finally:
            process.kill()


KILLED = (signal.SIGKILL, (-signal.SIGKILL,))
TOLD = (signal.SIGTERM, (128 + signal.SIGTERM,))
TYPED = (signal.SIGINT, (-signal.SIGINT, 128 + signal.SIGINT))


@pytest.mark.parametrize(
    ("ends", "epochs"),
    [((KILLED,), 60), pytest.param((KILLED, TOLD, KILLED, TYPED), 150, marks=pytest.mark.slow)],
    ids=["killed", "every way"],
)
def test_a_run_that_is_ended_ends_with_the_same_weights(tmp_path: Path, ends: Ends, epochs: int) -> None:
    chance = random.Random(0)
    for number, codes in ends:
        before = epochs_done(tmp_path)
        assert kill_after(tmp_path, epochs, chance.randint(1, 30), chance.uniform(0, 0.01), number) in codes
        assert before < epochs_done(tmp_path) < epochs
    resumed, whole = killable.run(tmp_path, epochs), killable.run(None, epochs)
    assert equal(resumed[0], whole[0]) and equal(resumed[1], whole[1])
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == list(range(epochs))
    # A run too simple to notice a loss would prove nothing.
    assert not torch.equal(whole[0].state_dict()["1.running_mean"], torch.zeros(16))
    assert not torch.equal(whole[1].log_noise, torch.zeros(()))
