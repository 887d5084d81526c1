"""Save a trained network to one file and load it again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bayeslim.architecture import build, build_likelihood, describe, describe_likelihood, describe_parts
from bayeslim.divergence import is_sharded
from bayeslim.likelihoods.base import Likelihood, remember_likelihood_, remembered_likelihood
from bayeslim.storage import read_tensors, write_tensors

__all__ = ["check_state", "load", "load_state_", "prefixed", "save", "unprefixed"]


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
        ValueError: if the network is sharded over processes.

    Example:
        >>> save(model, "net.safetensors")
        >>> model = load("net.safetensors")
    """
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
        facts["parts"] = describe_parts(model)
    if likelihood is not None:
        facts["likelihood"] = describe_likelihood(likelihood)
        tensors |= prefixed("likelihood", likelihood.state_dict())
    write_tensors(Path(path), tensors, facts)


def load(path: str | os.PathLike[str], model: nn.Module | None = None) -> nn.Module:
    """Read a network that `save` wrote.

    Args:
        path: the file.
        model: load into this network, which must have the same structure; its layers may be plain, or not pruned and
            compacted yet: those that bayeslim knows are replaced where the stored ones differ. None builds a new
            network from the stored architecture.

    Returns:
        The network, on the CPU if it was built here, its likelihood remembered for `predict`.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged, is not a saved network, or does not fit `model`.

    Example:
        >>> predict(load("net.safetensors"), x)
    """
    file = Path(path)
    tensors, facts = read_tensors(file)
    if facts.get("kind") != "model":
        raise ValueError(f"{file} holds {facts.get('kind')!r}, not a saved network")
    built = model is None
    if model is None:
        if facts.get("architecture") is None:
            raise ValueError(
                f"{file} does not describe its architecture (it has modules that bayeslim cannot build): "
                "make the network yourself and call load(path, model)"
            )
        model = build(facts["architecture"])
    state = unprefixed("model", tensors)
    if not built and facts.get("parts") and _problems(model.state_dict(), state):
        _take_parts_(model, facts["parts"], state, file)
    else:
        load_state_(model, state, file, assign=built)
    if facts.get("likelihood") is not None:
        likelihood = build_likelihood(facts["likelihood"])
        load_state_(likelihood, unprefixed("likelihood", tensors), file, assign=True)
        remember_likelihood_(model, likelihood)
    return model


def _take_parts_(model: nn.Module, parts: Any, state: Mapping[str, Tensor], file: Path) -> None:
    """Replace parts of `model` by those described, and load `state`; nothing changes if it does not fit then."""
    places = [name for name, _ in model.named_modules() if name in parts] if isinstance(parts, dict) else [""]
    if "" in places or any(a.startswith(f"{b}.") for a in places for b in places):
        raise ValueError(f"{file} holds a list of parts that is not valid: it may be damaged; restore it from a copy")
    built = {name: build(parts[name]).train(model.training) for name in places}
    others = {
        name: tensor
        for name, tensor in model.state_dict().items()
        if not any(name.startswith(f"{part}.") for part in built)
    }
    inside = {f"{name}.{key}": value for name, part in built.items() for key, value in part.state_dict().items()}
    _refuse(_problems(others | inside, state), file)
    device = next(iter([*model.parameters(), *model.buffers()]), torch.empty(0)).device
    for name, part in built.items():
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, part)
    model.load_state_dict(dict(state), strict=True, assign=True)
    model.to(device)


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


def _refuse(problems: list[str], file: Path) -> None:
    if problems:
        more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise ValueError(f"{file} does not fit the network: {'; '.join(problems[:3])}{more}")


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Put `prefix.` before every name."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def unprefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Keep the names under `prefix.` and remove it."""
    start = f"{prefix}."
    return {name[len(start) :]: tensor for name, tensor in tensors.items() if name.startswith(start)}
