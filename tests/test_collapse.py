"""There and back: whole networks and every layer kind with its options."""

from __future__ import annotations

import functools
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from bayeslim import bayesianize_, collapse_, layers, local_reparam, models, param_groups, weight_sample
from bayeslim.posteriors import KTied, MeanField
from contracts.cases import each
from contracts.members import POSTERIORS, over
from contracts.vanishing import check_vanishing


def noise(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def tokens(*shape: int, vocabulary: int = 20) -> Tensor:
    return torch.randint(1, vocabulary, shape, generator=torch.Generator().manual_seed(2))


SIZES = {1: (7,), 2: (7, 6), 3: (5, 4, 6)}
CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "strided": {"stride": 2, "padding": 1, "dilation": 2},
    "groups-without-bias": {"groups": 2, "bias": False},
    "same": {"padding": "same", "dilation": 2},
    "valid": {"padding": "valid"},
    "reflect": {"padding": 2, "padding_mode": "reflect"},
    "replicate": {"padding": "same", "padding_mode": "replicate"},
    "circular": {"padding": 2, "padding_mode": "circular", "stride": 2},
}
TRANSPOSED: dict[str, dict[str, Any]] = {
    "plain": {},
    "output-padding": {"stride": 2, "padding": 1, "output_padding": 1},
    "groups": {"groups": 2, "stride": 3, "output_padding": 2, "bias": False},
    "dilated": {"dilation": 2, "padding": 2, "groups": 2},
}


@over("bias", [True, False])
@over("estimator", [weight_sample, local_reparam])
def test_linear_layers(bias: bool, estimator: Any) -> None:
    torch.manual_seed(0)
    for x in (noise(5), noise(3, 5), noise(2, 3, 5)):
        check_vanishing(nn.Linear(5, 4, bias), x, estimator=estimator, bias_posterior=bias)


@each("dimensions", SIZES)
@each("options", CONVOLUTIONS)
def test_convolutions(dimensions: int, options: str) -> None:
    torch.manual_seed(0)
    build = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[dimensions]
    plain = build(4, 6, 3 if dimensions < 3 else (3, 2, 3), **CONVOLUTIONS[options])
    check_vanishing(plain, noise(2, 4, *SIZES[dimensions]))
    check_vanishing(plain, noise(4, *SIZES[dimensions]), estimator=local_reparam)


@over("dimensions", SIZES)
@over("options", TRANSPOSED)
def test_transposed_convolutions(dimensions: int, options: str) -> None:
    torch.manual_seed(0)
    build = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}[dimensions]
    plain = build(4, 6, 3, **TRANSPOSED[options])
    check_vanishing(plain, noise(2, 4, *SIZES[dimensions]))
    check_vanishing(plain, noise(2, 4, *SIZES[dimensions]), estimator=local_reparam)


