"""Save a trained network to one file and load it again."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bayeslim.architecture import build, build_likelihood, describe, describe_likelihood
from bayeslim.checks.networks import check_network
from bayeslim.divergence import is_sharded
from bayeslim.likelihoods.base import Likelihood, remember_likelihood_, remembered_likelihood
from bayeslim.parts import describe_heads, describe_parts, take_heads_, take_parts_, tied_names, undone_on_error
from bayeslim.runtime.modes import making_normal_tensors
from bayeslim.storage import named_file, read_tensors, write_tensors

__all__ = [
    "assign_",
    "check_state",
    "described_network",
    "load",
    "load_state_",
    "prefixed",
    "save",
    "unprefixed",
    "valid_parts",
]

ADVICE = (
    "make `model` as it was when it was saved; if it was Bayesian, convert it first by bl.bayesianize_ with the same "
    "posterior and prior"
)


def save(model: nn.Module, path: str | os.PathLike[str], likelihood: Likelihood | None = None) -> None:
    """Write `model` to `path`: parameters, buffers, architecture and likelihood, in one file.

    The file is safetensors with JSON in its header and a checksum over all of it, written atomically.
    Networks made of the layers that bayeslim knows can be loaded without code; any other `nn.Module` is
    saved too, but `load` then needs an instance of its class to load into.

    Args:
        model: the network.
        path: the file, usually `*.safetensors`; replaced if it exists.
        likelihood: stored beside it; None stores the one `fit` used, if any.

    Raises:
        TypeError: for snapshots, which are files already where they were taken into a folder.
        ValueError: if the network is sharded over processes, or `path` is empty.

    Warns:
        UserWarning: if the likelihood is of a class of your own, which is not stored: pass it to `predict` again.

    Example:
        >>> save(model, "net.safetensors")
        >>> model = load("net.safetensors")
    """
    check_network(model, "save")
    file = named_file(path)
    if is_sharded(model):
        raise ValueError(
            "a sharded network has only a part of its parameters here: load its `bl.training.full_state` into a plain "
            "copy on rank 0, and save that"
        )
    if likelihood is None:
        likelihood = remembered_likelihood(model)
    tensors = prefixed("model", model.state_dict())
    facts = {"kind": "model", "architecture": describe(model), "likelihood": None}
    if facts["architecture"] is None:
        facts |= {"parts": describe_parts(model), "heads": describe_heads(model), "tied": tied_names(model)}
    if likelihood is not None:
        facts["likelihood"] = describe_likelihood(likelihood)
        tensors |= prefixed("likelihood", likelihood.state_dict())
    write_tensors(file, tensors, facts)
    if likelihood is not None and facts["likelihood"] is None:
        warnings.warn(
            f"the likelihood {type(likelihood).__name__} is of a class of your own and is not stored: pass it to "
            "bl.predict again, as likelihood=..., after bl.load",
            stacklevel=2,
        )


@making_normal_tensors
def load(path: str | os.PathLike[str], model: nn.Module | None = None) -> nn.Module:
    """Read a network that `save` wrote.

    Args:
        path: the file.
        model: load into this network, which must have the same structure; its layers may be plain, or not pruned and
            compacted yet. What the file says of them wins: posteriors, masks, priors and estimators come from it, as
            do the layers that bayeslim knows where they differ. None builds a new network from the stored
            architecture.

    Returns:
        The network, on the CPU if it was built here, its likelihood remembered for `predict`.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged, is not a saved network, does not fit `model`, or had a prior, posterior or
            estimator of a class of your own that `model` lacks. `model` is then unchanged.

    Example:
        >>> predict(load("net.safetensors"), x)
    """
    if model is not None:
        check_network(model, "load into")
    file = named_file(path)
    tensors, facts = read_tensors(file)
    if facts.get("kind") != "model":
        raise ValueError(f"{file} holds {facts.get('kind')!r}, not a saved network")
    built = model is None
    if model is None:
        model = described_network(facts, file, "make the network yourself and call load(path, model)")
    state = unprefixed("model", tensors)
    if built:
        load_state_(model, state, file, assign=True)
    else:
        _load_into_(model, facts, state, file)
    if facts.get("likelihood") is not None:
        likelihood = build_likelihood(facts["likelihood"])
        load_state_(likelihood, unprefixed("likelihood", tensors), file, assign=True)
        remember_likelihood_(model, likelihood)
    return model


def described_network(facts: Mapping[str, Any], file: Path, advice: str) -> nn.Module:
    """A new network as a file describes it.

    Args:
        facts: of the file.
        file: named where it has no description, which a network has not that holds modules of others.
        advice: what to do then.

    Raises:
        ValueError: without a description.
    """
    if facts.get("architecture") is None:
        raise ValueError(
            f"{file} does not describe its architecture (it has modules that bayeslim cannot build): {advice}"
        )
    return build(facts["architecture"])


def _load_into_(model: nn.Module, facts: Mapping[str, Any], state: Mapping[str, Tensor], file: Path) -> None:
    """Give `model` the layers that the file describes, and load `state`; nothing changes if it does not fit then."""
    before = model.state_dict(keep_vars=True)
    fits = not _problems(before, state)
    with undone_on_error(model):
        if facts.get("architecture") is not None:
            build(facts["architecture"])  # refuses what is not valid
            take_parts_(model, {"": facts["architecture"]}, resize=False)
        elif facts.get("parts"):
            take_parts_(model, valid_parts(model, facts["parts"], file))
            take_heads_(model, facts.get("heads"))
        own = model.state_dict(keep_vars=True)
        problems = _problems(own, state) or _ties(own, state, facts.get("tied"))
        _refuse(problems, file, ADVICE)
    if not fits:
        assign_(model, own, state)
        return
    for name, tensor in own.items():
        if tensor.is_meta:  # inside a new posterior or prior: with the tensor that the old one had
            parent, _, last = name.rpartition(".")
            owner = model.get_submodule(parent)
            (owner._parameters if last in owner._parameters else owner._buffers)[last] = before[name]  # pyright: ignore[reportArgumentType]
    with torch.no_grad():
        model.load_state_dict(dict(state), strict=True)


def assign_(model: nn.Module, own: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Put the tensors of `state` in place of those of `model`, those that are one tensor as one."""
    device = next((tensor.device for tensor in own.values() if not tensor.is_meta), torch.device("cpu"))
    new: dict[int, Tensor] = {}
    for name, tensor in own.items():
        value = nn.Parameter(state[name], tensor.requires_grad) if isinstance(tensor, nn.Parameter) else state[name]
        new.setdefault(id(tensor), value)
    model.load_state_dict({name: new[id(tensor)] for name, tensor in own.items()}, strict=True, assign=True)
    model.to(device)


