"""Weight decay and what sets a spread: groups of other libraries are mended, optimisers that decay it warned of."""

from __future__ import annotations

import copy
import functools
import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.optimizer import _global_optimizer_pre_hooks  # pyright: ignore[reportPrivateUsage]

import bayeslim as bl
from bayeslim.likelihoods import Gaussian
from bayeslim.optim import scale_decay
from bayeslim.optim.scale_decay import LOOKS, never_decayed
from contracts.members import POSTERIORS
from optim.test_param_groups import mixed

DATA = torch.randn(8, 5), torch.randint(4, (8,))
WARNING = r"decays spreads of the network \(2 parameters in all, e\.g\. '1\.weight\.log_scale'\).*\(model, groups\)"


@pytest.fixture(autouse=True)
def nothing_waits() -> None:
    """Forget the networks of other tests whose loss was computed but never minimised."""
    scale_decay._waiting.clear()
    for hooks in (scale_decay._hooks, scale_decay.DONE):
        while hooks:
            hooks.pop().remove()


def of_a_trainer(model: nn.Module, decay: float = 0.5) -> list[dict[str, Any]]:
    """Groups as other libraries make them: what is not called a bias or a norm decays."""
    named = list(model.named_parameters())
    plain = [parameter for name, parameter in named if "bias" in name or "norm" in name]
    rest = [parameter for name, parameter in named if not ("bias" in name or "norm" in name)]
    return [
        {"params": rest, "weight_decay": decay, "lr": 0.1, "betas": (0.8, 0.9)},
        {"params": plain, "weight_decay": 0.0, "lr": 0.2},
    ]


def names(model: nn.Module, group: dict[str, Any]) -> list[str]:
    known = {id(parameter): name for name, parameter in model.named_parameters()}
    return [known[id(parameter)] for parameter in group["params"]]


def test_spreads_leave_groups_that_decay_and_all_else_stays() -> None:
    model = nn.ModuleList([mixed(), Gaussian(learn_noise=True)])
    given = of_a_trainer(model)
    members = [list(group["params"]) for group in given]
    groups = bl.param_groups(model, given)
    spreads = ["0.2.weight.log_scale", "0.2.prior.log_std", "0.2.prior.shift", "1.log_noise"]
    assert [names(model, group) for group in groups] == [
        ["0.0.weight", "0.1.weight", "0.2.weight.loc", "0.3.weight"],
        spreads,
        ["0.0.bias", "0.1.bias", "0.2.bias.loc", "0.2.bias.log_scale", "0.3.bias"],
    ]
    options = [{key: value for key, value in group.items() if key != "params"} for group in groups]
    assert options == [
        {"weight_decay": 0.5, "lr": 0.1, "betas": (0.8, 0.9)},
        {"weight_decay": 0.0, "lr": 0.1, "betas": (0.8, 0.9)},
        {"weight_decay": 0.0, "lr": 0.2},
    ]
    assert [[id(p) for p in group["params"]] for group in given] == [[id(p) for p in old] for old in members]


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_scales_of_every_posterior(posterior: str) -> None:
    layer = bl.layers.Linear(3, 4, posterior=POSTERIORS[posterior])
    kept, spared = bl.param_groups(layer, [{"params": layer.parameters()}])
    assert names(layer, kept) == ["bias", "weight.loc"]
    assert names(layer, spared) == [f"weight.{name}" for name in layer.weight.scale_parameters]
    assert spared["weight_decay"] == 0.0 and "weight_decay" not in kept  # of which AdamW has a default


@pytest.mark.parametrize(
    "optimizer",
    [
        functools.partial(torch.optim.AdamW, weight_decay=0.5),
        functools.partial(torch.optim.Adam, weight_decay=0.5, decoupled_weight_decay=True),
        functools.partial(torch.optim.SGD, weight_decay=0.5),
    ],
)
@pytest.mark.parametrize("of_optimizer", [False, True])
def test_a_step_moves_no_spread(optimizer: Callable[..., torch.optim.Optimizer], of_optimizer: bool) -> None:
    """Without a gradient only decay moves a parameter; groups may be those of an optimiser, which goes on with them."""
    model = mixed()
    before = copy.deepcopy(model.state_dict())
    if of_optimizer:
        chosen = optimizer(model.parameters(), lr=0.1)
        chosen.param_groups = bl.param_groups(model, chosen.param_groups)
    else:
        chosen = optimizer(bl.param_groups(model, [{"params": list(model.parameters())}]), lr=0.1)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    chosen.step()
    spreads = {*never_decayed(model).values()}
    for name, value in model.named_parameters():
        expected = before[name] if name in spreads else before[name] * 0.95
        torch.testing.assert_close(value.detach(), expected, rtol=1e-6, atol=0)
    assert len(spreads) == 4


def test_frozen_and_unknown_tensors_pairs_and_single_tensors() -> None:
    model = nn.Sequential(bl.layers.Linear(2, 2), bl.layers.Linear(2, 2))
    scales = [model.get_parameter(f"{layer}.weight.log_scale") for layer in "01"]
    scales[0].requires_grad_(False)
    other = nn.Parameter(torch.zeros(2))
    groups = bl.param_groups(model, [{"params": [*scales, other], "lr": 1.0}])
    assert [[id(p) for p in group["params"]] for group in groups] == [[id(scales[0]), id(other)], [id(scales[1])]]
    pairs = list(model.named_parameters())
    kept, spared = bl.param_groups(model, [{"params": pairs}])
    assert [name for name, _ in spared["params"]] == ["1.weight.log_scale"]
    assert len(kept["params"]) == len(pairs) - 1
    torch.optim.AdamW([kept, spared])
    assert bl.param_groups(model, [{"params": scales[1]}]) == [{"params": [scales[1]], "weight_decay": 0.0}]
    assert bl.param_groups(model, [{"params": []}, {"params": [scales[1]], "weight_decay": 0}]) == [
        {"params": []},
        {"params": [scales[1]], "weight_decay": 0},
    ]