class Attention(nn.Module):
    """Self-attention with separate projections, as in Hugging Face's BERT."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.dense, self.norm, self.dropout = nn.Linear(dim, dim), nn.LayerNorm(dim), nn.Dropout(0.1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5 + mask
        mixed = (self.dropout(scores.softmax(-1)) @ v).transpose(1, 2).flatten(-2)
        return self.norm(x + self.dropout(self.dense(mixed)))


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.attention = Attention(dim, heads)
        self.intermediate, self.output = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.norm, self.dropout = nn.LayerNorm(dim), nn.Dropout(0.1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention(x, mask)
        return self.norm(x + self.dropout(self.output(nn.functional.gelu(self.intermediate(x)))))


class Encoder(nn.Module):
    """A Hugging Face-style encoder: three embeddings, blocks, a pooler on the first token."""

    ids: Tensor

    def __init__(self, vocabulary: int = 20, dim: int = 16, heads: int = 4, hidden: int = 32, depth: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, dim, padding_idx=0)
        self.positions, self.types = nn.Embedding(12, dim), nn.Embedding(2, dim)
        self.norm = nn.LayerNorm(dim)
        self.register_buffer("ids", torch.arange(12)[None])
        self.layer = nn.ModuleList(Block(dim, heads, hidden) for _ in range(depth))
        self.pooler = nn.ModuleDict({"dense": nn.Linear(dim, dim), "activation": nn.Tanh()})
        self.classifier = nn.Linear(dim, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor] | Any:
        places = self.ids[:, : input_ids.shape[1]]
        x = self.words(input_ids) + self.positions(places) + self.types(torch.zeros_like(input_ids))
        x = self.norm(x)
        mask = torch.zeros_like(input_ids, dtype=x.dtype) if attention_mask is None else (1 - attention_mask) * -1e9
        for block in self.layer:
            x = block(x, mask[:, None, None].to(x.dtype))
        pooled = self.pooler["activation"](self.pooler["dense"](x[:, 0]))
        return x, self.classifier(pooled)


class Tagger(nn.Module):
    """A bidirectional LSTM of two layers with a linear head on its final state."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 6)
        self.lstm = nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True, dropout=0.3)
        self.head = nn.Linear(10, 3)

    def forward(self, words: Tensor) -> Tensor:
        _, (hidden, _) = self.lstm(self.table(words))
        return self.head(torch.cat([hidden[-2], hidden[-1]], -1))


class Tied(nn.Module):
    """A language model whose head is its table."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.mix, self.head = nn.Embedding(20, 6), nn.GRU(6, 6, batch_first=True), nn.Linear(6, 20)
        self.head.weight = self.table.weight

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.mix(self.table(words))[0])


def trained_norms(model: nn.Module, x: Tensor) -> nn.Module:
    """`model` with running statistics and affine parameters that are not the initial ones."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_(0, 0.2)
        model.train()
        for _ in range(3):
            model(x)
    return model.eval()


NETWORKS: dict[str, tuple[Any, Any]] = {
    "resnet18": (lambda: trained_norms(models.resnet18(width=8), noise(8, 3, 16, 16)), noise(2, 3, 16, 16)),
    "resnet_k_tied": (lambda: models.resnet_k_tied(), noise(1, 3, 32, 32)),
    "vgg": (lambda: trained_norms(models.vgg_like(width=1 / 16), noise(8, 3, 32, 32)), noise(2, 3, 32, 32)),
    "lenet": (models.lenet5_caffe, noise(2, 1, 28, 28)),
    "vit": (models.vit_small, noise(2, 1, 28, 28)),
    "vit-bias": (lambda: models.ViT(dim=16, depth=2, heads=2, hidden=32, qkv_bias=True), noise(2, 1, 28, 28)),
    "encoder": (Encoder, tokens(3, 7)),
    "tagger": (Tagger, tokens(3, 7)),
    "lstm": (lambda: models.LSTMClassifier(20, 6, 5), tokens(3, 7)),
    "tied": (Tied, tokens(3, 7)),
    "transformer": (lambda: models.TransformerClassifier(20, layers=2, padding_mask=True), tokens(3, 7)),
    "dense-autoencoder": (lambda: models.dense_autoencoder((36, 12, 3)), noise(4, 6, 6)),
    "conv-autoencoder": (lambda: models.conv_autoencoder(code=6, width=4), noise(2, 1, 28, 28)),
}
BOTH_BIASES = {"tagger", "lstm"}
"""Networks with torch's LSTM, whose two biases come back as their sum."""


@over("name", NETWORKS)
def test_a_vanishing_scale_reproduces_the_network(name: str) -> None:
    torch.manual_seed(0)
    build, x = NETWORKS[name]
    check_vanishing(build(), x, same_values=name not in BOTH_BIASES)


@over("name", ["resnet18", "encoder", "conv-autoencoder"])
def test_local_reparameterisation_and_bayesian_biases(name: str) -> None:
    torch.manual_seed(0)
    build, x = NETWORKS[name]
    check_vanishing(build(), x, estimator=local_reparam, bias_posterior=True)


