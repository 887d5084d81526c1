"""torch's Transformer containers shrink like the layers they hold."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.pruning import MAGNITUDE
from bayeslim.pruning.compact import compact


class Encodes(nn.Module):
    def __init__(self, norm_first: bool = False, masked: bool = False, norm: bool = False) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(16) if norm else None, enable_nested_tensor=False)
        self.head, self.masked = nn.Linear(16, 2), masked

    def forward(self, x: Tensor) -> Tensor:
        if self.masked:
            mask = torch.ones(5, 5).triu(1).bool()
            return self.head(self.encoder(x, mask, x[:, :, 0] > 1e9).mean(1))
        return self.head(self.encoder(x).mean(1))


class Decodes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 4, 32, batch_first=True), 2)
        self.head = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.decoder(x, x, tgt_mask=torch.ones(5, 5).triu(1).bool(), tgt_is_causal=True).mean(1))


def check(model: Any, small: Any, x: Tensor) -> None:
    with torch.no_grad(), bl.using(model, bl.mean_only), bl.using(small, bl.mean_only):
        torch.testing.assert_close(small(x), model(x), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(small.train()(x).shape, model(x).shape)


@pytest.mark.parametrize("options", [{}, {"norm_first": True}, {"masked": True}, {"norm": True}], ids=str)
def test_an_encoder_of_bayesian_layers(options: dict[str, bool]) -> None:
    torch.manual_seed(0)
    model: Any = bl.bayesianize_(Encodes(**options)).eval()
    wide = {"structure": "output", "where": lambda name, layer: "linear1" in name}
    bl.prune_(model, MAGNITUDE, amount=0.5, **wide)  # pyright: ignore
    bl.prune_(model, MAGNITUDE, amount=0.5, structure="head")
    x = torch.randn(3, 5, 16)
    small: Any = compact(model, x)
    assert all(len(layer.linear1.weight.mean()) < 32 for layer in small.encoder.layers)
    assert sum(layer.self_attn.num_heads for layer in small.encoder.layers) < 8
    check(model, small, x)


@pytest.mark.parametrize("make", [Encodes, Decodes])
def test_plain_layers(make: type[Any]) -> None:
    """Their fused path, which reads the weights, runs with the smaller ones."""
    torch.manual_seed(0)
    model = make().eval()
    layers = (model.encoder if make is Encodes else model.decoder).layers
    with torch.no_grad():
        for layer in layers:
            layer.linear1.weight[10:] = 0
    x = torch.randn(3, 5, 16)
    small: Any = compact(model, x)
    shrunk = (small.encoder if make is Encodes else small.decoder).layers
    assert [layer.linear1.weight.shape for layer in shrunk] == [(10, 16)] * 2
    check(model, small, x)


def test_a_container_is_the_network_or_stands_beside_what_cannot_be_traced() -> None:
    class Branches(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    torch.manual_seed(0)
    encoder = Encodes().encoder.eval()
    with torch.no_grad():
        encoder.layers[0].linear1.weight[10:] = 0  # pyright: ignore
    x = torch.randn(3, 5, 16)
    for model in (encoder, nn.Sequential(Branches(), encoder)):
        small = compact(model, x)
        assert any(parameter.shape == (10, 16) for parameter in small.parameters())
        torch.testing.assert_close(small(x), model(x), rtol=1e-4, atol=1e-5)


def test_a_hook_keeps_the_container_whole() -> None:
    torch.manual_seed(0)
    model = Encodes().eval()
    model.encoder.register_forward_hook(lambda module, args, output: torch.neg(output))  # pyright: ignore
    with torch.no_grad():
        model.encoder.layers[0].linear1.weight[10:] = 0  # pyright: ignore
    x = torch.randn(3, 5, 16)
    with pytest.warns(UserWarning, match="'encoder.layers.0.linear1' keeps 22 of 32 outputs: it is inside Transformer"):
        small = compact(model, x)
    torch.testing.assert_close(small(x), model(x))
