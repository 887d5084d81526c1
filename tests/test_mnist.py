"""Sparse variational dropout on the real MNIST, end to end."""

import os
from pathlib import Path

import pytest
import torch

import bayeslim as bl

NEIGHBOUR = Path(__file__).parent.parent.parent / "shared" / "data"


def mnist_folder() -> Path:
    """Where MNIST lies: $BAYESLIM_DATA, or a data folder beside the checkout."""
    for folder in (Path(os.environ.get("BAYESLIM_DATA", NEIGHBOUR)), NEIGHBOUR):
        if (folder / "mnist").is_dir():
            return folder
    pytest.skip("MNIST was not found: set BAYESLIM_DATA to a folder that holds mnist/")


@pytest.mark.slow
def test_lenet_300_100_is_accurate_and_sparse_after_20_epochs() -> None:
    folder = mnist_folder()
    train, test = bl.data.mnist("train", root=folder), bl.data.mnist("test", root=folder)
    centre = train.x.mean(0)
    torch.manual_seed(0)
    model = bl.bayesianize_(bl.models.lenet_300_100(), prior=bl.priors.LogUniform())
    bl.fit(
        model,
        (train.x - centre, train.y),
        likelihood=bl.Categorical(),
        epochs=20,
        kl_schedule=bl.schedules.warmup_linear(2, 8),
        lr_schedule=bl.schedules.constant_then_linear(0.3),
        seed=0,
    )
    data = (test.x - centre, test.y)
    assert bl.evaluate(model, data, samples=0)["accuracy"] > 0.975
    assert bl.evaluate(model, data, samples=50)["accuracy"] > 0.975
    assert bl.sparsity(model) > 0.9
