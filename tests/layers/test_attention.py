"""Attention and the Transformer layers around it."""

from __future__ import annotations

import functools
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayeslim import bayesianize_, collapse_, local_reparam, mean_only, using, weight_sample
from bayeslim.layers import BayesLayer, Linear, MultiheadAttention, TransformerEncoderLayer
from bayeslim.posteriors import MeanField
from contracts.cases import each
from contracts.members import POSTERIORS, over
from contracts.vanishing import assert_same, check_vanishing

BATCH, LENGTH, SOURCE, HEADS = 3, 5, 6, 4
WIDE = functools.partial(MeanField, scale=0.3)

MODULES: dict[str, dict[str, Any]] = {
    "plain": {},
    "batch-first": {"batch_first": True},
    "without-bias": {"bias": False, "batch_first": True},
    "other-sizes": {"kdim": 7, "vdim": 9},
    "bias-kv": {"add_bias_kv": True, "batch_first": True},
    "zero-attention": {"add_zero_attn": True},
    "both-appended": {"add_bias_kv": True, "add_zero_attn": True, "bias": False},
    "all": {"kdim": 7, "vdim": 9, "add_bias_kv": True, "add_zero_attn": True, "batch_first": True, "dropout": 0.3},
}


def noise(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def module(name: str = "batch-first") -> nn.MultiheadAttention:
    """A torch module with no zero biases."""
    torch.manual_seed(0)
    result = nn.MultiheadAttention(16, HEADS, **MODULES[name])
    with torch.no_grad():
        for part, value in result.named_parameters():
            if part.endswith("bias"):
                value.normal_()
    return result


def inputs(plain: Any, batched: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, of different lengths, as `plain` wants them."""
    sizes = [(LENGTH, plain.embed_dim), (SOURCE, plain.kdim), (SOURCE, plain.vdim)]
    parts = [noise(BATCH, *size, seed=seed) for seed, size in enumerate(sizes)]
    if not batched:
        parts = [part[0] for part in parts]
    elif not plain.batch_first:
        parts = [part.transpose(0, 1) for part in parts]
    return parts[0], parts[1], parts[2]


def forbidden(*shape: int, seed: int = 7) -> Tensor:
    """A mask that forbids a third of the keys, never the first."""
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.35
    mask[..., 0] = False
    return mask


MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "padding": {"key_padding_mask": forbidden(BATCH, SOURCE)},
    "bool": {"attn_mask": forbidden(LENGTH, SOURCE)},
    "bool-per-head": {"attn_mask": forbidden(BATCH * HEADS, LENGTH, SOURCE)},
    "float": {"attn_mask": noise(LENGTH, SOURCE)},
    "float-per-head": {"attn_mask": noise(BATCH * HEADS, LENGTH, SOURCE)},
    "both-bool": {"attn_mask": forbidden(LENGTH, SOURCE), "key_padding_mask": forbidden(BATCH, SOURCE, seed=8)},
    "both-float": {
        "attn_mask": noise(BATCH * HEADS, LENGTH, SOURCE),
        "key_padding_mask": torch.zeros(BATCH, SOURCE).masked_fill(forbidden(BATCH, SOURCE), -torch.inf),
    },
}
WEIGHTS: dict[str, dict[str, Any]] = {
    "averaged": {},
    "per-head": {"average_attn_weights": False},
    "none": {"need_weights": False},
}


@over("name", MODULES)
@each("masks", MASKS)
def test_a_vanishing_scale_reproduces_the_torch_module(name: str, masks: str) -> None:
    plain = module(name)
    for weights in WEIGHTS.values():
        check_vanishing(plain, *inputs(plain), **MASKS[masks], **weights)


@over("name", MODULES)
def test_estimators_bayesian_biases_and_inputs_without_a_batch(name: str) -> None:
    plain = module(name)
    check_vanishing(plain, *inputs(plain), estimator=local_reparam, bias_posterior=True)
    for mask in ({}, {"attn_mask": forbidden(HEADS, LENGTH, SOURCE), "key_padding_mask": forbidden(SOURCE)}):
        for weights in WEIGHTS.values():
            check_vanishing(plain, *inputs(plain, batched=False), **mask, **weights)


@over("removed", ["in_proj_bias", "out_proj.bias"])
def test_either_bias_may_be_missing(removed: str) -> None:
    """torch builds both or none, but runs with one of them."""
    plain = module()
    owner, _, name = removed.rpartition(".")
    plain.get_submodule(owner).register_parameter(name, None)
    check_vanishing(plain, *inputs(plain))
    check_vanishing(plain, *inputs(plain), need_weights=False, **MASKS["both-bool"])


@over("weights", WEIGHTS)
def test_a_row_without_keys_is_what_torch_makes_of_it(weights: str) -> None:
    """NaN where the weights are written out, zeros before the output projection in the fused kernel."""
    plain = module()
    mask = torch.zeros(BATCH, SOURCE, dtype=torch.bool)
    mask[1] = True
    check_vanishing(plain, *inputs(plain), key_padding_mask=mask, **WEIGHTS[weights])


def test_the_causal_hint_demands_its_mask() -> None:
    plain, x = module(), noise(BATCH, LENGTH, 16)
    mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
    for weights in WEIGHTS.values():
        check_vanishing(plain, x, x, x, attn_mask=mask, is_causal=True, **weights)
    with pytest.raises(ValueError, match=r"`is_causal` is a hint about `attn_mask`: pass the mask too"):
        bayesianize_(plain)(x, x, x, is_causal=True)


@over("need_weights", [True, False])
def test_dropout_acts_on_the_weights_in_training(need_weights: bool) -> None:
    """The same random numbers as torch's, so the same outputs."""
    plain = module("all").train()
    layer = cast(Any, bayesianize_(module("all").train()))
    x = inputs(plain)
    torch.manual_seed(3)
    expected = plain(*x, need_weights=need_weights)
    torch.manual_seed(3)
    with using(layer, mean_only):
        found = layer(*x, need_weights=need_weights)
        assert_same(found, expected, 1e-6)
        assert not torch.equal(layer(*x)[0], layer(*x)[0])
        layer.eval()
        assert torch.equal(layer(*x)[0], layer(*x)[0])


@over("need_weights", [True, False])
def test_one_draw_serves_every_token(need_weights: bool) -> None:
    """A pass is torch's module with the drawn weights: the draws are made in the order q, k, v, out."""
    layer = cast(Any, bayesianize_(module().double(), posterior=WIDE, estimator=weight_sample, bias_posterior=WIDE))
    x = tuple(part.double() for part in inputs(layer))
    torch.manual_seed(5)
    draws = [part.draw() for part in (layer.q_proj, layer.k_proj, layer.v_proj, layer.out_proj)]
    network = module().double()
    network.in_proj_weight = nn.Parameter(torch.cat([weight for weight, _ in draws[:3]]))
    network.in_proj_bias = nn.Parameter(torch.cat([bias for _, bias in draws[:3]]))
    network.out_proj.weight, network.out_proj.bias = (nn.Parameter(part) for part in draws[3])
    torch.manual_seed(5)
    assert_same(layer(*x, need_weights=need_weights), network(*x, need_weights=need_weights), 1e-12)
    assert not torch.allclose(layer(*x)[0], layer(*x)[0])
    same = layer(*(part[:, :1].expand(-1, 4, -1) for part in x))[0]
    torch.testing.assert_close(same[:, 1:], same[:, :1].expand(-1, 3, -1))
    with using(layer, local_reparam):  # which draws outputs, token by token
        same = layer(*(part[:, :1].expand(-1, 4, -1) for part in x))[0]
    assert not torch.allclose(same[:, 1:], same[:, :1].expand(-1, 3, -1))


@over("posterior", POSTERIORS)
def test_every_posterior_trains(posterior: str) -> None:
    torch.manual_seed(4)
    layer = MultiheadAttention(16, 2, kdim=7, vdim=9, batch_first=True, posterior=POSTERIORS[posterior])
    layer(*inputs(layer), need_weights=False)[0].square().sum().backward()
    # Adding one vector to all keys moves all scores of a query alike, which softmax does not see.
    blind = {"k_proj.bias"}
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None and bool(parameter.grad.isfinite().all()), name
        assert name in blind or bool(parameter.grad.any()), name


def test_padded_keys_never_matter() -> None:
    layer = cast(Any, bayesianize_(module().double(), posterior=WIDE, estimator=weight_sample))
    q, k, v = (part.double() for part in inputs(layer))
    mask = torch.arange(SOURCE) >= torch.tensor([[6], [4], [1]])
    for need_weights in (True, False):
        torch.manual_seed(6)
        expected = layer(q, k, v, key_padding_mask=mask, need_weights=need_weights)
        torch.manual_seed(6)
        spoilt = (part.masked_fill(mask[..., None], 1e3) for part in (k, v))
        assert_same(layer(q, *spoilt, key_padding_mask=mask, need_weights=need_weights), expected, 1e-12)


PARTS = {
    "all": lambda name, module: True,
    "ffn": lambda name, module: "linear" in name,
    "attention": lambda name, module: isinstance(module, nn.MultiheadAttention),
}


def encoder_layer(norm_first: bool = False, activation: Any = "relu", **options: Any) -> nn.TransformerEncoderLayer:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 24, norm_first=norm_first, activation=activation, **options)
    with torch.no_grad():
        for value in layer.parameters():
            value.add_(0.1 * torch.randn_like(value))
    return layer


@over("part", PARTS)
@over("norm_first", [False, True])
@over("activation", ["relu", "gelu"])
def test_a_vanishing_scale_reproduces_the_encoder_layer(part: str, norm_first: bool, activation: str) -> None:
    layer = encoder_layer(norm_first, activation, batch_first=True, dropout=0.2)
    padding = torch.arange(LENGTH) >= torch.tensor([[5], [3], [1]])
    x, causal = noise(BATCH, LENGTH, 16), nn.Transformer.generate_square_subsequent_mask(LENGTH)
    with torch.no_grad():  # where torch takes its fused path
        check_vanishing(layer, x, convert={"where": PARTS[part]})
    check_vanishing(layer, x, convert={"where": PARTS[part]}, src_key_padding_mask=padding)
    check_vanishing(layer, x, convert={"where": PARTS[part]}, src_mask=causal, is_causal=True)
    check_vanishing(layer, x[0], convert={"where": PARTS[part]})


@over("options", [{}, {"bias": False}, {"layer_norm_eps": 0.1, "batch_first": True}])
@over("activation", [nn.ReLU(), nn.PReLU(), F.silu])
def test_other_options_of_the_encoder_layer(options: dict[str, Any], activation: Any) -> None:
    check_vanishing(encoder_layer(activation=activation, **options), noise(LENGTH, BATCH, 16))


@over("part", PARTS)
def test_only_the_chosen_part_is_bayesian(part: str) -> None:
    model = cast(Any, bayesianize_(nn.Sequential(encoder_layer()), where=PARTS[part]))
    assert type(model[0]) is TransformerEncoderLayer
    feed = {"0.linear1", "0.linear2"}
    attention = {f"0.self_attn.{name}_proj" for name in ("q", "k", "v", "out")}
    found = {name for name, module in model.named_modules() if isinstance(module, BayesLayer)}
    assert found == {"all": feed | attention, "ffn": feed, "attention": attention}[part]


@over("name", ["dropout", "dropout1", "dropout2"])
@over("norm_first", [False, True])
def test_dropouts_act_where_torch_applies_them(name: str, norm_first: bool) -> None:
    """Each replaced by something that shows, with torch off its fused path."""

    class Square(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.square()

    plain = encoder_layer(norm_first, activation=F.silu, batch_first=True)
    setattr(plain, name, Square())
    check_vanishing(plain, noise(BATCH, LENGTH, 16))


@over("part", PARTS)
@over("norm_first", [False, True])
def test_inside_a_transformer_encoder(part: str, norm_first: bool) -> None:
    options = {"where": PARTS[part]}
    plain = nn.TransformerEncoder(
        encoder_layer(norm_first, batch_first=True), 2, nn.LayerNorm(16), enable_nested_tensor=False
    )
    x, padding = noise(BATCH, LENGTH, 16), torch.arange(LENGTH) >= torch.tensor([[5], [3], [1]])
    check_vanishing(plain, x, convert=options)
    check_vanishing(plain, x, convert=options, src_key_padding_mask=padding)
    check_vanishing(plain, x, convert=options, mask=forbidden(LENGTH, LENGTH), estimator=local_reparam)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
@over("where", [lambda name, module: True, lambda name, module: "layers.1" in name])
def test_padding_that_torch_would_pack(where: Any) -> None:
    """In eval mode torch packs padded batches for its fused layers, which then must not be left in the way."""
    torch.manual_seed(0)
    plain = nn.TransformerEncoder(encoder_layer(batch_first=True), 2).eval()
    assert plain.use_nested_tensor
    x, padding = noise(BATCH, LENGTH, 16), torch.arange(LENGTH) >= torch.tensor([[5], [3], [1]])
    with torch.no_grad():
        expected = plain(x, src_key_padding_mask=padding)
        posterior = functools.partial(MeanField, scale=1e-9)
        model = bayesianize_(plain, posterior=posterior, where=where)
        found = model(x, src_key_padding_mask=padding)
        torch.testing.assert_close(found[~padding], expected[~padding], rtol=1e-6, atol=2e-6)
        assert collapse_(model) is plain
        assert plain.use_nested_tensor
        assert torch.equal(plain(x, src_key_padding_mask=padding), expected)


@over("norm_first", [False, True])
def test_the_children_of_a_decoder_layer(norm_first: bool) -> None:
    torch.manual_seed(0)
    plain = nn.TransformerDecoder(
        nn.TransformerDecoderLayer(16, 4, 24, batch_first=True, norm_first=norm_first), 2, nn.LayerNorm(16)
    )
    x, memory = noise(BATCH, LENGTH, 16), noise(BATCH, SOURCE, 16, seed=2)
    masks: dict[str, Any] = {
        "tgt_mask": nn.Transformer.generate_square_subsequent_mask(LENGTH).isinf(),
        "memory_key_padding_mask": torch.arange(SOURCE) >= torch.tensor([[6], [4], [1]]),
    }
    check_vanishing(plain, x, memory)
    check_vanishing(plain, x, memory, **masks)
    check_vanishing(plain, x, memory, convert={"where": lambda name, module: ".linear" in name})


def test_a_whole_transformer() -> None:
    torch.manual_seed(0)
    plain = nn.Transformer(16, 4, 1, 1, 24, batch_first=True)
    check_vanishing(plain, noise(BATCH, SOURCE, 16), noise(BATCH, LENGTH, 16, seed=2))


def test_the_modes_of_the_children_are_kept() -> None:
    layer = encoder_layer()
    layer.dropout.eval()
    layer.linear2.eval()
    model = cast(Any, bayesianize_(layer))
    assert model.training and model.dropout1.training and model.linear1.training
    assert not (model.dropout.training or model.linear2.training)
    back = cast(Any, collapse_(model))
    assert back.training and back.dropout1.training and back.linear1.training
    assert not (back.dropout.training or back.linear2.training)


def test_a_subclass_that_inherits_the_fused_forward_is_refused() -> None:
    class Inherits(nn.TransformerEncoderLayer):
        """Its forward reads the children's weights in eval mode."""

    class Own(nn.TransformerEncoderLayer):
        """Its forward calls the children."""

        def forward(self, src: Tensor, *masks: Any, **others: Any) -> Tensor:
            return self.norm2(src + self.linear2(self.linear1(src)))

    model = nn.Sequential(nn.Linear(16, 16), Inherits(16, 4, 24))
    with pytest.raises(ValueError, match=r"layer '1' is a Inherits, which inherits the fused forward"):
        bayesianize_(model)
    assert type(model[0]) is nn.Linear
    bayesianize_(model, where=lambda name, module: name == "0")
    assert type(model[0]) is Linear
    check_vanishing(Own(16, 4, 24), noise(BATCH, LENGTH, 16))
