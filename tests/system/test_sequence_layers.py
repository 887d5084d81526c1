"""Converted Transformer blocks and recurrent layers compile, export, copy and keep small variances."""

from __future__ import annotations

import copy
import functools
import io
import pickle
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import bayeslim as bl
from bayeslim.posteriors import MeanField
from contracts.statistics import assert_within
from contracts.two_samples import assert_same_moments
from contracts.vanishing import assert_same, tensors
from system.compiled_noise import compiled_noise

WIDE = functools.partial(MeanField, scale=0.2)


def block(norm_first: bool = False, **options: Any) -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 4, 24, dropout=0.0, batch_first=True, norm_first=norm_first)
    return bl.bayesianize_(layer, posterior=WIDE, **options)


def recurrent(kind: type[nn.RNNBase], **options: Any) -> nn.Module:
    build: Any = kind
    return bl.bayesianize_(build(16, 6, bidirectional=True, batch_first=True), posterior=WIDE, **options)


MODULES: dict[str, Callable[..., nn.Module]] = {
    "block": block,
    "block-pre-norm": functools.partial(block, True),
    "block-ffn": functools.partial(block, where=lambda name, module: "linear" in name),
    "block-attention": functools.partial(block, where=lambda name, module: isinstance(module, nn.MultiheadAttention)),
    "encoder": lambda **options: bl.bayesianize_(
        nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 24, batch_first=True), 2, enable_nested_tensor=False),
        posterior=WIDE,
        **options,
    ),
    "lstm": functools.partial(recurrent, nn.LSTM),
    "gru": functools.partial(recurrent, nn.GRU),
}
ESTIMATORS: dict[str, Callable[..., Any]] = {"weight_sample": bl.weight_sample, "local_reparam": bl.local_reparam}


def module(name: str, estimator: str = "weight_sample") -> nn.Module:
    torch.manual_seed(0)
    return MODULES[name](estimator=ESTIMATORS[estimator])


def x(batch: int = 3, length: int = 3) -> Tensor:
    """Two steps are enough for a graph, in which the loop over time is unrolled."""
    return torch.randn(batch, length, 16, generator=torch.Generator().manual_seed(1))


def after(seed: int, call: Callable[[], Any]) -> list[Tensor]:
    torch.manual_seed(seed)
    return tensors(call())


