"""Converted layers are called as torch's are, by the same names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.gaussian import Gaussian
from contracts.cases import each
from contracts.members import ESTIMATORS, over


def mean_of(output: Any) -> Tensor:
    return output.loc if isinstance(output, Gaussian) else output


def converted(plain: nn.Module, estimator: Callable[..., Any] = bl.mean_only) -> Any:
    tiny = functools.partial(bl.posteriors.MeanField, scale=1e-12)
    return bl.bayesianize_(plain, estimator=estimator, posterior=tiny)


INPUTS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "linear": (lambda: nn.Linear(3, 2), lambda: torch.randn(4, 3)),
    "conv1d": (lambda: nn.Conv1d(2, 3, 2), lambda: torch.randn(4, 2, 5)),
    "conv2d": (lambda: nn.Conv2d(2, 3, 2), lambda: torch.randn(4, 2, 5, 5)),
    "transposed2d": (lambda: nn.ConvTranspose2d(2, 3, 2), lambda: torch.randn(4, 2, 5, 5)),
    "embedding": (lambda: nn.Embedding(5, 3), lambda: torch.tensor([[0, 4, 2]])),
}


@each("estimator", ESTIMATORS)
@each("case", INPUTS)
def test_the_input_by_its_name(case: str, estimator: str) -> None:
    if case == "embedding" and estimator == "flipout":
        return  # it takes no indices
    torch.manual_seed(0)
    plain, x = INPUTS[case][0](), INPUTS[case][1]()
    expected = plain(input=x)
    torch.testing.assert_close(mean_of(converted(plain, ESTIMATORS[estimator])(input=x)), expected)


SIZES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], list[list[int]]]] = {
    "1d": (lambda: nn.ConvTranspose1d(2, 3, 3, stride=3), (4, 2, 5), [[15], [16], [17], [4, 3, 16]]),
    "1d-unbatched": (lambda: nn.ConvTranspose1d(2, 3, 3, stride=2, padding=1), (2, 5), [[9], [3, 10]]),
    "2d": (
        lambda: nn.ConvTranspose2d(4, 2, (3, 2), stride=(2, 3), padding=1, dilation=(2, 1), groups=2),
        (4, 4, 5, 4),
        [[11, 9], [12, 11], [4, 2, 11, 10]],
    ),
    "3d": (lambda: nn.ConvTranspose3d(2, 2, 2, stride=2), (1, 2, 2, 3, 2), [[4, 7, 5]]),
}


@each("estimator", ESTIMATORS)
@each("case", SIZES)
def test_the_output_size_of_transposed_convolutions(case: str, estimator: str) -> None:
    build, shape, sizes = SIZES[case]
    torch.manual_seed(1)
    plain, x = build(), torch.randn(shape)
    expected = [plain(x, output_size=size) for size in sizes]
    layer = converted(plain, ESTIMATORS[estimator])
    before = layer.op
    for size, output in zip(sizes, expected, strict=True):
        torch.testing.assert_close(mean_of(layer(x, output_size=size)), output)
        assert mean_of(layer(x, size)).shape == output.shape
    assert layer.op is before


def test_the_output_size_for_an_uncertain_input_as_a_shape() -> None:
    torch.manual_seed(2)
    plain, x = nn.ConvTranspose2d(2, 1, 3, stride=2), torch.randn(1, 2, 4, 4)
    expected = plain(x, output_size=[10, 9])
    result = converted(plain, bl.moments)(Gaussian(x, torch.zeros_like(x)), output_size=torch.Size([10, 9]))
    torch.testing.assert_close(result.loc, expected)


@over("size", [[8], [12], [4, 5, 5, 9], [9, 9], []])
def test_impossible_output_sizes_are_refused_as_in_torch(size: list[int]) -> None:
    plain, x = nn.ConvTranspose1d(2, 3, 3, stride=2), torch.randn(4, 2, 4)
    with pytest.raises(ValueError) as theirs:
        plain(x, output_size=size)
    with pytest.raises(ValueError) as ours:
        converted(plain)(x, output_size=size)
    assert str(ours.value) == str(theirs.value)


@over("estimator", ESTIMATORS)
@over("kind", [nn.LSTM, nn.GRU])
def test_the_state_of_recurrent_layers_by_its_name(kind: Any, estimator: str) -> None:
    torch.manual_seed(3)
    plain = kind(3, 4)
    x, start = torch.randn(5, 2, 3), torch.randn(1, 2, 4)
    state = (start, torch.randn(1, 2, 4)) if kind is nn.LSTM else start
    expected = plain(input=x, hx=state)[0]
    layer = converted(plain, ESTIMATORS[estimator])
    for output in (layer(input=x, hx=state), layer(x, hx=state), layer(x, state)):
        # moments know tanh and sigmoid of a mean without spread up to their quadrature
        torch.testing.assert_close(mean_of(output[0]), expected, rtol=1e-3, atol=1e-3)


@over("need_weights", [True, False])
def test_every_keyword_of_attention(need_weights: bool) -> None:
    torch.manual_seed(4)
    plain, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(3, 5, 8)
    options: dict[str, Any] = {
        "key_padding_mask": torch.tensor([[False] * 4 + [True]] * 3),
        "need_weights": need_weights,
        "attn_mask": torch.ones(5, 5, dtype=torch.bool).triu(1),
        "average_attn_weights": False,
        "is_causal": False,
    }
    expected = plain(query=x, key=x, value=x, **options)
    output = converted(plain)(query=x, key=x, value=x, **options)
    torch.testing.assert_close(output[0], expected[0])
    assert (output[1] is None) == (expected[1] is None)
    if need_weights:
        torch.testing.assert_close(output[1], expected[1])


def test_predictions_and_training_of_a_network_that_calls_by_name() -> None:
    class Named(nn.Module):
        """An auto-encoder of images of odd sizes."""

        def __init__(self) -> None:
            super().__init__()
            self.down, self.up = nn.Conv2d(1, 2, 3, stride=2), nn.ConvTranspose2d(2, 1, 3, stride=2)
            self.head = nn.Linear(64, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(input=self.up(self.down(input=x), output_size=x.shape[2:]).flatten(1))

    torch.manual_seed(5)
    model, x = bl.bayesianize_(Named()), torch.randn(6, 1, 8, 8)
    bl.fit(model, (x, torch.zeros(6, dtype=torch.long)), likelihood=bl.Categorical(), epochs=1, seed=0)
    for method in ("sample", "moments", "mean"):
        options: dict[str, Any] = {"samples": 3} if method == "sample" else {}
        assert bl.predict(model, x, method=method, **options).mean.shape == (6, 2)
