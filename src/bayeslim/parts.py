"""Describe the parts of a network of any class, and give them to another instance of that class."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn

from bayeslim.architecture import Description, build, describe, describe_layer
from bayeslim.convert import CONVERTERS, bayesianize_
from bayeslim.layers import BayesLayer, MultiheadAttention
from bayeslim.masks import Masked, mask_of, unmasked
from bayeslim.posteriors.base import Posterior
from bayeslim.surgery import replaced, with_hooks

__all__ = ["describe_heads", "describe_parts", "take_heads_", "take_parts_", "tied_names", "undone_on_error"]

WHOLE = (nn.LSTM, nn.GRU, nn.MultiheadAttention)
"""torch's layers whose counterparts hold several Bayesian layers, under names of their own."""

STAND_INS: dict[str, Any] = {
    "posterior": ["MeanField", {}],
    "prior": ["Normal", {}, {}],
    "bayes": "Linear",
    "op": ["LinearOp", {}],
    "estimator": "local_reparam",
}
"""What is built, and not used, in place of a type that `build` does not know."""


def describe_parts(model: nn.Module) -> dict[str, Description]:
    """Describe the largest parts of `model`, by name, that `build` can make, and every Bayesian layer.

    Bayesian layers are described even where `build` does not know their types, to be compared; plain layers that
    share a parameter are not described.

    Example:
        >>> list(describe_parts(nn.ModuleDict({"head": nn.Linear(2, 1)})))
        ['head']
    """
    tied = {name for names in tied_names(model) for name in names}
    return _parts(model, {id(p) for name, p in model.named_parameters() if name in tied})


def _parts(model: nn.Module, tied: set[int]) -> dict[str, Description]:
    parts: dict[str, Description] = {}
    for name, module in model.named_children():
        if isinstance(module, BayesLayer):
            found = {"": describe_layer(module)}
        else:
            shares = any(id(parameter) in tied for parameter in module.parameters())
            description = None if shares else describe(module)
            found = _parts(module, tied) if description is None else {"": description}
        parts |= {f"{name}.{inner}".removesuffix("."): part for inner, part in found.items()}
    return parts


def describe_heads(model: nn.Module) -> dict[str, int]:
    """The number of heads of every Bayesian attention, which the shapes of its weights do not tell.

    Example:
        >>> describe_heads(nn.ModuleDict({"attention": MultiheadAttention(8, 2)}))
        {'attention': 2}
    """
    return {name: module.num_heads for name, module in model.named_modules() if isinstance(module, MultiheadAttention)}


def tied_names(model: nn.Module) -> list[list[str]]:
    """The names of every parameter that has several.

    Example:
        >>> tied_names(nn.Sequential(nn.Linear(2, 2)))
        []
    """
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [group for group in names.values() if len(group) > 1]


@contextmanager
def undone_on_error(model: nn.Module) -> Iterator[None]:
    """Undo what the block did to the modules of `model`, values of tensors excepted, if it raises.

    Example:
        >>> with undone_on_error(model):
        ...     take_parts_(model, parts)
    """
    registries = ("_modules", "_parameters", "_buffers")
    before = [(m, dict(vars(m)), {key: dict(vars(m)[key]) for key in registries}) for m in model.modules()]
    try:
        yield
    except BaseException:
        for module, attributes, entries in before:
            vars(module).clear()
            vars(module).update(attributes)
            for key in registries:
                vars(module)[key].clear()
                vars(module)[key].update(entries[key])
        raise


def take_heads_(model: nn.Module, heads: Any) -> None:
    """Set the number of heads of attentions that `take_parts_` has made smaller.

    Raises:
        ValueError: if a number does not divide the width.
    """
    for name, module in model.named_modules():
        if isinstance(module, MultiheadAttention) and isinstance(heads, dict) and name in heads:
            width = module.v_proj.weight.mean().shape[0]
            if type(heads[name]) is not int or heads[name] < 1 or width % heads[name]:
                raise ValueError(f"the stored number of heads of {name!r} is not valid: {heads[name]!r} of {width}")
            module.num_heads = heads[name]


def take_parts_(model: nn.Module, parts: Mapping[str, Description], resize: bool = True) -> None:
    """Make the layers of `model` those described: types, posteriors, masks, priors, estimators and sizes.

    Tensors that have to be new are on the meta device. Layers that are as described stay as they are, and the network
    itself is never replaced.

    Args:
        model: changed in place, also if an error is raised: see `undone_on_error`.
        parts: descriptions by name; names that `model` does not have are passed over.
        resize: whether to take over sizes too; False leaves layers of another size alone.

    Raises:
        ValueError: if a description is not valid, or tells of a type that bayeslim does not know and `model` lacks.
    """
    bayesian = {name for name, description in _leaves(parts) if "bayes" in description}
    plain = {
        name
        for name, module in model.named_modules()
        if name
        and type(module) in CONVERTERS
        and (name in bayesian or (type(module) in WHOLE and any(inner.startswith(f"{name}.") for inner in bayesian)))
    }
    if plain:
        bayesianize_(model, where=lambda name, module: name in plain)
    taken: dict[Any, Any] = {}
    for name, description in parts.items():
        _take_(model, name, description, resize, taken)


def _leaves(parts: Mapping[str, Description]) -> list[tuple[str, Description]]:
    """The descriptions that are not of an `nn.Sequential`, under their whole names."""
    waiting, found = list(parts.items()), []
    while waiting:
        name, description = waiting.pop()
        if _is_sequential(description):
            waiting += [(f"{name}.{inner}".removeprefix("."), child) for inner, child in description["children"]]
        elif isinstance(description, dict):
            found.append((name, description))
    return found