def gradients(model: nn.Module, call: Callable[[], Any]) -> list[Tensor]:
    model.zero_grad()
    total = torch.stack([(part * torch.linspace(-1, 1, part.numel()).view_as(part)).sum() for part in after(2, call)])
    total.sum().backward()
    return [torch.zeros(1) if p.grad is None else p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize(
    ("name", "estimator", "training"),
    [
        *((name, "weight_sample", False) for name in MODULES),
        ("block", "local_reparam", True),
        ("block-ffn", "local_reparam", False),
        ("lstm", "local_reparam", True),
    ],
)
def test_compiles_into_one_graph(name: str, estimator: str, training: bool) -> None:
    """The outputs and gradients of eager mode for the same noise, and other noise for another seed."""
    model, inputs = module(name, estimator).train(training), x(length=2)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    found, slopes = after(2, lambda: compiled(inputs)), gradients(model, lambda: compiled(inputs))
    assert not torch.equal(*(after(seed, lambda: compiled(inputs))[0] for seed in (3, 4)))
    with compiled_noise():  # not around what is compiled: the patch would be a reason to compile again
        assert_same(found, after(2, lambda: model(inputs)), 1e-5)
        for a, b in zip(slopes, gradients(model, lambda: model(inputs)), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["block", "block-ffn"])
def test_a_block_compiles_with_a_padding_mask(name: str) -> None:
    model = module(name).eval()
    padding = torch.arange(3) >= torch.tensor([[3], [2], [1]])
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with compiled_noise():
        found, expected = (after(2, lambda f=f: f(x(), src_key_padding_mask=padding)) for f in (compiled, model))
    assert_same(found, expected, 1e-5)


@pytest.mark.parametrize(("name", "strict"), [*((name, True) for name in MODULES), ("block", False), ("lstm", False)])
def test_exports(name: str, strict: bool) -> None:
    """The program draws fresh noise on every call, also after a trip through a file."""
    model, inputs = module(name).eval(), x(length=2)
    exported = torch.export.export(model, (inputs,), strict=strict)
    buffer = io.BytesIO()
    torch.export.save(exported, buffer)
    buffer.seek(0)
    for program in (exported.module(), torch.export.load(buffer).module()):
        for seed in (2, 3):
            assert_same(after(seed, lambda p=program: p(inputs)), after(seed, lambda: model(inputs)), 1e-5)
    assert not torch.equal(*(after(seed, lambda: exported.module()(inputs))[0] for seed in (2, 3)))


@pytest.mark.parametrize("name", ["block", "block-ffn", "lstm"])
def test_the_batch_size_of_an_exported_layer_may_vary(name: str) -> None:
    """The length is fixed: the loop over time is unrolled."""
    model = module(name).eval()
    batch = torch.export.Dim("batch", min=2, max=64)
    shapes = ({0: batch},)
    program = torch.export.export(model, (x(),), dynamic_shapes=shapes).module()
    for size in (2, 7):
        assert_same(after(2, lambda s=size: program(x(s))), after(2, lambda s=size: model(x(s))), 1e-5)


@pytest.mark.parametrize("name", MODULES)
def test_copies_and_pickles(name: str) -> None:
    """Also after a forward and a backward pass, with the same noise the same outputs."""
    model = module(name).eval()
    torch.stack([part.sum() for part in after(2, lambda: model(x()))]).sum().backward()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert_same(after(3, lambda o=other: o(x())), after(3, lambda: model(x())), 0.0)
        with torch.no_grad():
            next(other.parameters()).add_(1.0)
        assert not torch.equal(next(other.parameters()), next(model.parameters()))


def test_packed_sequences_vectorise() -> None:
    """`vmap` over draws of the weights, as `predict` does, with sequences of different lengths."""
    model = cast(Any, module("lstm"))
    packed = pack_padded_sequence(x(), torch.tensor([2, 3, 1]), batch_first=True, enforce_sorted=False)
    with torch.no_grad():
        torch.manual_seed(0)
        draws = torch.vmap(lambda _: model(packed)[0].data, randomness="different")(torch.zeros(400))
        loop = torch.stack([model(packed)[0].data for _ in range(400)])
        inputs = torch.stack([packed.data, 2 * packed.data])
        with bl.using(model, bl.mean_only):
            both = torch.vmap(lambda data: model(packed._replace(data=data))[0].data)(inputs)
            assert_same(list(both), [model(packed._replace(data=data))[0].data for data in inputs], 1e-6)
    assert draws.shape == (400, 6, 12)
    assert_same_moments(draws, loop)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", MODULES)
def test_gradients_stay_finite_under_autocast(name: str, dtype: torch.dtype) -> None:
    model = module(name, "local_reparam")
    with torch.autocast("cpu", dtype):
        loss = torch.stack([part.float().square().mean() for part in tensors(model(x()))]).sum()
    (loss + bl.kl(model)).backward()
    for parameter in model.parameters():
        assert parameter.grad is None or bool(parameter.grad.isfinite().all())


def feed_forward(scale: float = 1e-4) -> Any:
    """The variational feed-forward of a Transformer layer: ReLU between two matrices."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    posterior = functools.partial(MeanField, scale=scale)
    return bl.bayesianize_(layer, posterior=posterior, where=lambda name, module: "linear" in name)


@pytest.mark.parametrize("name", ["linear1", "linear2"])
def test_small_variances_of_a_feed_forward_survive_float16(name: str) -> None:
    """Within 1 % at a standard deviation of 1e-4, whose square is below the smallest float16."""
    part = cast(Any, feed_forward().get_submodule(name))
    inputs = torch.randn(5, 3, part.weight.loc.shape[1], generator=torch.Generator().manual_seed(1))
    exact = inputs.double().square() @ part.weight.variance().double().T
    with torch.no_grad(), torch.autocast("cpu", torch.float16), bl.using(part, bl.moments):
        variance = part(inputs).variance
    torch.testing.assert_close(variance.double(), exact, rtol=0.01, atol=0)


def test_drawn_outputs_of_a_feed_forward_have_the_right_variance_in_float16() -> None:
    """The second matrix alone, around a mean of zero where float16 can show such small outputs."""
    part = feed_forward().linear2
    with torch.no_grad():
        part.weight.loc.zero_()
        part.bias.zero_()
    inputs = torch.randn(4, 3, 64, generator=torch.Generator().manual_seed(1))
    exact = inputs.double().square() @ part.weight.variance().double().T
    torch.manual_seed(2)
    with torch.no_grad(), torch.autocast("cpu", torch.float16):
        draws = torch.stack([part(inputs) for _ in range(300)]).double()
    ratio = draws.square() / exact
    # Chi-squared with one degree of freedom each: 115 200 of them give 0.4 % of error; 0.1 % for rounding.
    assert_within(ratio.mean() - 1, (2 / ratio.numel()) ** 0.5 + 2e-4)
    assert abs(ratio.mean().item() - 1) < 0.025


def test_the_whole_feed_forward_keeps_its_variance_in_float16() -> None:
    """Through both matrices and the ReLU by propagated moments, against float64."""
    model = feed_forward()
    inputs = torch.randn(5, 3, 32, generator=torch.Generator().manual_seed(1))

    def variance(model: Any, inputs: Tensor) -> Tensor:
        with torch.no_grad(), bl.using(model, bl.moments):
            return model.linear2(torch.relu(model.linear1(inputs))).variance.double()

    exact = variance(copy.deepcopy(model).double(), inputs.double())
    with torch.autocast("cpu", torch.float16):
        found = variance(model, inputs)
    torch.testing.assert_close(found, exact, rtol=0.01, atol=0)
