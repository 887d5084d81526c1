"""The objective against its definition."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.likelihoods import Gaussian
from bayeslim.posteriors import MeanField
from bayeslim.priors import Prior
from bayeslim.training import elbo
from contracts.cases import each


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return bl.mlp([3, 8, 4], method="graves", init_log_variance=-2.0, bias_posterior=MeanField)


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(6, 3, generator=generator), torch.tensor([0, 1, 2, 3, 1, 0])


def weights(model: nn.Sequential, noise: bool) -> list[Tensor]:
    """The layers' biases and weights in the order in which a forward pass draws them."""
    parts: list[Tensor] = []
    for layer in model:
        if isinstance(layer, bl.layers.Linear):
            for q in (layer.bias, layer.weight):
                assert isinstance(q, MeanField)
                parts.append(q.loc + q.log_scale.exp() * torch.randn_like(q.loc) if noise else q.loc)
    return parts


def manual_nll(model: nn.Sequential, x: Tensor, y: Tensor, noise: bool) -> Tensor:
    """Cross-entropy by log-sum-exp, the network written out."""
    b0, w0, b1, w1 = weights(model, noise)
    logits = torch.relu(x @ w0.T + b0) @ w1.T + b1
    return (logits.exp().sum(1).log() - logits[torch.arange(len(y)), y]).mean()


def manual_kl(model: nn.Sequential) -> Tensor:
    total = torch.zeros(())
    for module in model.modules():
        if isinstance(module, MeanField):
            q = torch.distributions.Normal(module.loc, module.log_scale.exp())
            total = total + torch.distributions.kl_divergence(q, torch.distributions.Normal(0.0, 1.0)).sum()
    return total


@each("num_data", [1, 6, 60_000])
@each("beta", [0.0, 0.3, 1.0, 2.5])
@each("samples", [1, 4])
def test_value_and_gradient_are_the_definitions(num_data: int, beta: float, samples: int) -> None:
    model, (x, y) = network(), batch()
    torch.manual_seed(7)
    result = bl.nelbo(model, x, y, likelihood=bl.Categorical(), num_data=num_data, beta=beta, samples=samples)
    result.loss.backward()
    found = [p.grad for p in model.parameters()]
    model.zero_grad()
    torch.manual_seed(7)
    nll = torch.stack([manual_nll(model, x, y, noise=True) for _ in range(samples)]).mean()
    kl = manual_kl(model)
    loss = nll + beta * kl / num_data
    loss.backward()
    assert torch.allclose(result.nll, nll) and torch.allclose(result.kl, kl)
    assert torch.allclose(result.loss, loss) and result.beta.item() == pytest.approx(beta)
    for ours, parameter in zip(found, model.parameters(), strict=True):
        assert ours is not None and parameter.grad is not None
        assert torch.allclose(ours, parameter.grad, atol=1e-6)


def test_a_tensor_beta_is_the_same_as_a_number() -> None:
    model, (x, y) = network(), batch()
    results = []
    for beta in (0.7, torch.tensor(0.7), torch.tensor(0.7, dtype=torch.float64)):
        torch.manual_seed(0)
        results.append(bl.nelbo(model, x, y, likelihood=bl.Categorical(), num_data=10, beta=beta))
    assert results[0].loss == results[1].loss == results[2].loss
    assert all(result.loss.dtype == torch.float32 for result in results)


def test_the_dissertations_scaling_divides_by_num_data_squared() -> None:
    model, (x, y) = network(), batch()
    likelihood = bl.Categorical()
    with bl.using(model, bl.mean_only):
        ours = bl.nelbo(model, x, y, likelihood=likelihood, num_data=50, kl_scaling="dissertation")
        # Its code minimises N mean(nll) + KL / N; per datum that is mean(nll) + KL / N^2.
        energy = 50 * manual_nll(model, x, y, noise=False) + manual_kl(model) / 50
    assert ours.loss.item() == pytest.approx(energy.item() / 50, rel=1e-6)
    assert ours.kl.item() == pytest.approx(manual_kl(model).item(), rel=1e-6)


def test_without_kl_and_noise_scales_get_no_gradient() -> None:
    model, (x, y) = network(), batch()
    with bl.using(model, bl.mean_only):
        bl.nelbo(model, x, y, likelihood=bl.Categorical(), num_data=6, beta=0.0).loss.backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad is None) == name.endswith("log_scale"), name


def test_without_kl_but_with_noise_scales_get_a_gradient() -> None:
    model, (x, y) = network(), batch()
    bl.nelbo(model, x, y, likelihood=bl.Categorical(), num_data=6, beta=0.0).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("estimator", [bl.weight_sample, bl.local_reparam, bl.flipout])
def test_multi_sample_gradients_agree_with_finite_differences(estimator: Callable[..., Any]) -> None:
    """The same noise on both sides: the loss is then a smooth function of every parameter."""
    model, (x, y) = network().double(), batch()

    def loss() -> Tensor:
        torch.manual_seed(3)
        return bl.nelbo(model, x.double(), y, likelihood=bl.Categorical(), num_data=20, samples=3).loss

    with bl.using(model, estimator):
        loss().backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            direction = torch.randn_like(parameter)
            slope = (parameter.grad * direction).sum().item()
            values = []
            for step in (1e-5, -2e-5):
                with torch.no_grad():
                    parameter.add_(step * direction)
                values.append(loss().item())
            with torch.no_grad():
                parameter.add_(1e-5 * direction)
            assert (values[0] - values[1]) / 2e-5 == pytest.approx(slope, rel=1e-5, abs=1e-8), name


