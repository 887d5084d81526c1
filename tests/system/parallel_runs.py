"""Training runs for several processes; `torchrun parallel_runs.py FOLDER` keeps what each rank saw of every one.

The same functions give the single-process results when they are called outside torchrun.
"""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import bayeslim as bl
from bayeslim.cli import main
from bayeslim.likelihoods import Gaussian
from bayeslim.optim import SGHMC, SGLD, CVAdam, SpikeAndSlab
from bayeslim.training.ranks import join

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
from training.problems import blobs, line, small, state

ROWS = 49
"""With batches of 16 the last one has a single row, which leaves other ranks none."""
CLI = ["train", "--data", "moons", "--rows", "300", "--epochs", "30", "--samples", "2", "--device", "cpu"]


def options(**own: Any) -> dict[str, Any]:
    return {"epochs": 4, "batch_size": 16, "seed": 5, "lr": 0.01, "progress": False} | own


def everything(folder: Path) -> dict[str, Any]:
    """All phases, a likelihood with a parameter, validation and patience; the ranks begin with other weights."""
    model, likelihood = small(seed=join().index, outputs=2, method="graves"), Gaussian(learn_noise=True)
    history = bl.fit(
        model,
        line(51),  # the last batch has three rows: parts of one and two
        likelihood=likelihood,
        shared_noise=True,
        pretrain_epochs=2,
        kl_schedule=bl.schedules.warmup_linear(1, 2),
        validation=line(10, seed=1),
        validation_samples=3,
        patience=4,
        accumulate=2,
        clip_norm=1.0,
        **options(epochs=7),
    )
    return {"state": state(model) | state(likelihood), "history": history.records}


def gradient(folder: Path, rows: int = 13) -> dict[str, Any]:
    """One step of size 1 on one batch, each rank with noise of its own: the state is the gradient's negative."""
    model = small(method="graves")
    before = state(model)
    sgd = partial(torch.optim.SGD, lr=1.0)
    bl.fit(model, blobs(rows), likelihood=bl.Categorical(), optimizer=sgd, **options(epochs=1))
    return {"state": {name: before[name] - value for name, value in state(model).items()}}


def dataset(folder: Path) -> dict[str, Any]:
    model = small(method="graves")
    bl.fit(model, TensorDataset(*blobs(ROWS)), likelihood=bl.Categorical(), shared_noise=True, **options())
    return {"state": state(model)}


def loader(folder: Path) -> dict[str, Any]:
    """A loader of the user's own: without shuffling, the batches of two ranks hold the same rows as one of both."""
    model, data, count = small(method="graves"), TensorDataset(*blobs(48)), join().count
    sampler = DistributedSampler(data, shuffle=False) if count > 1 else None
    own = DataLoader(data, 16 // count, sampler=sampler)
    bl.fit(model, own, likelihood=bl.Categorical(), shared_noise=True, **options())
    return {"state": state(model), "epoch": getattr(sampler, "epoch", None)}


def sampler(folder: Path, kind: Callable[..., torch.optim.Optimizer]) -> dict[str, Any]:
    """Sampler and masks on a plain network."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 3))
    pruner = SpikeAndSlab(model, warm_up=1, hard_threshold=0.1, soft_threshold=0.2)
    bl.fit(
        model,
        blobs(ROWS),
        likelihood=bl.Categorical(),
        optimizer=lambda groups: pruner.attach(kind(groups, num_data=ROWS, lr=0.01)),
        after_epoch=pruner.after_epoch,
        **options(),
    )
    return {"state": state(model) | pruner.masks(), "sparsity": pruner.sparsity()}


def statistics(folder: Path) -> dict[str, Any]:
    """Batch statistics and dropout differ between ranks while they train."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 3))
    bl.bayesianize_(model, estimator=bl.local_reparam)
    bl.fit(model, blobs(48), likelihood=bl.Categorical(), **options())
    return {"state": state(model)}


def apart(folder: Path) -> dict[str, Any]:
    seeded = partial(SGLD, num_data=48, lr=0.01, seed=join().index)
    return refused(lambda: bl.fit(small(), blobs(), likelihood=bl.Categorical(), optimizer=seeded, **options()))


def not_distributed(folder: Path) -> dict[str, Any]:
    own = DataLoader(TensorDataset(*blobs()), 16, shuffle=True)
    return refused(lambda: bl.fit(small(), own, likelihood=bl.Categorical(), **options()))


def of_another_rank(folder: Path) -> dict[str, Any]:
    data = TensorDataset(*blobs())
    own = DataLoader(data, 16, sampler=DistributedSampler(data, num_replicas=9, rank=7))
    return refused(lambda: bl.fit(small(), own, likelihood=bl.Categorical(), **options()))


def resumed(folder: Path) -> dict[str, Any]:
    """Two epochs, then two more by a network that begins elsewhere; only rank 0 writes, and nobody overwrites."""
    own, model = folder / f"run-{join().index}", small(seed=1, method="graves")
    fit = partial(bl.fit, data=blobs(ROWS), likelihood=bl.Categorical(), shared_noise=True)
    fit(small(method="graves"), checkpoint=folder / "run", **options(epochs=2))
    again = refused(lambda: fit(small(), checkpoint=folder / "run", **options()))
    fit(model, checkpoint=folder / "run", resume=True, **options())
    fit(small(), checkpoint=own, **options(epochs=1))
    whole = small(method="graves")
    fit(whole, **options())
    return {"state": state(model), "whole": state(whole), "own": own.exists()} | again


def stopped(folder: Path) -> dict[str, Any]:
    """The last rank alone gets a signal, in its fifth step."""
    steps: list[int] = []

    def schedule(progress: bl.schedules.Progress) -> float:
        steps.append(progress.step)
        if progress.step == 4 and join().index == join().count - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return 1.0

    model = small()
    try:
        bl.fit(model, blobs(48), likelihood=bl.Categorical(), lr_schedule=schedule, **options(epochs=9))
    except SystemExit as stop:
        return {"steps": steps, "code": stop.code, "state": state(model)}
    return {}


def command(folder: Path) -> dict[str, Any]:
    return {"code": main([*CLI, "--out", str(folder / "whole")])}


def refused(attempt: Callable[[], object]) -> dict[str, Any]:
    try:
        attempt()
    except (ValueError, RuntimeError, OSError) as error:
        return {"kind": type(error).__name__, "message": str(error)}
    return {}


RUNS: Mapping[str, Callable[[Path], dict[str, Any]]] = {
    "everything": everything,
    "gradient": gradient,
    "dataset": dataset,
    "loader": loader,
    "CVAdam": partial(sampler, kind=CVAdam),
    "SGLD": partial(sampler, kind=SGLD),
    "SGHMC": partial(sampler, kind=SGHMC),
    "statistics": statistics,
    "apart": apart,
    "not_distributed": not_distributed,
    "of_another_rank": of_another_rank,
    "resumed": resumed,
    "stopped": stopped,
    "command": command,
}

if __name__ == "__main__":
    place = Path(sys.argv[1])
    torch.save({name: run(place) for name, run in RUNS.items()}, place / f"rank-{join().index}.pt")
