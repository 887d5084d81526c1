"""Networks whose parameters are spread over processes, for those that one device cannot hold with its optimiser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from bayeslim.checks.networks import check_network
from bayeslim.divergence import is_sharded
from bayeslim.estimators import kind_of
from bayeslim.layers.attention import TransformerEncoderLayer
from bayeslim.layers.base import BayesLayer
from bayeslim.layers.recurrent import GRU, LSTM
from bayeslim.optim.injection import Sampler
from bayeslim.posteriors.base import Posterior, full
from bayeslim.predictive.inputs import device_of
from bayeslim.pruning.sparsity import named_sparsity
from bayeslim.training.ranks import join

__all__ = [
    "check_sharded",
    "clip_",
    "full_state",
    "local",
    "shard_",
    "sharded_as",
    "sharded_sparsity",
    "unsharded",
    "whole",
]

BLOCKS = (TransformerEncoderLayer, LSTM, GRU)
"""Modules whose Bayesian layers are gathered together, by default."""


def shard_(
    model: nn.Module,
    *,
    blocks: type[nn.Module] | tuple[type[nn.Module], ...] = BLOCKS,
    device: torch.device | str | None = None,
) -> nn.Module:
    """Spread the parameters of a network over all processes by torch's `fully_shard`, in place.

    Each process keeps a part of every parameter, its gradient and its optimiser state. A block is gathered for its
    forward pass and again for its backward pass, and the posteriors in it draw as they do elsewhere. `bl.fit` trains
    the result; see docs/distributed.md.

    torch wants one type in a block. Where weights have 16 bits they become float32, as their scales are, and the block
    computes in the 16 bits.

    Args:
        model: the network, converted already; rank 0's parameters and buffers count.
        blocks: types of the modules that are gathered as one. Bayesian layers outside of them are gathered one by one,
            and what is left with the whole network.
        device: where the parts go, block by block; None leaves them where the network is.

    Returns:
        The network; as it was where this is the only process.

    Raises:
        ValueError: if it is sharded already, or blocks share a parameter.

    Example:
        >>> model = shard_(bl.bayesianize_(vit_s16()), device="cuda")
        >>> history = bl.fit(model, (x, y), likelihood=bl.Categorical(), epochs=10)
    """
    check_network(model, "shard")
    if is_sharded(model):
        raise ValueError("`model` is sharded already: call shard_ once, after the last conversion")
    ranks, place = join(), device_of(model) if device is None else torch.device(device)
    units = _units(model, blocks)
    if ranks.count == 1:
        return model.to(place)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            first = tensor.to(place).contiguous()
            dist.broadcast(first, src=0)
            tensor.copy_(first)
    mesh = init_device_mesh(place.type, (ranks.count,))
    for unit in (*units, model):  # also the last one gives its parameters back at once: they are never left plain
        unit.register_forward_hook(_without_views)
        dtype = _compute_type_(unit)
        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype and torch.float32)
        fully_shard(unit, mesh=mesh, reshard_after_forward=True, mp_policy=policy)
    return model


def _compute_type_(unit: nn.Module) -> torch.dtype | None:
    """Make all of a block float32 whose scales alone are, and return the type of the others; None for other blocks."""
    posteriors = [module for module in unit.modules() if isinstance(module, Posterior)]
    scales = {id(posterior._parameters.get(name)) for posterior in posteriors for name in posterior.scale_parameters}
    own = [parameter for parameter in unit.parameters() if not hasattr(parameter, "device_mesh")]
    kinds = {parameter.dtype for parameter in own if id(parameter) not in scales}
    if len(kinds) != 1 or kinds == {parameter.dtype for parameter in own}:
        return None
    for parameter in own:
        parameter.data = full(parameter.data)
    return kinds.pop()


def _without_views(module: nn.Module, inputs: Any, output: Any) -> Any:
    """Copy outputs that are views: an operation in place on one would lose what gathers a block for its backward."""
    return tree_map(lambda part: part.clone() if isinstance(part, Tensor) and part._is_view() else part, output)


def _units(model: nn.Module, blocks: type[nn.Module] | tuple[type[nn.Module], ...]) -> list[nn.Module]:
    """The blocks, and the Bayesian layers outside of them; the network itself is not among them."""
    units: list[nn.Module] = []
    kinds = (BayesLayer, *(blocks if isinstance(blocks, tuple) else (blocks,)))
    inside: set[nn.Module] = set(model.modules()) if isinstance(model, kinds) else {model}
    owners: dict[nn.Parameter, str] = {}
    for name, module in model.named_modules():
        if module not in inside and isinstance(module, kinds):
            units.append(module)
            inside |= set(module.modules())
            for parameter in module.parameters():
                if owners.setdefault(parameter, name) != name:
                    raise ValueError(
                        f"{owners[parameter]} and {name} share a parameter, which cannot be gathered for one alone: "
                        "pass the type of a module that holds both in `blocks`"
                    )
    return units


@contextmanager
def unsharded(model: nn.Module) -> Iterator[None]:
    """Let every process hold all parameters of a network inside the block, as plain tensors.

    For what looks at weights outside of a forward pass: prediction by sampling, criteria, figures. All processes must
    enter it, and have the memory. Changes to the parameters are lost.

    Args:
        model: a network that `shard_` returned; any other is left as it is.

    Example:
        >>> with unsharded(model):
        ...     prediction = bl.predict(model, x, samples=50)
    """
    check_network(model, "gather")
    units: list[Any] = [module for module in model.modules() if hasattr(module, "reshard")]
    try:
        for unit in units:
            unit.set_reshard_after_forward(False, recurse=False)
            unit.unshard()
        yield
    finally:
        for unit in units:
            unit.set_reshard_after_forward(True, recurse=False)
            unit.reshard()


def sharded_sparsity(model: nn.Module) -> dict[str, float]:
    """`named_sparsity` with one block gathered at a time."""
    found: dict[str, float] = {}
    units = [(name, module) for name, module in model.named_modules() if hasattr(module, "reshard")]
    for place, unit in units[1:] or units:  # the network itself comes first, and has no Bayesian layer of its own
        with unsharded(unit):
            parts = named_sparsity(unit)
        found |= {".".join(filter(None, (place, name))): value for name, value in parts.items()}
    return found


def full_state(model: nn.Module) -> dict[str, Tensor]:
    """The state of a network with whole tensors, on the CPU of rank 0; empty on the others, which must call it too.

    Load it into a network that is not sharded to save, export or compact that.

    Args:
        model: a network that `shard_` returned, or any other.

    Example:
        >>> state = full_state(model)
        >>> if join().first:
        ...     plain.load_state_dict(state)
        ...     bl.save(plain, "net.safetensors")
    """
    check_network(model, "gather")
    return whole(model.state_dict())


def whole(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Gather tensors on the CPU of rank 0, one at a time; the others get none, and must call it too."""
    first, found = join().first, {}
    for name, tensor in sorted(tensors.items()):  # in one order everywhere, which that of a file's content is not
        full: Any = tensor.detach()
        full = full.full_tensor() if hasattr(full, "device_mesh") else full
        if first:
            found[name] = full.cpu()
    return found


