"""ONNX: the mean network, or fixed posterior samples that state their uncertainty, in one graph."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bayeslim.checks.networks import check_network
from bayeslim.checks.packages import check_installed
from bayeslim.export.moments import MomentsNetwork
from bayeslim.export.onnx_check import check_answers
from bayeslim.export.onnx_copies import free_weights_, repeated
from bayeslim.export.plain import example_batch, mean_network
from bayeslim.export.program import captured
from bayeslim.export.samples import BatchedSamples, LoopedSamples, MomentsOfOutputs, batchable, sample_networks
from bayeslim.likelihoods.base import Likelihood, likelihood_of
from bayeslim.storage import write_atomically

__all__ = ["export_onnx"]

MOST_BYTES = 2**31 - 2**24
"""Weights that fit in one ONNX file, which must stay below 2 GiB."""


def export_onnx(
    model: nn.Module,
    path: str | os.PathLike[str],
    example: Tensor,
    samples: int | None = None,
    likelihood: Likelihood | None = None,
    seed: int = 0,
    moments: bool = False,
) -> None:
    r"""Write `model` as an ONNX file with the input `input` and an open batch size.

    Without `samples` the graph is the network at its posterior mean, with the output `output`. With them it holds `S`
    weight samples `W_s ~ q`, drawn now and fixed for good, and has three outputs: `mean = E_s[m_s]`,
    `epistemic = Var_s[m_s]` and `aleatoric = E_s[v_s]`, where `m_s` and `v_s` are the mean and variance of the target
    under sample `s` (`likelihood.conditional`). The same input gives the same answer every time. With `moments` it
    propagates mean and variance in one pass and has the outputs `mean` and `variance` of the network's own output
    (the logits of a classifier).

    Linear layers run all samples as one batched product; networks with convolutions or recurrent layers become one
    subgraph per sample, so keep `samples` moderate there. Parts that do not vary are stored once.

    Args:
        model: network of one input, Bayesian or not; left as it is.
        path: the file, usually `*.onnx`; replaced atomically.
        example: an input (batch, ...), batch first, of which shape and type matter. Where onnxruntime is installed the
            file is compared with the network on it, for which real inputs are better than zeros.
        samples: number of posterior samples `S`, or None for the mean network.
        likelihood: with samples, `p(y | f)`; None takes the one `fit` trained with.
        seed: of the draws.
        moments: write the moments pass instead; excludes `samples`.

    Raises:
        ModuleNotFoundError: if the packages of `bayeslim[export]` are not installed.
        TypeError: if the network returns something else than one tensor.
        ValueError: for a bad example, `samples` or seed, an unknown likelihood, a network that cannot be captured as a
            graph, or one that is too large for one file; or if the file does not answer as the network.
        OSError: if the file cannot be written.

    Example:
        >>> export_onnx(model, "net.onnx", x[:2], samples=30)
        >>> session = onnxruntime.InferenceSession("net.onnx")
        >>> mean, epistemic, aleatoric = session.run(None, {"input": x.numpy()})
    """
    check_network(model, "export")
    for package in ("onnx", "onnxscript"):
        check_installed(package, f"export_onnx needs {package}", "export")
    if moments and samples is not None:
        raise ValueError(f"`moments` needs no samples, got samples={samples}: leave one of the two out")
    plain = mean_network(model)
    x = example_batch(plain, example)
    if samples is None:
        network, outputs = (MomentsNetwork(model), ["mean", "variance"]) if moments else (plain, ["output"])
        _check_size(network)
        proto = _optimised(_translated(captured(network, x), outputs))
    else:
        outputs = ["mean", "epistemic", "aleatoric"]
        network, proto = _sampled(model, x, samples, likelihood_of(model, likelihood), seed, outputs)
    content = _content(proto, outputs)
    check_answers(content, network, x, outputs)
    write_atomically(Path(path), content)


def _sampled(
    model: nn.Module, x: Tensor, samples: int, likelihood: Likelihood, seed: int, outputs: list[str]
) -> tuple[nn.Module, Any]:
    """Moments and their graph: batched where torch can keep the batch size open, a subgraph per sample elsewhere."""
    networks = sample_networks(model, samples, seed)
    looped = LoopedSamples(networks, likelihood).eval()
    _check_size(looped)
    if batchable(networks[0]):
        try:
            batched = BatchedSamples(networks, likelihood).eval()
            return batched, _optimised(_translated(captured(batched, x), outputs))
        except ValueError:
            pass  # no batching rule for one of its operations, or one that fixes the batch size
    inside = [nn.Sequential(network) for network in networks]  # so that no weight has the name of the input
    one = _translated(captured(inside[0].eval(), x), ["output"])
    free_weights_(one, inside[0])
    with torch.no_grad():
        stack = looped.outputs(x)
    head = _translated(captured(MomentsOfOutputs(likelihood).eval(), stack, batch_axis=1), outputs)
    return looped, repeated(_optimised(one), _optimised(head), inside)


def _check_size(module: nn.Module) -> None:
    size = sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers()))
    if size > MOST_BYTES:
        raise ValueError(
            f"the weights take {size} bytes, but an ONNX file holds less than 2 GiB: compact the network or lower "
            "`samples`"
        )


def _translated(program: torch.export.ExportedProgram, outputs: list[str]) -> torch.onnx.ONNXProgram:
    """The ONNX graph, not optimised yet, whose outputs have names that no other value has."""
    unique = [_unique(name) for name in outputs]
    options: dict[str, Any] = {"input_names": ["input"], "dynamo": True, "optimize": False, "verbose": False}
    with _quiet():
        found = torch.onnx.export(program, (), None, output_names=unique, **options)
    assert found is not None
    return found


def _unique(name: str) -> str:
    return f"{name}_of_the_network"


def _optimised(translated: torch.onnx.ONNXProgram) -> Any:
    """The ONNX model after torch's own simplifications."""
    with _quiet():
        translated.optimize()
    return translated.model_proto


def _content(proto: Any, outputs: list[str]) -> bytes:
    """The ONNX file, checked, without the source paths that torch notes on every node."""
    import onnx

    # A value inside the graph may already have the name of an output.
    _rename(proto.graph, {name: f"inner_{name}" for name in outputs})
    _rename(proto.graph, {_unique(name): name for name in outputs})
    for part in (proto, proto.graph, *proto.graph.node, *proto.graph.value_info, *proto.functions):
        part.ClearField("metadata_props")
    for function in proto.functions:
        for node in function.node:
            node.ClearField("metadata_props")
    onnx.checker.check_model(proto)
    return proto.SerializeToString()


def _rename(graph: Any, names: dict[str, str]) -> None:
    """Give values of an ONNX graph other names, wherever they occur."""
    for node in graph.node:
        for values in (node.input, node.output):
            values[:] = [names.get(value, value) for value in values]
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.name = names.get(value.name, value.name)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch's exporter says about itself: a deprecated call of its own, and that torchvision is absent."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")

    def about_us(record: logging.LogRecord) -> bool:
        return "torchvision is not installed" not in record.getMessage()

    logger.addFilter(about_us)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)`", FutureWarning)
            yield
    finally:
        logger.removeFilter(about_us)
