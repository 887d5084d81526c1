"""Converted layers have the attributes of torch's, which forward functions read."""

from __future__ import annotations

import copy
import functools
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.posteriors import KTied, MatrixNormal, MeanField, Multiplicative
from contracts.members import over

LINEAR = ("in_features", "out_features")
CONV = (
    *("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode"),
    *("output_padding", "transposed"),
)
EMBEDDING = ("num_embeddings", "embedding_dim", "padding_idx", "max_norm", "scale_grad_by_freq", "sparse")
RECURRENT = ("mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "bidirectional", "proj_size")
ATTENTION = ("embed_dim", "kdim", "vdim", "num_heads", "head_dim", "dropout", "batch_first", "add_zero_attn")

Case = tuple[Callable[[], nn.Module], tuple[str, ...]]
CASES: dict[str, Case] = {
    "linear": (lambda: nn.Linear(5, 3), LINEAR),
    "linear-no-bias": (lambda: nn.Linear(2, 7, bias=False), LINEAR),
    "conv1d": (lambda: nn.Conv1d(2, 3, 4, stride=2, padding=1), CONV),
    "conv1d-same": (lambda: nn.Conv1d(2, 3, 3, padding="same", padding_mode="circular"), CONV),
    "conv2d": (lambda: nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2), CONV),
    "conv2d-depthwise": (lambda: nn.Conv2d(4, 8, 3, groups=4, padding="valid"), CONV),
    "conv2d-reflect": (lambda: nn.Conv2d(4, 2, 3, padding=1, padding_mode="reflect", bias=False), CONV),
    "conv3d": (lambda: nn.Conv3d(2, 3, (1, 2, 3), padding=(0, 1, 1)), CONV),
    "transposed1d": (lambda: nn.ConvTranspose1d(2, 3, 3, stride=2, output_padding=1), CONV),
    "transposed2d": (
        lambda: nn.ConvTranspose2d(4, 6, (3, 2), stride=(3, 2), padding=(1, 0), output_padding=(2, 1), groups=2),
        CONV,
    ),
    "transposed3d": (lambda: nn.ConvTranspose3d(4, 2, 2, dilation=2), CONV),
    "embedding": (lambda: nn.Embedding(7, 3), EMBEDDING),
    "embedding-padding": (lambda: nn.Embedding(7, 3, padding_idx=-1), EMBEDDING),
    "lstm": (lambda: nn.LSTM(3, 5), RECURRENT),
    "lstm-options": (lambda: nn.LSTM(3, 5, 2, False, True, 0.2, True), RECURRENT),
    "gru": (lambda: nn.GRU(4, 2, 3, batch_first=True), RECURRENT),
    "attention": (lambda: nn.MultiheadAttention(8, 2), ATTENTION),
    "attention-options": (
        lambda: nn.MultiheadAttention(12, 3, 0.1, kdim=5, vdim=7, add_zero_attn=True, batch_first=True),
        ATTENTION,
    ),
}


def values(module: nn.Module, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(module, name) for name in names}


@over("case", CASES)
def test_they_are_those_of_the_layer_that_was_converted(case: str) -> None:
    build, names = CASES[case]
    plain = build()
    expected = values(plain, names)
    layer = bl.bayesianize_(plain)
    assert values(layer, names) == expected
    assert values(copy.deepcopy(layer), names) == expected
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    assert values(torch.load(file, weights_only=False), names) == expected
    assert values(bl.collapse_(layer), names) == expected


@over("posterior", [MeanField, Multiplicative, MatrixNormal, functools.partial(KTied, k=1)])
@over("case", ["linear", "conv2d", "transposed2d"])
def test_with_every_posterior_and_under_a_mask(case: str, posterior: Any) -> None:
    build, names = CASES[case]
    plain = build()
    layer: Any = bl.bayesianize_(plain, posterior=posterior)
    assert values(layer, names) == values(plain, names)
    if layer.weight.factorised:
        bl.prune_(layer, amount=0.5)
        assert values(layer, names) == values(plain, names)


@over("case", [case for case in CASES if CASES[case][1] not in (RECURRENT, ATTENTION)])
def test_sizes_cannot_be_set(case: str) -> None:
    layer = bl.bayesianize_(CASES[case][0]())
    with pytest.raises(AttributeError):
        setattr(layer, CASES[case][1][0], 1)


def without(layer: nn.Module, rows: int) -> None:
    """Set the first outputs of a layer to zero, so that their noise is all there is and pruning takes them."""
    with torch.no_grad():
        layer.get_parameter("weight.loc")[:rows] = 0.0
        layer.get_parameter("bias")[:rows] = 0.0


def test_after_compaction_they_are_the_new_ones() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 5, 3), nn.ReLU(), nn.Conv2d(5, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 7))
    model.append(nn.ReLU()).append(nn.Linear(7, 2))
    bl.bayesianize_(model)
    for index, rows in ((0, 2), (2, 3), (5, 4)):
        without(model[index], rows)
    bl.prune_(model, threshold=12.0)
    small: Any = bl.compact(model, torch.zeros(1, 1, 6, 6))
    assert (small[0].in_channels, small[0].out_channels, small[0].kernel_size) == (1, 3, (3, 3))
    assert (small[2].in_channels, small[2].out_channels) == (3, 3)
    assert (small[5].in_features, small[5].out_features) == (12, 3)
    assert (small[7].in_features, small[7].out_features) == (3, 2)
    plain: Any = bl.collapse_(small)
    assert (plain[2].in_channels, plain[5].in_features) == (3, 12)


def test_after_heads_are_removed_the_rest_have_their_size() -> None:
    class Block(nn.Module):
        """Attention of a sequence to itself."""

        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(12, 3, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.attention(x, x, x, need_weights=False)[0]

    model = bl.bayesianize_(Block())
    bl.prune_(model, amount=0.34, structure="head")
    small: Any = bl.compact(model, torch.zeros(1, 2, 12))
    assert (small.attention.num_heads, small.attention.head_dim, small.attention.embed_dim) == (2, 4, 12)


def test_flatten_parameters_does_nothing() -> None:
    for plain in (nn.LSTM(3, 2), nn.GRU(3, 2)):
        layer: Any = bl.bayesianize_(plain)
        before = {name: value.clone() for name, value in layer.state_dict().items()}
        assert layer.flatten_parameters() is None
        assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())


def test_a_forward_that_reads_them_runs_compiled() -> None:
    class Reader(nn.Module):
        """Reads what forward functions read."""

        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(1, 4, 3), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.conv(x.to(self.conv.weight.dtype)).view(-1, self.conv.out_channels, 16).mean(2)
            return self.head(hidden)[..., : self.head.weight.shape[0]] / self.head.in_features

    torch.compiler.reset()
    torch.manual_seed(1)
    x, model = torch.randn(2, 1, 6, 6, dtype=torch.float64), Reader()
    expected = model(x)
    bl.bayesianize_(model)
    with bl.using(model, bl.mean_only):
        torch.testing.assert_close(model(x), expected)
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(x), expected)
