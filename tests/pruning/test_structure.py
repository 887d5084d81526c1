"""What is known about the channels between two layers, case by case."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.masks import Masked
from bayeslim.pruning import rules
from bayeslim.pruning.channels import Channels, Slots
from bayeslim.pruning.linear_map import linear_map
from bayeslim.pruning.structure import Structure
from bayeslim.pruning.tracing import shapes_of, tied_modules, traced


def structure(model: nn.Module, x: Tensor, exact: bool = False) -> Structure:
    root = nn.Sequential(model).eval()
    with torch.no_grad(), bl.using(root, bl.mean_only):
        graph = traced(root)
        return Structure(root, graph, shapes_of(root, graph, x), exact)


def channels(*values: float | None, axis: int = 1) -> Channels:
    """Channels that are constant where a value is given."""
    constant = torch.tensor([value is not None for value in values])
    value = torch.tensor([value or 0.0 for value in values], dtype=torch.float64)
    return Channels(axis, torch.arange(len(values)), constant, value)


def test_slots_join_and_pin_through_chains() -> None:
    slots = Slots()
    a, b, c = slots.fresh(2), slots.fresh(2), slots.fresh(2)
    slots.join(a, b)
    slots.join(b[:1], c[:1])
    slots.pin(c)
    roots, pinned = slots.roots(), slots.pinned()
    assert roots[a[0]] == roots[b[0]] == roots[c[0]] != roots[a[1]] == roots[b[1]] != roots[c[1]]
    assert pinned[roots].tolist() == [True, False, True, False, True, True]


def test_what_is_not_finite_is_not_constant() -> None:
    result = rules.elementwise(channels(-1.0, 4.0, None), torch.sqrt)
    assert result.constant.tolist() == [False, True, False]
    assert result.known().tolist() == [0.0, 2.0, 0.0]
    assert rules.elementwise(channels(0.0, 2.0), F.dropout, noisy=True).constant.tolist() == [True, False]


def test_batch_normalisation_in_evaluation_mode() -> None:
    norm = nn.BatchNorm1d(2).double().eval()
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    assert norm.running_mean is not None and norm.running_var is not None
    norm.running_mean.normal_()
    norm.running_var.uniform_(1, 2)
    result = rules.normalised(channels(0.3, None), norm)
    assert result is not None and result.constant.tolist() == [True, False]
    expected = norm(torch.full((1, 2), 0.3, dtype=torch.float64))[0, 0]
    assert result.value[0].item() == pytest.approx(expected.item())
    assert rules.normalised(channels(0.3, None, axis=2), norm) is None
    batch = rules.normalised(channels(0.3, None), nn.BatchNorm1d(2, track_running_stats=False))
    assert batch is not None and not batch.constant.any()


def test_flattening_axes_before_around_and_after_the_channels() -> None:
    shape, state = torch.Size((5, 2, 3, 4)), channels(1.0, None)
    block = rules.flattened(state, shape, 1, -1)
    assert block is not None and block.slots.tolist() == [0] * 12 + [1] * 12 and block.axis == 1
    part = rules.flattened(state, shape, 1, 2)
    assert part is not None and part.slots.tolist() == [0] * 3 + [1] * 3
    after = rules.flattened(state, shape, 2, 3)
    assert after is not None and after.slots.tolist() == [0, 1] and after.axis == 1
    assert rules.flattened(state, shape, 0, -1) is None
    last = rules.flattened(state.at(3), shape, 1, 2)
    assert last is not None and last.axis == 2


@pytest.mark.parametrize(("axes", "keep", "expected"), [((2, 3), False, 1), (-1, True, 1), ((0,), False, 0)])
def test_means_over_other_axes(axes: int | tuple[int, ...], keep: bool, expected: int) -> None:
    shape = torch.Size((5, 2, 3, 4))
    result = torch.zeros(shape).mean(axes, keep).shape
    state = rules.reduced(channels(1.5, None), shape, result, lambda x: x.mean(axes, keep), axes)
    assert state is not None and state.axis == expected and state.known().tolist() == [1.5, 0.0]


def test_means_over_the_channels_or_everything_keep_nothing() -> None:
    shape = torch.Size((5, 2, 3, 4))
    for axes in (1, (0, -3), None):
        assert rules.reduced(channels(1.0, 2.0), shape, torch.Size(()), torch.mean, axes) is None


def test_maps_see_masks_groups_and_padding() -> None:
    layer = bl.layers.Conv2d(4, 6, 2, groups=2)
    mask = torch.ones(6, 2, 2, 2)
    mask[0] = 0
    mask[1, 0, 0] = 0  # half a kernel is not a dead connection
    layer.weight = Masked(layer.weight, mask)
    view = linear_map(layer)
    assert view is not None and view.alive.int().tolist() == [
        [0, 0, 0, 0],
        [1, 1, 0, 0],
        [1, 1, 0, 0],
        [0, 0, 1, 1],
        [0, 0, 1, 1],
        [0, 0, 1, 1],
    ]
    torch.testing.assert_close(view.mean[1, :2], layer.weight.mean()[1].sum((1, 2)).double())
    assert view.takes_constants and view.kernel == 4
    for kind in (bl.layers.Conv2d, nn.Conv2d):
        zeros, reflect = (linear_map(kind(2, 2, 3, padding=1, padding_mode=mode)) for mode in ("zeros", "reflect"))
        assert zeros is not None and not zeros.takes_constants and reflect is not None and reflect.takes_constants
    for kind in (bl.layers.ConvTranspose1d, nn.ConvTranspose1d):
        other = linear_map(kind(2, 3, 3))
        assert other is not None and not other.takes_constants and (other.outputs, other.inputs) == (3, 2)
    assert linear_map(bl.layers.Embedding(3, 2)) is None
    assert linear_map(bl.layers.Linear(3, 2, posterior=bl.posteriors.MatrixNormal)) is None


def test_needed_follows_living_weights_only() -> None:
    model = bl.mlp([3, 4, 2])
    mask = torch.zeros(2, 4)
    mask[0, 1] = mask[1, 3] = 1
    layer = model[2]
    assert isinstance(layer, bl.layers.Linear)
    layer.weight = Masked(layer.weight, mask)
    found = structure(model, torch.zeros(1, 3))
    hidden = found.readings[0].outputs.slots
    assert found.needed()[found.slots.roots()[hidden]].tolist() == [False, True, False, True]


def test_unknown_operations_pin_and_shape_questions_do_not() -> None:
    class Asks(nn.Module):
        def __init__(self, unknown: bool) -> None:
            super().__init__()
            self.one, self.two, self.unknown = bl.layers.Conv1d(2, 3, 1), bl.layers.Linear(12, 2), unknown

        def forward(self, x: Tensor) -> Tensor:
            x = self.one(x)
            x = x.reshape(x.shape[0], -1)
            return self.two(x.flip(1) if self.unknown else x)

    for unknown in (True, False):
        found = structure(Asks(unknown), torch.zeros(2, 2, 4))
        pinned = found.slots.pinned()[found.slots.roots()[found.readings[0].outputs.slots]]
        assert pinned.tolist() == [unknown] * 3


def test_an_activation_in_place_is_seen_by_later_users() -> None:
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = bl.layers.Linear(2, 3), bl.layers.Linear(3, 1)

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.one(x)
            F.relu(hidden, inplace=True)
            return self.two(hidden)

    model = InPlace()
    model.one.weight = Masked(model.one.weight, torch.zeros(3, 2))
    nn.init.constant_(model.one.bias, -2.0)  # pyright: ignore
    found = structure(model, torch.zeros(1, 2))
    assert found.readings[1].inputs.constant.all() and not found.readings[1].inputs.value.any()


def test_hooks_pin_what_they_may_change() -> None:
    model = bl.mlp([3, 4, 2])
    model[1].register_forward_hook(lambda module, args, output: output + args[0].sum(1, keepdim=True))
    found = structure(model, torch.zeros(1, 3))
    assert found.slots.pinned()[found.slots.roots()[found.readings[0].outputs.slots]].all()


def test_tied_modules_are_found_by_their_parameters() -> None:
    model = bl.mlp([3, 3, 3, 3])
    assert not tied_modules(model)
    model[4].weight.loc = model[0].weight.loc  # pyright: ignore
    assert {model[0], model[4]} <= tied_modules(model) and model[2] not in tied_modules(model)


def test_an_uncertain_bias_is_no_exact_constant() -> None:
    layer = bl.layers.Linear(2, 3, bias_posterior=bl.posteriors.MeanField)
    layer.weight = Masked(layer.weight, torch.zeros(3, 2))
    for exact in (True, False):
        assert structure(layer, torch.zeros(1, 2), exact).readings[0].outputs.constant.tolist() == [not exact] * 3


def test_products_are_zero_where_a_factor_is() -> None:
    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.last = (bl.layers.Linear(3, 3) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.relu(self.one(x)) * self.two(x))

    model = Product()
    model.one.weight = Masked(model.one.weight, torch.tensor([[0.0] * 3, [0.0] * 3, [1.0] * 3]))
    nn.init.constant_(model.one.bias, -1.0)  # pyright: ignore
    model.one.bias.data[1] = 2.0  # pyright: ignore
    inputs = structure(model, torch.zeros(1, 3)).readings[2].inputs
    assert inputs.constant.tolist() == [True, False, False] and inputs.value[0] == 0


@pytest.mark.parametrize("out", [False, True])
def test_after_an_unknown_operation_nothing_is_constant(out: bool) -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = bl.layers.Linear(2, 3), bl.layers.Linear(3, 1)

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.one(x)
            if out:
                torch.add(hidden.detach(), 5.0, out=hidden)
            else:
                hidden.index_fill_(1, torch.tensor([0]), 5.0)
            return self.two(hidden)

    model = Writes()
    model.one.weight = Masked(model.one.weight, torch.zeros(3, 2))
    reading = structure(model, torch.zeros(1, 2)).readings[1]
    assert not reading.inputs.constant.any()


def test_dropout_that_also_drops_in_evaluation_mode() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = bl.layers.Linear(2, 3), bl.layers.Linear(3, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.two(F.dropout(self.one(x), 0.5))

    model = Noisy()
    model.one.weight = Masked(model.one.weight, torch.zeros(3, 2))
    nn.init.constant_(model.one.bias, 1.0)  # pyright: ignore
    model.one.bias.data[0] = 0.0  # pyright: ignore
    assert structure(model, torch.zeros(1, 2)).readings[1].inputs.constant.tolist() == [True, False, False]
