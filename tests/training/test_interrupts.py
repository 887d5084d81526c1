"""Signals wait for a safe place and are never lost."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

import bayeslim as bl
from bayeslim.storage import read_tensors
from bayeslim.training.interrupts import StopRequest, stop_between_steps
from training.problems import blobs, equal, small, state

SIGNALS = [signal.SIGINT, signal.SIGTERM]


def stops(number: int) -> tuple[type[BaseException], Any]:
    return (KeyboardInterrupt, None) if number == signal.SIGINT else (SystemExit, 143)


@pytest.fixture(autouse=True)
def handlers_come_back() -> Iterator[None]:
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    assert [signal.getsignal(number) for number in SIGNALS] == before


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_waits_for_the_next_check(number: int) -> None:
    kind, code = stops(number)
    done: list[str] = []
    with pytest.raises(kind) as caught, stop_between_steps() as stop:
        stop.check()
        os.kill(os.getpid(), number)
        done.append("the step")
        stop.check()
        done.append("not this")
    assert done == ["the step"]
    assert getattr(caught.value, "code", None) == code


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_after_the_last_check_is_not_lost(number: int) -> None:
    kind, _ = stops(number)
    done: list[str] = []
    with pytest.raises(kind), stop_between_steps():
        os.kill(os.getpid(), number)
        done.append("the rest of the block")
    assert done == ["the rest of the block"]


def test_a_second_sigint_stops_at_once() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), stop_between_steps():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("first")
        os.kill(os.getpid(), signal.SIGINT)
        done.append("second")
    assert done == ["first"]


def test_handlers_come_back_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), stop_between_steps():
        raise ZeroDivisionError


def test_nothing_happens_without_a_signal() -> None:
    with stop_between_steps() as stop:
        stop.check()
    StopRequest().check()


def test_other_threads_leave_signals_alone() -> None:
    seen: list[Any] = []

    def run() -> None:
        with stop_between_steps() as stop:
            seen.append(signal.getsignal(signal.SIGTERM))
            stop.check()

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [before]


class Signalling(Dataset[Any]):
    """Validation data that send a signal when read for the `when`-th time."""

    def __init__(self, number: int, when: int) -> None:
        self.x, self.y = blobs(4)
        self.number, self.left = number, when * 4

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), self.number)
        return self.x[index], self.y[index]


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("epoch", [1, 4])
def test_a_signal_between_steps_leaves_a_checkpoint_to_resume(tmp_path: Path, number: int, epoch: int) -> None:
    """Also in the very last epoch, whose checkpoint is then complete."""
    options: dict[str, Any] = {"likelihood": bl.Categorical(), "epochs": 4, "batch_size": 16, "seed": 0}
    whole = small(method="graves")
    bl.fit(whole, blobs(), validation=Signalling(number, when=99), **options)
    model = small(method="graves")
    kind, _ = stops(number)
    with pytest.raises(kind):
        bl.fit(model, blobs(), validation=Signalling(number, when=epoch), checkpoint=tmp_path, **options)
    _, facts = read_tensors(tmp_path / "checkpoint.safetensors")
    assert facts["epoch"] == epoch
    before = ["checkpoint.previous.safetensors"] if epoch else []
    assert sorted(os.listdir(tmp_path)) == [*before, "checkpoint.safetensors", "history.jsonl"]
    again = small(seed=9, method="graves")
    history = bl.fit(again, blobs(), validation=blobs(4), checkpoint=tmp_path, resume=True, **options)
    assert len(history) == 4 and equal(again, whole)


def test_the_step_under_way_is_finished(tmp_path: Path) -> None:
    """The signal arrives while the step is computed: its update is made, the next one is not."""
    steps: list[int] = []

    def schedule(progress: bl.schedules.Progress) -> float:
        steps.append(progress.step)
        if progress.step == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return 1.0

    model = small()
    before = state(model)
    with pytest.raises(SystemExit):
        bl.fit(model, blobs(48), likelihood=bl.Categorical(), epochs=3, batch_size=16, lr_schedule=schedule, seed=0)
    assert steps == [0, 1, 2, 3, 4] and not equal(model, before)
