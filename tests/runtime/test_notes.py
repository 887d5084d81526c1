"""What is remembered about a network is one attribute of it, which copies have too."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim.likelihoods.base import remembered_likelihood
from bayeslim.runtime.notes import NOTES, note_, noted


def contents(model: nn.Module) -> list[set[str]]:
    return [set(vars(module)) for module in model.modules()]


def test_training_leaves_one_note_and_nothing_else() -> None:
    model = nn.Sequential(nn.Flatten(), bl.mlp([3, 2]))
    before, seen = contents(model), []
    data = torch.randn(8, 3), torch.arange(8) % 2
    bl.fit(model, data, likelihood=bl.Categorical(), epochs=1, after_epoch=lambda *_: seen.append(contents(model)))
    for found in (*seen, contents(model)):
        assert found[0] - {NOTES} == before[0] and found[1:] == before[1:]
    assert isinstance(remembered_likelihood(model), bl.Categorical)


@pytest.mark.parametrize("copying", [copy.copy, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_know_it_and_go_their_own_way(copying: Any) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    note_(model, "colour", "red")
    twin = copying(model)
    assert noted(twin, "colour") == "red" and noted(twin, "size") is None and noted(twin[0], "colour") is None
    note_(twin, "colour", "blue")
    assert (noted(twin, "colour"), noted(model, "colour")) == ("blue", "red")
    assert list(model.state_dict()) == ["0.weight", "0.bias"]
