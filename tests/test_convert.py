"""Turning plain networks into Bayesian ones."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm

from bayeslim import bayesianize_, collapse_, kl, layers, load, mean_only, save, using, weight_sample
from bayeslim.convert import CONVERTERS
from bayeslim.posteriors import KTied, MatrixNormal, MeanField
from bayeslim.priors import ARD, Normal
from contracts.members import INDEX_LAYERS, LAYERS


class Branches(nn.Module):
    """A network whose layers are nested and shared."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU())
        self.heads = nn.ModuleDict({"a": nn.Linear(8, 8), "b": nn.Linear(8, 3)})
        self.again = self.heads["a"]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.stem(x).flatten(1)
        return self.heads["b"](self.again(self.heads["a"](hidden).relu()))


def trained() -> tuple[Branches, torch.Tensor]:
    torch.manual_seed(0)
    return Branches().eval(), torch.randn(3, 1, 4, 4)


def test_every_layer_is_replaced_and_the_means_are_the_weights() -> None:
    model, x = trained()
    before = model(x)
    assert bayesianize_(model) is model
    assert type(model.stem[0]) is layers.Conv2d
    assert type(model.stem[1]) is nn.BatchNorm2d
    assert type(model.heads["b"]) is layers.Linear
    with using(model, mean_only):
        torch.testing.assert_close(model(x), before, rtol=0, atol=0)


def test_a_module_in_two_places_stays_one_module() -> None:
    model, _ = trained()
    bayesianize_(model)
    assert type(model.again) is layers.Linear
    assert model.again is model.heads["a"]


def test_only_exact_types_are_converted() -> None:
    class Custom(nn.Linear):
        """Its forward may do anything, so it is left alone."""

    with pytest.warns(UserWarning, match=r"stayed plain, Custom \(1, e\.g\. '0'\)"):
        model = bayesianize_(nn.Sequential(Custom(2, 2), nn.Linear(2, 4)))
    assert isinstance(model, nn.Sequential)
    assert [type(child) for child in model] == [Custom, layers.Linear]


def test_where_chooses_by_name_and_module() -> None:
    model, _ = trained()
    seen: list[tuple[str, str]] = []

    def where(name: str, module: nn.Module) -> bool:
        seen.append((name, type(module).__name__))
        return name != "heads.b"

    bayesianize_(model, where=where)
    assert seen == [("stem.0", "Conv2d"), ("heads.a", "Linear"), ("heads.b", "Linear"), ("again", "Linear")]
    assert type(model.heads["b"]) is nn.Linear
    assert type(model.heads["a"]) is layers.Linear


def test_nothing_to_convert_is_an_error_that_says_what_was_seen() -> None:
    for model, where in (
        (nn.Sequential(nn.ReLU(), nn.LayerNorm(2)), lambda name, module: True),
        (nn.Sequential(nn.ReLU(), nn.LayerNorm(2), nn.Linear(2, 2)), lambda name, module: False),
    ):
        message = r"no layer of `model` was converted: it holds LayerNorm, .*ReLU.*convertible are Linear, Conv1d"
        with pytest.raises(ValueError, match=message):
            bayesianize_(model, where=where)


def test_a_converted_network_has_nothing_left_to_convert() -> None:
    model = bayesianize_(nn.Sequential(nn.Linear(2, 2)))
    with pytest.raises(ValueError, match=r"`model` is Bayesian already, no layer is left .*`bl.collapse_` it first"):
        bayesianize_(model)


def test_the_training_flag_of_every_layer_is_kept() -> None:
    model, _ = trained()
    model.train()
    model.heads["a"].eval()
    bayesianize_(model)
    assert model.heads["b"].training
    assert not model.heads["a"].training
    assert all(not module.training for module in model.heads["a"].modules())


