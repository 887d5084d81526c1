"""Costs against counting by hand."""

import copy
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import bayeslim as bl
from bayeslim.masks import Masked
from bayeslim.pruning.compact import compact
from bayeslim.pruning.footprint import Footprint, compare, footprint, table
from bayeslim.pruning.sparse import SparseLinear


def half_pruned() -> nn.Sequential:
    torch.manual_seed(0)
    model = bl.mlp([10, 8, 3])
    mask = torch.ones(8, 10)
    mask[:4] = 0
    model[0].weight = Masked(model[0].weight, mask)  # pyright: ignore
    return model


def test_counts_of_a_perceptron() -> None:
    model = half_pruned()
    cost = footprint(model)
    assert cost.parameters == 2 * (80 + 24) + 11
    assert (cost.weights, cost.nonzero) == (104, 64)
    assert cost.multiply_adds is cost.seconds is cost.seconds_large is None
    plain = bl.collapse_(copy.deepcopy(model))
    assert cost.mean_bytes == len(save(dict(plain.state_dict())))
    assert cost.bayesian_bytes == len(save(dict(model.state_dict())))
    assert footprint(plain).nonzero == 64 and footprint(plain).parameters == 104 + 11
    assert footprint(model.double()).mean_bytes == cost.mean_bytes


@pytest.mark.parametrize("bayesian", [False, True])
def test_multiply_adds(bayesian: bool) -> None:
    cases: list[tuple[nn.Module, Tensor, int]] = [
        (nn.Linear(5, 7), torch.zeros(3, 5), 35),
        (nn.Linear(5, 7), torch.zeros(3, 4, 5), 4 * 35),
        (nn.Conv2d(4, 6, 3, padding=1, stride=2, groups=2), torch.zeros(2, 4, 8, 8), 16 * 6 * 2 * 9),
        (nn.ConvTranspose1d(4, 6, 3, stride=2, groups=2), torch.zeros(2, 4, 5), 5 * 4 * 3 * 3),
    ]
    for layer, x, expected in cases:
        model = nn.Sequential(layer, nn.ReLU())
        cost = footprint(bl.bayesianize_(model) if bayesian else model, x, repeats=0)
        assert cost.multiply_adds == expected and cost.seconds is None


def test_embeddings_and_attention() -> None:
    model = bl.bayesianize_(nn.Sequential(nn.Embedding(50, 8), nn.Flatten(), nn.Linear(16, 2)))
    assert footprint(model, torch.zeros(3, 2, dtype=torch.long), repeats=1).multiply_adds == 32
    vit = bl.bayesianize_(bl.models.ViT(dim=16, depth=1, heads=2, hidden=12, image=8, patch=4))
    tokens, patch = 4, 16
    expected = tokens * (patch * 16 + 4 * 16 * 16 + 2 * 16 * 12) + 16 * 10
    assert footprint(vit, torch.zeros(2, 1, 8, 8), repeats=0).multiply_adds == expected


def test_nothing_is_left_behind() -> None:
    model = half_pruned().train()
    model[1].eval()
    footprint(model, torch.zeros(2, 10), repeats=1)
    assert model.training and model[0].training and not model[1].training
    assert not any(module._forward_hooks for module in model.modules())
    assert model[0].estimator is bl.local_reparam  # pyright: ignore
    with pytest.raises(RuntimeError):
        footprint(model, torch.zeros(2, 11))
    assert model.training and not any(module._forward_hooks for module in model.modules())


def test_times_are_measured_and_compared() -> None:
    torch.manual_seed(0)
    large, little = bl.mlp([200, 1500, 1500, 2]), bl.mlp([200, 10, 2])
    x = torch.randn(2, 200)
    cost, small = footprint(large, x, repeats=5), footprint(little, x, repeats=5)
    assert cost.seconds and cost.seconds_large and small.seconds and small.seconds_large
    assert cost.seconds > small.seconds and cost.seconds_large > cost.seconds


def shown(result: object) -> str:
    console = Console(width=120, file=io.StringIO())
    with console.capture() as capture:
        console.print(result)
    return capture.get()


