"""Without noise every layer is the torch layer it stands for."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bayeslim import bayesianize_, layers
from bayeslim.estimators import clipped_reparam, flipout
from bayeslim.gaussian import Gaussian
from bayeslim.posteriors import KTied, MatrixNormal, MeanField, Multiplicative
from contracts.cases import each
from contracts.members import ESTIMATORS, LAYERS, POSTERIORS, fresh, over

# Torch's own remark on "same" padding of even kernels.
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")

TINY: dict[str, Any] = {
    "MeanField": functools.partial(MeanField, scale=1e-12),
    "Multiplicative": functools.partial(Multiplicative, alpha=1e-24),
    "KTied": functools.partial(KTied, k=1, scale=1e-12),
    "MatrixNormal": functools.partial(MatrixNormal, scale=1e-12),
}

Case = tuple[type[nn.Module], tuple[Any, ...], dict[str, Any], tuple[int, ...]]

CASES: dict[str, Case] = {
    "linear": (nn.Linear, (5, 3), {}, (4, 5)),
    "linear-no-bias": (nn.Linear, (5, 3), {"bias": False}, (4, 5)),
    "linear-vector": (nn.Linear, (5, 3), {}, (5,)),
    "linear-tokens": (nn.Linear, (5, 3), {}, (2, 3, 5)),
    "conv1d": (nn.Conv1d, (2, 3, 3), {"stride": 2, "padding": 1}, (2, 2, 7)),
    "conv1d-same": (nn.Conv1d, (2, 3, 4), {"padding": "same"}, (2, 2, 7)),
    "conv1d-circular": (nn.Conv1d, (2, 3, 4), {"padding": "same", "padding_mode": "circular"}, (2, 2, 7)),
    "conv1d-unbatched": (nn.Conv1d, (2, 3, 3), {}, (2, 7)),
    "conv2d": (nn.Conv2d, (2, 3, (3, 2)), {"stride": (2, 1), "padding": (1, 2)}, (2, 2, 5, 6)),
    "conv2d-no-bias": (nn.Conv2d, (2, 3, 3), {"bias": False}, (2, 2, 5, 6)),
    "conv2d-valid": (nn.Conv2d, (2, 3, 2), {"padding": "valid"}, (2, 2, 5, 6)),
    "conv2d-same": (nn.Conv2d, (2, 3, (2, 3)), {"padding": "same", "dilation": (3, 1)}, (2, 2, 5, 6)),
    "conv2d-groups": (nn.Conv2d, (4, 6, 3), {"groups": 2, "dilation": 2, "padding": 1}, (2, 4, 6, 6)),
    "conv2d-depthwise": (nn.Conv2d, (4, 4, 3), {"groups": 4}, (2, 4, 5, 5)),
    "conv2d-reflect": (nn.Conv2d, (2, 3, 3), {"padding": (2, 1), "padding_mode": "reflect"}, (2, 2, 5, 6)),
    "conv2d-reflect-same": (
        nn.Conv2d,
        (2, 3, (4, 3)),
        {"padding": "same", "padding_mode": "reflect"},
        (2, 2, 5, 6),
    ),
    "conv2d-reflect-valid": (
        nn.Conv2d,
        (2, 3, 3),
        {"padding": "valid", "padding_mode": "reflect"},
        (2, 2, 5, 6),
    ),
    "conv2d-circular": (nn.Conv2d, (2, 3, 3), {"padding": 2, "padding_mode": "circular"}, (2, 2, 5, 6)),
    "conv2d-replicate": (
        nn.Conv2d,
        (2, 3, 3),
        {"padding": (1, 3), "stride": 2, "padding_mode": "replicate"},
        (2, 2, 5, 6),
    ),
    "conv2d-unbatched": (nn.Conv2d, (2, 3, 3), {"padding": 1}, (2, 5, 6)),
    "conv3d": (nn.Conv3d, (2, 3, (1, 2, 3)), {"padding": (0, 1, 1), "stride": (1, 2, 1)}, (2, 2, 3, 4, 5)),
    "conv3d-replicate": (nn.Conv3d, (2, 3, 2), {"padding": 1, "padding_mode": "replicate"}, (1, 2, 3, 3, 3)),
    "conv3d-unbatched": (nn.Conv3d, (2, 3, 2), {"groups": 1}, (2, 3, 3, 3)),
    "transposed1d": (nn.ConvTranspose1d, (2, 3, 3), {"stride": 2, "output_padding": 1}, (2, 2, 5)),
    "transposed1d-unbatched": (nn.ConvTranspose1d, (2, 3, 3), {"padding": 1}, (2, 5)),
    "transposed2d": (
        nn.ConvTranspose2d,
        (2, 3, (3, 2)),
        {"stride": (3, 2), "padding": (1, 0), "output_padding": (2, 1)},
        (2, 2, 3, 4),
    ),
    "transposed2d-groups": (
        nn.ConvTranspose2d,
        (4, 6, 3),
        {"groups": 2, "dilation": 2, "stride": 2, "bias": False},
        (2, 4, 3, 4),
    ),
    "transposed3d": (nn.ConvTranspose3d, (4, 2, 2), {"groups": 2, "stride": 2}, (1, 4, 2, 3, 2)),
}

COUNTERPART = {plain: bayes for bayes, plain in LAYERS.items()}


def pair(case: str, **bayes: Any) -> tuple[nn.Module, layers.BayesLayer, Tensor]:
    """The torch layer, its Bayesian counterpart and an input."""
    kind, sizes, options, shape = CASES[case]
    torch.manual_seed(0)
    plain = kind(*sizes, **options)
    converted = COUNTERPART[kind].from_torch(plain, **bayes)  # pyright: ignore[reportAttributeAccessIssue]
    return plain, converted, torch.randn(shape)


@each("posterior", TINY)
@over("case", CASES)
def test_a_vanishing_scale_reproduces_the_torch_layer(case: str, posterior: str) -> None:
    for estimator in ESTIMATORS.values():
        if estimator in (flipout, clipped_reparam) and posterior == "MatrixNormal":
            continue
        plain, layer, x = pair(case, posterior=TINY[posterior], estimator=estimator)
        output = layer(x)
        output = output.loc if isinstance(output, Gaussian) else output
        torch.testing.assert_close(output, plain(x), rtol=1e-6, atol=1e-6)


@each("case", CASES)
def test_a_posterior_over_the_bias_is_centred_on_it(case: str) -> None:
    tiny = TINY["MeanField"]
    plain, layer, x = pair(case, posterior=tiny, bias_posterior=tiny)
    torch.testing.assert_close(layer(x), plain(x), rtol=1e-6, atol=1e-6)
    assert isinstance(layer.bias, MeanField) == (plain.bias is not None)


@each("case", CASES)
def test_a_fresh_layer_takes_the_arguments_of_torch(case: str) -> None:
    kind, sizes, options, shape = CASES[case]
    torch.manual_seed(1)
    new = fresh(COUNTERPART[kind], *sizes, **options)
    _, layer, _ = pair(case)
    assert new.op == layer.op
    assert new.weight.mean().shape == layer.weight.mean().shape
    assert [p.shape for p in new.parameters()] == [p.shape for p in layer.parameters()]
    assert new(torch.randn(shape)).shape == layer(torch.randn(shape)).shape


@each("case", CASES)
def test_weights_are_laid_out_as_outputs_first(case: str) -> None:
    kind, sizes, options, _ = CASES[case]
    _, layer, _ = pair(case)
    fan_in, out = sizes[0] // options.get("groups", 1), sizes[1]
    assert layer.weight.mean().shape[:2] == (out, fan_in)
    assert layer.weight.mean().ndim == (2 if kind is nn.Linear else 2 + int(kind.__name__[-2]))


def test_conversion_copies_the_weights() -> None:
    for case in ("linear", "conv2d", "transposed2d"):
        plain, layer, x = pair(case, posterior=TINY["MeanField"])
        before = plain(x)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.add_(1.0)
        assert torch.equal(plain(x), before)


@each("posterior", POSTERIORS)
@over("kind", LAYERS)
def test_every_layer_takes_every_posterior(kind: type[layers.BayesLayer], posterior: str) -> None:
    sizes = (4, 4) if kind is layers.Linear else (4, 4, 2)
    torch.manual_seed(2)
    layer = fresh(kind, *sizes, posterior=POSTERIORS[posterior])
    x = torch.randn(2, 4, *[3] * (layer.weight.mean().ndim - 2))
    (layer(x).square().mean() + layer.kl()).backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in layer.parameters())


def test_torch_options_that_make_no_sense_raise_as_in_torch() -> None:
    with pytest.raises(ValueError, match="in_channels must be divisible by groups"):
        layers.Conv2d(3, 4, 2, groups=2)
    with pytest.raises(ValueError, match="padding_mode must be one of"):
        layers.Conv2d(3, 4, 2, padding_mode="mirror")


def test_device_and_dtype_of_fresh_layers() -> None:
    for kind, sizes in ((layers.Linear, (3, 2)), (layers.Conv2d, (3, 2, 2))):
        layer = fresh(kind, *sizes, dtype=torch.float64, device="meta")
        assert all(p.is_meta and p.dtype == torch.float64 for p in layer.parameters())


def test_converting_a_single_layer_returns_its_counterpart() -> None:
    for plain, bayes in COUNTERPART.items():
        layer = plain(2, 3) if plain is nn.Linear else plain(2, 3, 2)
        assert type(bayesianize_(layer)) is bayes