def sharded_as(own: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """This process's shards of whole tensors, which it must have: spread as those of the same name in `own` are."""
    found = dict(tensors)
    for name, tensor in tensors.items():
        like: Any = own.get(name)
        if hasattr(like, "device_mesh"):
            from torch.distributed.tensor import distribute_tensor

            found[name] = distribute_tensor(
                tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None
            )
    return found


def local(tensor: Tensor) -> Tensor:
    """This process's shard of a tensor; the tensor itself where it is not sharded."""
    shard: Any = tensor
    return shard.to_local() if hasattr(shard, "device_mesh") else tensor


def check_sharded(
    model: nn.Module, optimizer: torch.optim.Optimizer, autocast: torch.dtype | None, *, compile: bool
) -> None:
    """Raise ValueError for settings of `fit` that a sharded network cannot be trained with."""
    if any(kind_of(getattr(module, "estimator", None)) == "moments" for module in model.modules()):
        raise ValueError(
            "`moments` pass from block to block as pairs, of which torch gathers no gradients: sample instead"
        )
    if compile:
        raise ValueError("`compile` cannot be used with a sharded network: leave it out")
    if autocast == torch.float16:
        raise ValueError("`autocast`=torch.float16 scales losses per process: use torch.bfloat16 when sharded")
    if isinstance(optimizer, Sampler):
        kind = type(optimizer).__name__
        raise ValueError(f"{kind} draws noise for whole parameters, not for shards: train without shard_, or by Adam")


def clip_(parameters: list[Tensor], most: float) -> None:
    """`torch.nn.utils.clip_grad_norm_` over sharded parameters and plain ones, which torch does not take together."""
    kinds = [[p for p in parameters if hasattr(p, "device_mesh") is sharded] for sharded in (True, False)]
    gradients = [[p.grad for p in kind if p.grad is not None] for kind in kinds]
    norms: list[Any] = [torch.nn.utils.get_total_norm(some) for some in gradients if some]
    norm = torch.stack([part.full_tensor() if hasattr(part, "device_mesh") else part for part in norms]).norm()
    for kind in kinds:
        torch.nn.utils.clip_grads_with_norm_(kind, most, norm, foreach=False)
