"""Turn a plain network into a Bayesian one, in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.utils import parametrize

from bayeslim import layers
from bayeslim.checks.networks import check_network
from bayeslim.conversion_report import refuse_lazy, warn_of_passed_by
from bayeslim.converters import CONVERTERS, kind_of
from bayeslim.estimators import local_reparam
from bayeslim.posteriors.base import Posterior, PosteriorFactory
from bayeslim.posteriors.mean_field import MeanField
from bayeslim.priors.base import Prior, PriorFactory
from bayeslim.runtime.modes import making_normal_tensors
from bayeslim.surgery import nested_tensors_, replaced, sources, topmost, with_hooks

__all__ = ["CONVERTERS", "bayesianize_"]


@making_normal_tensors
def bayesianize_(
    model: nn.Module,
    *,
    posterior: PosteriorFactory = MeanField,
    prior: Prior | PriorFactory | None = None,
    estimator: Callable[..., Any] = local_reparam,
    bias_posterior: PosteriorFactory | None = None,
    bias_prior: Prior | PriorFactory | None = None,
    where: Callable[[str, nn.Module], bool] = lambda name, module: True,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
) -> nn.Module:
    """Replace the layers of `model` by Bayesian ones whose means are the present weights.

    Device, dtype, training mode, hooks and `requires_grad` stay as they are; scales are float32 at least. A layer used
    in several places stays one layer, and weights tied between layers become one shared posterior, whose KL counts
    once; each layer then draws from it on its own. Attention and recurrent layers are replaced as a whole, and an
    `nn.TransformerEncoderLayer` around converted children by a class that calls them (torch's has a fused path
    that would pass them by). An `nn.TransformerEncoder` around them no longer packs padded batches into nested
    tensors, so its outputs at padded positions are numbers instead of zeros, as in training.

    Layers of types that it does not know, subclasses of the known ones among them, stay plain. A `UserWarning` names
    those that are trained and that `where` accepts; `bl.conversion_report(model)` lists every layer.

    Args:
        model: any module; changed in place.
        posterior: builds the posterior around a weight.
        prior: prior over the weights, or what builds one from a weight; `Normal(0, 1)` when None.
        estimator: how the layers use their posterior.
        bias_posterior: builds a posterior around a bias; None keeps biases point estimates.
        bias_prior: prior over the biases; the weights' prior when None.
        where: keeps a layer as it is where this returns False for (name, module), and says of a layer that cannot
            be converted that this is known.
        overrides: other choices for some layers, e.g. `{"head": {"prior": Normal(0, 0.1)}}`.

    Returns:
        `model`; when `model` itself is a layer in the table or an `nn.TransformerEncoderLayer`, its Bayesian
        counterpart: use that one from then on.

    Raises:
        TypeError: if an argument is not of the kind described above; `model` is then unchanged.
        ValueError: if no layer matched (naming the types that were seen), a name in `overrides` is not that of a
            converted layer, or a layer cannot be converted faithfully. `model` is then unchanged.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> bayesianize_(net, where=lambda name, module: name != "2")
    """
    common = {
        "posterior": posterior,
        "prior": prior,
        "estimator": estimator,
        "bias_posterior": bias_posterior,
        "bias_prior": bias_prior,
    }
    _check_arguments(model, where, overrides, common)
    matched = _matched(model, where)
    unknown = set(overrides or ()) - {name for name, _ in matched}
    if unknown:
        raise ValueError(f"`overrides` names no converted layer of `model`: {', '.join(sorted(unknown))}")
    _refuse_half_tied(model, matched)
    options: dict[int, dict[str, Any]] = {}
    for name, module in matched:
        options[id(module)] = options.get(id(module), common) | dict((overrides or {}).get(name, {}))
    converted: dict[int, nn.Module] = {}
    shared: dict[int, tuple[Any, ...]] = {}
    for name, module in matched:
        if id(module) not in converted:
            converted[id(module)] = layer = _converted(module, options[id(module)], shared)
            for part in layer.modules():
                if isinstance(part, Posterior) and not part.used_at:
                    part.used_at = name
    around = [module for module in model.modules() if any(id(part) in converted for part in module.modules())]
    encoders = {id(module): module for module in around if type(module) is nn.TransformerEncoderLayer}
    for module in around:
        if isinstance(module, nn.TransformerEncoder):
            nested_tensors_(module, allowed=False)
    model = replaced(model, converted)
    model = replaced(
        model, {key: with_hooks(layers.TransformerEncoderLayer(old), old) for key, old in encoders.items()}
    )
    warn_of_passed_by(model, where)
    return model


def _check_arguments(model: Any, where: Any, overrides: Any, options: Mapping[str, Any]) -> None:
    """Raise TypeError for arguments of another kind; the layers look at the options themselves."""
    check_network(model, "convert")
    if not callable(where):
        raise TypeError(
            f"`where` must be a function of a layer's name and the layer, got {where!r}: pass e.g. "
            "lambda name, module: name == 'head'"
        )
    example = 'pass e.g. {"head": {"prior": bl.priors.ARD()}}'
    if not (overrides is None or isinstance(overrides, Mapping)):
        raise TypeError(f"`overrides` must map names of layers to their choices, got {overrides!r}: {example}")
    for name, choices in (overrides or {}).items():
        if not isinstance(choices, Mapping) or choices.keys() - options.keys():
            raise TypeError(
                f"`overrides[{name!r}]` must map some of {', '.join(options)} to other choices, got {choices!r}: "
                f"{example}"
            )


def _matched(model: nn.Module, where: Callable[[str, nn.Module], bool]) -> list[tuple[str, nn.Module]]:
    """The layers to convert, refused where that would lose something."""

    def wanted(name: str, module: nn.Module) -> bool:
        return kind_of(module) in CONVERTERS and where(name, module)

    refuse_lazy(model)
    matched = topmost(model, wanted)
    kinds = {type(module) for module in model.modules()}
    if not matched and not kinds & CONVERTERS.keys() and any(issubclass(kind, layers.BayesLayer) for kind in kinds):
        raise ValueError(
            "`model` is Bayesian already, no layer is left to convert: `bl.collapse_` it first for another posterior "
            "or prior; `bl.using(model, estimator)` sets another estimator"
        )
    if not matched:
        seen = sorted({kind.__name__ for kind in kinds})
        known = ", ".join(kind.__name__ for kind in CONVERTERS)
        raise ValueError(
            f"no layer of `model` was converted: it holds {', '.join(seen)}; convertible are "
            f"{known}, and `where` must accept at least one of them"
        )
    for name, module in matched:
        if any(parametrize.is_parametrized(part) or _has_computed(part) for part in module.modules()):
            raise ValueError(
                f"the weight of layer {name!r} is computed from other parameters (weight norm, spectral norm, "
                "pruning ...): remove that first, or leave the layer out by `where`"
            )
    _refuse_fused(model, {id(module) for _, module in matched})
    return matched


def _has_computed(module: nn.Module) -> bool:
    """Whether an older utility put a plain tensor where a parameter was, computed from e.g. `weight_orig`."""
    return any(
        isinstance(value, Tensor) and any(other.startswith(f"{name}_") for other in module._parameters)
        for name, value in vars(module).items()
    )


def _refuse_fused(model: nn.Module, matched: set[int]) -> None:
    """Raise for encoder layers whose fused path would read the weights of children that are converted."""
    for name, module in model.named_modules():
        kind = type(module)
        inherits = kind is not nn.TransformerEncoderLayer and kind.forward is nn.TransformerEncoderLayer.forward
        if inherits and any(id(part) in matched for part in module.modules()):
            raise ValueError(
                f"layer {name!r} is a {kind.__name__}, which inherits the fused forward of nn.TransformerEncoderLayer, "
                "where Bayesian layers have no place: give it a forward of its own, or leave it out by `where`"
            )


def _refuse_half_tied(model: nn.Module, matched: list[tuple[str, nn.Module]]) -> None:
    """Raise for a weight that would have a posterior in one layer and not in another."""
    converted = {id(part) for _, module in matched for part in module.modules()}
    owners: dict[int, list[tuple[str, nn.Module]]] = {}
    for name, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(id(parameter), []).append((name, module))
    for users in owners.values():
        inside = [(name, module) for name, module in users if id(module) in converted]
        simple = all(type(module) in (nn.Linear, nn.Embedding) for _, module in users)
        if inside and len(users) > 1 and not (simple and len(inside) == len(users)):
            raise ValueError(
                f"layers {', '.join(repr(name) for name, _ in users)} share a parameter, which only nn.Linear and "
                "nn.Embedding layers that are all converted can keep: untie them, or leave all out by `where`"
            )


def _converted(module: nn.Module, options: dict[str, Any], shared: dict[int, tuple[Any, ...]]) -> nn.Module:
    """The Bayesian counterpart of one layer; a weight or bias seen before brings its posterior along."""
    layer = CONVERTERS[type(module)](module, **options).train(module.training)
    for part, weight, bias in sources(layer, module):
        part.weight.requires_grad_(weight.requires_grad)
        if part.bias is not None and bias is not None:
            part.bias.requires_grad_(bias.requires_grad)
    if isinstance(layer, layers.BayesLayer):
        weight, bias = module.get_parameter("weight"), layer.bias
        layer.weight, layer.prior = shared.setdefault(id(weight), (layer.weight, layer.prior))
        if isinstance(bias, Posterior):
            pair = shared.setdefault(id(module.get_parameter("bias")), (bias, layer.bias_prior))
            layer.bias, layer.bias_prior = pair
        elif bias is not None:
            (layer.bias,) = shared.setdefault(id(module.get_parameter("bias")), (bias,))
    return with_hooks(layer, module)
