"""Networks that read attributes of their own layers: no `Select` may hide them, and what is read stays right."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.masks import Masked
from bayeslim.pruning.compact import compact
from bayeslim.select import Select


class Sized(nn.Module):
    """Flattens to the size that the layer says; a plain layer has `in_features`."""

    def __init__(self) -> None:
        super().__init__()
        self.enc, self.dec = nn.Linear(64, 60), nn.Linear(60, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.dec(F.relu(self.enc(x.view(-1, self.enc.in_features))))


class Tied(Sized):
    """An auto-encoder whose decoder is the encoder's weight."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.relu(self.enc(x.flatten(1))), self.enc.weight.t())


class Scaled(Sized):
    """Divides by the width that the layer says."""

    def forward(self, x: Tensor) -> Tensor:
        return self.dec(F.relu(self.enc(x.flatten(1))) / self.enc.out_features)


class Typed(Sized):
    """Asks a layer for its type."""

    def forward(self, x: Tensor) -> Tensor:
        return self.dec(F.relu(self.enc(x.flatten(1).to(self.enc.weight.dtype))))


class Listed(Sized):
    """A loop over the width of a layer."""

    def forward(self, x: Tensor) -> Tensor:
        return self.dec(F.relu(self.enc(x.flatten(1)))) + len(range(self.enc.in_features))


@pytest.mark.parametrize("make", [Sized, Scaled, Listed])
def test_bayesian_layers_have_sizes_too(make: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    model = bl.bayesianize_(make().eval())
    masks = {"enc": torch.ones(60, 64), "dec": torch.ones(3, 60)}
    masks["enc"][:, 4:], masks["dec"][:, 10:] = 0, 0
    for name, mask in masks.items():
        layer: Any = model.get_submodule(name)
        layer.weight = Masked(layer.weight, mask)
    x = torch.randn(5, 1, 8, 8)
    small: Any = compact(model, x[:1])
    with torch.no_grad(), bl.using(model, bl.mean_only), bl.using(small, bl.mean_only):
        torch.testing.assert_close(small(x), model(x))
    assert small.enc.weight.mean().shape == ((60 if make is Scaled else 10), 64)


@pytest.mark.parametrize("make", [Sized, Tied, Scaled, Typed, Listed])
def test_outputs_are_those_of_the_network(make: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    model = make().eval()
    with torch.no_grad():
        model.enc.weight[:, 4:] = 0  # what a `Select` would stand for
        model.dec.weight[:, 10:] = 0  # units nobody asks for
    x = torch.randn(5, 1, 8, 8)
    small: Any = compact(model, x[:1])
    assert isinstance(small.enc, nn.Linear)
    torch.testing.assert_close(small(x), model(x))
    assert type(small.enc) is type(model.enc) is nn.Linear
    assert small.enc.weight.shape == ((60 if make in (Tied, Scaled) else 10), 64)


def test_the_posterior_of_a_bayesian_layer_may_be_read_as_well() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enc = bl.layers.Linear(64, 60)

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(F.relu(self.enc(x)), self.enc.weight.mean().t())

    torch.manual_seed(0)
    model = Net().eval()
    mask = torch.zeros(60, 64)
    mask[:, :4] = 1
    model.enc.weight = Masked(model.enc.weight, mask)
    x = torch.randn(5, 64)
    small = compact(model, x)
    with torch.no_grad(), bl.using(model, bl.mean_only), bl.using(small, bl.mean_only):
        torch.testing.assert_close(small(x), model(x))


def test_layers_that_nobody_reads_still_get_a_select() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.read, self.other = nn.Linear(64, 60), nn.Linear(64, 60)

        def forward(self, x: Tensor) -> Tensor:
            return self.read(x.view(-1, self.read.in_features)) + self.other(x)

    torch.manual_seed(0)
    model = Two().eval()
    with torch.no_grad():
        for layer in (model.read, model.other):
            layer.weight[:, 4:] = 0
    x = torch.randn(5, 64)
    small: Any = compact(model, x)
    assert isinstance(small.other[0], Select) and isinstance(small.read, nn.Linear)
    torch.testing.assert_close(small(x), model(x))


def test_what_a_module_that_cannot_be_followed_reads_is_an_error_with_advice() -> None:
    class Reader(nn.Module):
        def __init__(self, other: nn.Linear) -> None:
            super().__init__()
            self.other = [other]  # no child of this one

        def forward(self, x: Tensor) -> Tensor:
            return x / self.other[0].missing if x.sum() > 1e9 else x * len(self.other[0].weight)  # pyright: ignore

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)
            self.reader = Reader(self.first)

        def forward(self, x: Tensor) -> Tensor:
            return self.reader(self.last(F.relu(self.first(x))))

    torch.manual_seed(0)
    model = Net().eval()
    with torch.no_grad():
        model.last.weight[:, 3:] = 0
    with pytest.raises(RuntimeError, match=r"differs from `model` by .* compact its parts one by one"):
        compact(model, torch.randn(3, 4))
