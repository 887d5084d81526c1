"""Which layers draw outputs and which weights, and that a prediction cannot tell the difference."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.gaussian import Gaussian as Uncertain
from bayeslim.layers import BayesLayer, Linear
from bayeslim.likelihoods import Gaussian
from bayeslim.masks import Masked
from bayeslim.posteriors import KTied, MatrixNormal, MeanField
from bayeslim.predictive.draws import JointOutputs, SeparateOutputs
from bayeslim.predictive.networks import Sampled
from bayeslim.predictive.plan import planned
from contracts.two_samples import assert_same_moments

MeanField03 = functools.partial(MeanField, scale=0.3)
SAMPLES = 200


def network(posterior: Callable[..., Any] = MeanField03, **options: Any) -> nn.Sequential:
    """Plain, then 40 features to 60 to 40, then plain to 2 outputs."""
    torch.manual_seed(0)
    bayes = {"posterior": posterior, "estimator": bl.weight_sample, **options}
    uncertain = Linear(40, 60, **bayes), nn.ReLU(), Linear(60, 40, **bayes)
    return nn.Sequential(nn.Linear(3, 40), nn.Tanh(), *uncertain, nn.Linear(40, 2))


def inputs(count: int) -> Tensor:
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def drawn(networks: Sampled) -> list[Tensor]:
    """Weights of five networks."""
    return networks.weights.draw(5)


@torch.no_grad()
def sampled(model: nn.Module, x: Tensor | Uncertain, samples: int = SAMPLES, few: bool = True) -> Sampled:
    """How networks are drawn for `x`."""
    layers = [module for module in model.modules() if isinstance(module, BayesLayer)]
    plan = planned(model, x, layers, forced=False)
    assert plan.vectorises
    return Sampled(model, layers, plan, x, samples, few, 1)


def weights_of(networks: Sampled) -> list[object]:
    """Posteriors whose weights are drawn."""
    return [posterior for posterior, *_ in networks.weights.sources]


def outputs_of(networks: Sampled) -> dict[nn.Module, type]:
    """Layers that draw outputs, and how."""
    return {layer: type(how) for layer, how in networks.drawing.items()}


def samples_of(model: nn.Module, x: Tensor, samples: int, seed: int = 0) -> Tensor:
    likelihood = Gaussian().to(next(model.parameters()).dtype)
    found = bl.predict(model, x, samples=samples, likelihood=likelihood, keep_samples=True, seed=seed)
    assert found.samples is not None and found.samples.shape == (samples, len(x), 2)
    return found.samples


def test_few_examples_draw_outputs_of_every_linear_layer() -> None:
    model = network(bias_posterior=MeanField03)
    networks = sampled(model, inputs(2))
    assert outputs_of(networks) == {model[2]: JointOutputs, model[4]: JointOutputs} and not weights_of(networks)
    assert networks.least == 2 and [noise.shape for noise in networks.noise(5, 2)] == [(5, 60, 2), (5, 40, 2)]


def test_more_examples_draw_outputs_of_the_first_layer_only() -> None:
    """Its input is the same in all networks."""
    model = network(bias_posterior=MeanField03)
    networks = sampled(model, inputs(12))
    assert outputs_of(networks) == {model[2]: JointOutputs} and networks.least == 12
    assert weights_of(networks) == [model[4].weight, model[4].bias]
    assert [weight.shape for weight in drawn(networks)] == [(5, 40, 60), (5, 40)]


def test_layers_that_are_trained_by_outputs_draw_them_one_by_one() -> None:
    model = network(estimator=bl.local_reparam, bias_posterior=MeanField03)
    networks = sampled(model, inputs(100))
    assert outputs_of(networks) == {model[2]: SeparateOutputs, model[4]: SeparateOutputs} and not weights_of(networks)
    assert networks.least == 1 and [noise.shape for noise in networks.noise(5, 7)] == [(5, 7, 60), (5, 7, 40)]
    bl.prune_(model, amount=0.5)  # and keep the short way
    assert all(isinstance(how, SeparateOutputs) and how.plain for how in sampled(model, inputs(3)).drawing.values())


def lstm_output(lstm: nn.Module) -> nn.Module:
    class Output(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = lstm

        def forward(self, x: Tensor) -> Tensor:
            return self.lstm(x)[0][:, -1]

    return Output()


def assert_draws_weights(networks: Sampled, posteriors: Sequence[object]) -> None:
    assert weights_of(networks) == posteriors and not networks.drawing


def test_weights_are_drawn_where_that_is_cheaper_or_outputs_are_not_allowed() -> None:
    model = network()
    weights = [model[2].weight, model[4].weight]
    assert_draws_weights(sampled(model, inputs(40)), weights)  # as many examples as features
    assert_draws_weights(sampled(model, inputs(12), samples=1), weights)  # the factors would serve one network
    assert_draws_weights(sampled(model, inputs(2), few=False), weights)
    assert_draws_weights(sampled(network(estimator=bl.mean_only), inputs(2)), [])


def test_a_correlated_posterior_draws_weights() -> None:
    model = network(functools.partial(MatrixNormal, scale=0.3))
    assert_draws_weights(sampled(model, inputs(2)), [model[2].weight, model[4].weight])


@pytest.mark.parametrize("share", ["layer", "weight", "bias"])
def test_a_posterior_that_is_used_twice_draws_weights(share: str) -> None:
    layer = Linear(3, 3, posterior=MeanField03, estimator=bl.weight_sample, bias_posterior=MeanField03)
    other = Linear(3, 3, posterior=MeanField03, estimator=bl.weight_sample, bias_posterior=MeanField03)
    if share == "layer":
        other = layer
    else:
        setattr(other, share, getattr(layer, share))
    networks = sampled(nn.Sequential(layer, other), inputs(1))
    used = [posterior for one in (layer, other) for posterior in (one.weight, one.bias)]
    assert_draws_weights(networks, list(dict.fromkeys(used)))


def test_noisy_inputs_differ_from_network_to_network() -> None:
    model = network()
    networks = sampled(model, Uncertain(inputs(2), torch.ones(2, 3)))
    assert list(networks.drawing) == [model[2], model[4]] and not weights_of(networks)


def test_other_layers_keep_drawing_weights() -> None:
    """A convolution, an embedding, and a recurrent layer, which uses its weights at every time step."""
    bayes = {"posterior": MeanField03, "estimator": bl.weight_sample}
    conv = bl.layers.Conv2d(1, 2, 3, **bayes)
    assert_draws_weights(sampled(conv, torch.zeros(2, 1, 4, 4)), [conv.weight])
    embedding = bl.layers.Embedding(5, 2, **bayes)
    assert_draws_weights(sampled(embedding, torch.tensor([0, 1])), [embedding.weight])
    lstm = bl.layers.LSTM(3, 2, batch_first=True, **bayes)
    assert not sampled(lstm_output(lstm), torch.zeros(2, 4, 3)).drawing


@pytest.mark.parametrize("count", [2, 12])
@pytest.mark.parametrize("posterior", [MeanField03, functools.partial(KTied, scale=0.3)], ids=["mean field", "k-tied"])
def test_covariances_between_examples_are_those_of_drawn_weights(posterior: Callable[..., Any], count: int) -> None:
    """All products of outputs, of the same and of different examples, behind a nonlinearity."""
    model, x = network(posterior), inputs(count)
    found = samples_of(model, x, 20_000).flatten(1)
    with torch.no_grad():
        torch.manual_seed(3)
        slow = torch.vmap(lambda _: model(x), randomness="different", chunk_size=2000)(torch.empty(20_000)).flatten(1)
    assert_same_moments(found, slow)
    products = [(values - slow.mean(0))[:, :, None] * (values - slow.mean(0))[:, None, :4] for values in (found, slow)]
    assert_same_moments(*(product.flatten(1) for product in products))
    correlation = torch.corrcoef(slow[:, [0, 2]].T)[0, 1]
    assert abs(correlation) > 0.1  # so that independent examples would be found out


@pytest.mark.parametrize("count", [1, 2, 12])
def test_groups_of_networks_draw_jointly_too(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal examples have equal outputs, however few networks and rows fit in a pass."""
    model = network()
    for limit, value in (("ROWS_AT_ONCE", 3 * count), ("WEIGHTS_AT_ONCE", 0), ("EXAMPLES_AT_ONCE", 1)):
        monkeypatch.setattr(f"bayeslim.predictive.networks.{limit}", value)
        found = samples_of(model, inputs(1).expand(count, 3), 10)
        torch.testing.assert_close(found, found[:, :1].expand_as(found))
        assert len(found[:, 0].unique(dim=0)) == 10


@pytest.mark.parametrize("count", [1, 2, 12, 100])
def test_a_seed_gives_the_same_prediction(count: int) -> None:
    model, x = network().double(), inputs(count).double()
    first, second, other = (samples_of(model, x, 30, seed=seed) for seed in (0, 0, 1))
    assert first.dtype == torch.float64
    assert torch.equal(first, second) and not torch.equal(first, other)


def test_pruned_networks_keep_exact_zeros() -> None:
    """With all weights of the last uncertain layer pruned nothing is left but its bias."""
    model = network()
    last = model[4]
    assert isinstance(last, BayesLayer) and isinstance(last.bias, Tensor)
    last.weight = Masked(last.weight, torch.zeros(40, 60))
    for count in (1, 2, 12):
        left = model[5](last.bias).detach().expand(20, count, 2)
        torch.testing.assert_close(samples_of(model, inputs(count), 20), left, atol=1e-6, rtol=0)


def test_a_prediction_works_in_inference_mode() -> None:
    with torch.inference_mode():
        assert samples_of(network(), inputs(2), 5).isfinite().all()