def _is_sequential(description: Any) -> bool:
    """Whether it is the description of an `nn.Sequential`, of the form that `describe` gives."""
    if not isinstance(description, dict) or description.get("torch") != "Sequential":
        return False
    children = description.get("children")
    return isinstance(children, list) and all(isinstance(c, list) and len(c) == 2 for c in children)


def _take_(model: nn.Module, name: str, description: Any, resize: bool, taken: dict[Any, Any]) -> None:
    try:
        module = model.get_submodule(name)
    except AttributeError:
        return
    if _is_sequential(description):
        inner = [str(child) for child, _ in description["children"]]
        if not name or (type(module) is nn.Sequential and list(module._modules) == inner):
            for child, part in description["children"]:
                _take_(model, f"{name}.{child}".removeprefix("."), part, resize, taken)
            return
    if isinstance(module, BayesLayer) and isinstance(description, dict) and "bayes" in description:
        own = describe_layer(module)
        if own["bayes"] == description["bayes"]:
            if own != description:
                _take_layer_(name, module, own, description, resize, taken)
            return
    own = describe(module)
    if own is None and not isinstance(module, BayesLayer) and type(module) not in CONVERTERS:
        return  # of a class of its own
    if not name or json.loads(json.dumps(own)) == description:
        return
    new = build(description)
    if not resize and _shapes(new) != _shapes(module):
        return
    replaced(model, {id(module): with_hooks(new.train(module.training), module)})


def _shapes(module: nn.Module) -> dict[str, Any]:
    return {name: tensor.shape for name, tensor in module.state_dict().items()}


def _take_layer_(
    name: str, layer: BayesLayer, own: Description, stored: Description, resize: bool, taken: dict[Any, Any]
) -> None:
    """Make a Bayesian layer that is described by `own` as `stored` says; what is as it says stays."""
    try:
        template: Any = build(_with_stand_ins(stored))
    except (KeyError, TypeError, IndexError, AttributeError):  # `stored` is not of the form of `describe_layer`
        template = build(stored)
    sizes = [
        (d["weight"]["shape"], d["bias"]["shape"] if isinstance(d["bias"], dict) else d["bias"]) for d in (own, stored)
    ]
    if not resize and sizes[0] != sizes[1]:
        return
    _refuse_unknown(name, own, stored)
    if own["op"] != stored["op"]:
        layer.op = template.op
    if own["estimator"] != stored["estimator"]:
        layer.estimator = template.estimator
    _take_pair_(layer, template, ("weight", "prior"), own["weight"], stored["weight"], taken)
    if isinstance(stored["bias"], dict):
        _take_pair_(layer, template, ("bias", "bias_prior"), own["bias"], stored["bias"], taken)
    elif own["bias"] != stored["bias"]:
        layer.bias = template.bias if layer.bias is None else taken.setdefault(layer.bias, template.bias)
        if isinstance(own["bias"], dict):
            del layer.bias_prior
    layer.train(layer.training)


def _take_pair_(
    layer: Any, template: Any, names: tuple[str, str], own: Any, stored: Description, taken: dict[Any, Any]
) -> None:
    """Take a posterior and its prior from `template`; what layers shared they share again."""
    before, prior = getattr(layer, names[0]), getattr(layer, names[1], None)
    own = own if isinstance(own, dict) else {"shape": None, "posterior": None, "prior": None, "masked": None}
    if (own["shape"], own["posterior"]) != (stored["shape"], stored["posterior"]):
        new = getattr(template, names[0])
        if isinstance(before, Posterior):
            trained = {key: p.requires_grad for key, p in unmasked(before).named_parameters()}
            for key, parameter in unmasked(new).named_parameters():
                parameter.requires_grad_(trained.get(key, True))
        if names[0] in layer._parameters:
            delattr(layer, names[0])  # torch lets no module take the name of a parameter
        setattr(layer, names[0], new if before is None else taken.setdefault(before, new))
    elif own["masked"] != stored["masked"]:
        new = Masked(before, mask_of(before)) if stored["masked"] else unmasked(before)
        setattr(layer, names[0], taken.setdefault(before, new))
    if own["prior"] != stored["prior"]:
        new = getattr(template, names[1])
        setattr(layer, names[1], new if prior is None else taken.setdefault(prior, new))


def _with_stand_ins(stored: Description) -> Description:
    """`stored` with what bayeslim can build in place of what it cannot."""

    def known(part: Any) -> Any:
        unknown = {key for key in STAND_INS if key in part and _is_own(part[key])}
        return part | {key: STAND_INS[key] for key in unknown}

    bias = stored["bias"]
    return known(stored) | {"weight": known(stored["weight"]), "bias": known(bias) if isinstance(bias, dict) else bias}


def _is_own(value: Any) -> bool:
    """Whether `describe_layer` wrote this for a type that `build` does not know."""
    return str(value if isinstance(value, str) else value[0]).startswith("own.")


def _refuse_unknown(name: str, own: Description, stored: Description) -> None:
    """Raise if the file tells of a type that bayeslim cannot build, and the layer has another."""
    pairs = [(key, own[key], stored[key]) for key in ("op", "estimator")]
    for part in ("weight", "bias"):
        if isinstance(stored[part], dict):
            has = own[part] if isinstance(own[part], dict) else {}
            pairs += [(key, has.get(key), stored[part][key]) for key in ("posterior", "prior")]
    for what, has, wanted in pairs:
        if _is_own(wanted) and has != wanted:
            shown = [str(value).replace("own.", "") for value in (wanted, has)]
            raise ValueError(
                f"layer {name!r} was saved with the {what} {shown[0]}, which bayeslim cannot build, and `model` has "
                f"{shown[1]}: convert it first by bl.bayesianize_ with the same {what}, and load into that"
            )
