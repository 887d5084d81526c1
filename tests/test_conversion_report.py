"""What stayed plain is said: by a warning when a network is converted, and by a report at any time."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import bayeslim as bl
from bayeslim import models


class StandardConv(nn.Conv2d):
    """Standardises its weight in its forward, as those of BiT and NF-ResNets do."""


class Transposed(nn.Module):
    """A linear layer with its weight the other way round, as that of GPT-2."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(4, 6)), nn.Parameter(torch.zeros(6))


class Experts(nn.Module):
    """Experts in stacked parameters, as those of Mixtral; the activation is a module too."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_up_proj, self.down_proj = nn.Parameter(torch.ones(2, 6, 4)), nn.Parameter(torch.ones(2, 4, 3))
        self.act_fn = nn.SiLU()


class Positions(nn.Module):
    """Positions in a module of their own."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.pe = nn.Parameter(torch.zeros(shape))


class Carrying(nn.Module):
    """A network with everything bare that networks carry beside their layers."""

    def __init__(self) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, 4))
        self.pos_embed = nn.Parameter(torch.zeros(1, 5, 4))
        self.projection = nn.Parameter(torch.zeros(4, 3))
        self.grid = nn.Module()
        self.grid.relative_position_bias_table = nn.Parameter(torch.zeros(9, 2))
        self.mixer = nn.Sequential(nn.Linear(4, 4))
        self.mixer.register_parameter("A_log", nn.Parameter(torch.zeros(4, 2)))
        self.places = nn.Sequential(Positions(5, 4), Positions(1, 5, 4), Positions(5, 1, 4))
        self.norms = nn.Sequential(nn.LayerNorm([5, 4]), nn.BatchNorm1d(4), nn.GroupNorm(2, 4))
        self.gain = nn.Module()
        self.gain.weight = nn.Parameter(torch.ones(4, 1, 1))