def test_options_beside_groups_and_what_is_no_group_are_refused() -> None:
    model = mixed()
    for option in ({"lr": 0.1}, {"scale_lr": 0.1}, {"weight_decay": 0.1}):
        with pytest.raises(ValueError, match=rf"`{next(iter(option))}` is an option of each group"):
            bl.param_groups(model, [], **option)
    for groups in (list(model.parameters()), [{"lr": 0.1}]):
        with pytest.raises(TypeError, match="`groups` must hold groups of parameters, got"):
            bl.param_groups(model, groups)  # pyright: ignore[reportArgumentType]


def bayesian() -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 3), bl.layers.Linear(3, 4), nn.ReLU(), bl.layers.Linear(4, 4))


def trained(model: nn.Module, *optimizers: torch.optim.Optimizer, steps: int = 1) -> list[warnings.WarningMessage]:
    """The warnings of a training loop of one's own."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(steps):
            bl.nelbo(model, *DATA, likelihood=bl.Categorical(), num_data=8).loss.backward()
            for optimizer in optimizers:
                optimizer.step()
    return caught


def adamw(model: nn.Module, decay: float = 0.1) -> torch.optim.Optimizer:
    return torch.optim.AdamW(of_a_trainer(model, decay))


def test_fit_warns_once_and_where_it_was_called() -> None:
    model = bayesian()
    with pytest.warns(UserWarning, match=f"AdamW {WARNING}") as caught:
        bl.fit(model, DATA, likelihood=bl.Categorical(), epochs=3, optimizer=lambda _: adamw(model), seed=0)
    assert len(caught) == 1 and caught[0].filename == __file__


def test_fit_warns_of_a_likelihoods_noise() -> None:
    model, likelihood = nn.Linear(5, 1), Gaussian(learn_noise=True)
    every = [*model.parameters(), *likelihood.parameters()]
    with pytest.warns(UserWarning, match=r"SGD decays .* e\.g\. 'log_noise'\)"):
        bl.fit(
            model,
            (DATA[0], torch.randn(8, 1)),
            likelihood=likelihood,
            epochs=1,
            optimizer=lambda _: torch.optim.SGD(every, lr=0.01, weight_decay=0.1),
        )


def test_fit_with_its_own_groups_is_silent() -> None:
    decays = functools.partial(torch.optim.AdamW, weight_decay=0.1)
    bl.fit(bayesian(), DATA, likelihood=bl.Categorical(), epochs=1, optimizer=decays, seed=0)


def test_a_loop_with_nelbo_is_warned_once_at_the_step_and_leaves_no_hook() -> None:
    """The optimiser of another network, which steps first, is not taken for the one that is waited for."""
    model, other = bayesian(), nn.Linear(2, 2)
    (warning,) = trained(model, torch.optim.AdamW(other.parameters()), adamw(model), steps=3)
    assert warning.filename == __file__ and "AdamW decays spreads" in str(warning.message)
    assert not _global_optimizer_pre_hooks


def test_a_network_that_is_wrapped_anew_for_every_loss_is_warned_of_once() -> None:
    model = bayesian()
    optimizer = adamw(model)
    assert [len(trained(nn.Sequential(model), optimizer)) for _ in range(3)] == [1, 0, 0]
    assert not _global_optimizer_pre_hooks


def test_a_loop_with_nelbo_and_mended_groups_is_silent_and_leaves_no_hook() -> None:
    model = bayesian()
    good = torch.optim.AdamW(bl.param_groups(model, of_a_trainer(model)))
    assert not trained(model, good, steps=2)
    assert not trained(model, adamw(model), steps=2)  # it has been looked at: no step is watched for ever
    assert not _global_optimizer_pre_hooks


def test_what_is_scored_or_never_minimised_is_not_waited_for_ever() -> None:
    model, other = bayesian(), nn.Linear(2, 2)
    with torch.no_grad():
        bl.nelbo(model, *DATA, likelihood=bl.Categorical(), num_data=8)
    assert not _global_optimizer_pre_hooks
    assert not trained(model, *[torch.optim.AdamW(other.parameters())] * LOOKS)
    assert not trained(model) and not _global_optimizer_pre_hooks
    trained(gone := bayesian())
    del gone
    gc.collect()
    for _ in range(2):  # a step finds that nobody waits, and the next loss takes the hook away
        trained(model, torch.optim.AdamW(other.parameters()))
    assert not _global_optimizer_pre_hooks


def test_a_warning_that_is_an_error_comes_once_and_before_the_step() -> None:
    model = bayesian()
    before = copy.deepcopy(model.state_dict())
    optimizer = adamw(model)
    loss = functools.partial(bl.nelbo, model, *DATA, likelihood=bl.Categorical(), num_data=8)
    loss().loss.backward()
    with pytest.raises(UserWarning, match=WARNING):
        optimizer.step()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    optimizer.step()
    loss()
    assert not _global_optimizer_pre_hooks
