"""Networks and settings that `fit_many` refuses, and how it says so."""

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import bayeslim as bl
from bayeslim.priors import GammaARD
from bayeslim.schedules import constant
from bayeslim.training.many import fit_many
from bayeslim.training.stack import check_alike
from training.problems import blobs, equal, small, state
from training.stacks import SETTINGS, plain


def gamma(a: float) -> nn.Module:
    return bl.mlp([3, 4, 3], method="gamma", prior=GammaARD(a=a))


def pruned() -> nn.Module:
    model = small()
    bl.prune_(model, amount=0.5)
    return model


def sampling() -> nn.Module:
    return bl.mlp([3, 8, 3], estimator=bl.weight_sample)


def frozen() -> nn.Module:
    model = small()
    model.get_parameter("0.bias").requires_grad_(False)
    return model


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (small(), bl.mlp([3, 9, 3]), r"0\.bias is trained \(8,\) .* in models\[0\] but trained \(9,\)"),
        (
            small(),
            small(method="molchanov"),
            r"the type of 0\.prior is ARD in models\[0\] but LogUniform in models\[1\]",
        ),
        (gamma(0.51), gamma(0.6), r"0\.prior\.a is 0\.51 in models\[0\] but 0\.6"),
        (small(), small().double(), r"0\.bias is .*float32 on cpu in models\[0\] but .*float64"),
        (small(), pruned(), r"the type of 0\.weight is MeanField in models\[0\] but Masked"),
        (small(), frozen(), r"0\.bias is trained .* in models\[0\] but fixed"),
        (small(), sampling(), r"0\.estimator is local_reparam in models\[0\] but weight_sample"),
        (nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3)), "the type of the network is Linear"),
        (nn.Linear(3, 3), nn.Linear(3, 3, bias=False), r"bias is .* in models\[0\] but absent"),
    ],
)
def test_networks_that_differ_are_refused(first: nn.Module, second: nn.Module, message: str) -> None:
    with pytest.raises(ValueError, match=f"`models` must be of one architecture: {message}"):
        check_alike([first, second])
    with pytest.raises(ValueError, match="one architecture"):
        fit_many([first, second], blobs(), **SETTINGS)


def test_values_may_differ() -> None:
    check_alike([small(0), small(1)])


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"epochs": 0}, ValueError, "`epochs` must be a positive integer, got 0"),
        ({"batch_size": 0}, ValueError, "`batch_size` must be a positive integer, got 0"),
        ({"pretrain_epochs": 4}, ValueError, r"`pretrain_epochs` must lie in \[0, epochs=3\], got 4"),
        ({"lr": [1e-3]}, ValueError, "`lr` has 1 values for 2 networks: pass one for all or one for each"),
        ({"lr": -1.0}, ValueError, "`lr` must be finite and not negative, got -1.0"),
        ({"kl_weight": [1.0, math.nan]}, ValueError, "`kl_weight` must be finite and not negative, got nan"),
        ({"kl_schedule": constant(-1.0)}, ValueError, "`kl_schedule` gave -1.0: it must be finite and not negative"),
        ({"lr_schedule": constant(math.inf)}, ValueError, "`lr_schedule` gave inf"),
        ({"kl_schedule": [constant()] * 3}, ValueError, "`kl_schedule` has 3 values for 2 networks"),
        ({"seeds": [0]}, ValueError, "`seeds` has 1 values for 2 networks"),
        ({"seeds": [0, -1]}, ValueError, "`seed` must be an integer"),
        ({"data": TensorDataset(*blobs())}, TypeError, "`data` must be .x, y., .* got TensorDataset: use bl.fit"),
        ({"data": (torch.zeros(4, 3), torch.zeros(5).long())}, ValueError, "4 inputs and 5 targets"),
        ({"models": []}, ValueError, "`models` is empty: pass at least one network"),
        ({"models": [small()] * 2}, ValueError, "`models` share parameters: build each network anew"),
        ({"models": [small().requires_grad_(False)]}, ValueError, "there is nothing to train"),
    ],
)
def test_bad_arguments_are_refused(options: dict[str, Any], kind: type[Exception], message: str) -> None:
    models = [small(0), small(1)]
    before = [state(model) for model in models]
    arguments: dict[str, Any] = {"models": models, "data": blobs()} | SETTINGS | options
    with pytest.raises(kind, match=message):
        fit_many(**arguments)
    assert all(equal(model, start) for model, start in zip(models, before, strict=True))


@pytest.mark.parametrize("name", ["kl_schedule", "lr_schedule"])
def test_a_number_is_no_schedule(name: str) -> None:
    wrong: dict[str, Any] = {name: 0.3}
    with pytest.raises(TypeError, match=rf"`{name}` must be a schedule, got 0\.3: pass e\.g\. bl\.schedules\.constant"):
        fit_many([plain(0)], blobs(43), **SETTINGS | wrong)
