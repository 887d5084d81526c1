"""The LSTM classifier."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bayeslim.models import LSTMClassifier

from .checks import check_gradients, check_module, parameters


def small() -> LSTMClassifier:
    return LSTMClassifier(vocabulary=20, embedding=6, hidden=5, outputs=3)


def tokens() -> Tensor:
    return torch.randint(20, (4, 7), generator=torch.Generator().manual_seed(0))


def test_counts() -> None:
    assert parameters(LSTMClassifier) == 2_692_225
    # The paper's mean-field network: one bias per gate, and scales for the three kernels.
    kernels = 4 * 128 * (128 + 128) + 128
    assert parameters(LSTMClassifier) - 4 * 128 + kernels == 2_822_913


def test_forward_is_the_formula() -> None:
    torch.manual_seed(1)
    model, words = small(), tokens()
    w_in, w_hidden, b_in, b_hidden = model.lstm.parameters()
    hidden = cell = torch.zeros(4, 5)
    for step in range(words.shape[1]):
        gates = model.embedding.weight[words[:, step]] @ w_in.T + b_in + hidden @ w_hidden.T + b_hidden
        i, f, g, o = gates.chunk(4, 1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * cell.tanh()
    torch.testing.assert_close(model(words), hidden @ model.head.weight.T + model.head.bias)


def test_lengths_cut_off_the_padding() -> None:
    torch.manual_seed(2)
    model, words = small(), tokens()
    lengths = torch.tensor([7, 1, 4, 6])
    expected = torch.stack([model(row[:length]) for row, length in zip(words, lengths, strict=True)])
    torch.testing.assert_close(model(words, lengths), expected)
    torch.testing.assert_close(model(words[2], lengths[2]), expected[2])
    torch.testing.assert_close(model(words, torch.full((4,), 7)), model(words))


def test_a_length_of_zero_is_refused() -> None:
    with pytest.raises(RuntimeError, match="out of bounds"):
        small()(tokens(), torch.tensor([1, 2, 0, 3]))


def test_shapes() -> None:
    assert small()(tokens()).shape == (4, 3)
    assert small()(tokens()[0]).shape == (3,)
    assert LSTMClassifier(vocabulary=20, embedding=6, hidden=5)(tokens()[:1]).shape == (1, 1)


def test_plain_network() -> None:
    for check in (check_module, check_gradients):
        check(small, tokens())
    model, words = small(), tokens()
    torch.testing.assert_close(torch.cat([model(row[None]) for row in words]), model(words))
