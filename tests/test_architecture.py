"""Descriptions build the same network again, and nothing else."""

import copy
import json
import pickle
import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bayeslim import estimators, layers, likelihoods, ops, posteriors, priors
from bayeslim.architecture import (
    ESTIMATORS,
    LIKELIHOODS,
    OPS,
    PLAIN,
    POSTERIORS,
    PRIORS,
    build,
    build_likelihood,
    describe,
    describe_likelihood,
)
from bayeslim.estimators import local_reparam, mean_only
from bayeslim.models.mlp import Sin
from bayeslim.saving import load, save
from bayeslim.select import Select
from bayeslim.using import using
from contracts.cases import each

MODULES: list[tuple[nn.Module, tuple[int, ...]]] = [
    (nn.Identity(), (2, 3)),
    (Sin(), (2, 3)),
    (Select.of(torch.tensor([2, 0])), (2, 3)),
    (nn.ReLU(), (2, 3)),
    (nn.SELU(), (2, 3)),
    (nn.SiLU(), (2, 3)),
    (nn.Tanh(), (2, 3)),
    (nn.Sigmoid(), (2, 3)),
    (nn.LeakyReLU(0.3), (2, 3)),
    (nn.ELU(0.5), (2, 3)),
    (nn.GELU("tanh"), (2, 3)),
    (nn.Softplus(2.0, 3.0), (2, 3)),
    (nn.Softmax(1), (2, 3)),
    (nn.Dropout(0.7), (2, 3)),
    (nn.Flatten(2, 3), (2, 3, 4, 5)),
    (nn.MaxPool2d((2, 3), stride=(1, 2), padding=1, dilation=(1, 2), ceil_mode=True), (1, 2, 8, 9)),
    (nn.AvgPool2d(2, padding=1, ceil_mode=True, count_include_pad=False), (1, 2, 7, 7)),
    (nn.AvgPool2d(2, divisor_override=3), (1, 2, 6, 6)),
    (nn.AdaptiveAvgPool2d((2, None)), (1, 2, 6, 6)),
    (nn.BatchNorm1d(3, eps=1e-2, momentum=0.3), (4, 3)),
    (nn.BatchNorm1d(3, momentum=None), (4, 3)),
    (nn.BatchNorm1d(3, affine=False, track_running_stats=False), (4, 3)),
    (nn.BatchNorm2d(2), (3, 2, 4, 4)),
    (nn.LayerNorm([3, 4], eps=1e-3), (2, 3, 4)),
    (nn.LayerNorm(4, bias=False), (2, 3, 4)),
    (nn.LayerNorm(4, elementwise_affine=False), (2, 3, 4)),
    (nn.Linear(3, 4), (2, 3)),
    (nn.Linear(3, 4, bias=False), (2, 3)),
    (nn.Conv1d(2, 4, 3, stride=2, padding=1, dilation=2, groups=2, bias=False), (1, 2, 9)),
    (nn.Conv2d(2, 4, (3, 2), padding="same", padding_mode="circular"), (1, 2, 6, 6)),
    (nn.Conv3d(1, 2, 2, stride=(1, 2, 1)), (1, 1, 4, 4, 4)),
    (nn.ReLU6(), (2, 3)),
    (nn.Mish(), (2, 3)),
    (nn.Tanhshrink(), (2, 3)),
    (nn.LogSigmoid(), (2, 3)),
    (nn.Hardsigmoid(), (2, 3)),
    (nn.Hardswish(), (2, 3)),
    (nn.Softsign(), (2, 3)),
    (nn.Softmax2d(), (1, 2, 3, 3)),
    (nn.CELU(0.5), (2, 3)),
    (nn.PReLU(3, init=0.1), (2, 3)),
    (nn.RReLU(0.2, 0.4), (2, 3)),
    (nn.Hardtanh(-0.5, 0.25), (2, 3)),
    (nn.Hardshrink(0.3), (2, 3)),
    (nn.Softshrink(0.3), (2, 3)),
    (nn.Threshold(0.1, 20.0), (2, 3)),
    (nn.Softmin(1), (2, 3)),
    (nn.LogSoftmax(1), (2, 3)),
    (nn.GLU(1), (2, 4)),
    (nn.Dropout1d(0.4), (2, 3, 4)),
    (nn.Dropout2d(0.4), (2, 3, 4, 4)),
    (nn.Dropout3d(0.4), (2, 3, 4, 4, 4)),
    (nn.AlphaDropout(0.4), (2, 3)),
    (nn.FeatureAlphaDropout(0.4), (2, 3, 4, 4)),
    (nn.Unflatten(1, (2, 3)), (2, 6)),
    (nn.MaxPool1d(3, stride=2, padding=1, ceil_mode=True), (1, 2, 8)),
    (nn.MaxPool3d(2, stride=(1, 2, 1), dilation=2), (1, 2, 6, 6, 6)),
    (nn.AvgPool1d(3, stride=2, padding=1, count_include_pad=False), (1, 2, 8)),
    (nn.AvgPool3d(2, divisor_override=3), (1, 2, 4, 4, 4)),
    (nn.LPPool1d(2, 3, stride=2), (1, 2, 8)),
    (nn.LPPool2d(4, (2, 3), ceil_mode=True), (1, 2, 7, 7)),
    (nn.AdaptiveAvgPool1d(2), (1, 2, 6)),
    (nn.AdaptiveAvgPool3d((2, None, 1)), (1, 2, 4, 4, 4)),
    (nn.AdaptiveMaxPool1d(2), (1, 2, 6)),
    (nn.AdaptiveMaxPool2d((2, None)), (1, 2, 6, 6)),
    (nn.AdaptiveMaxPool3d(2), (1, 2, 4, 4, 4)),
    (nn.BatchNorm3d(2, momentum=0.3), (3, 2, 4, 4, 4)),
    (nn.InstanceNorm1d(3, eps=1e-2), (2, 3, 4)),
    (nn.InstanceNorm2d(3, affine=True, track_running_stats=True), (2, 3, 4, 4)),
    (nn.InstanceNorm3d(3), (2, 3, 4, 4, 4)),
    (nn.RMSNorm([3, 4], eps=1e-3), (2, 3, 4)),
    (nn.GroupNorm(2, 4, eps=1e-3), (2, 4, 3)),
    (nn.GroupNorm(2, 4, affine=False), (2, 4, 3)),
    (nn.LocalResponseNorm(2, alpha=0.1, beta=0.5, k=2.0), (2, 4, 3)),
    (nn.ConstantPad1d(1, 0.5), (1, 2, 4)),
    (nn.ConstantPad2d((1, 0, 2, 1), 0.5), (1, 2, 4, 4)),
    (nn.ConstantPad3d(1, 0.5), (1, 2, 4, 4, 4)),
    (nn.Upsample(scale_factor=(1.5, 2.0), mode="bilinear", align_corners=True), (1, 2, 4, 4)),
    (nn.Upsample(size=7), (1, 2, 4)),
    (nn.UpsamplingNearest2d(scale_factor=2), (1, 2, 4, 4)),
    (nn.UpsamplingBilinear2d(size=(5, 7)), (1, 2, 4, 4)),
    (nn.PixelShuffle(2), (1, 4, 3, 3)),
    (nn.PixelUnshuffle(2), (1, 1, 4, 4)),
    (nn.ChannelShuffle(2), (1, 4, 3, 3)),
    (nn.ConvTranspose1d(2, 4, 3, stride=2, padding=1, output_padding=1, groups=2), (1, 2, 5)),
    (nn.ConvTranspose2d(2, 3, (3, 2), stride=2, dilation=(1, 2), bias=False), (1, 2, 5, 5)),
    (nn.ConvTranspose3d(1, 2, 2), (1, 1, 3, 3, 3)),
    *(
        (getattr(nn, f"{kind}Pad{axes}d")(1), (1, 2, *(4,) * axes))
        for kind in ("Zero", "Reflection", "Replication", "Circular")
        for axes in (1, 2, 3)
    ),
    (nn.Embedding(5, 3, padding_idx=1), (2, 4)),
    (nn.Embedding(5, 3, max_norm=0.5, norm_type=1.0, scale_grad_by_freq=True), (2, 4)),
]