def test_tables() -> None:
    model = half_pruned()
    after = compact(model, torch.zeros(1, 10))
    text = shown(compare(model, after, torch.zeros(1, 10), repeats=3))
    assert "times less" in text and "219" in text and "batch 1000, ms" in text
    text = shown(table(Footprint(10, 8, 6, 2048, 4096), Footprint(5, 4, 3, 1024, 2048)))
    assert "2.0" in text and "4.0" in text and "-" in text
    assert "non-zero weights" in shown(footprint(model))


def test_compacting_lowers_every_cost() -> None:
    model = half_pruned()
    before, after = (footprint(m, torch.zeros(1, 10), repeats=0) for m in (model, compact(model, torch.zeros(1, 10))))
    assert after.parameters < before.parameters and after.nonzero <= before.nonzero
    assert after.mean_bytes < before.mean_bytes and after.bayesian_bytes < before.bayesian_bytes
    assert after.multiply_adds == 40 + 12 and before.multiply_adds == 104


def test_arguments() -> None:
    with pytest.raises(ValueError, match="`repeats` must not be negative"):
        footprint(nn.Linear(2, 2), torch.zeros(1, 2), repeats=-1)
    with pytest.raises(ValueError, match="`example` must be a batch"):
        footprint(nn.Linear(2, 2), torch.zeros(0, 2))