def test_a_refused_pair_leaves_the_network_untouched() -> None:
    """The second layer cannot have rank 3."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    with pytest.raises(ValueError, match="`k` must be between 1 and"):
        bayesianize_(model, posterior=functools.partial(KTied, k=3))
    assert [type(child) for child in model] == [nn.Linear, nn.Linear]


def test_every_option_reaches_the_layers() -> None:
    model, _ = trained()
    bayesianize_(
        model,
        posterior=MatrixNormal,
        prior=ARD(),
        estimator=weight_sample,
        bias_posterior=functools.partial(MeanField, scale=0.3),
        bias_prior=Normal(0.0, 2.0),
    )
    for layer in (model.stem[0], model.heads["a"], model.heads["b"]):
        assert isinstance(layer, layers.BayesLayer)
        assert isinstance(layer.weight, MatrixNormal)
        assert isinstance(layer.prior, ARD)
        assert layer.estimator is weight_sample
        assert isinstance(layer.bias, MeanField)
        torch.testing.assert_close(layer.bias.variance(), torch.full_like(layer.bias.mean(), 0.09))
        assert layer.bias_prior.config() == {"mean": 0.0, "std": 2.0}


def test_dtype_is_kept() -> None:
    model = bayesianize_(nn.Sequential(nn.Linear(2, 2)).double())
    assert all(parameter.dtype == torch.float64 for parameter in model.parameters())


def test_every_kind_has_a_converter() -> None:
    assert {*LAYERS.values(), *INDEX_LAYERS.values()} <= set(CONVERTERS)


def test_tied_weights_become_one_posterior() -> None:
    torch.manual_seed(1)
    table, head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
    head.weight = table.weight
    model = bayesianize_(nn.Sequential(table, head))
    assert isinstance(model, nn.Sequential)
    first, second = model
    assert isinstance(first, layers.Embedding)
    assert isinstance(second, layers.Linear)
    assert first.weight is second.weight
    torch.testing.assert_close(kl(model), first.kl())


def test_a_weight_tied_to_a_layer_that_stays_is_refused() -> None:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    model = nn.Sequential(first, second)
    with pytest.raises(ValueError, match=r"layers '0', '1' share a parameter"):
        bayesianize_(model, where=lambda name, module: name == "0")
    assert [type(child) for child in model] == [nn.Linear, nn.Linear]


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning")
@pytest.mark.parametrize(
    "compute",
    [
        parametrizations.weight_norm,
        parametrizations.spectral_norm,
        parametrizations.orthogonal,
        weight_norm,
        spectral_norm,
        lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
        lambda layer: prune.l1_unstructured(layer, "bias", 0.5),
    ],
)
def test_computed_weights_are_refused(compute: Callable[[nn.Module], Any]) -> None:
    layer = nn.Linear(3, 3)
    compute(layer)
    model = nn.Sequential(nn.Linear(3, 3), layer)
    with pytest.raises(ValueError, match=r"the weight of layer '1' is computed from other parameters .*remove that"):
        bayesianize_(model)
    assert type(model[0]) is nn.Linear
    bayesianize_(model, where=lambda name, module: name == "0")
    assert type(model[0]) is layers.Linear
    assert model[1] is layer


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning")
@pytest.mark.parametrize("compute", [weight_norm, functools.partial(prune.l1_unstructured, amount=0.5)])
def test_computed_weights_inside_larger_layers_are_refused(compute: Callable[..., Any]) -> None:
    attention = nn.MultiheadAttention(4, 2)
    parametrizations.spectral_norm(attention.out_proj)
    recurrent = nn.LSTM(3, 3)
    compute(recurrent, name="weight_hh_l0")
    for layer in (attention, recurrent):
        with pytest.raises(ValueError, match=r"the weight of layer '' is computed from other parameters"):
            bayesianize_(layer)


def test_tensors_that_a_user_keeps_on_a_layer_are_no_obstacle() -> None:
    layer = nn.Linear(3, 3)
    layer.last_output = torch.zeros(3)
    assert type(bayesianize_(layer)) is layers.Linear


@pytest.mark.parametrize("lazy", [nn.LazyLinear(3), nn.LazyConv2d(2, 3), nn.LazyBatchNorm1d()])
def test_lazy_modules_are_refused_until_they_have_a_shape(lazy: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(2, 2), lazy)
    with pytest.raises(ValueError, match=r"1\.\w+ has no shape yet: run one batch through the network"):
        bayesianize_(model)
    assert type(model[0]) is nn.Linear
    if isinstance(lazy, nn.LazyLinear):
        model(torch.zeros(1, 2))
        assert type(cast(Any, bayesianize_(model))[1]) is layers.Linear


def test_overrides_change_single_layers() -> None:
    model, _ = trained()
    bayesianize_(model, prior=ARD(), overrides={"heads.b": {"prior": Normal(0.0, 0.1), "posterior": MatrixNormal}})
    first, second = model.heads["a"], model.heads["b"]
    assert isinstance(first, layers.Linear)
    assert isinstance(second, layers.Linear)
    assert isinstance(first.prior, ARD)
    assert second.prior.config() == {"mean": 0.0, "std": 0.1}
    assert isinstance(second.weight, MatrixNormal)


@pytest.mark.parametrize("name", ["heads.c", "heads", "stem.1", "stem.0"])
def test_an_override_that_would_do_nothing_is_refused(name: str) -> None:
    """For no layer, a container, a layer that is not convertible, and one that `where` leaves out."""
    model, _ = trained()
    with pytest.raises(ValueError, match=rf"`overrides` names no converted layer of `model`: {name}"):
        bayesianize_(model, overrides={name: {}}, where=lambda name, module: name != "stem.0")
    assert type(model.heads["a"]) is nn.Linear


@pytest.mark.parametrize("name", ["heads.a", "again"])
def test_an_override_may_use_any_name_of_a_shared_layer(name: str) -> None:
    model, _ = trained()
    bayesianize_(model, overrides={name: {"prior": ARD()}})
    assert isinstance(cast(Any, model.again).prior, ARD)
    assert isinstance(cast(Any, model.stem[0]).prior, Normal)


def test_a_prior_can_be_built_from_the_weight() -> None:
    model = bayesianize_(nn.Linear(3, 2), prior=lambda weight: Normal(weight, 1.0))
    assert isinstance(model, layers.Linear)
    expected = Normal(0.0, 1.0).kl(torch.zeros(2, 3), model.weight.variance()).sum()
    torch.testing.assert_close(model.kl(), expected)


def test_hooks_are_kept_called_and_can_be_removed() -> None:
    calls: list[str] = []
    layer = nn.Linear(3, 2)
    handles = [
        layer.register_forward_pre_hook(lambda module, args: calls.append("pre")),
        layer.register_forward_pre_hook(lambda module, args, kwargs: calls.append("pre kwargs"), with_kwargs=True),
        layer.register_forward_hook(lambda module, args, output: calls.append(type(module).__module__)),
        layer.register_forward_hook(
            lambda module, args, kwargs, output: calls.append("kwargs"), with_kwargs=True, always_call=True
        ),
        layer.register_full_backward_pre_hook(lambda module, output: calls.append("backward pre")),
        layer.register_full_backward_hook(lambda module, inputs, outputs: calls.append("backward")),
    ]
    model = nn.Sequential(nn.Linear(3, 3), layer)
    x = torch.ones(1, 3)

    def called() -> list[str]:
        calls.clear()
        model(x).sum().backward()
        return list(calls)

    before = called()
    assert before == ["pre", "pre kwargs", "torch.nn.modules.linear", "kwargs", "backward pre", "backward"]
    bayesianize_(model)
    ours = ["bayeslim.layers.linear" if call.startswith("torch") else call for call in before]
    assert called() == ours
    handles[0].remove()
    assert called() == ours[1:]
    collapse_(model)
    assert called() == before[1:]
    for handle in handles:
        handle.remove()
    assert called() == []


def test_hooks_of_larger_layers_are_kept() -> None:
    calls: list[str] = []
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8), 1, enable_nested_tensor=False)
    for name in ("layers.0", "layers.0.self_attn"):
        model.get_submodule(name).register_forward_hook(
            lambda module, args, output: calls.append(type(module).__name__)
        )
    bayesianize_(model)(torch.zeros(3, 1, 8))
    assert calls == ["MultiheadAttention", "TransformerEncoderLayer"]


def frozen(model: nn.Module) -> set[str]:
    return {name for name, parameter in model.named_parameters() if not parameter.requires_grad}


@pytest.mark.parametrize("bias_posterior", [None, MeanField])
def test_frozen_parameters_stay_frozen_and_back(bias_posterior: Any) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    for name in ("0.weight", "0.bias", "1.bias", "2.weight"):
        model.get_parameter(name).requires_grad_(False)
    names = frozen(model)
    bayesianize_(model, bias_posterior=bias_posterior)
    expected = {f"{layer}.weight.{part}" for layer in "02" for part in ("loc", "log_scale")}
    parts = [""] if bias_posterior is None else [".loc", ".log_scale"]
    assert frozen(model) == expected | {f"{layer}.bias{part}" for layer in "01" for part in parts}
    assert frozen(collapse_(model)) == names


def test_frozen_parts_of_larger_layers_stay_frozen_and_back() -> None:
    model = nn.ModuleDict(
        {
            "lstm": nn.LSTM(3, 3, num_layers=2, bidirectional=True),
            "attention": nn.MultiheadAttention(4, 2, add_bias_kv=True),
            "sizes": nn.MultiheadAttention(4, 2, kdim=3, vdim=3),
            "all": nn.GRU(3, 3).requires_grad_(False),
        }
    )
    for name in ("lstm.weight_hh_l1_reverse", "attention.in_proj_weight", "attention.bias_k", "sizes.k_proj_weight"):
        model.get_parameter(name).requires_grad_(False)
    # Of the LSTM's two biases only the input's stays; the other follows the weight beside it.
    names = frozen(model) | {"lstm.bias_hh_l1_reverse"}
    bayesianize_(model)
    assert {name.removesuffix(".log_scale") for name in frozen(model) if name.endswith("log_scale")} == {
        "lstm.cells.3.hidden.weight",
        "attention.q_proj.weight",
        "attention.k_proj.weight",
        "attention.v_proj.weight",
        "sizes.k_proj.weight",
        "all.cells.0.input.weight",
        "all.cells.0.hidden.weight",
    }
    assert {"attention.bias_k", "all.cells.0.input.bias"} <= frozen(model)
    assert frozen(collapse_(model)) == names


@pytest.mark.parametrize("bias_posterior", [None, MeanField])
def test_tied_biases_stay_tied(bias_posterior: Any) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].bias = model[0].bias
    first, second = cast(Any, bayesianize_(model, bias_posterior=bias_posterior))
    assert first.bias is second.bias
    assert first.weight is not second.weight
    count = 3 if bias_posterior else 2
    assert len(list(kl_pairs(model))) == count
    collapse_(model)
    assert model[0].bias is model[1].bias


def kl_pairs(model: nn.Module) -> set[int]:
    """The posteriors of a network, each once."""
    found = [m for m in model.modules() if isinstance(m, layers.BayesLayer)]
    return {id(posterior) for layer in found for posterior, _ in layer.posteriors_and_priors()}


def tied() -> nn.Sequential:
    torch.manual_seed(1)
    table, head = nn.Embedding(5, 3), nn.Linear(3, 5)
    head.weight = table.weight
    return nn.Sequential(table, nn.Tanh(), head)


def test_tied_weights_share_everything_and_come_back(tmp_path: Path) -> None:
    model = bayesianize_(tied(), posterior=functools.partial(KTied, k=2), prior=ARD())
    first, second = cast(Any, model)[0], cast(Any, model)[2]
    assert first.weight is second.weight and first.prior is second.prior
    assert len(list(model.parameters())) == 4  # loc, log_in, log_out and the bias
    (model(torch.tensor([1, 2])).square().sum() + kl(model)).backward()
    alone = copy.deepcopy(second)
    torch.testing.assert_close(kl(model), alone.kl())
    twin = copy.deepcopy(model)
    assert cast(Any, twin)[0].weight is cast(Any, twin)[2].weight
    save(model, tmp_path / "tied.safetensors")
    with torch.no_grad():
        first.weight.loc.zero_()
    load(tmp_path / "tied.safetensors", model)
    torch.testing.assert_close(first.weight.loc, cast(Any, twin)[0].weight.loc)
    plain = cast(Any, collapse_(model))
    assert plain[0].weight is plain[2].weight
    assert list(plain.state_dict()) == list(tied().state_dict())


@pytest.mark.parametrize("kept", ["0", "2"])
def test_half_tied_networks_are_refused(kept: str) -> None:
    model = tied()
    with pytest.raises(ValueError, match=r"layers '0', '2' share a parameter, which only nn.Linear and nn.Embedding"):
        bayesianize_(model, where=lambda name, module: name != kept)
    assert [type(child) for child in model] == [nn.Embedding, nn.Tanh, nn.Linear]


def test_ties_of_other_layers_are_refused() -> None:
    first, second = nn.Conv2d(2, 2, 3), nn.Conv2d(2, 2, 3)
    second.weight = first.weight
    one, two = nn.LSTM(3, 3), nn.LSTM(3, 3)
    two.weight_hh_l0 = one.weight_hh_l0
    for model in (nn.Sequential(first, second), nn.ModuleList([one, two])):
        with pytest.raises(ValueError, match=r"layers '0', '1' share a parameter"):
            bayesianize_(model)


def test_a_parameter_of_the_network_itself_that_is_a_layers_weight_is_refused() -> None:
    class Functional(nn.Module):
        """Uses the table a second time, by itself."""

        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(5, 3)
            self.output = self.table.weight

    with pytest.raises(ValueError, match=r"layers '', 'table' share a parameter"):
        bayesianize_(Functional())


ROOTS: dict[str, Callable[[], nn.Module]] = {
    "Linear": lambda: nn.Linear(4, 3),
    "ConvTranspose1d": lambda: nn.ConvTranspose1d(4, 2, 3, stride=2, output_padding=1, groups=2),
    "Embedding": lambda: nn.Embedding(4, 3),
    "GRU": lambda: nn.GRU(4, 3),
    "MultiheadAttention": lambda: nn.MultiheadAttention(4, 2),
    "TransformerEncoderLayer": lambda: nn.TransformerEncoderLayer(4, 2, 3),
}


@pytest.mark.parametrize("kind", ROOTS)
@pytest.mark.parametrize("training", [True, False])
def test_a_layer_that_is_the_network_comes_back_converted(kind: str, training: bool) -> None:
    plain = ROOTS[kind]().train(training)
    model = bayesianize_(plain)
    assert type(model) is getattr(layers, kind)
    assert model is not plain
    assert all(module.training == training for module in model.modules())
    back = collapse_(model)
    assert type(back) is type(plain)
    assert all(module.training == training for module in back.modules())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ROOTS)
def test_every_dtype_is_kept_but_by_scales_and_back(kind: str, dtype: torch.dtype) -> None:
    plain = ROOTS[kind]().to(dtype)
    state = copy.deepcopy(plain.state_dict())
    model = bayesianize_(plain, prior=lambda weight: Normal(weight, 1.0))
    scales = {value for name, value in model.named_parameters() if name.endswith("log_scale")}
    assert {scale.dtype for scale in scales} == {torch.promote_types(dtype, torch.float32)}
    assert {tensor.dtype for tensor in (*model.parameters(), *model.buffers()) if tensor not in scales} == {dtype}
    back = collapse_(model).state_dict()
    assert list(back) == list(state)
    assert all(torch.equal(back[name], value) and back[name].dtype == dtype for name, value in state.items())


@pytest.mark.parametrize("kind", ROOTS)
def test_networks_without_storage_convert_and_back(kind: str) -> None:
    with torch.device("meta"):
        plain = ROOTS[kind]()
    keys = list(plain.state_dict())
    model = bayesianize_(plain, posterior=functools.partial(KTied, k=1))
    assert all(parameter.is_meta for parameter in model.parameters())
    back = collapse_(model)
    assert all(parameter.is_meta for parameter in back.parameters())
    assert list(back.state_dict()) == keys


@pytest.mark.parametrize("kind", ROOTS)
def test_conversion_and_collapse_draw_no_random_numbers(kind: str) -> None:
    plain = ROOTS[kind]()
    before = torch.get_rng_state()
    collapse_(bayesianize_(plain))
    assert torch.equal(torch.get_rng_state(), before)


def test_the_priors_of_layers_are_their_own() -> None:
    prior = ARD()
    first, second = cast(Any, bayesianize_(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), prior=prior))
    assert len({id(first.prior), id(second.prior), id(prior)}) == 3


def test_an_error_in_the_last_layer_leaves_everything_as_it_was() -> None:
    """Also the encoder around, which would lose its nested tensors."""
    model = nn.Sequential(
        nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), 1),
        nn.LSTM(8, 8),
        nn.Embedding(4, 8, max_norm=1.0),
    )
    kinds = [type(module) for module in model.modules()]
    with pytest.raises(ValueError, match=r"an nn.Embedding with `max_norm` cannot be converted"):
        bayesianize_(model)
    assert [type(module) for module in model.modules()] == kinds
    assert cast(Any, model)[0].use_nested_tensor
