"""Sparse variational dropout and moments on the real MNIST, end to end."""

import itertools
import os
from pathlib import Path

import pytest
import torch

import bayeslim as bl
from bayeslim.optim.groups import Group
from bayeslim.optim.spike_slab import SpikeAndSlab

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


@pytest.mark.slow
@pytest.mark.parametrize("group", ["kernel", "weight"])
def test_lenet_5_keeps_its_accuracy_beside_the_default_pruning_of_cnns(group: Group) -> None:
    """A quarter of the weights and more goes by single weights, no layer for the most part."""
    folder = mnist_folder()
    train, test = bl.data.mnist("train", root=folder), bl.data.mnist("test", root=folder)
    torch.manual_seed(0)
    model = bl.models.lenet5_caffe()
    pruner = SpikeAndSlab(model, group=group, warm_up=1)
    bl.fit(
        model,
        (train.x.view(-1, 1, 28, 28), train.y),
        likelihood=bl.Categorical(),
        epochs=4,
        batch_size=128,
        optimizer=lambda groups: pruner.attach(torch.optim.SGD(groups, lr=0.05, momentum=0.9, weight_decay=5e-4)),
        lr_schedule=bl.schedules.cosine_cycles(1),
        after_epoch=pruner.after_epoch,
        seed=0,
    )
    assert bl.evaluate(model, (test.x.view(-1, 1, 28, 28), test.y), samples=0)["accuracy"] > 0.985
    assert all(mask.mean() >= 0.5 for mask in pruner.masks().values())
    assert pruner.sparsity() > (0.25 if group == "weight" else -1)


@pytest.mark.slow
def test_a_vision_transformer_trains_by_moments_through_every_block() -> None:
    folder = mnist_folder()
    train, test = bl.data.mnist("train", root=folder), bl.data.mnist("test", root=folder)
    torch.manual_seed(0)
    model = bl.models.vit_small()
    bl.bayesianize_(model, posterior=bl.posteriors.fan_in_mean_field, estimator=bl.moments)
    bl.fit(
        model,
        (train.x[:6000], train.y[:6000]),
        likelihood=bl.Categorical(),
        epochs=6,
        batch_size=64,
        kl_schedule=bl.schedules.constant(0.1),
        seed=0,
    )
    assert bl.evaluate(model, (test.x[:1000], test.y[:1000]), method="moments")["accuracy"] > 0.85
    variances: list[float] = []
    for layer in model.layers:
        layer.register_forward_hook(lambda module, inputs, output: variances.append(output.variance.mean().item()))
    bl.predict(model, test.x[:100], method="moments")
    assert len(variances) == 6
    assert all(after > 1.05 * before for before, after in itertools.pairwise(variances))