class Tied(nn.Module):
    """Words in and out by one matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(7, 5), nn.Linear(5, 7, bias=False)
        self.out.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.words(x))


@pytest.mark.parametrize("bayesian", [False, True])
def test_shared_weights_count_once_and_norms_not_at_all(bayesian: bool) -> None:
    model: nn.Module = nn.Sequential(Tied(), nn.LayerNorm([2, 7]))
    cost = footprint(bl.bayesianize_(model) if bayesian else model, torch.zeros(1, 2, dtype=torch.long), repeats=0)
    assert cost.weights == cost.nonzero == 35 and cost.multiply_adds == 70


def test_a_sparse_layer_counts_what_it_stores() -> None:
    plain = nn.Linear(10, 8)
    with torch.no_grad():
        plain.weight[:6] = 0
    cost = footprint(nn.Sequential(SparseLinear(plain), nn.ReLU()), torch.zeros(1, 3, 10), repeats=0)
    assert (cost.weights, cost.nonzero, cost.multiply_adds) == (80, 20, 60)


class Called(nn.Module):
    """A layer and how to call it on one tensor."""

    def __init__(self, layer: nn.Module, call: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.call = layer, call

    def forward(self, x: Tensor) -> Any:
        return self.call(self.layer, x)


def packed(layer: nn.Module, x: Tensor) -> Any:
    return layer(pack_padded_sequence(x, torch.tensor([3] * len(x)), batch_first=True))[0].data


Case = tuple[nn.Module, Callable[[Any, Tensor], Any], int, int]

# One example of 5 positions with 6 features: weights, and multiply-adds as weights times positions that take them.
SEQUENCES: dict[str, Case] = {
    "gru": (nn.GRU(6, 4, batch_first=True), lambda f, x: f(x)[0], 12 * 6 + 12 * 4, 5 * 120),
    "lstm, two layers both ways": (
        nn.LSTM(6, 4, 2, batch_first=True, bidirectional=True, bias=False),
        lambda f, x: f(x)[0],
        2 * 16 * (6 + 4) + 2 * 16 * (8 + 4),
        5 * 704,
    ),
    "rnn": (nn.RNN(6, 4, batch_first=True), lambda f, x: f(input=x)[0], 4 * 6 + 4 * 4, 5 * 40),
    "lstm with a projection": (
        nn.LSTM(6, 4, batch_first=True, proj_size=3),
        lambda f, x: f(x)[0],
        16 * 6 + 16 * 3 + 3 * 4,
        5 * 156,
    ),
    "a cell, called once": (nn.GRUCell(6, 4), lambda f, x: f(x[:, 0]), 120, 120),
    "packed, three of five steps": (nn.GRU(6, 4, batch_first=True), packed, 120, 3 * 120),
    "attention": (
        nn.MultiheadAttention(6, 2, batch_first=True),
        lambda f, x: f(x, key=x, value=x)[0],
        4 * 36,
        5 * 4 * 36,
    ),
    "attention to other features": (
        nn.MultiheadAttention(6, 2, kdim=4, vdim=3, batch_first=True, bias=False, add_bias_kv=True),
        lambda f, x: f(x[:, :2], x[:, :, :4], x[..., :3], need_weights=False)[0],
        2 * 36 + 24 + 18,
        2 * 2 * 36 + 5 * (24 + 18),
    ),
    "transformer": (
        nn.TransformerEncoderLayer(6, 2, 7, batch_first=True),
        lambda f, x: f(x, src_key_padding_mask=torch.zeros(len(x), 5, dtype=torch.bool)),
        4 * 36 + 2 * 42,
        5 * 228,
    ),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("name", SEQUENCES)
def test_recurrent_and_attention_layers_cost_the_same_plain_bayesian_and_collapsed(name: str) -> None:
    layer, call, weights, products = SEQUENCES[name]
    plain = Called(copy.deepcopy(layer), call)
    convertible = name not in ("rnn", "lstm with a projection", "a cell, called once")
    bayesian = bl.bayesianize_(copy.deepcopy(plain)) if convertible else plain
    for model in (plain, bayesian, bl.collapse_(copy.deepcopy(bayesian))):
        cost = footprint(model, torch.randn(2, 5, 6), repeats=0)
        assert (cost.weights, cost.nonzero, cost.multiply_adds) == (weights, weights, products)


def test_collapsing_a_recurrent_network_saves_no_weights() -> None:
    model = bl.bayesianize_(Called(nn.GRU(3, 40), lambda f, x: f(x)[0]))
    plain = bl.collapse_(copy.deepcopy(model))
    lines = shown(compare(model, plain, torch.randn(2, 5, 3), repeats=1)).splitlines()
    for label in ("weights", "non-zero weights", "multiply-adds"):
        row = next(line for line in lines if line.lstrip("│ ").startswith(label))
        assert row.rstrip(" │").endswith("1.0")


class Slow(nn.Module):
    """Counts its calls, each of which takes a while by the clock of the test."""

    def __init__(self, clock: list[float], seconds: float) -> None:
        super().__init__()
        self.clock, self.seconds, self.calls = clock, seconds, 0

    def forward(self, x: Tensor) -> Tensor:
        self.clock[0] += self.seconds
        self.calls += 1
        return x


@pytest.mark.parametrize(("seconds", "runs"), [(5.0, 3), (0.5, 3), (0.25, 7), (0.01, 20)])
def test_a_slow_network_is_not_repeated_for_long(monkeypatch: pytest.MonkeyPatch, seconds: float, runs: int) -> None:
    """Two warm-ups, and then repeats until two seconds are over, but at least three; one more call counts products."""
    clock = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    model = Slow(clock, seconds)
    cost = footprint(model, torch.zeros(2, 3))
    assert cost.seconds == pytest.approx(seconds) and cost.seconds_large == pytest.approx(seconds)
    assert model.calls == 1 + 2 * (2 + runs)
    few = Slow(clock, seconds)
    footprint(few, torch.zeros(2, 3), repeats=1)
    assert few.calls == 1 + 2 * 3


def test_examples_come_in_any_float_type_and_as_arrays() -> None:
    x = np.random.default_rng(0).normal(size=(3, 10))
    single, double = half_pruned(), half_pruned().double()
    for model in (single, double):
        for given in (x, x.astype("float32"), torch.tensor(x)):
            assert footprint(model, given, repeats=1).multiply_adds == 104
        small = compact(model, x)
        assert small(torch.tensor(x, dtype=next(model.parameters()).dtype)).shape == (3, 3)
        compact(model, torch.tensor(x, dtype=torch.float32))
    assert "multiply-adds" in shown(compare(double, single, x, repeats=1))