def valid_parts(model: nn.Module, parts: Any, file: Path) -> dict[str, Any]:
    """The parts of a file; a ValueError if one that `model` has is inside another."""
    places = [name for name, _ in model.named_modules() if name in parts] if isinstance(parts, dict) else [""]
    if "" in places or any(a.startswith(f"{b}.") for a in places for b in places):
        raise ValueError(f"{file} holds a list of parts that is not valid: it may be damaged; restore it from a copy")
    return parts


def _ties(own: Mapping[str, Tensor], state: Mapping[str, Tensor], tied: Any) -> list[str]:
    """Tensors that are one in the network and two in the file, or the other way round."""
    first: dict[int, str] = {}
    problems: list[str] = []
    for name, tensor in own.items():
        other = first.setdefault(id(tensor), name)
        if other != name and not torch.equal(state[name].nan_to_num(), state[other].nan_to_num()):
            problems.append(f"{other} and {name} are one tensor in the network and differ in the file")
    for group in tied if isinstance(tied, list) else []:
        names = [name for name in group if name in own] if isinstance(group, list) else []
        problems += [
            f"{names[0]} and {name} are one tensor only in the file"
            for name in names[1:]
            if own[name] is not own[names[0]]
        ]
    return problems


def load_state_(module: nn.Module, state: Mapping[str, Tensor], file: Path, assign: bool = False) -> None:
    """Load `state` into `module`, strictly; a mismatch is a ValueError that names the first ones."""
    check_state(module, state, file)
    with torch.no_grad():
        module.load_state_dict(dict(state), strict=True, assign=assign)


def check_state(module: nn.Module, state: Mapping[str, Tensor], file: Path) -> None:
    """Raise ValueError unless `state` has the names, shapes and kinds of number of `module`."""
    _refuse(_problems(module.state_dict(), state), file)


def _problems(own: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> list[str]:
    """What keeps `state` from standing for `own`."""
    problems = [f"missing {name}" for name in own if name not in state]
    problems += [f"unexpected {name}" for name in state if name not in own]
    problems += [
        f"{name} is {tuple(state[name].shape)}, expected {tuple(own[name].shape)}"
        for name in own
        if name in state and state[name].shape != own[name].shape
    ]
    problems += [
        f"{name} is {state[name].dtype}, expected {own[name].dtype}"
        for name in own
        if name in state and state[name].is_floating_point() != own[name].is_floating_point()
    ]
    return problems


def _refuse(problems: list[str], file: Path, advice: str = "") -> None:
    if problems:
        more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
        advice = f": {advice}" if advice else ""
        raise ValueError(f"{file} does not fit the network: {'; '.join(problems[:3])}{more}{advice}")


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Put `prefix.` before every name."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def unprefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Keep the names under `prefix.` and remove it."""
    start = f"{prefix}."
    return {name[len(start) :]: tensor for name, tensor in tensors.items() if name.startswith(start)}