def converted(model: nn.Module, **options: Any) -> list[warnings.WarningMessage]:
    """The warnings of a conversion."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bl.bayesianize_(model, **options)
    return caught


def holder() -> nn.ModuleDict:
    """Layers of three kinds that cannot be converted, two of one kind, beside one that can."""
    return nn.ModuleDict(
        {
            "conv": StandardConv(2, 3, 2),
            "block": nn.Sequential(Transposed(), Transposed()),
            "mlp": nn.ModuleDict({"gate": nn.Linear(4, 2), "experts": Experts()}),
        }
    )


def test_one_warning_names_share_types_counts_and_first_paths_where_the_user_called() -> None:
    """8 of 8 + 24 + 2 * 24 + 72 weights become Bayesian."""
    (warning,) = converted(holder())
    message = str(warning.message)
    assert warning.category is UserWarning and warning.filename == __file__
    assert message.startswith(f"{8 / 152:.1%} of the weights")
    listed = "StandardConv (1, e.g. 'conv'), Transposed (2, e.g. 'block.0'), Experts (1, e.g. 'mlp.experts')."
    assert listed in message and "bl.conversion_report(model)" in message and "`where`" in message


def test_layers_under_other_names_are_found_in_leaves_and_as_stacks_in_blocks() -> None:
    class Dense(nn.Module):
        """Written by hand."""

        def __init__(self) -> None:
            super().__init__()
            self.kernel = nn.Parameter(torch.ones(3, 4))

    class Mixture(nn.Module):
        """Experts beside a router in one module, and a matrix that may be anything."""

        def __init__(self) -> None:
            super().__init__()
            self.router, self.w1 = nn.Linear(4, 2), nn.Parameter(torch.ones(2, 4, 4))
            self.memory = nn.Parameter(torch.ones(3, 4))

    (warning,) = converted(nn.Sequential(Dense(), Mixture()))
    assert "Dense (1, e.g. '0'), Mixture (1, e.g. '1')" in str(warning.message)


@pytest.mark.parametrize(
    "where",
    [
        lambda name, module: name == "mlp.gate",
        lambda name, module: isinstance(module, nn.Linear),
        lambda name, module: not name.startswith(("conv", "block", "mlp.experts")),
    ],
)
def test_layers_that_where_excludes_are_not_warned_of(where: Callable[[str, nn.Module], bool]) -> None:
    assert not converted(holder(), where=where)


def test_a_where_that_reads_what_other_layers_have_still_works() -> None:
    (warning,) = converted(holder(), where=lambda name, module: getattr(module, "in_features") == 4)  # noqa: B009
    assert "Experts (1, e.g. 'mlp.experts')" in str(warning.message)


def test_what_is_frozen_or_bare_or_a_norm_is_not_warned_of() -> None:
    """Frozen: sinusoidal positions in a subclass of nn.Embedding, as some libraries have them."""

    class Sinusoidal(nn.Embedding):
        """Positions that do not learn."""

    network = Carrying()
    network.sinusoidal = Sinusoidal(5, 4).requires_grad_(False)
    assert not converted(network)
    rows = {row.path: row for row in bl.conversion_report(network).rows}
    bare = {"": 4 + 20 + 12, "grid": 18, "mixer": 8, "places.0": 20, "places.1": 20, "places.2": 20, "gain": 4}
    assert {path: row.weights for path, row in rows.items() if row.why.startswith("bare")} == bare
    assert rows.keys() - bare.keys() == {"mixer.0", "sinusoidal"}
    assert rows["sinusoidal"].why == "frozen" and rows["mixer.0"].state == "Bayesian"


def test_the_report_before_and_after() -> None:
    network = holder()
    before = bl.conversion_report(network)
    assert before.share == 0
    assert [(row.path, row.kind, row.weights, row.state) for row in before.rows] == [
        ("conv", "StandardConv", 24, "plain"),
        ("block.0", "Transposed", 24, "plain"),
        ("block.1", "Transposed", 24, "plain"),
        ("mlp.gate", "Linear", 8, "plain"),
        ("mlp.experts", "Experts", 72, "plain"),
    ]
    converted(network)
    after = bl.conversion_report(network)
    assert after.share == 8 / 152
    assert [row.state for row in after.rows] == ["plain", "plain", "plain", "Bayesian", "plain"]
    assert [row.why for row in after.rows] == [
        "a subclass of nn.Conv2d, whose forward may do anything",
        "no Bayesian counterpart",
        "no Bayesian counterpart",
        "",
        "no Bayesian counterpart",
    ]
    lines = str(after).splitlines()
    assert len(lines) == 7 and lines[0].split() == ["layer", "type", "weights", "state", "why"]
    assert lines[4].split() == ["mlp.gate", "Linear", "8", "Bayesian"]
    assert lines[-1] == "5.3% of 152 weights have a posterior"


def test_tied_weights_count_once() -> None:
    table, head = nn.Embedding(5, 3), nn.Linear(3, 5)
    head.weight = table.weight
    network = nn.Sequential(table, head, nn.Linear(5, 3))
    for convert in (lambda: None, lambda: bl.bayesianize_(network, where=lambda name, module: name != "2")):
        convert()
        assert [row.weights for row in bl.conversion_report(network).rows] == [15, 0, 15]
    assert bl.conversion_report(network).share == 0.5


def test_attention_is_one_row_until_it_is_converted() -> None:
    """Its output projection is of a type of its own, which must not be warned of where attention is left out."""
    network = nn.TransformerEncoderLayer(4, 2, 8)
    assert next((row.path, row.weights) for row in bl.conversion_report(network).rows) == ("self_attn", 64)
    assert not converted(network, where=lambda name, module: isinstance(module, nn.Linear))
    report = bl.conversion_report(network)
    assert [(row.path, row.state) for row in report.rows] == [
        ("self_attn", "plain"),
        ("linear1", "Bayesian"),
        ("linear2", "Bayesian"),
    ]
    assert report.share == 0.5
    assert not converted(network)
    rows = bl.conversion_report(network).rows
    assert [row.weights for row in rows] == [16, 16, 16, 16, 32, 32] and {row.state for row in rows} == {"Bayesian"}


def test_computed_weights_are_rows_of_their_layers() -> None:
    network = nn.Sequential(parametrizations.weight_norm(nn.Linear(3, 3)), nn.Linear(3, 3))
    assert not converted(network, where=lambda name, module: name == "1")
    assert [(row.path, row.kind) for row in bl.conversion_report(network).rows] == [("0", "Linear"), ("1", "Linear")]


def test_networks_without_weights_or_shapes() -> None:
    assert bl.conversion_report(nn.ReLU()).share == 0
    with pytest.raises(ValueError, match=r"0\.weight has no shape yet"):
        bl.conversion_report(nn.Sequential(nn.LazyLinear(3)))
    with pytest.raises(TypeError, match="`model` must be a network"):
        bl.conversion_report({"weight": Tensor()})  # pyright: ignore[reportArgumentType]


def test_names_are_shown_and_not_obeyed() -> None:
    network = nn.Sequential()
    network.add_module("\x1b[31m", StandardConv(2, 3, 2))
    network.add_module("head", nn.Linear(2, 2))
    (warning,) = converted(network)
    assert "\x1b" not in str(warning.message) + str(bl.conversion_report(network))


ARGUMENTS: dict[str, tuple[Any, ...]] = {"mlp": ([4, 8, 2],), "TransformerClassifier": (50,)}


@pytest.mark.parametrize("name", sorted(set(models.__all__) - {"ACTIVATIONS"}))
def test_our_own_networks_convert_without_a_warning(name: str) -> None:
    with torch.device("meta"):
        network = getattr(models, name)(*ARGUMENTS.get(name, ()))
    assert not converted(network)
    assert bl.conversion_report(network).share > 0.95