class Infinite(Prior):
    """A prior that no posterior comes close to."""

    def kl(self, mean: Tensor, variance: Tensor) -> Tensor:
        return mean.square() + math.inf

    def config(self) -> dict[str, Any]:
        return {}


def test_an_infinite_kl_does_no_harm_while_it_is_off() -> None:
    layer = bl.layers.Linear(3, 4, prior=Infinite())
    x, y = batch()
    result = bl.nelbo(layer, x, y, likelihood=bl.Categorical(), num_data=6, beta=0)
    result.loss.backward()
    assert result.kl.item() == math.inf and result.loss.isfinite() and not result.kl.requires_grad
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in layer.parameters())


def test_a_plain_network_is_trained_by_maximum_likelihood() -> None:
    torch.manual_seed(0)
    model, (x, y) = nn.Linear(3, 4), batch()
    result = bl.nelbo(model, x, y, likelihood=bl.Categorical(), num_data=6)
    assert result.kl == 0 and torch.allclose(result.loss, F.cross_entropy(model(x), y))


def test_the_kl_counts_once_however_large_the_batch() -> None:
    model, (x, y) = network(), batch()
    kwargs: dict[str, Any] = {"likelihood": bl.Categorical(), "num_data": 100}
    small, large = (bl.nelbo(model, x.repeat(n, 1), y.repeat(n), **kwargs) for n in (1, 10))
    assert (small.loss - small.nll).item() == pytest.approx((large.loss - large.nll).item(), rel=1e-4)


def test_moments_give_the_expected_nll_in_closed_form() -> None:
    """One layer, Gaussian noise: `E[(y - f)^2] = (y - m)^2 + v`, against 20 000 draws."""
    torch.manual_seed(0)
    layer = bl.layers.Linear(3, 1, posterior=lambda w: MeanField(w, scale=0.4), estimator=bl.moments)
    x, y = torch.randn(5, 3), torch.randn(5, 1)
    likelihood = Gaussian(noise=0.6)
    exact = bl.nelbo(layer, x, y, likelihood=likelihood, num_data=5).nll.item()
    assert isinstance(layer.weight, MeanField) and isinstance(layer.bias, Tensor)
    draws = layer.weight.loc + layer.weight.log_scale.exp() * torch.randn(20_000, 3)
    outputs = draws @ x.T + layer.bias
    density = torch.distributions.Normal(outputs, 0.6).log_prob(y[:, 0])
    terms = -density.mean(1)
    assert abs(terms.mean().item() - exact) < 5 * terms.std().item() / math.sqrt(20_000)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_data": 0}, r"`num_data` must be the positive number.*got 0: pass e.g. len\(dataset\)"),
        ({"num_data": -5}, "`num_data` must be the positive number of training examples, got -5"),
        ({"num_data": 6.0}, r"`num_data` must be the positive number of training examples, got 6\.0"),
        ({"num_data": True}, "`num_data`"),
        ({"samples": 0}, "`samples` must be a positive integer, got 0"),
        ({"beta": -0.1}, r"`beta` must be finite and not negative, got -0\.1: 1 is the ELBO"),
        ({"beta": math.nan}, "`beta` must be finite"),
        ({"beta": math.inf}, "`beta` must be finite"),
        ({"kl_scaling": "mean"}, "`kl_scaling` must be 'elbo' or 'dissertation', got 'mean'"),
    ],
)
def test_errors(changes: dict[str, Any], message: str) -> None:
    x, y = batch()
    arguments: dict[str, Any] = {"likelihood": bl.Categorical(), "num_data": 6} | changes
    with pytest.raises(ValueError, match=message):
        bl.nelbo(network(), x, y, **arguments)


def test_num_data_is_required() -> None:
    x, y = batch()
    with pytest.raises(TypeError, match="num_data"):
        bl.nelbo(network(), x, y, likelihood=bl.Categorical())  # pyright: ignore[reportCallIssue]


def test_a_kl_of_no_use_need_not_be_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> Tensor:
        raise AssertionError

    model, (x, y) = bl.mlp([3, 4, 2], method="ard"), (torch.randn(5, 3), torch.zeros(5, dtype=torch.long))
    with bl.using(model, bl.mean_only):
        whole = bl.nelbo(model, x, y, likelihood=bl.Categorical(), num_data=5, beta=0.0)
        monkeypatch.setattr(elbo, "kl_divergence", refused)
        result = bl.nelbo(model, x, y, likelihood=bl.Categorical(), num_data=5, beta=0.0, with_kl=False)
    assert torch.equal(result.loss, whole.loss) and torch.equal(result.nll, whole.nll) and result.kl.isnan()
    with pytest.raises(ValueError, match=r"`with_kl` may be False for `beta=0.0` alone, got 1.0"):
        bl.nelbo(model, x, y, likelihood=bl.Categorical(), num_data=5, with_kl=False)
