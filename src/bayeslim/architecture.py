"""Describe a network as JSON and build it again, without pickle.

Only types that the library offers are ever built, and they are built without storage (on torch's meta device), so a
hostile description can neither run code nor exhaust the memory.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

import torch
from torch import nn

from bayeslim import estimators, layers, likelihoods, ops, posteriors, priors
from bayeslim.masks import Masked, unmasked
from bayeslim.models.mlp import Sin
from bayeslim.posteriors.base import Posterior
from bayeslim.select import Select

__all__ = ["build", "build_likelihood", "describe", "describe_layer", "describe_likelihood", "describe_member"]

Description = dict[str, Any]

_NORM = "num_features eps momentum affine track_running_stats"
_CONV = "in_channels out_channels kernel_size stride padding dilation groups padding_mode"
_AVERAGE = "kernel_size stride padding ceil_mode count_include_pad"
_TORCH = {
    "": "Identity ReLU ReLU6 SELU SiLU Mish Tanh Tanhshrink Sigmoid LogSigmoid Hardsigmoid Hardswish Softsign "
    "Softmax2d",
    "negative_slope": "LeakyReLU",
    "alpha": "ELU CELU",
    "approximate": "GELU",
    "num_parameters init": "PReLU",
    "lower upper": "RReLU",
    "min_val max_val": "Hardtanh",
    "lambd": "Hardshrink Softshrink",
    "threshold value": "Threshold",
    "beta threshold": "Softplus",
    "dim": "Softmax Softmin LogSoftmax GLU",
    "p": "Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout",
    "start_dim end_dim": "Flatten",
    "dim unflattened_size": "Unflatten",
    "kernel_size stride padding ceil_mode dilation": "MaxPool1d MaxPool2d MaxPool3d",
    _AVERAGE: "AvgPool1d",
    f"{_AVERAGE} divisor_override": "AvgPool2d AvgPool3d",
    "norm_type kernel_size stride ceil_mode": "LPPool1d LPPool2d",
    "output_size": "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d "
    "AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d",
    _NORM: "BatchNorm1d BatchNorm2d BatchNorm3d InstanceNorm1d InstanceNorm2d InstanceNorm3d",
    "normalized_shape eps elementwise_affine": "LayerNorm RMSNorm",
    "num_groups num_channels eps affine": "GroupNorm",
    "size alpha beta k": "LocalResponseNorm",
    "padding": "ZeroPad1d ZeroPad2d ZeroPad3d ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d "
    "ReplicationPad2d ReplicationPad3d CircularPad1d CircularPad2d CircularPad3d",
    "padding value": "ConstantPad1d ConstantPad2d ConstantPad3d",
    "size scale_factor mode align_corners recompute_scale_factor": "Upsample",
    "size scale_factor": "UpsamplingNearest2d UpsamplingBilinear2d",
    "upscale_factor": "PixelShuffle",
    "downscale_factor": "PixelUnshuffle",
    "groups": "ChannelShuffle",
    "num_embeddings embedding_dim padding_idx max_norm norm_type scale_grad_by_freq sparse": "Embedding",
    "in_features out_features": "Linear",
    _CONV: "Conv1d Conv2d Conv3d",
    f"{_CONV} output_padding": "ConvTranspose1d ConvTranspose2d ConvTranspose3d",
}

PLAIN: dict[type[nn.Module], tuple[str, ...]] = {Sin: (), Select: ("features", "axis")} | {
    getattr(nn, name): tuple(attributes.split()) for attributes, names in _TORCH.items() for name in names.split()
}
"""Plain modules and the attributes that are their constructor's arguments, `bias` besides."""

MOST_NODES = 1000
"""Quadrature nodes that a stored prior may ask for: finding them takes their number squared in memory."""


def _members(package: Any, base: type) -> dict[str, Any]:
    """What a package offers of one axis, by name: the classes below `base`, or its instances."""
    listed = [member for name, member in vars(package).items() if not name.startswith("_")]
    classes = [kind for kind in listed if isinstance(kind, type) and issubclass(kind, base) and kind is not base]
    return {member.__name__: member for member in [*classes, *(one for one in listed if isinstance(one, base))]}