def inputs(module: nn.Module, shape: tuple[int, ...]) -> Tensor:
    return torch.randint(5, shape) if isinstance(module, nn.Embedding) else torch.randn(shape)


def rebuilt(module: nn.Module) -> nn.Module:
    """Through JSON and back, with the state of the original."""
    description = describe(module)
    assert description is not None
    result = build(json.loads(json.dumps(description)))
    assert all(tensor.is_meta for tensor in (*result.parameters(), *result.buffers()))
    result.load_state_dict(copy.deepcopy(module.state_dict()), strict=True, assign=True)
    return result


def outputs(module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """In training mode (with the same noise) and in evaluation mode."""
    torch.manual_seed(0)
    return module.train()(x), module.eval()(x)


def test_every_plain_type_is_tried() -> None:
    assert {type(module) for module, _ in MODULES} == set(PLAIN)


@each(("module", "shape"), MODULES)
def test_plain_modules_are_rebuilt(module: nn.Module, shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    x = inputs(module, shape)
    again = rebuilt(module)
    assert repr(again) == repr(module)
    for ours, theirs in zip(outputs(again, x), outputs(module, x), strict=True):
        assert torch.equal(ours, theirs)


@each(("module", "shape"), MODULES)
def test_plain_modules_come_back_from_a_file(module: nn.Module, shape: tuple[int, ...], tmp_path: Path) -> None:
    """Alone, and as a part of a network of an own class, which may have been made otherwise."""
    torch.manual_seed(1)
    x, module = inputs(module, shape), copy.deepcopy(module)
    save(nn.Sequential(module), tmp_path / "net")
    again = load(tmp_path / "net")
    for ours, theirs in zip(outputs(again, x), outputs(copy.deepcopy(module), x), strict=True):
        assert torch.equal(ours, theirs)
    save(nn.ModuleDict({"part": module}), tmp_path / "net")
    found = load(tmp_path / "net", nn.ModuleDict({"part": copy.deepcopy(module)}))
    other = load(tmp_path / "net", nn.ModuleDict({"part": nn.Identity()}))
    for part in (found.get_submodule("part"), other.get_submodule("part")):
        assert torch.equal(outputs(part, x)[1], outputs(copy.deepcopy(module), x)[1])


@pytest.mark.parametrize(
    "module", [nn.MaxPool1d(2, return_indices=True), nn.AdaptiveMaxPool2d(2, return_indices=True)], ids=repr
)
def test_a_pool_that_also_returns_places_is_not_described(module: nn.Module) -> None:
    assert describe(nn.Sequential(module)) is None


def test_nested_networks_keep_names_and_order() -> None:
    inner = nn.Sequential()
    inner.add_module("first", nn.Linear(3, 3))
    inner.add_module("then", nn.Tanh())
    model = nn.Sequential(inner, nn.Linear(3, 2))
    again = rebuilt(model)
    assert list(again.state_dict()) == list(model.state_dict())
    x = torch.randn(4, 3)
    assert torch.equal(again(x), model(x))


def test_an_activation_that_stands_in_several_places_does_so_again() -> None:
    torch.manual_seed(0)
    activation = nn.ReLU()
    model = nn.Sequential(nn.Linear(3, 8), activation, nn.Linear(8, 8), activation, nn.Linear(8, 1))
    again = rebuilt(model)
    assert len(again) == 5  # pyright: ignore[reportArgumentType]
    x = torch.randn(16, 3)
    assert torch.equal(again(x), model(x))


def test_what_cannot_be_rebuilt_is_not_described() -> None:
    class Own(nn.Linear):
        pass

    class OwnPrior(priors.Normal):
        pass

    class OwnPosterior(posteriors.MeanField):
        pass

    shared = nn.Linear(2, 2)
    tied = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    tied[1].weight = tied[0].weight
    custom_estimator = layers.Linear(2, 2, estimator=lambda *args: local_reparam(*args))
    for model in (
        Own(2, 2),
        nn.LSTM(2, 2),
        nn.Sequential(nn.Linear(2, 2), Own(2, 2)),
        nn.Sequential(shared, nn.ReLU(), shared),
        tied,
        layers.Linear(2, 2, prior=OwnPrior()),
        layers.Linear(2, 2, posterior=OwnPosterior),
        layers.Linear(2, 2, bias_posterior=OwnPosterior),
        custom_estimator,
    ):
        assert describe(model) is None, model


def test_layer_description_keeps_the_prior_of_the_bias_and_tensor_priors() -> None:
    mean, std = torch.randn(3, 2), torch.rand(3, 2) + 0.1
    layer = layers.Linear(
        2,
        3,
        prior=priors.Normal(mean, std),
        bias_posterior=posteriors.MeanField,
        bias_prior=priors.Normal(0.5, 2.0),
    )
    again = rebuilt(layer)
    assert isinstance(again, layers.Linear)
    assert torch.equal(again.kl(), layer.kl())
    assert isinstance(again.bias_prior, priors.Normal) and again.bias_prior.std == 2.0


def test_op_options_survive() -> None:
    layer = layers.ConvTranspose2d(4, 6, (3, 2), stride=2, padding=1, output_padding=(1, 0), groups=2, dilation=(1, 2))
    again = rebuilt(layer)
    assert isinstance(again, layers.ConvTranspose2d) and again.op == layer.op
    x = torch.randn(1, 4, 5, 5)
    with using(again, mean_only), using(layer, mean_only):
        assert torch.equal(again(x), layer(x))


@pytest.mark.parametrize(
    "likelihood",
    [
        likelihoods.Categorical(),
        likelihoods.Bernoulli(),
        likelihoods.Gaussian(0.3),
        likelihoods.Gaussian(0.3, learn_noise=True, outputs=2),
        likelihoods.HeteroscedasticGaussian(floor=0.25),
    ],
)
def test_likelihoods_are_rebuilt(likelihood: likelihoods.Likelihood) -> None:
    description = describe_likelihood(likelihood)
    assert description is not None
    again = build_likelihood(json.loads(json.dumps(description)))
    again.load_state_dict(likelihood.state_dict(), assign=True)
    assert type(again) is type(likelihood) and again.config() == likelihood.config()
    assert [name for name, _ in again.named_parameters()] == [n for n, _ in likelihood.named_parameters()]
    output = torch.ones(1, 2)
    for ours, theirs in zip(again.conditional(output), likelihood.conditional(output), strict=True):
        assert torch.equal(ours, theirs)


def test_an_own_likelihood_is_not_described() -> None:
    class Own(likelihoods.Categorical):
        pass

    assert describe_likelihood(Own()) is None


def linear(**changes: Any) -> dict[str, Any]:
    """The description of a Bayesian linear layer, changed."""
    description = describe(layers.Linear(2, 3))
    assert description is not None
    return json.loads(json.dumps(description)) | changes


def weight(**changes: Any) -> dict[str, Any]:
    return linear(weight=linear()["weight"] | changes)


HUGE = 2**31
HOSTILE: dict[str, Any] = {
    "nothing": {},
    "text": "Linear",
    "number": 3,
    "null": None,
    "list": [1, 2],
    "unknown type": {"torch": "LSTM", "arguments": {}},
    "a path": {"torch": "os.system", "arguments": {"command": "true"}},
    "a dunder": {"torch": "__class__", "arguments": {}},
    "unhashable type": {"torch": ["Linear"], "arguments": {}},
    "no arguments": {"torch": "Linear"},
    "missing argument": {"torch": "Linear", "arguments": {"in_features": 2}},
    "arguments of another kind": {"torch": "Linear", "arguments": [2, 3]},
    "text for a number": {"torch": "Linear", "arguments": {"in_features": "2", "out_features": 3}},
    "negative size": {"torch": "Linear", "arguments": {"in_features": -2, "out_features": 3}},
    "a device": {"torch": "Linear", "arguments": {"in_features": 9, "out_features": 9, "device": "cpu"}},
    "a dtype": {"torch": "Linear", "arguments": {"in_features": 9, "out_features": 9, "dtype": "float64"}},
    "overflowing size": {"torch": "Linear", "arguments": {"in_features": 2**40, "out_features": 2**40}},
    "endless size": {"torch": "Linear", "arguments": {"in_features": 10**30, "out_features": 1}},
    "weights for an embedding": {"torch": "Embedding", "arguments": {"num_embeddings": 2, "_weight": [1]}},
    "a device for an embedding": {
        "torch": "Embedding",
        "arguments": {"num_embeddings": 2, "embedding_dim": 2, "device": "cpu"},
    },
    "groups that do not divide": {"torch": "GroupNorm", "arguments": {"num_groups": 3, "num_channels": 4}},
    "an endless shape": {"torch": "RMSNorm", "arguments": {"normalized_shape": [2**40, 2**40]}},
    "text for a shape": {"torch": "Unflatten", "arguments": {"dim": 1, "unflattened_size": "huge"}},
    "text for a factor": {"torch": "Upsample", "arguments": {"scale_factor": "huge"}},
    "a module without a place": {"torch": "TransformerEncoder", "arguments": {}},
    "children of another kind": {"torch": "Sequential", "children": 3},
    "a child without a name": {"torch": "Sequential", "children": [[{"torch": "ReLU", "arguments": {}}]]},
    "a dotted name": {"torch": "Sequential", "children": [["a.b", {"torch": "ReLU", "arguments": {}}]]},
    "unknown layer": linear(bayes="BayesLayer"),
    "unknown op": linear(op=["Op", {}]),
    "op with other options": linear(op=["LinearOp", {"dimensions": 2}]),
    "unknown estimator": linear(estimator="check_estimator"),
    "no weight": linear(weight=None),
    "unknown posterior": weight(posterior=["Posterior", {}]),
    "posterior with a tensor": weight(posterior=["MeanField", {"init": 3}]),
    "posterior out of range": weight(posterior=["KTied", {"k": 10**9}]),
    "unknown prior": weight(prior=["Prior", {}, {}]),
    "prior out of range": weight(prior=["Normal", {"std": -1.0}, {}]),
    "prior with endless nodes": weight(prior=["ScaleMixture", {"nodes": 10**6}, {}]),
    "prior with endless slow nodes": weight(prior=["StudentT", {"nodes": 10**12}, {}]),
    "buffer that is a method": weight(prior=["Normal", {}, {"kl": [1]}]),
    "buffer that holds the module up": weight(prior=["Normal", {}, {"_buffers": [1]}]),
    "buffer that is the training mode": weight(prior=["Normal", {}, {"training": [1]}]),
    "sizes of zero": {"torch": "Conv2d", "arguments": {"in_channels": 0, "out_channels": 3, "kernel_size": [0, 0]}},
    "shape of another kind": weight(shape="huge"),
    "pair that is refused": weight(prior=["LogUniform", {"fit": "kingma"}, {}]),
}


@each("name", HOSTILE)
def test_hostile_descriptions_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="the stored architecture is not valid"):
        build(HOSTILE[name])


def test_endless_nesting_is_refused() -> None:
    description: dict[str, Any] = {"torch": "ReLU", "arguments": {}}
    for _ in range(100_000):
        description = {"torch": "Sequential", "children": [["0", description]]}
    with pytest.raises(ValueError, match="the stored architecture is not valid"):
        build(description)


@pytest.mark.parametrize(
    "description",
    [
        {"torch": "Linear", "arguments": {"in_features": HUGE, "out_features": HUGE // 8}},
        {"torch": "BatchNorm2d", "arguments": {"num_features": HUGE * 1000}},
        {"torch": "Conv2d", "arguments": {"in_channels": HUGE, "out_channels": 9, "kernel_size": [9, 9]}},
        {"torch": "Embedding", "arguments": {"num_embeddings": HUGE, "embedding_dim": HUGE // 8, "padding_idx": 0}},
        {"torch": "PReLU", "arguments": {"num_parameters": HUGE * 1000}},
        {"torch": "GroupNorm", "arguments": {"num_groups": 1, "num_channels": HUGE * 1000}},
        {"torch": "ConvTranspose2d", "arguments": {"in_channels": HUGE, "out_channels": 9, "kernel_size": [9, 9]}},
        weight(shape=[HUGE, HUGE // 8]),
        weight(shape=[HUGE // 8, 8], posterior=["MatrixNormal", {}]),
        weight(prior=["Normal", {}, {"mean": [HUGE, HUGE // 8]}]),
        linear(bias=[HUGE * HUGE // 16]),
    ],
)
def test_huge_networks_take_no_memory(description: dict[str, Any]) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = build(description)
    assert all(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024  # KiB


@pytest.mark.parametrize(
    "description",
    [
        {},
        {"type": "Likelihood", "config": {}},
        {"type": ["Gaussian"], "config": {}},
        {"type": "Gaussian", "config": {"noise": -1.0}},
        {"type": "Gaussian", "config": {"outputs": -1}},
        {"type": "Gaussian", "config": {"outputs": 10**30}},
        {"type": "Categorical", "config": {"classes": 3}},
        {"type": "Categorical"},
        "Gaussian",
    ],
)
def test_hostile_likelihoods_are_refused(description: Any) -> None:
    with pytest.raises(ValueError, match="the stored likelihood is not valid"):
        build_likelihood(description)


def test_a_huge_likelihood_takes_no_memory() -> None:
    likelihood = build_likelihood({"type": "Gaussian", "config": {"outputs": 2**40}})
    assert all(tensor.is_meta for tensor in likelihood.state_dict().values())


def test_members_of_every_axis_are_described_and_bases_are_not() -> None:
    """Ops, posteriors, priors, estimators and likelihoods are known as soon as their package offers them."""
    tables: dict[str, dict[str, Any]] = {"ops": OPS, "posteriors": POSTERIORS, "priors": PRIORS}
    tables |= {"likelihoods": LIKELIHOODS, "estimators": ESTIMATORS}
    least = {
        "ops": {"ConvOp", "ConvTransposeOp", "EmbeddingOp", "LinearOp"},
        "posteriors": {"KTied", "MatrixNormal", "MeanField", "Multiplicative"},
        "priors": {"ARD", "GammaARD", "HeNormal", "LogUniform", "Normal", "ScaleMixture", "StudentT"},
        "likelihoods": {"Bernoulli", "Categorical", "Gaussian", "HeteroscedasticGaussian"},
        "estimators": {"mean_only", "weight_sample", "local_reparam", "clipped_reparam", "flipout", "moments"},
    }
    assert all(names <= set(tables[axis]) for axis, names in least.items())
    bases = {ops.Op, posteriors.Posterior, priors.Prior, likelihoods.Likelihood, estimators.Estimator}
    assert not bases & {member for table in tables.values() for member in table.values() if isinstance(member, type)}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_comes_back_also_from_a_copy_or_a_pickle(name: str) -> None:
    layer = layers.Linear(2, 2, estimator=ESTIMATORS[name])
    for model in (layer, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        again = rebuilt(model)
        assert isinstance(again, layers.Linear) and again.estimator is ESTIMATORS[name]
    assert copy.deepcopy(layer).estimator is layer.estimator
