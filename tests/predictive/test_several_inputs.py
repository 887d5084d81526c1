"""One tensor in, one label out: what is refused, with what to do instead."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import bayeslim as bl
from contracts.cases import each

COUNT = 6
U, V, Y = torch.randn(COUNT, 3), torch.randn(COUNT, 3), torch.arange(COUNT) % 2
ADVICE = r"join the inputs to one, e\.g\. x = torch\.cat\(\[u, v\], 1\), and split it in the network's `forward`"
CLASSES = bl.Categorical()


class Two(nn.Module):
    """Takes two tensors, or one that it splits."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = bl.layers.Linear(6, 2)

    def forward(self, u: Tensor, v: Tensor) -> Tensor:
        return self.layer(torch.cat([u, v], 1))


class Pairs(Dataset[Any]):
    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return (U[index], V[index]), Y[index]


class Named(Pairs):
    def __getitem__(self, index: int) -> Any:
        return {"u": U[index], "v": V[index]}, Y[index]


def fit(data: Any) -> Any:
    return bl.fit(Two(), data, likelihood=CLASSES, epochs=1, seed=0)


def evaluate(data: Any) -> Any:
    return bl.evaluate(Two(), data, likelihood=CLASSES)


def predict(x: Any) -> Any:
    return bl.predict(Two(), x, likelihood=CLASSES)


@each(
    ("call", "data"),
    [
        *((call, data) for call in (fit, evaluate) for data in (((U, V), Y), ([U, V], Y), ((U, V[:, :2]), Y))),
        *((call, data) for call in (fit, evaluate) for data in (({"u": U, "v": V}, Y), ((U[:2], V[:2, :2]), Y[:2]))),
        *((call, data) for call in (fit, evaluate, predict) for data in (Pairs(), Named(), DataLoader(Pairs(), 3))),
        *((predict, x) for x in ((U, V), (U, V[:, :2]), [U, V[:, :2]], (U.numpy(), V.numpy()), {"u": U, "v": V})),
    ],
)
def test_several_inputs_are_refused_with_advice(call: Callable[[Any], Any], data: Any) -> None:
    with pytest.raises(TypeError, match=rf"`x` must be one tensor or array, got a (tuple|list|dict) of 2: .*{ADVICE}"):
        call(data)


def test_a_network_with_two_arguments_is_refused_with_advice() -> None:
    with pytest.raises(TypeError, match=f"missing 1 required positional argument: 'v'; .*{ADVICE}"):
        predict(U)
    with pytest.raises(ValueError, match=f"missing 1 required positional argument: 'v'; .*{ADVICE}"):
        fit((U, Y))


def test_lists_of_rows_are_one_input() -> None:
    model = bl.mlp([3, 2])
    for rows in (list(U), tuple(U), [row.numpy() for row in U], U.tolist()):
        found = bl.predict(model, rows, likelihood=CLASSES, method="mean").mean  # pyright: ignore[reportArgumentType]
        assert torch.allclose(found, bl.predict(model, U, likelihood=CLASSES, method="mean").mean)
        bl.fit(bl.mlp([3, 2]), (rows, Y), likelihood=CLASSES, epochs=1, seed=0)
    images = tuple(U.reshape(COUNT, 1, 3))
    flat = nn.Sequential(nn.Flatten(), bl.mlp([3, 2]))
    loader = DataLoader(Pairs(), 3, collate_fn=lambda _: (images, Y))
    bl.fit(flat, loader, likelihood=CLASSES, epochs=1, seed=0)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
def test_whole_numbers_where_floats_are_needed(dtype: torch.dtype) -> None:
    x = U.abs().to(dtype)
    for call in (bl.predict, lambda model, x, likelihood: bl.fit(model, (x, Y), likelihood=likelihood, epochs=1)):
        with pytest.raises(ValueError, match=rf"and dtype {dtype}: .*pass x\.float\(\), and embeddings x\.long\(\)"):
            call(bl.mlp([3, 2]), x, likelihood=CLASSES)
    with pytest.raises(ValueError, match=r"does not accept inputs of shape \(N, 2\)[^;]*$"):
        bl.predict(bl.mlp([3, 2]), U[:, :2], likelihood=CLASSES)


@pytest.mark.parametrize("shape", [(COUNT, 4, 2), (COUNT, 2, 4, 4)])
def test_labels_per_token_or_pixel_are_refused_with_advice(shape: tuple[int, ...]) -> None:
    model = nn.Sequential(bl.layers.Linear(3, int(np.prod(shape[1:]))), nn.Unflatten(1, shape[1:]))
    y = torch.zeros(COUNT, *shape[2:], dtype=torch.int64)
    message = r"Categorical needs .*every example has one label; .*a subclass whose `nll` sums over the labels"
    for call in (
        lambda: bl.fit(model, (U, y), likelihood=CLASSES, epochs=1, seed=0),
        lambda: bl.evaluate(model, (U, y), likelihood=CLASSES),
        lambda: bl.predict(model, U, likelihood=CLASSES),
    ):
        with pytest.raises(ValueError, match=message):
            call()


class Tokens(bl.Categorical):
    """What the message advises: labels (N, T) for logits (N, T, V)."""

    def nll(self, output: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(output.movedim(-1, 1), y, reduction="none").sum(1)

    def check_outputs(self, shape: torch.Size) -> None:
        assert len(shape) == 3

    def check_targets(self, y: Tensor, output_shape: torch.Size | None = None) -> Tensor:
        return y

    def log_density(self, means: Tensor, variances: Tensor, y: Tensor) -> Tensor:
        chosen = means.gather(-1, y[None, ..., None].expand(len(means), *y.shape, 1))[..., 0]
        return chosen.log().sum(2).logsumexp(0) - float(np.log(len(means)))

    def metrics(self, mean: Tensor, variance: Tensor, y: Tensor) -> dict[str, float]:
        return {"accuracy": (mean.argmax(-1) == y).double().mean().item()}


def test_a_likelihood_of_ones_own_has_a_label_per_token() -> None:
    """In all of fit, predict and evaluate."""
    torch.manual_seed(0)
    x = torch.randn(60, 3)
    y = torch.stack([x[:, 0] > 0, x[:, 1] > 0], 1).long()
    model = nn.Sequential(bl.layers.Linear(3, 4), nn.Unflatten(1, (2, 2)))
    bl.fit(model, (x, y), likelihood=Tokens(), epochs=60, lr=0.05, seed=0)
    assert bl.predict(model, x, seed=0).classes.shape == (60, 2)
    scores = bl.evaluate(model, (x, y))
    assert scores["accuracy"] > 0.9 and 0 < scores["nll"] < 2 * float(np.log(2))