PLAIN_NAMES = {kind.__name__: kind for kind in PLAIN}
LAYERS = _members(layers, layers.BayesLayer)
OPS = _members(ops, ops.Op)
POSTERIORS = _members(posteriors, Posterior)
PRIORS = _members(priors, priors.Prior)
ESTIMATORS = _members(estimators, estimators.Estimator)
LIKELIHOODS = _members(likelihoods, likelihoods.Likelihood)


def describe(module: nn.Module) -> Description | None:
    """Return what `build` needs to make `module` again, or None if it holds a type not listed here.

    None also for layers that share a parameter, which JSON could not tell from layers that do not.

    Example:
        >>> describe(nn.Sequential(nn.Linear(2, 1)))["children"][0][1]["torch"]
        'Linear'
    """
    if len(list(module.named_parameters(remove_duplicate=False))) > len(list(module.parameters())):
        return None
    if type(module) is nn.Sequential:
        # Not named_children, which skips a module, such as an activation, that stands in two places.
        children = [(name, describe(child)) for name, child in module._modules.items() if child is not None]
        if any(description is None for _, description in children):
            return None
        return {"torch": "Sequential", "children": children}
    if type(module) in PLAIN:
        if getattr(module, "return_indices", False):
            return None  # its output is a pair, for an unpooling elsewhere
        arguments = {name: getattr(module, name) for name in PLAIN[type(module)]}
        own = module._parameters
        if own.get("weight") is not None and "bias" in own and own["bias"] is None:
            arguments["bias"] = False
        return {"torch": type(module).__name__, "arguments": arguments}
    if isinstance(module, layers.BayesLayer):
        description = describe_layer(module)
        return description if _is_known(description) else None
    return None


def build(description: Description) -> nn.Module:
    """Build the network of `describe`, its parameters on the meta device until a state is loaded.

    Raises:
        ValueError: if the description is malformed or names a type that is not listed here.
    """
    try:
        with torch.device("meta"):
            return _build(description)
    except Exception as error:  # constructors raise all sorts of things for arguments that nobody would write
        raise ValueError(f"the stored architecture is not valid: {type(error).__name__} {error}") from error


def _build(description: Description) -> nn.Module:
    if "bayes" in description:
        return _build_layer(description)
    if description["torch"] == "Sequential":
        model = nn.Sequential()
        for name, child in description["children"]:
            model.add_module(str(name), _build(child))
        return model
    kind, arguments = PLAIN_NAMES[description["torch"]], description["arguments"]
    # A `device` among them would leave the meta device and allocate.
    if unknown := arguments.keys() - {*PLAIN[kind], "bias"}:
        raise ValueError(f"{kind.__name__} takes no {', '.join(sorted(unknown))}")
    return kind(**_tuples(arguments))


def describe_likelihood(likelihood: likelihoods.Likelihood) -> Description | None:
    """As `describe`, for a likelihood."""
    if LIKELIHOODS.get(type(likelihood).__name__) is not type(likelihood):
        return None
    return {"type": type(likelihood).__name__, "config": likelihood.config()}


def build_likelihood(description: Description) -> likelihoods.Likelihood:
    """As `build`, for a likelihood."""
    try:
        with torch.device("meta"):
            return LIKELIHOODS[description["type"]](**description["config"])
    except Exception as error:  # as in `build`
        raise ValueError(f"the stored likelihood is not valid: {type(error).__name__} {error}") from error


