"""Groups of weights: what belongs together, and how large it is, in every kind of layer and in stacks."""

import math

import pytest
import torch
from torch import Tensor, nn

from bayeslim.optim.groups import Group, PrunableLayer, check_group, em_threshold, prunable_layers
from bayeslim.priors import Normal
from contracts.cases import each


def layer_of(module: nn.Module) -> PrunableLayer:
    return prunable_layers(nn.Sequential(module))[0]


def test_em_threshold_of_the_reference() -> None:
    """N wd = 25 and 50, p = 1/2, 3 x 3 kernels: ln 2 / 25."""
    assert em_threshold(slab_precision=25, spike_precision=50, group_size=9) == pytest.approx(math.log(2) / 25)


@pytest.mark.parametrize("probability", [0.3, 0.5, 0.9])
@pytest.mark.parametrize("size", [1, 9])
def test_em_threshold_is_where_spike_and_slab_are_equally_likely(probability: float, size: int) -> None:
    slab, spike = 2.0, 30.0
    square = em_threshold(slab_precision=slab, spike_precision=spike, spike_probability=probability, group_size=size)
    assert square > 0

    def log_joint(precision: float, prior: float, square: float) -> float:
        density = torch.distributions.Normal(0.0, precision**-0.5).log_prob(torch.tensor(square).sqrt())
        return math.log(prior) + size * density.item()

    for factor, sign in ((1.0, 0), (0.9, 1), (1.1, -1)):
        gap = log_joint(spike, probability, factor * square) - log_joint(slab, 1 - probability, factor * square)
        assert gap == pytest.approx(0, abs=1e-4) if sign == 0 else gap * sign > 1e-3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"slab_precision": 50, "spike_precision": 25}, "`spike_precision` must exceed"),
        ({"slab_precision": 0, "spike_precision": 25}, "`spike_precision` must exceed"),
        ({"slab_precision": 1, "spike_precision": 2, "spike_probability": 1.0}, "`spike_probability` must lie in"),
        ({"slab_precision": 1, "spike_precision": 2, "group_size": 0}, "`group_size` must be at least 1, got 0"),
    ],
)
def test_em_threshold_refuses(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        em_threshold(**arguments)  # pyright: ignore[reportArgumentType]


def test_unknown_group() -> None:
    with pytest.raises(ValueError, match="`group` must be one of 'weight', 'kernel', .*, got 'row'"):
        check_group("row")


def test_linear_groups_by_hand() -> None:
    layer = layer_of(nn.Linear(2, 3))
    weight = torch.tensor([[3.0, 0.0], [4.0, 1.0], [0.0, 2.0]])
    assert layer.mean_square(weight, "input_unit").flatten().tolist() == pytest.approx([25 / 3, 5 / 3])
    assert layer.mean_square(weight, "output_unit").flatten().tolist() == pytest.approx([4.5, 8.5, 2.0])
    for single in ("weight", "kernel"):
        assert torch.equal(layer.mean_square(weight, single)[0], weight.square())
    assert layer.size(weight, "input_unit").flatten().tolist() == pytest.approx([(25 / 3) ** 0.5, (5 / 3) ** 0.5])


def brute_force(weight: Tensor, group: Group, conv_groups: int, transposed: bool) -> dict[tuple[int, ...], list[float]]:
    """The weights of every group by (input channel, output channel) of the layer, whatever the layout."""
    found: dict[tuple[int, ...], list[float]] = {}
    for place in torch.cartesian_prod(*(torch.arange(n) for n in weight.shape)).tolist():
        first, second, *kernel = place
        block = first // (weight.shape[0] // conv_groups)
        other = block * weight.shape[1] + second
        i, o = (first, other) if transposed else (other, first)
        key = {
            "weight": (i, o, *kernel),
            "kernel": (i, o),
            "input_unit": (i,),
            "output_unit": (o,),
        }[group]
        found.setdefault(key, []).append(weight[tuple(place)].item())
    return found


@each("group", ["weight", "kernel", "input_unit", "output_unit"])
@each(
    ("module", "conv_groups", "transposed"),
    [
        (nn.Conv1d(4, 6, 3), 1, False),
        (nn.Conv2d(4, 6, (2, 3)), 1, False),
        (nn.Conv2d(4, 6, 2, groups=2), 2, False),
        (nn.Conv2d(4, 4, 3, groups=4), 4, False),
        (nn.Conv3d(2, 3, (1, 2, 2)), 1, False),
        (nn.ConvTranspose2d(4, 6, 2), 1, True),
        (nn.ConvTranspose2d(4, 6, 2, groups=2), 2, True),
    ],
)
def test_convolution_groups(group: Group, module: nn.Module, conv_groups: int, transposed: bool) -> None:
    layer = layer_of(module)
    weight = layer.weight.detach()
    members = brute_force(weight, group, conv_groups, transposed)
    squares = sorted(sum(v * v for v in values) / len(values) for values in members.values())
    sizes = sorted(max(max(values) - min(values), *(abs(v) for v in values)) for values in members.values())
    assert layer.mean_square(weight, group).flatten().sort().values.tolist() == pytest.approx(squares, rel=1e-5)
    assert layer.size(weight, group).flatten().sort().values.tolist() == pytest.approx(sizes, rel=1e-5)
    largest = layer.whole(layer.largest(layer.size(weight, group)))
    kept = sorted(weight[largest].tolist())
    assert kept == sorted(max(members.values(), key=lambda v: max(max(v) - min(v), *(abs(w) for w in v))))


def test_equal_weights_are_not_small() -> None:
    """The range of a constant channel is 0, its magnitude is not."""
    layer = layer_of(nn.Conv2d(2, 3, 3))
    assert layer.size(torch.full((3, 2, 3, 3), -0.7), "input_unit").flatten().tolist() == pytest.approx([0.7, 0.7])


@pytest.mark.parametrize("group", ["weight", "kernel", "input_unit", "output_unit"])
@pytest.mark.parametrize("module", [nn.Linear(3, 4), nn.Conv2d(4, 6, 2, groups=2)])
def test_a_stack_is_judged_as_its_networks_are(group: Group, module: nn.Module) -> None:
    alone = layer_of(module)
    weights = torch.randn(2, 5, *alone.weight.shape)
    module.weight = nn.Parameter(weights)
    stacked = layer_of(module)
    size = stacked.size(weights, group)
    masks = stacked.whole(stacked.largest(size))
    assert masks.shape == weights.shape
    for place in [(0, 0), (1, 4)]:
        expected = alone.size(weights[place], group)
        assert torch.equal(size[place], expected)
        assert torch.equal(masks[place], alone.whole(alone.largest(expected)))


def test_the_first_of_equal_groups_is_the_largest() -> None:
    layer = layer_of(nn.Linear(3, 2))
    assert layer.largest(torch.ones(1, 1, 3)).flatten().tolist() == [True, False, False]


def test_layers_are_found_once_and_by_choice() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3), nn.Conv1d(3, 2, 1), nn.BatchNorm1d(2))
    assert [layer.name for layer in prunable_layers(model)] == ["0", "2", "3"]
    assert [layer.name for layer in prunable_layers(model, lambda name, m: isinstance(m, nn.Conv1d))] == ["3"]
    model[2].weight = model[0].weight
    assert [layer.name for layer in prunable_layers(model)] == ["0", "3"]


def test_only_convolutions_have_kernels() -> None:
    model = nn.Sequential(nn.Conv1d(3, 2, 1), nn.Flatten(), nn.Linear(4, 3))
    assert [layer.name for layer in prunable_layers(model, linear=False)] == ["0"]
    with pytest.raises(ValueError, match="no plain convolution, which alone has kernels, that `where` accepts"):
        prunable_layers(model, lambda name, _: name == "2", linear=False)


@pytest.mark.parametrize("model", [nn.Sequential(nn.ReLU()), Normal(), nn.BatchNorm1d(3)])
def test_nothing_to_prune(model: nn.Module) -> None:
    with pytest.raises(ValueError, match="no layer to prune: `model` has no plain linear layer"):
        prunable_layers(model)
