"""Pruned weights are exactly zero, in mean, variance and every draw, and stay so."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim.layers import BayesLayer, MultiheadAttention
from bayeslim.masks import Masked, mask_of, unmasked
from bayeslim.posteriors import KTied, MatrixNormal, MeanField, Multiplicative
from bayeslim.priors import ARD, GammaARD, HeNormal, LogUniform, Normal, Prior, ScaleMixture, StudentT
from bayeslim.pruning import (
    LOG_ALPHA,
    MAGNITUDE,
    SIGNAL_TO_NOISE,
    named_sparsity,
    prune_,
    random_like,
    sparsity,
    unprune_,
)
from bayeslim.pruning.prune import bayes_layers, set_masks_

FAMILIES = {
    "MeanField": functools.partial(MeanField, scale=0.2),
    "Multiplicative": functools.partial(Multiplicative, alpha=0.2),
    "KTied": functools.partial(KTied, k=2, scale=0.2),
}


def network(seed: int = 0, **options: object) -> nn.Sequential:
    torch.manual_seed(seed)
    model = bl.mlp([6, 8, 4], method="ard", **options)  # pyright: ignore[reportArgumentType]
    with torch.no_grad():
        for layer in bayes_layers(model).values():
            for name in unmasked(layer.weight).scale_parameters:
                value = unmasked(layer.weight).get_parameter(name)
                value += torch.randn_like(value)
    return model


def masks(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: mask_of(layer.weight).clone() for name, layer in bayes_layers(model).items()}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("estimator", [bl.mean_only, bl.weight_sample, bl.local_reparam, bl.flipout])
def test_pruned_weights_are_zero_in_every_draw(family: str, estimator: object) -> None:
    model = network(posterior=FAMILIES[family], estimator=estimator)
    layer = model[0]
    assert isinstance(layer, BayesLayer)
    prune_(model, MAGNITUDE, amount=0.5)
    dead = mask_of(layer.weight) == 0
    assert 0 < dead.sum() < dead.numel()
    for tensor in (layer.weight.mean(), layer.weight.variance(), layer.weight.rsample()):
        assert torch.equal(tensor[dead], torch.zeros(int(dead.sum())))
        assert (tensor[~dead] != 0).all()
    x = torch.randn(7, 6, requires_grad=True)  # an input whose weights are all dead has no influence
    with torch.no_grad():
        layer.weight.mask[:, 2] = 0  # pyright: ignore[reportIndexIssue]
    model(x).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad[:, 2], torch.zeros(7))


def test_output_variance_of_a_masked_posterior() -> None:
    for family in FAMILIES.values():
        torch.manual_seed(0)
        q = Masked(family(torch.randn(5, 4, dtype=torch.float64)), torch.bernoulli(torch.full((5, 4), 0.5)))
        x = torch.randn(3, 4, dtype=torch.float64)
        expected = x.square() @ q.variance().T
        torch.testing.assert_close(q.output_variance(bl.layers.Linear(4, 5).op, x), expected)


@pytest.mark.parametrize(
    "prior", [Normal(0.1, 0.5), HeNormal(), LogUniform(), ARD(), GammaARD(), StudentT(), ScaleMixture()], ids=repr
)
def test_pruned_weights_take_no_part_in_the_kl(prior: Prior) -> None:
    model = network(prior=prior)
    layer = model[0]
    assert isinstance(layer, BayesLayer)
    terms = layer.prior.kl(layer.weight.mean(), layer.weight.variance())
    prune_(model, amount=0.6, where=lambda name, _: name == "0")
    expected = terms[mask_of(layer.weight) == 1].sum()
    torch.testing.assert_close(layer.kl(), expected)
    layer.kl().backward()
    inside = unmasked(layer.weight)
    for parameter in inside.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
        assert torch.equal(
            parameter.grad[mask_of(layer.weight) == 0], torch.zeros(int((mask_of(layer.weight) == 0).sum()))
        )


def test_thresholds_and_counts() -> None:
    model = network()
    before = {name: LOG_ALPHA.keep(layer.weight, 0.0) for name, layer in bayes_layers(model).items()}
    parts = prune_(model, threshold=0.0)
    for name, layer in bayes_layers(model).items():
        assert torch.equal(mask_of(layer.weight) == 1, before[name])
        assert parts[name] == pytest.approx(1 - before[name].double().mean().item())
    assert named_sparsity(model, threshold=100.0) == pytest.approx(parts)
    assert sparsity(model, 100.0) == pytest.approx(1 - sum(m.sum().item() for m in before.values()) / 80)


def scores(layer: BayesLayer) -> torch.Tensor:
    """Signal-to-noise ratios as if nothing were pruned."""
    inside = unmasked(layer.weight)
    return inside.mean().abs() / inside.variance().sqrt()


@pytest.mark.parametrize("amount", [0.0, 0.25, 0.5, 0.9])
def test_the_amount_is_met_exactly(amount: float) -> None:
    model = network()
    prune_(model, SIGNAL_TO_NOISE, amount=amount, allow_empty=True)
    assert sum((m == 0).sum().item() for m in masks(model).values()) == round(amount * 80)
    found = [(scores(layer), mask_of(layer.weight) == 1) for layer in bayes_layers(model).values()]
    least_kept = min(values[kept].min() for values, kept in found if kept.any())
    assert all((values[~kept] <= least_kept).all() for values, kept in found)
    other = network()
    prune_(other, SIGNAL_TO_NOISE, amount=amount, scope="layer")
    assert {name: (m == 0).sum().item() for name, m in masks(other).items()} == {
        "0": round(amount * 48),
        "2": round(amount * 32),
    }


def test_ties_do_not_change_the_amount() -> None:
    model = bl.bayesianize_(nn.Sequential(nn.Linear(4, 4)))
    with torch.no_grad():
        bayes_layers(model)["0"].weight.loc.fill_(0.5)  # pyright: ignore[reportAttributeAccessIssue,reportCallIssue]
    prune_(model, MAGNITUDE, amount=0.5)
    assert masks(model)["0"].sum() == 8


@pytest.mark.parametrize(("structure", "axis"), [("output", 1), ("input", 0)])
def test_units_go_as_a_whole(structure: str, axis: int) -> None:
    model = network()
    prune_(model, MAGNITUDE, amount=0.5, structure=structure, where=lambda name, _: name == "0")  # pyright: ignore[reportArgumentType]
    mask = masks(model)["0"]
    lines = mask.mean(axis)
    assert set(lines.tolist()) == {0.0, 1.0}
    assert lines.sum() == len(lines) / 2


def test_heads_go_from_all_four_projections() -> None:
    torch.manual_seed(0)
    model = nn.Sequential()
    model.add_module("attention", MultiheadAttention(8, 4, batch_first=True, estimator=bl.mean_only))
    prune_(model, MAGNITUDE, amount=0.5, structure="head")
    found = masks(model)
    rows = found["attention.v_proj"][:, 0]
    assert rows.view(4, 2).mean(1).sort().values.tolist() == [0, 0, 1, 1]
    for part in ("q_proj", "k_proj", "v_proj"):
        assert torch.equal(found[f"attention.{part}"], rows[:, None].expand(8, 8))
    assert torch.equal(found["attention.out_proj"], rows.expand(8, 8))


def test_masks_only_grow_and_unprune_restores() -> None:
    model = network()
    original = copy.deepcopy(model.state_dict())
    prune_(model, MAGNITUDE, amount=0.5)
    first = masks(model)
    prune_(model, threshold=0.0, allow_empty=True)
    assert all((masks(model)[name] <= first[name]).all() for name in first)
    unprune_(model)
    assert model.state_dict().keys() == original.keys()
    assert all(torch.equal(value, original[name]) for name, value in model.state_dict().items())


def test_training_and_saving_keep_the_masks(tmp_path: Path) -> None:
    model = network()
    prune_(model, MAGNITUDE, amount=0.5)
    before = masks(model)
    x, y = torch.randn(40, 6), torch.randint(0, 4, (40,))
    bl.fit(model, (x, y), likelihood=bl.Categorical(), epochs=3, seed=0)
    assert all(torch.equal(mask, before[name]) for name, mask in masks(model).items())
    bl.save(model, tmp_path / "net")
    for loaded in (bl.load(tmp_path / "net"), bl.load(tmp_path / "net", copy.deepcopy(model))):
        assert all(torch.equal(mask, before[name]) for name, mask in masks(loaded).items())
        with bl.using(model, bl.mean_only), bl.using(loaded, bl.mean_only):
            assert torch.equal(model(x), loaded(x))


def test_an_optimiser_goes_on_after_pruning() -> None:
    model = network()
    optimizer = torch.optim.Adam(bl.param_groups(model), lr=0.1)
    prune_(model, MAGNITUDE, amount=0.5)
    weight = unmasked(bayes_layers(model)["0"].weight).get_parameter("loc")
    before, mask = weight.detach().clone(), masks(model)["0"]
    model(torch.randn(5, 6)).square().sum().backward()
    optimizer.step()
    assert torch.equal(weight[mask == 0], before[mask == 0])
    assert (weight[mask == 1] != before[mask == 1]).all()


def test_the_random_control_matches_counts_per_layer() -> None:
    model = network()
    prune_(model, MAGNITUDE, amount=0.7, allow_empty=True)
    control = random_like(model, seed=3)
    for name, mask in masks(model).items():
        other = masks(control)[name]
        assert other.sum() == mask.sum()
        assert not torch.equal(other, mask)
    assert all(
        torch.equal(a, b) for a, b in zip(masks(random_like(model, 3)).values(), masks(control).values(), strict=True)
    )
    of_numpy = masks(random_like(model, np.int64(3)))  # pyright: ignore[reportArgumentType]
    assert all(torch.equal(mask, of_numpy[name]) for name, mask in masks(control).items())


def test_everything_pruned_is_refused_and_changes_nothing() -> None:
    model = network()
    with pytest.raises(ValueError, match="layer '0' would lose all its 48 weights and the network would be constant"):
        prune_(model, MAGNITUDE, threshold=1e6)
    assert not any(isinstance(layer.weight, Masked) for layer in bayes_layers(model).values())
    prune_(model, MAGNITUDE, threshold=1e6, allow_empty=True)
    with bl.using(model, bl.mean_only):
        first, second = model(torch.randn(2, 6))
    assert torch.equal(first, second)


def test_nothing_pruned() -> None:
    model = network()
    assert prune_(model, MAGNITUDE, threshold=0.0) == {"0": 0.0, "2": 0.0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 1.0, "amount": 0.5}, "`threshold` and `amount` exclude each other"),
        ({"amount": 1.0}, r"`amount` must lie in \[0, 1\), got 1.0"),
        ({"amount": -0.1}, r"`amount` must lie in \[0, 1\), got -0.1"),
        ({"amount": "0.5"}, r"`amount` must lie in \[0, 1\), got '0.5': pass e.g. 0.9"),
        ({"threshold": "auto"}, "`threshold` must be a finite float, got 'auto': pass e.g. 3.0"),
        ({"scope": "all"}, "`scope` must be 'global' or 'layer', got 'all'"),
        ({"where": lambda name, layer: False}, "no layer to prune"),
        ({"structure": "head"}, "no layer to prune"),
        ({"threshold": float("nan")}, "`threshold` must be a finite float, got nan"),
    ],
)
def test_arguments_that_make_no_sense(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prune_(network(), **options)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("criterion", "advice"),
    [
        ("magnitude", "'magnitude': did you mean MAGNITUDE"),
        ("signal-to-noise", "did you mean SIGNAL_TO_NOISE"),
        ("?", r"pass e.g. bl.pruning.MAGNITUDE, without quotes"),
        (3.0, "pass threshold=3.0 by name"),
        (None, "pass one of bl.pruning's LOG_ALPHA, MAGNITUDE"),
    ],
)
def test_what_is_no_criterion(criterion: Any, advice: str) -> None:
    model, data = network(), (torch.zeros(4, 6), torch.zeros(4))
    for call in (
        lambda: prune_(model, criterion),
        lambda: bl.prune_curve(model, data, criterion),
        lambda: bl.sparsity(model, criterion=criterion),
    ):
        with pytest.raises(TypeError, match=f"`criterion` must be a Criterion, got .*{advice}"):
            call()
    with pytest.raises(ValueError, match=r"`thresholds` must be a list of floats, got 'auto'"):
        bl.prune_curve(model, data, thresholds="auto")  # pyright: ignore


def test_correlated_posteriors_and_wrong_masks_are_refused() -> None:
    with pytest.raises(TypeError, match="only a factorised posterior can be pruned weight by weight, got MatrixNormal"):
        Masked(MatrixNormal(torch.zeros(3, 2)), torch.ones(3, 2))
    with pytest.raises(ValueError, match=r"`mask` must have the shape of the weight \(3, 2\), got \(2, 3\)"):
        Masked(MeanField(torch.zeros(3, 2)), torch.ones(2, 3))


def test_few_groups_and_a_large_amount_leave_one() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 3, bias=False))
    bl.bayesianize_(model)
    pruned = bl.prune_(model, bl.pruning.MAGNITUDE, amount=0.95, structure="output", allow_empty=True)
    assert sum(round(part * count) for part, count in zip(pruned.values(), (1, 3), strict=True)) == 3


def test_layers_that_share_a_posterior_share_its_mask() -> None:
    torch.manual_seed(0)
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    model = bl.bayesianize_(nn.Sequential(first, nn.ReLU(), second))
    assert bl.prune_(model, MAGNITUDE, amount=0.25) == {"0": 0.25, "2": 0.25}
    for pruned in (model, random_like(model)):
        layer, other = pruned.get_submodule("0"), pruned.get_submodule("2")
        assert isinstance(layer, bl.layers.Linear) and isinstance(other, bl.layers.Linear)
        assert layer.weight is other.weight and mask_of(layer.weight).sum() == 12
        torch.testing.assert_close(bl.kl(pruned), layer.kl())  # once
        assert bl.footprint(pruned).weights == 16
    with torch.no_grad():
        rest = set_masks_(bayes_layers(model), {"0": torch.eye(4), "2": torch.ones(4, 4)}, allow_empty=True)
    assert rest["0"] == rest["2"] >= 0.75


def test_a_layer_left_out_loses_what_one_that_shares_its_weights_loses() -> None:
    torch.manual_seed(0)
    first, second, other = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    model = bl.bayesianize_(nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), other))
    assert bl.prune_(model, MAGNITUDE, amount=0.25, where=lambda name, layer: name == "2") == {"0": 0.25, "2": 0.25}
    masks = [mask_of(layer.weight).sum().item() for layer in bayes_layers(model).values()]
    assert masks == [12, 12, 16]