def test_an_attention_mask_and_a_part_of_the_encoder() -> None:
    torch.manual_seed(0)
    mask = (torch.arange(7) < torch.tensor([[7], [4], [2]])).long()
    check_vanishing(Encoder(), tokens(3, 7), mask)
    check_vanishing(
        Encoder(),
        tokens(3, 7),
        mask,
        convert={"where": lambda name, module: "intermediate" in name or "output" in name},
    )


def test_lengths_reach_the_classifier() -> None:
    torch.manual_seed(0)
    check_vanishing(models.LSTMClassifier(20, 6, 5), tokens(3, 7), torch.tensor([7, 1, 4]), same_values=False)


@over("posterior", POSTERIORS)
def test_the_mean_of_every_posterior_is_the_weight(posterior: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 6, 3), nn.ConvTranspose2d(6, 4, 3, groups=2), nn.Flatten(), nn.Linear(64, 4))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    collapse_(bayesianize_(model, posterior=POSTERIORS[posterior]))
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name])


def test_the_collapsed_network_has_parameters_of_its_own() -> None:
    torch.manual_seed(0)
    model = cast(Any, bayesianize_(nn.Sequential(nn.Linear(3, 3), nn.LSTM(3, 3), nn.MultiheadAttention(3, 1))))
    kept = [module.weight.mean() for module in model.modules() if isinstance(module, layers.BayesLayer)]
    before = [mean.clone() for mean in kept]
    plain = collapse_(model)
    assert len(list(plain.parameters())) == 2 + 4 + 4
    with torch.no_grad():
        for parameter in plain.parameters():
            assert parameter.is_leaf
            parameter.add_(1.0)
    assert all(torch.equal(a, b) for a, b in zip(kept, before, strict=True))


def test_a_trained_network_collapses_to_its_means() -> None:
    torch.manual_seed(0)
    model = cast(Any, bayesianize_(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))))
    x, optimizer = noise(16, 3), torch.optim.Adam(param_groups(model), 0.05)
    for _ in range(5):
        optimizer.zero_grad()
        (model(x) - x[:, :1]).square().mean().backward()
        optimizer.step()
    means = [model[index].weight.loc.detach().clone() for index in (0, 2)]
    collapse_(model)
    assert torch.equal(model[0].weight, means[0]) and torch.equal(model[2].weight, means[1])


def test_a_network_without_bayesian_layers_is_left_alone() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    children = list(model)
    assert collapse_(model) is model
    assert list(model) == children


def test_a_network_converted_in_two_steps_comes_back() -> None:
    torch.manual_seed(0)
    plain = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), 2, enable_nested_tensor=False)
    keys, x = list(plain.state_dict()), noise(2, 3, 8)
    expected = plain.eval()(x)
    tiny = functools.partial(MeanField, scale=1e-9)
    model = bayesianize_(plain, posterior=tiny, where=lambda name, module: "linear1" in name)
    model = bayesianize_(model, posterior=functools.partial(KTied, k=1, scale=1e-9))
    torch.testing.assert_close(model(x), expected, rtol=1e-6, atol=1e-6)
    collapse_(model)
    assert list(model.state_dict()) == keys
    torch.testing.assert_close(model(x), expected, rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["Linear", "GRU"])
def test_a_layer_in_two_places_collapses_to_one(kind: str) -> None:
    torch.manual_seed(0)
    shared = nn.Linear(3, 3) if kind == "Linear" else nn.GRU(3, 3)
    model = nn.ModuleDict({"a": shared, "b": nn.ModuleList([shared])})
    collapse_(bayesianize_(model))
    assert cast(Any, model)["a"] is cast(Any, model)["b"][0]
    assert type(cast(Any, model)["a"]) is type(shared)
