"""Sparse execution: linear layers as compressed rows, where that is measurably faster on this machine."""

from __future__ import annotations

import functools
import statistics
import time
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from bayeslim.checks.networks import check_network
from bayeslim.layers.base import BayesLayer

__all__ = ["SparseLinear", "sparsify_"]

ROUNDS = 15
"""Interleaved measurements per layer; medians are compared."""
ROUND_SECONDS = 1e-3
"""A measurement repeats the layer until it takes about this long."""
MARGIN = 0.95
"""CSR must take at most this part of the dense time: less would be noise."""


class SparseLinear(nn.Module):
    """`y = (W x^T)^T + b` with `W` in compressed sparse rows, for inference on the CPU.

    The weight stands in three buffers (row starts, columns, values), so `state_dict`, `deepcopy`, pickle and
    safetensors see plain dense tensors; a state fits a layer with the same number of non-zeros. There is no gradient
    for the weight.

    Args:
        plain: the layer to take the weight and bias from; zeros are dropped.

    Shape:
        (..., in_features) -> (..., out_features)

    Example:
        >>> SparseLinear(plain)(x)
    """

    row_starts: Tensor
    columns: Tensor
    values: Tensor
    bias: Tensor | None

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = plain.in_features, plain.out_features
        _let_torch_warn_once()
        weight = plain.weight.detach().to_sparse_csr()
        # 32-bit indices are what MKL multiplies with; 64-bit ones are converted on every call.
        self.register_buffer("row_starts", weight.crow_indices().to(torch.int32))
        self.register_buffer("columns", weight.col_indices().to(torch.int32))
        self.register_buffer("values", weight.values().clone())
        self.register_buffer("bias", None if plain.bias is None else plain.bias.detach().clone())

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer to `input`, which has torch's name."""
        rows = input.reshape(-1, self.in_features).t()
        weight = self._csr()
        product = weight @ rows if self.bias is None else torch.addmm(self.bias[:, None], weight, rows)
        return product.t().reshape(*input.shape[:-1], self.out_features)

    def dense_weight(self) -> Tensor:
        """The weight as an ordinary (out_features, in_features) tensor."""
        return self._csr().to_dense()

    def extra_repr(self) -> str:
        """Arguments for `repr`."""
        stored = len(self.values) / max(1, self.in_features * self.out_features)
        return f"in_features={self.in_features}, out_features={self.out_features}, sparsity={1 - stored:.4f}"

    def _csr(self) -> Tensor:
        _let_torch_warn_once()
        shape = (self.out_features, self.in_features)
        return torch.sparse_csr_tensor(self.row_starts, self.columns, self.values, shape, check_invariants=False)


@functools.cache
def _let_torch_warn_once() -> None:
    """Take the warning that CSR tensors are in beta state, which torch gives once per process, out of the way."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state", UserWarning)
        torch.eye(1).to_sparse_csr()


@torch.no_grad()
def sparsify_(model: nn.Module, example: Tensor, threshold: float = 0.8) -> dict[str, str]:
    """Let linear layers run sparse where that is faster here, at the batch size of `example`.

    Every `nn.Linear` whose weight has more than the part `threshold` of zeros is timed on its own input, dense and as
    `SparseLinear`, in turns, and replaced if CSR takes at most 95 % of the time. The choice holds for this machine,
    its thread count and this batch size. Layers inside torch's attention and Transformer layers, whose fused kernels
    read the dense weight, stay as they are.

    Args:
        model: plain network on the CPU, e.g. from `collapse_`; changed in place and put in evaluation mode.
        example: an input batch of the size to be fast for.
        threshold: layers with this part of zeros or less are not even measured, in [0, 1].

    Returns:
        Per linear layer what runs now and why: "csr (0.766 ms, dense 4.989 ms)", "dense (0.003 ms, csr 0.011 ms)" or
        "dense (sparsity 0.412)".

    Raises:
        ValueError: if `threshold` makes no sense, or the network is Bayesian or not on the CPU.

    Example:
        >>> sparsify_(collapse_(model), x[:1000])
        {'1': 'csr (0.766 ms, dense 4.989 ms)', '3': 'dense (sparsity 0.412)'}
    """
    check_network(model, "sparsify")
    if not 0 <= threshold <= 1:
        raise ValueError(f"`threshold` must lie in [0, 1], got {threshold}: pass e.g. 0.8")
    if any(isinstance(module, BayesLayer) for module in model.modules()):
        raise ValueError("`model` has Bayesian layers, whose weights are drawn anew: call collapse_(model) first")
    if any(tensor.device.type != "cpu" for tensor in (*model.parameters(), *model.buffers())):
        raise ValueError("`model` must be on the CPU, where CSR is measured: call model.cpu() first")
    fused = _inside_fused(model)
    linears = {name: module for name, module in model.named_modules() if type(module) is nn.Linear}
    inputs = _inputs(model.eval(), example, linears)
    choices: dict[str, str] = {}
    for name, layer in linears.items():
        zeros = (layer.weight == 0).double().mean().item()
        if name in fused or name not in inputs:
            choices[name] = "dense (used by a fused layer)" if name in fused else "dense (not reached by the example)"
        elif zeros <= threshold:
            choices[name] = f"dense (sparsity {zeros:.3f})"
        else:
            sparse = SparseLinear(layer).eval()
            dense_time, csr_time = _times(layer, sparse, inputs[name])
            faster = csr_time <= MARGIN * dense_time
            first, second = f"{csr_time * 1e3:.3f} ms", f"{dense_time * 1e3:.3f} ms"
            choices[name] = f"csr ({first}, dense {second})" if faster else f"dense ({second}, csr {first})"
            if faster:
                if not name:
                    raise ValueError("`model` is itself one linear layer: wrap it in nn.Sequential to have it replaced")
                _replace(model, layer, sparse)
    return choices


def _replace(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put `new` wherever `old` stands."""
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if module is old:
            model.set_submodule(name, new)


def _inside_fused(model: nn.Module) -> set[str]:
    kinds = (nn.MultiheadAttention, nn.TransformerEncoderLayer)
    outer = [name for name, module in model.named_modules() if isinstance(module, kinds)]
    return {name for name, _ in model.named_modules() if any(not o or name.startswith(f"{o}.") for o in outer)}


def _inputs(model: nn.Module, example: Tensor, linears: dict[str, nn.Linear]) -> dict[str, Tensor]:
    """What each layer gets to see when the example runs through the network."""
    found: dict[str, Tensor] = {}

    def keep(name: str, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        found[name] = (arguments[0] if arguments else named["input"]).clone()

    hooks = [
        layer.register_forward_pre_hook(functools.partial(keep, name), with_kwargs=True)
        for name, layer in linears.items()
    ]
    try:
        model(example)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _times(dense: nn.Module, sparse: nn.Module, x: Tensor) -> tuple[float, float]:
    """Median seconds per call of both, measured in turns so that both meet the same machine."""
    repeats = max(1, min(100, round(ROUND_SECONDS / max(1e-7, max(_time(m, x, 1) for m in (dense, sparse, dense))))))
    times = [(_time(dense, x, repeats), _time(sparse, x, repeats)) for _ in range(ROUNDS)]
    first, second = zip(*times, strict=True)
    return statistics.median(first), statistics.median(second)


def _time(module: nn.Module, x: Tensor, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        module(x)
    return (time.perf_counter() - start) / repeats