def describe_layer(layer: layers.BayesLayer) -> Description:
    """Describe a Bayesian layer, things not listed here by names with a dot, which `build` refuses.

    Example:
        >>> describe_layer(layers.Linear(2, 1))["weight"]["prior"]
        ['Normal', {'mean': 0.0, 'std': 1.0}, {}]
    """
    parts: list[Description] = []
    for outer, prior in layer.posteriors_and_priors():
        posterior = unmasked(outer)
        buffers = {name: list(buffer.shape) for name, buffer in prior.named_buffers()}
        parts.append(
            {
                "shape": list(posterior.mean().shape),
                "posterior": describe_member(posterior, POSTERIORS),
                "masked": isinstance(outer, Masked),
                "prior": [*describe_member(prior, PRIORS), buffers],
            }
        )
    bias: Any = None
    if layer.bias is not None:
        bias = parts[1] if isinstance(layer.bias, Posterior) else list(layer.bias.shape)
    options = _plain(asdict(layer.op)) if is_dataclass(layer.op) else None
    estimator, settings = describe_member(layer.estimator, ESTIMATORS)
    return {
        "bayes": _name(type(layer), LAYERS),
        "op": [_name(type(layer.op), OPS), options],
        "weight": parts[0],
        "bias": bias,
        "estimator": f"{estimator}{settings or ''}",
    }


def describe_member(member: Any, known: Mapping[str, Any]) -> list[Any]:
    """The name of a prior, posterior, likelihood or estimator, and its settings; a name not in `known` has a dot.

    Example:
        >>> describe_member(priors.Normal(), PRIORS)
        ['Normal', {'mean': 0.0, 'std': 1.0}]
    """
    if isinstance(member, nn.Module) and hasattr(member, "config"):
        return [_name(type(member), known), _plain(member.config())]  # pyright: ignore[reportCallIssue]
    return [_name(member, known), _plain(asdict(member)) if isinstance(member, estimators.Estimator) else {}]


def _name(member: Any, known: Mapping[str, Any]) -> str:
    """The name in `known`, or one with a dot, which is in none."""
    name = getattr(member, "__name__", "")
    if known.get(name) == member:
        return name
    return f"own.{name or type(member).__name__}"  # a `functools.partial` has no name; modules may be renamed


def _plain(config: Any) -> Any:
    """The settings as JSON gives them back; None if it cannot, as may be of a class of one's own."""
    try:
        return json.loads(json.dumps(config))
    except (TypeError, ValueError):
        return None


def _is_known(layer: Description) -> bool:
    parts = [layer["weight"], *([layer["bias"]] if isinstance(layer["bias"], dict) else [])]
    names = [layer["bayes"], layer["op"][0], layer["estimator"]]
    return not any("." in name for name in names + [part[key][0] for part in parts for key in ("posterior", "prior")])


def _build_layer(description: Description) -> layers.BayesLayer:
    op_name, options = description["op"]
    weight, bias = description["weight"], description["bias"]
    arguments: dict[str, Any] = {
        "posterior": _posterior_factory(weight),
        "prior": _build_prior(weight),
        "estimator": ESTIMATORS[description["estimator"]],
    }
    shape = bias
    if isinstance(bias, dict):
        arguments |= {"bias_posterior": _posterior_factory(bias), "bias_prior": _build_prior(bias)}
        shape = bias["shape"]
    return LAYERS[description["bayes"]].around(
        OPS[op_name](**_tuples(options)),
        torch.empty(weight["shape"]),
        None if bias is None else torch.empty(shape),
        **arguments,
    )


def _posterior_factory(part: Description) -> Callable[..., Posterior]:
    name, config = part["posterior"]
    build = functools.partial(POSTERIORS[name], **config)
    return (lambda init: Masked(build(init), torch.ones_like(init))) if part["masked"] else build


def _build_prior(part: Description) -> priors.Prior:
    name, config, buffers = part["prior"]
    if config.get("nodes", 0) > MOST_NODES:
        raise ValueError(f"{config['nodes']} quadrature nodes are more than {MOST_NODES}")
    prior = PRIORS[name](**config)
    for buffer, shape in buffers.items():
        if buffer not in prior.config():  # a tensor stands for a number of the constructor, and for nothing else
            raise ValueError(f"{name} takes no {buffer!r}")
        delattr(prior, buffer)
        prior.register_buffer(buffer, torch.empty(shape))
    return prior


def _tuples(arguments: dict[str, Any]) -> dict[str, Any]:
    """JSON turns tuples into lists; torch wants them back."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in arguments.items()}
