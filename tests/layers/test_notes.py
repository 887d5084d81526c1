"""What is remembered about a network is nowhere on it, and copies know it where they can."""

import copy
import gc
import pickle
import weakref
from typing import Any

import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim.layers.notes import note_, noted
from bayeslim.likelihoods.base import remembered_likelihood
from bayeslim.surgery import copied


def contents(model: nn.Module) -> list[list[str]]:
    return [list(vars(module)) for module in model.modules() if not isinstance(module, bl.layers.BayesLayer)]


def test_training_leaves_nothing_on_the_modules_of_others() -> None:
    model = nn.Sequential(nn.Flatten(), bl.mlp([3, 2]))
    before, seen = contents(model), [contents(model)]
    bl.fit(
        model,
        (torch.randn(8, 3), torch.arange(8) % 2),
        likelihood=bl.Categorical(),
        epochs=1,
        after_epoch=lambda *_: seen.append(contents(model)),
    )
    assert seen == [before, before] and contents(model) == before
    assert isinstance(remembered_likelihood(model), bl.Categorical)


@pytest.mark.parametrize("copying", [copied, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_know_it_and_parts_do_not(copying: Any) -> None:
    model = nn.Sequential(nn.Flatten(), bl.mlp([3, 4, 2]))
    note_(model, "colour", "red")
    bl.pruning.prune_(model, amount=0.5)
    twin = copying(model)
    assert noted(twin, "colour") == "red" and noted(twin, "size") is None
    assert noted(twin[1], "colour") is None and noted(nn.Sequential(*twin[1][:1]), "colour") is None
    note_(twin, "colour", "blue")
    assert (noted(copying(twin), "colour"), noted(model, "colour")) == ("blue", "red")


def test_our_own_copies_of_a_plain_network_know_it_and_nothing_is_kept_alive() -> None:
    model, value = nn.Linear(2, 2), nn.Linear(1, 1)
    note_(model, "likelihood", value)
    twin = copied(model)
    assert isinstance(noted(twin, "likelihood"), nn.Linear) and noted(twin, "likelihood") is not value
    seen = weakref.ref(value)
    del model, value
    gc.collect()
    assert seen() is None
