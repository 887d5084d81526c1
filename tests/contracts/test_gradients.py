"""Gradients through sampled layers: unbiased, right for several samples, equal to differences."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

from bayeslim import kl
from contracts.cases import each
from contracts.dense import noise_map
from contracts.members import OPS, SAMPLERS, VALID_SAMPLERS, layer, over
from contracts.statistics import assert_mean

DRAWS = 8_000
CASES = ["linear", "conv1d", "transposed2d"]


def weights(case: str) -> Tensor:
    """A fixed weight per output, so that no symmetry hides an error."""
    outputs = layer(case, "MeanField", "mean_only")(OPS[case].input())
    return torch.linspace(0.5, 1.5, outputs.numel(), dtype=torch.float64).reshape(outputs.shape)


@each("case", CASES)
@pytest.mark.parametrize(("posterior", "sampler"), VALID_SAMPLERS)
def test_gradients_of_an_expected_quadratic_loss_are_unbiased(posterior: str, sampler: str, case: str) -> None:
    """`E sum c y^2 = sum c (mean^2 + variance)`: its gradient is the mean of the sampled ones."""
    x, net, c = OPS[case].input(), layer(case, posterior, sampler), weights(case)
    parameters: dict[str, Tensor] = dict(net.named_parameters())
    reference = layer(case, posterior, "weight_sample")
    mean, matrix = noise_map(lambda: reference(x))
    (c.flatten() @ (mean.square() + matrix.square().sum(1))).backward()
    expected = {name: value.grad for name, value in reference.named_parameters()}

    def loss(values: dict[str, Tensor], _: Tensor) -> Tensor:
        return (c * functional_call(net, values, (x,)).square()).sum()

    torch.manual_seed(13)
    sampled = torch.vmap(grad(loss), (None, 0), randomness="different")(parameters, torch.zeros(DRAWS))
    for name, value in expected.items():
        assert value is not None, name
        assert_mean(sampled[name].detach(), value)


@each("case", CASES)
@pytest.mark.parametrize(("posterior", "sampler"), VALID_SAMPLERS)
def test_two_forwards_before_one_backward_add_both_gradients(posterior: str, sampler: str, case: str) -> None:
    x = OPS[case].input()
    together, apart = (layer(case, posterior, sampler) for _ in range(2))
    torch.manual_seed(14)
    first, second = together(x), together(x)
    (first.square().sum() + second.pow(3).sum()).backward()
    torch.manual_seed(14)
    apart(x).square().sum().backward()
    apart(x).pow(3).sum().backward()
    for (name, one), other in zip(together.named_parameters(), apart.parameters(), strict=True):
        assert one.grad is not None, name
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-10, atol=1e-12)


@each("case", ["linear", "conv1d"])
@pytest.mark.parametrize(("posterior", "sampler"), VALID_SAMPLERS)
def test_multi_sample_loss_against_finite_differences(posterior: str, sampler: str, case: str) -> None:
    """Three samples and the KL under one seed: a smooth function of the parameters."""
    x, net = OPS[case].input(), layer(case, posterior, sampler)

    def loss(*_: Tensor) -> Tensor:
        torch.manual_seed(15)
        return sum((net(x).tanh().sum() for _ in range(3)), 0.1 * kl(net))

    assert torch.autograd.gradcheck(loss, tuple(net.parameters()), fast_mode=True)


@over("sampler", SAMPLERS)
def test_two_layers_of_samples_against_finite_differences(sampler: str) -> None:
    first, second = layer("linear", "MeanField", sampler), layer("linear-tokens", "KTied-2", sampler, seed=1)
    net = nn.Sequential(first, nn.Tanh(), nn.Linear(4, 3).double(), second)
    x = OPS["linear"].input()

    def loss(*_: Tensor) -> Tensor:
        torch.manual_seed(16)
        return torch.stack([net(x).square().mean() for _ in range(2)]).mean() + kl(net) / 100

    assert torch.autograd.gradcheck(loss, tuple(net.parameters()))
