"""Several processes train as one does: gradients, losses, samplers, files, signals, and what follows a kill."""

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import bayeslim as bl
from bayeslim.runs import Run
from bayeslim.runtime.seeds import derived_seed
from system import parallel_runs
from system.launching import ENVIRONMENT, TORCHRUN, launched
from training.problems import blobs, distance, equal, small

Seen = list[dict[str, dict[str, Any]]]


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(f"ranks-{request.param}")
    torch.save(launched(parallel_runs.__file__, request.param, folder), folder / "seen.pt")
    return folder


@pytest.fixture
def seen(place: Path) -> Seen:
    return torch.load(place / "seen.pt", weights_only=False)


ALIKE = ["everything", "gradient", "dataset", "loader", "CVAdam", "SGLD", "SGHMC", "statistics", "resumed", "stopped"]


@pytest.mark.parametrize("name", ALIKE)
def test_ranks_end_with_the_same_numbers(seen: Seen, name: str) -> None:
    """Bit for bit: parameters, buffers, likelihoods and masks."""
    assert all(equal(rank[name]["state"], seen[0][name]["state"]) for rank in seen[1:])


@pytest.mark.parametrize("name", ["everything", "dataset", "loader", "CVAdam", "SGLD", "SGHMC"])
def test_many_processes_train_as_one(seen: Seen, name: str, tmp_path: Path) -> None:
    alone = parallel_runs.RUNS[name](tmp_path)
    assert distance(alone["state"], seen[0][name]["state"]) < 1e-5


def test_the_loss_curve_is_that_of_one_process(seen: Seen, tmp_path: Path) -> None:
    alone = parallel_runs.everything(tmp_path)["history"]
    for rank in seen:
        history = rank["everything"]["history"]
        assert len(history) == len(alone)
        for one, many in zip(alone, history, strict=True):
            for column in ("energy", "nll", "kl", "validation_nll"):
                assert many[column] == pytest.approx(one[column], rel=1e-5)
    assert seen[0]["everything"]["history"] == seen[1]["everything"]["history"]
    assert {record["phase"] for record in alone} == {"pretrain", "bayes"}


def test_the_gradient_is_that_of_the_batch_under_every_ranks_noise(seen: Seen) -> None:
    """`sum_r (n_r / n) nll_r + KL / num_data`: unequal parts weighed, the KL once, noise from (seed, epoch, rank)."""
    (x, y), model, count = blobs(13), small(method="graves"), len(seen)
    torch.manual_seed(derived_seed(5, 0))
    order = torch.randperm(13)
    bounds = [13 * rank // count for rank in range(count + 1)]
    loss = bl.kl(model) / 13
    for rank in range(count):
        rows = order[bounds[rank] : bounds[rank + 1]]
        if rank > 0:
            torch.manual_seed(derived_seed(5, 0, rank))
        loss = loss + len(rows) / 13 * bl.Categorical().expected_nll(model(x[rows]), y[rows]).mean()
    loss.backward()
    gradient = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    found = {name: value for name, value in seen[0]["gradient"]["state"].items() if name in gradient}
    assert distance(found, gradient) < 1e-5
    assert max(value.abs().max().item() for value in gradient.values()) > 0.1


def test_masks_prune_something(seen: Seen) -> None:
    assert all(0 < seen[0][name]["sparsity"] < 1 for name in ("CVAdam", "SGLD", "SGHMC"))


def test_a_distributed_sampler_learns_the_epoch(seen: Seen) -> None:
    assert seen[0]["loader"]["epoch"] == 3


def test_wrong_settings_are_refused_on_every_rank(seen: Seen) -> None:
    count = len(seen)
    for index, rank in enumerate(seen):
        assert "have come apart" in rank["apart"]["message"] and "one seed" in rank["apart"]["message"]
        assert f"gives all {count} processes the same examples" in rank["not_distributed"]["message"]
        assert "DistributedSampler(dataset)" in rank["not_distributed"]["message"]
        assert f"process 7 of 9, this is {index} of {count}" in rank["of_another_rank"]["message"]
        assert rank["resumed"]["kind"] == "FileExistsError"


def test_a_resumed_run_ends_as_one_that_never_stopped(seen: Seen, place: Path) -> None:
    """With as many ranks bit for bit, and on a single process but for rounding."""
    assert all(equal(rank["resumed"]["state"], rank["resumed"]["whole"]) for rank in seen)
    options = parallel_runs.options(epochs=6) | {"likelihood": bl.Categorical(), "resume": True}
    model, whole = small(seed=2, method="graves"), small(method="graves")
    bl.fit(model, blobs(parallel_runs.ROWS), checkpoint=place / "run", **options)
    bl.fit(whole, blobs(parallel_runs.ROWS), **options)
    assert distance(model, whole) < 1e-5


def test_only_the_first_rank_writes(seen: Seen) -> None:
    assert [rank["resumed"]["own"] for rank in seen] == [True] + [False] * (len(seen) - 1)


def test_a_signal_to_one_rank_stops_all_after_the_same_step(seen: Seen) -> None:
    assert all(rank["stopped"]["code"] == 128 + signal.SIGTERM for rank in seen)
    assert all(rank["stopped"]["steps"] == [0, 1, 2, 3, 4, 5] for rank in seen)


def test_a_killed_rank_ends_the_job_with_a_message_and_resume_continues(tmp_path: Path, place: Path) -> None:
    """The weights are in the end those of the run that nobody disturbed."""
    count = len(list(place.glob("rank-*.pt")))
    out = tmp_path / "killed"
    command = [*TORCHRUN, str(count), "-m", "bayeslim", *parallel_runs.CLI, "--out", str(out)]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as job:
        wait_for_epochs(job, out / "history.jsonl", 3)
        first, killed = (process_of(job, rank) for rank in (0, 1))
        job.send_signal(signal.SIGSTOP)  # or torchrun might end the first rank before that could speak
        os.kill(killed, signal.SIGKILL)
        wait_for_end(first)
        job.send_signal(signal.SIGCONT)
        _, said = job.communicate(timeout=120)
    assert job.returncode != 0
    assert f"rank 0 of {count} lost its connection: another rank has ended" in said
    assert f"torchrun --nproc-per-node {count} -m bayeslim train --resume --out {out}" in said
    assert "Signal 9 (SIGKILL)" in said and not Run(out).finished
    again = [*TORCHRUN, str(count), "-m", "bayeslim", "train", "--resume", "--out", str(out), "--samples", "2"]
    done = subprocess.run(again, capture_output=True, text=True, env=ENVIRONMENT, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("after training") == 1 and f"{count} processes" in done.stdout
    assert equal(Run(out).model(), Run(place / "whole").model())
    assert Run(out).metrics() == Run(place / "whole").metrics()


def wait_for_epochs(job: "subprocess.Popen[str]", history: Path, count: int) -> None:
    deadline = time.monotonic() + 120
    while not history.is_file() or len(history.read_text().splitlines()) < count:
        assert job.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)


def process_of(job: "subprocess.Popen[str]", rank: int) -> int:
    for children in Path(f"/proc/{job.pid}/task").glob("*/children"):
        for child in children.read_text().split():
            if f"\0RANK={rank}\0" in Path(f"/proc/{child}/environ").read_text():
                return int(child)
    raise AssertionError(f"no process of rank {rank}")


def wait_for_end(process: int) -> None:
    """Until a process is a zombie, which its parent has not asked for yet."""
    deadline = time.monotonic() + 60
    while "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
