"""Compacted networks against the masked ones they come from."""

import copy
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

import bayeslim as bl
from bayeslim.likelihoods.base import remember_likelihood_, remembered_likelihood
from bayeslim.masks import Masked, mask_of
from bayeslim.posteriors import KTied, MeanField, Multiplicative
from bayeslim.pruning.compact import compact
from bayeslim.pruning.prune import bayes_layers, set_masks_
from bayeslim.select import Select
from contracts.cases import each
from pruning.networks import BatchView, Dense, Gated, Residual

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def disturb_(model: nn.Module, seed: int = 0) -> nn.Module:
    """Biases, normalisations and scales that are not those of a fresh network."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(getattr(module, "bias", None), nn.Parameter):
                module.bias.normal_(generator=generator)  # pyright: ignore
            if isinstance(module, _BatchNorm):
                assert module.running_mean is not None and module.running_var is not None
                module.weight.normal_(1.0, 0.3, generator=generator)
                module.running_mean.normal_(generator=generator)
                module.running_var.uniform_(0.5, 2.0, generator=generator)
            if isinstance(module, MeanField):
                module.log_scale.uniform_(-3.0, -1.0, generator=generator)
    return model.eval()


def mask_(model: nn.Module, seed: int, units: float = 0.3, weights: float = 0.3) -> nn.Module:
    """Prune random weights and whole random rows and columns of every layer."""
    generator = torch.Generator().manual_seed(seed)
    layers, masks = bayes_layers(model), {}
    for name, layer in layers.items():
        shape = layer.weight.mean().shape
        keep = torch.rand(shape, generator=generator) >= weights
        keep &= (torch.rand(shape[0], generator=generator) >= units).view(-1, *[1] * (len(shape) - 1))
        keep &= (torch.rand(shape[1], generator=generator) >= units).view(-1, *[1] * (len(shape) - 2))
        masks[name] = keep.float()
    set_masks_(layers, masks, allow_empty=True)
    return model


def set_(model: nn.Module, **masks: list[list[int]] | Tensor) -> nn.Module:
    """Give layers masks by name ("l0" for the layer "0")."""
    layers = bayes_layers(model)
    tensors = {name if name in layers else name[1:]: torch.as_tensor(mask) for name, mask in masks.items()}
    set_masks_({name: layers[name] for name in tensors}, tensors, allow_empty=True)
    return model


def mean_of(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad(), bl.using(model, bl.mean_only):
        return model(x)


def variance_of(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad(), bl.using(model, bl.moments):
        return model(x).variance


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def check(model: nn.Module, x: Tensor, **options: Any) -> nn.Module:
    """Compact, compare, and see that the original is as it was."""
    before = copy.deepcopy(model.state_dict())
    expected = mean_of(model, x)
    small = compact(model, x[:1], **options)
    torch.testing.assert_close(
        mean_of(small, x), expected, rtol=0, atol=TOLERANCE[x.dtype] * max(1.0, float(expected.abs().max()))
    )
    after = model.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[key], after[key]) for key in before)
    shared = {tensor.data_ptr() for tensor in after.values()} & {t.data_ptr() for t in small.state_dict().values()}
    assert not shared - {0}
    assert size(small) <= size(model)
    return small


def shapes(model: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(layer.weight.mean().shape) for layer in bayes_layers(model).values()]


@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "gelu", "sin"])
@each("dtype", [torch.float32, torch.float64])
@each("fold", ["mean", "exact"])
def test_perceptrons(activation: str, dtype: torch.dtype, fold: str) -> None:
    shrunk = 0
    for seed in range(8):
        torch.manual_seed(seed)
        model = mask_(disturb_(bl.mlp([9, 14, 12, 11, 4], activations=activation), seed).to(dtype), seed)
        x = torch.randn(6, 9, dtype=dtype)
        small = check(model, x, fold=fold)
        if fold == "exact":
            torch.testing.assert_close(variance_of(small, x), variance_of(model, x), rtol=1e-4, atol=1e-6)
        shrunk += size(small) < size(model)
    assert shrunk == 8


def test_a_dead_unit_is_folded_and_its_spread_dropped_unless_exact() -> None:
    """Unit 0 is the constant tanh(0.7); its weight to the output is 2 with variance 0.25."""
    model = bl.mlp([2, 2, 1], activations="tanh").double()
    first, last = bayes_layers(model).values()
    with torch.no_grad():
        assert isinstance(first.bias, Tensor) and isinstance(last.bias, Tensor)
        assert isinstance(last.weight, MeanField)
        first.bias.copy_(torch.tensor([0.7, 0.1], dtype=torch.float64))
        last.bias.fill_(0.5)
        last.weight.loc.copy_(torch.tensor([[2.0, 3.0]]))
        last.weight.set_scale_(0.5)
    set_(model, l0=[[0, 0], [1, 1]])
    x = torch.randn(4, 2, dtype=torch.float64)
    small = check(model, x)
    assert shapes(small) == [(1, 2), (1, 1)]
    bias = bayes_layers(small)["2"].bias
    assert isinstance(bias, Tensor)
    assert bias.item() == pytest.approx(0.5 + 2 * math.tanh(0.7), abs=1e-12)
    lost = variance_of(model, x) - variance_of(small, x)
    torch.testing.assert_close(lost, torch.full_like(lost, 0.25 * math.tanh(0.7) ** 2))
    exact = check(model, x, fold="exact")
    assert shapes(exact) == [(2, 2), (1, 2)]
    torch.testing.assert_close(variance_of(exact, x), variance_of(model, x))


def test_exact_removes_a_unit_that_gives_zero() -> None:
    model = bl.mlp([2, 2, 1])
    bias = bayes_layers(model)["0"].bias
    assert isinstance(bias, Tensor)
    with torch.no_grad():
        bias.copy_(torch.tensor([-1.0, 0.3]))
    small = check(set_(model, l0=[[0, 0], [1, 1]]), torch.randn(4, 2), fold="exact")
    assert shapes(small) == [(1, 2), (1, 1)]


@pytest.mark.parametrize("fold", ["mean", "exact"])
def test_a_bias_with_a_posterior(fold: str) -> None:
    torch.manual_seed(0)
    model = bl.mlp(
        [3, 4, 2], bias_posterior=functools.partial(MeanField, scale=0.3), bias_prior=bl.priors.Normal(0.1, 2)
    )
    for layer in bayes_layers(model).values():
        nn.init.normal_(layer.bias.loc)  # pyright: ignore
    set_(model, l0=[[0] * 3, [1] * 3, [1] * 3, [0] * 3], l2=[[1, 1, 0, 0], [1, 1, 0, 0]])
    x = torch.randn(5, 3)
    small = check(model, x, fold=fold)
    assert shapes(small) == ([(1, 3), (2, 1)] if fold == "mean" else [(2, 3), (2, 2)])  # an uncertain constant
    if fold == "exact":
        torch.testing.assert_close(variance_of(small, x), variance_of(model, x))


def test_a_bias_whose_variance_follows_its_mean_takes_no_constant() -> None:
    torch.manual_seed(0)
    model = bl.mlp([3, 4, 2], activations="sigmoid", bias_posterior=Multiplicative)
    for layer in bayes_layers(model).values():
        nn.init.normal_(layer.bias.loc)  # pyright: ignore
    small = check(set_(model, l0=[[0] * 3, [1] * 3, [1] * 3, [1] * 3]), torch.randn(5, 3))
    assert shapes(small) == [(4, 3), (2, 4)]


def test_units_dead_by_their_outgoing_weights_and_chains() -> None:
    torch.manual_seed(0)
    model = disturb_(bl.mlp([5, 6, 7, 8, 3]))
    outgoing, last = torch.ones(8, 7), torch.ones(3, 8)
    last[:, 1:] = 0  # only unit 0 of the third hidden layer is used
    outgoing[0, 2:] = 0  # and it uses only units 0 and 1 of the second
    middle = torch.ones(7, 6)
    middle[:2, 3:] = 0
    x = torch.randn(4, 5)
    small = check(set_(model, l2=middle, l4=outgoing, l6=last), x, fold="exact")
    assert shapes(small) == [(3, 5), (2, 3), (1, 2), (3, 1)]
    torch.testing.assert_close(variance_of(small, x), variance_of(model, x))
    assert not any(isinstance(module, Masked) for module in small.modules())


def test_constants_run_through_several_layers() -> None:
    """Unit 0 of layer two sees only dead units: it is constant too, and so on."""
    torch.manual_seed(0)
    model = disturb_(bl.mlp([4, 3, 3, 3, 2], activations="tanh")).double()
    chain = [[1, 0, 0], [0, 1, 1], [0, 1, 1]]
    small = check(set_(model, l0=[[0] * 4, [1] * 4, [1] * 4], l2=chain, l4=chain), torch.randn(5, 4).double())
    assert shapes(small) == [(2, 4), (2, 2), (2, 2), (2, 2)]


def test_nothing_pruned_changes_nothing() -> None:
    torch.manual_seed(0)
    model = disturb_(bl.bayesianize_(bl.models.resnet18(width=4)))
    small = check(model, torch.randn(2, 3, 8, 8))
    assert [p.shape for p in small.parameters()] == [p.shape for p in model.parameters()]
    assert list(small.state_dict()) == list(model.state_dict())
    ones = set_(bl.mlp([2, 3, 1]), l0=torch.ones(3, 2))
    assert not any(isinstance(module, Masked) for module in check(ones, torch.randn(2, 2)).modules())


@pytest.mark.parametrize("layer", [0, 2, 4])
def test_a_layer_without_weights_makes_a_constant_network(layer: int) -> None:
    torch.manual_seed(0)
    model = disturb_(bl.mlp([40, 30, 30, 3]))
    set_(model, **{f"l{layer}": torch.zeros_like(bayes_layers(model)[str(layer)].weight.mean())})
    x = torch.randn(4, 40)
    small = check(model, x)
    assert torch.equal(mean_of(small, x)[:1].expand(4, 3), mean_of(small, x))
    assert size(small) < 0.1 * size(model) and all(0 not in shape for shape in shapes(small))
    assert not any(mask_of(part.weight).any() for part in bayes_layers(small).values())
    assert mean_of(small, 100 * x).allclose(mean_of(model, x), atol=1e-5)


def test_masks_that_cut_the_network_in_two_leave_the_bias() -> None:
    torch.manual_seed(0)
    model = disturb_(bl.mlp([3, 4, 4, 2]))
    left, right = torch.tensor([1, 1, 0, 0.0]), torch.tensor([0, 0, 1, 1.0])
    set_(model, l0=left[:, None].expand(4, 3), l2=torch.outer(left, right), l4=left.expand(2, 4))
    small = check(model, torch.randn(5, 3))
    assert shapes(small) == [(1, 3), (1, 1), (2, 1)]


def test_lenet_5() -> None:
    torch.manual_seed(0)
    model = mask_(disturb_(bl.bayesianize_(bl.models.lenet5_caffe())), 0)
    small = check(model, torch.randn(3, 1, 28, 28))
    assert size(small) < 0.4 * size(model)


@pytest.mark.parametrize("padding", [0, 1, "same"])
@pytest.mark.parametrize("padding_mode", ["zeros", "circular"])
def test_a_constant_does_not_fold_over_zero_padding(padding: int | str, padding_mode: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        bl.layers.Conv2d(2, 4, 3),
        nn.Sigmoid(),
        bl.layers.Conv2d(4, 3, 3, padding=padding, padding_mode=padding_mode),
    )
    mask = torch.ones(4, 2, 3, 3)
    mask[1:3] = 0
    small = check(set_(disturb_(model).double(), l0=mask), torch.randn(2, 2, 8, 8).double())
    folds = padding == 0 or padding_mode == "circular"
    assert shapes(small) == ([(2, 2, 3, 3), (3, 2, 3, 3)] if folds else [(4, 2, 3, 3), (3, 4, 3, 3)])


@pytest.mark.parametrize(
    "pool", [nn.AvgPool2d(3, 1, 1), nn.AvgPool2d(3, 1, 1, count_include_pad=False), nn.MaxPool2d(3, 1, 1)]
)
def test_pools_with_padding(pool: nn.Module) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(bl.layers.Conv2d(2, 4, 3), nn.Sigmoid(), pool, bl.layers.Conv2d(4, 3, 1))
    mask = torch.ones(4, 2, 3, 3)
    mask[0] = 0
    small = check(set_(disturb_(model), l0=mask), torch.randn(2, 2, 8, 8))
    kept = 4 if isinstance(pool, nn.AvgPool2d) and pool.count_include_pad else 3
    assert shapes(small)[0][0] == kept


@pytest.mark.parametrize("seed", range(3))
def test_residual_networks(seed: int) -> None:
    torch.manual_seed(seed)
    model = mask_(disturb_(bl.bayesianize_(bl.models.resnet18(width=6)), seed).double(), seed, units=0.2)
    small = check(model, torch.randn(2, 3, 9, 9).double())
    assert size(small) < 0.9 * size(model)


def test_a_channel_behind_a_sum_goes_only_if_both_sides_let_it() -> None:
    torch.manual_seed(0)
    model = disturb_(Residual(3, 6)).double()
    last = torch.ones(2, 6)
    last[:, 4:] = 0  # channels 4 and 5 of the stream reach no output through the head
    block = torch.ones(6, 6, 3, 3)
    block[:, 4] = 0  # but only channel 4 is not used by the block either
    small = check(set_(model, head=last, inner=block), torch.randn(3, 3, 6, 6).double())
    assert isinstance(small, Residual)
    assert (small.stem.weight.mean().shape[0], small.outer.weight.mean().shape[0]) == (5, 5)
    assert small.norm.num_features == 5


@pytest.mark.parametrize("width", [0.1])
def test_vgg(width: float) -> None:
    torch.manual_seed(0)
    model = mask_(disturb_(bl.bayesianize_(bl.models.vgg_like(width=width))), 0, units=0.15)
    small = check(model, torch.randn(2, 3, 32, 32))
    assert size(small) < 0.7 * size(model)


@pytest.mark.parametrize("groups", [2, 3, 6])
def test_grouped_convolutions_lose_whole_groups(groups: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        bl.layers.Conv2d(2, 6, 1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        bl.layers.Conv2d(6, 12, 3, padding=1, groups=groups),
        nn.ReLU(),
        bl.layers.Conv2d(12, 3, 1),
    )
    per = 12 // groups
    last = torch.ones(3, 12, 1, 1)
    last[:, per : 2 * per] = 0
    last[:, 0] = 0  # a part of a group, which stays (but for the depthwise one of two)
    small = check(set_(disturb_(model), l5=last), torch.randn(2, 2, 5, 5))
    conv = bayes_layers(small)["3"]
    assert conv.op.groups == groups - 1
    assert shapes(small) == [(6 - 6 // groups, 2, 1, 1), (12 - per, 6 // groups, 3, 3), (3, 12 - per, 1, 1)]
    plain = bl.collapse_(copy.deepcopy(small))
    x = torch.randn(2, 2, 5, 5)
    torch.testing.assert_close(plain(x), mean_of(small, x))


def test_transposed_convolutions() -> None:
    torch.manual_seed(0)
    for seed in range(4):
        model = nn.Sequential(
            bl.layers.Conv2d(2, 6, 3),
            nn.ReLU(),
            bl.layers.ConvTranspose2d(6, 5, 3, stride=2),
            nn.Tanh(),
            nn.ConvTranspose2d(5, 4, 2),
            nn.Tanh(),
            bl.layers.ConvTranspose2d(4, 1, 2),
        )
        check(mask_(disturb_(model), seed), torch.randn(2, 2, 8, 8))


def test_plain_layers_beside_bayesian_ones_are_cut_along() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        bl.layers.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)
    )
    mask = torch.ones(6, 4)
    mask[:3] = 0
    small = check(set_(disturb_(model), l0=mask), torch.randn(5, 4))
    plain, norm = small[3], small[1]  # pyright: ignore
    assert (plain.in_features, plain.weight.shape, norm.num_features) == (3, (5, 3), 3)


def test_a_plain_layer_behind_nothing_but_constants() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(bl.layers.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    small = check(set_(disturb_(model), l0=torch.zeros(6, 4)), torch.randn(5, 4))
    assert small[2].weight.tolist() == [[0.0], [0.0]]  # pyright: ignore


@pytest.mark.parametrize("make", [BatchView, Gated, Dense], ids=lambda make: make.__name__)
def test_other_forms(make: Callable[[], nn.Module]) -> None:
    for seed in range(4):
        torch.manual_seed(seed)
        model = mask_(disturb_(make(), seed).double(), seed, units=0.3, weights=0.0)
        small = check(model, torch.randn(3, 2, 8, 8).double())
        assert size(small) < size(model)


@pytest.mark.parametrize(
    "posterior",
    [functools.partial(KTied, k=2, scale=0.1), functools.partial(Multiplicative, alpha=0.3), MeanField],
    ids=["k-tied", "multiplicative", "mean field"],
)
def test_posteriors_and_tensor_priors(posterior: Any) -> None:
    """Mean, variance and prior of every weight that stays are what they were."""

    def prior(weight: Tensor) -> bl.priors.Normal:
        return bl.priors.Normal(weight * 2, torch.rand_like(weight) + 0.1)

    for seed in range(4):
        torch.manual_seed(seed)
        model = nn.Sequential(
            nn.Conv2d(2, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 4, 9), nn.ReLU(), nn.Linear(9, 3)
        )
        mask_(disturb_(bl.bayesianize_(model, posterior=posterior, prior=prior)), seed)
        x = torch.randn(2, 2, 4, 4)
        small = check(model, x, fold="exact")
        assert size(small) < size(model)
        for old, new in zip(bayes_layers(model).values(), bayes_layers(small).values(), strict=True):
            facts = []
            for layer in (old, new):
                assert isinstance(layer.prior.mean, Tensor) and isinstance(layer.prior.std, Tensor)
                parts = (layer.weight.mean(), layer.weight.variance(), layer.prior.mean, layer.prior.std)
                alive = mask_of(layer.weight) > 0
                facts.append(torch.stack([part[alive] for part in parts], 1))
            distance = torch.cdist(facts[1].double(), facts[0].double(), compute_mode="donot_use_mm_for_euclid_dist")
            assert not len(facts[1]) or distance.amin(1).max() < 1e-6
            assert math.isfinite(new.kl().item())


def test_a_rank_that_no_longer_fits_becomes_mean_field() -> None:
    torch.manual_seed(0)
    model = bl.mlp([5, 6, 3], posterior=functools.partial(KTied, k=3, scale=0.1))
    mask = torch.zeros(3, 6)
    mask[:, 2] = 1
    x = torch.randn(4, 5)
    small = check(set_(model, l2=mask), x)
    assert [type(layer.weight) for layer in bayes_layers(small).values()] == [MeanField, MeanField]
    torch.testing.assert_close(variance_of(small[0], x), variance_of(model[0], x)[:, 2:3])  # pyright: ignore


def test_a_prior_scaled_to_the_fan_in_keeps_its_scale() -> None:
    torch.manual_seed(0)
    model = bl.mlp([5, 6, 3], prior=bl.priors.HeNormal())
    mask = torch.ones(3, 6)
    mask[:, 2:] = 0
    small = check(set_(model, l2=mask), torch.randn(4, 5))
    assert bayes_layers(small)["2"].kl().item() == pytest.approx(bayes_layers(model)["2"].kl().item(), rel=1e-5)
    assert isinstance(bayes_layers(small)["0"].prior, bl.priors.HeNormal)


def attention(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    plain = bl.models.ViT(dim=16, depth=2, heads=4, hidden=12, image=8, patch=4, qkv_bias=True)
    return disturb_(bl.bayesianize_(plain), seed)


@pytest.mark.parametrize("fold", ["mean", "exact"])
def test_attention_heads(fold: str) -> None:
    model = attention(0)
    name = "layers.1.self_attn"
    masks = {f"{name}.{part}": torch.ones(16, 16) for part in ("q_proj", "k_proj", "v_proj", "out_proj")}
    masks[f"{name}.v_proj"][4:8] = 0  # head 1 gives its bias
    masks[f"{name}.out_proj"][:, 8:12] = 0  # nobody asks head 2
    set_(model, **masks)
    small = check(model, torch.randn(3, 1, 8, 8), fold=fold)
    module: Any = small.get_submodule(name)
    assert module.num_heads == (2 if fold == "mean" else 3)
    assert module.q_proj.weight.mean().shape == module.out_proj.weight.mean().shape[::-1] == (4 * module.num_heads, 16)


def test_attention_without_a_living_head_and_units_of_the_feed_forward() -> None:
    model = attention(1)
    last = torch.ones(16, 12)
    last[:, 5:] = 0
    set_(model, **{"layers.0.self_attn.out_proj": torch.zeros(16, 16), "layers.0.linear2": last})
    small: Any = check(model, torch.randn(3, 1, 8, 8))
    assert small.layers[0].self_attn.num_heads == 1
    assert small.layers[0].linear1.weight.mean().shape == (5, 16)


@pytest.mark.filterwarnings("ignore:no unit could be removed")
@pytest.mark.parametrize("extra", ["", "add_bias_kv", "add_zero_attn", "uncertain"])
def test_constant_values_of_a_head(extra: str) -> None:
    """They are what the head gives, unless further positions have other values or, exactly, their bias is uncertain."""

    class Attends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            options: dict[str, Any] = {extra: True} if extra.startswith("add") else {}
            plain = nn.MultiheadAttention(8, 2, batch_first=True, **options)
            scale = functools.partial(MeanField, scale=0.5) if extra == "uncertain" else None
            self.attention = bl.layers.MultiheadAttention.from_torch(plain, bias_posterior=scale)

        def forward(self, x: Tensor) -> Tensor:
            return self.attention(x, x, x, need_weights=False)[0]

    torch.manual_seed(0)
    model = disturb_(Attends())
    mask = torch.ones(8, 8)
    mask[:4] = 0
    set_(model, **{"attention.v_proj": mask})
    model.attention.out_proj.weight.set_scale_(0.0)  # pyright: ignore
    x = torch.randn(2, 3, 8)
    for fold in ("mean", "exact"):
        small: Any = check(model, x, fold=fold)
        removed = extra == "" or (extra == "uncertain" and fold == "mean")
        assert small.attention.num_heads == (1 if removed else 2)


def test_unused_heads_take_the_learned_positions_along() -> None:
    class Attends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            plain = nn.MultiheadAttention(8, 2, batch_first=True, add_bias_kv=True)
            self.attention = bl.layers.MultiheadAttention.from_torch(plain)

        def forward(self, x: Tensor) -> Tensor:
            return self.attention(x, x, x, need_weights=False)[0]

    torch.manual_seed(0)
    mask = torch.ones(8, 8)
    mask[:, :4] = 0
    small: Any = check(set_(disturb_(Attends()), **{"attention.out_proj": mask}), torch.randn(2, 3, 8))
    assert small.attention.num_heads == 1 and small.attention.bias_v.shape == (1, 1, 4)


def test_heads_stay_where_the_attention_weights_are_used() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = bl.layers.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            output, weights = self.attention(x, x, x)
            return output, weights

    torch.manual_seed(0)
    model = Both()
    mask = torch.ones(8, 8)
    mask[:, :4] = 0
    set_(model, **{"attention.out_proj": mask})
    small: Any = compact(model, torch.randn(2, 3, 8))
    assert small.attention.num_heads == 2


@pytest.mark.parametrize("pixels", [5, 30])
def test_dead_inputs_are_selected_where_it_pays(pixels: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), bl.mlp([64, 60, 3]))
    mask = torch.zeros(60, 64)
    mask[:, torch.randperm(64)[:pixels]] = 1
    set_(disturb_(model), **{"1.0": mask})
    small: Any = check(model, torch.randn(4, 1, 8, 8))
    assert isinstance(small[1][0][0], Select)
    assert small[1][0][1].weight.mean().shape == (60, pixels)
    x = torch.randn(4, 1, 8, 8)
    torch.testing.assert_close(variance_of(small, x), variance_of(model, x))
    few = set_(disturb_(bl.mlp([64, 3])), l0=mask[:3])
    assert any(isinstance(module, Select) for module in compact(few, x.flatten(1)).modules()) == (pixels == 5)


def test_no_select_inside_a_module_that_torch_reads_the_weights_of() -> None:
    torch.manual_seed(0)
    model = bl.bayesianize_(bl.models.ViT(dim=16, depth=1, heads=4, hidden=200, image=8, patch=4))
    mask = torch.zeros(200, 16)
    mask[:, :2] = 1
    x = torch.randn(3, 1, 8, 8)
    small = check(set_(disturb_(model), **{"layers.0.linear1": mask}), x)
    assert not any(isinstance(module, Select) for module in small.modules())
    torch.testing.assert_close(bl.collapse_(copy.deepcopy(small))(x), mean_of(small, x))


def test_a_single_layer_and_its_likelihood() -> None:
    layer = bl.layers.Linear(50, 40)
    remember_likelihood_(layer, bl.Categorical())
    mask = torch.zeros(40, 50)
    mask[:, :3] = 1
    layer.weight = Masked(layer.weight, mask)
    small = check(layer, torch.randn(4, 50))
    assert isinstance(small, nn.Sequential) and isinstance(small[0], Select)
    assert bl.predict(small, torch.randn(2, 50)).mean.shape == (2, 40)


def test_modes_estimators_types_and_likelihood_are_kept() -> None:
    torch.manual_seed(0)
    model = disturb_(bl.bayesianize_(bl.models.vgg_like(width=0.05), estimator=bl.flipout)).double().train()
    model[1].eval()  # pyright: ignore
    remember_likelihood_(model, bl.Categorical())
    mask_(model, 0, units=0.1)
    small = compact(model, torch.randn(2, 3, 32, 32).double())
    assert small.training and not small[1].training and all(m.training for m in small[2:])  # pyright: ignore
    assert all(layer.estimator is bl.flipout for layer in bayes_layers(small).values())
    assert {parameter.dtype for parameter in small.parameters()} == {torch.float64}
    assert isinstance(remembered_likelihood(small), bl.Categorical)
    assert model.training and all(layer.estimator is bl.flipout for layer in bayes_layers(model).values())


def test_predictions_have_the_same_distribution() -> None:
    torch.manual_seed(0)
    model = mask_(disturb_(bl.mlp([6, 30, 20, 2])), 1, units=0.4)
    small = compact(model, torch.zeros(1, 6), fold="exact")
    assert size(small) < size(model)
    x, count = torch.randn(3, 6), 8000
    old, new = (bl.predict(m, x, samples=count, likelihood=bl.likelihoods.Gaussian(noise=0.1)) for m in (model, small))
    error = (old.epistemic / count + new.epistemic / count).sqrt()
    assert ((old.mean - new.mean).abs() < 5 * error).all()
    torch.testing.assert_close(old.epistemic, new.epistemic, rtol=5 * math.sqrt(4 / count), atol=0)


def test_fine_tuning_collapsing_saving(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = mask_(disturb_(bl.mlp([30, 40, 20, 2])), 0, units=0.4)
    x = torch.randn(200, 30)
    small = check(model, x)
    assert any(isinstance(module, Select) for module in small.modules())
    y = (x[:, 0] > 0).long()
    bl.fit(small, (x, y), epochs=2, likelihood=bl.Categorical())
    bl.save(small, tmp_path / "small.safetensors")
    again = bl.load(tmp_path / "small.safetensors")
    assert torch.equal(mean_of(again, x), mean_of(small, x))
    torch.testing.assert_close(bl.collapse_(copy.deepcopy(small))(x), mean_of(small, x))


def test_compacting_twice_changes_nothing_more() -> None:
    torch.manual_seed(0)
    model = mask_(disturb_(bl.mlp([30, 40, 20, 2])), 0, units=0.4)
    small = check(model, torch.randn(3, 30))
    assert size(check(small, torch.randn(3, 30))) == size(small)


def test_layers_used_twice_or_tied_are_left_alone() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.again, self.last = bl.layers.Linear(4, 6), bl.layers.Linear(6, 6), bl.layers.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(F.relu(self.again(F.relu(self.again(F.relu(self.first(x)))))))

    torch.manual_seed(0)
    small = check(mask_(disturb_(Twice()), 3), torch.randn(3, 4))
    assert shapes(small)[0][0] == 6 and shapes(small)[1] == (6, 6)
    tied = bl.mlp([4, 4, 4, 2])
    tied[2].weight.loc = tied[0].weight.loc  # pyright: ignore
    with pytest.warns(UserWarning, match="'0' keeps 2 of 4 outputs: it shares its parameters"):
        small = check(mask_(disturb_(tied), 3), torch.randn(3, 4))
    assert shapes(small)[:2] == [(4, 4), (4, 4)]


def test_errors_and_what_cannot_be_followed() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = bl.layers.Linear(3, 3), bl.layers.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.a(x) if x.sum() > 0 else self.b(x)

    x = torch.randn(2, 3)
    with pytest.raises(ValueError, match="Branching.*cannot be traced.*submodule"):
        compact(Branching(), x)
    model = mask_(disturb_(nn.Sequential(bl.mlp([3, 9, 3]), Branching(), bl.mlp([3, 9, 2]))), 0, units=0.4)
    small = check(model, x)
    assert shapes(small)[0][0] < 9 and shapes(small)[2:4] == [(3, 3), (3, 3)]
    with pytest.raises(ValueError, match="`fold` must be"):
        compact(model, x, fold="none")  # pyright: ignore
    with pytest.raises(ValueError, match="`example` must be a tensor"):
        compact(model, [1.0])  # pyright: ignore
    with pytest.raises(ValueError, match=r"does not run on `example` of shape \(2, 5\)"):
        compact(model, torch.randn(2, 5))


def test_a_difference_is_an_error_not_a_result() -> None:
    class Hidden(nn.Module):
        """Writes into a view of a tensor that is used again: invisible to a trace by nodes."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = bl.layers.Linear(3, 4), bl.layers.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.first(x)
            hidden.detach().add_(1.0)
            return self.last(hidden)

    model = set_(disturb_(Hidden()), first=[[0] * 3, [1] * 3, [1] * 3, [1] * 3])
    with pytest.raises(RuntimeError, match="differs from `model` by"):
        compact(model, torch.randn(2, 3))
