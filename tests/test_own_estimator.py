"""A user's own estimator, a class or a plain function, in all that takes one; values against hand computations."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.architecture import describe
from bayeslim.estimators import Bias, Estimator, bias_mean, bias_sample
from bayeslim.export import export_onnx, export_program, mean_network, sample_networks
from bayeslim.ops import Op
from bayeslim.posteriors import MatrixNormal, MeanField, Posterior
from contracts.dense import FixedNoise


@dataclass(frozen=True)
class Shrunk(Estimator):
    """One weight for all examples, with a share of the posterior's noise."""

    kind = "weights"
    joint = True
    share: float = 0.5

    def __call__(self, posterior: Posterior, op: Op, x: Tensor, bias: Bias) -> Tensor:
        mean = posterior.mean()
        return op(x, mean + self.share * (posterior.rsample() - mean), bias_sample(bias))


class Halved(Estimator):
    """Half of the mean: a deterministic network."""

    kind = "mean"
    joint = True
    needs_factorised = "it was never tried with others"

    def __call__(self, posterior: Posterior, op: Op, x: Tensor, bias: Bias) -> Tensor:
        return op(x, 0.5 * posterior.mean(), bias_mean(bias))


class PerExample(Estimator):
    """A weight of its own for every example."""

    kind = "weights"

    def __call__(self, posterior: Posterior, op: Op, x: Tensor, bias: Bias) -> Tensor:
        return torch.cat([op(x[i : i + 1], posterior.rsample(), bias_sample(bias)) for i in range(len(x))])


def doubled(posterior: Posterior, op: Op, x: Tensor, bias: Bias) -> Tensor:
    """A plain function, which states no facts."""
    return op(x, 2 * posterior.mean(), bias_mean(bias))


SCALE = 0.3
X = torch.tensor([[1.0, -2.0, 0.5], [0.3, 0.0, 2.0], [1.0, 1.0, 1.0], [1.0, -2.0, 0.5]])
Y = torch.tensor([0, 1, 1, 0])


def network(estimator: Callable[..., Any]) -> Any:
    torch.manual_seed(0)
    return bl.bayesianize_(
        nn.Sequential(nn.Linear(3, 2)), posterior=partial(MeanField, scale=SCALE), estimator=estimator
    )


NOISE = torch.tensor([0.4, -1.0, 0.2, 1.5, -0.7, 0.1])
OWN: dict[str, tuple[Callable[..., Any], Callable[[Tensor], Tensor]]] = {
    "joint": (Shrunk(0.4), lambda mean: mean + 0.4 * SCALE * NOISE.view(2, 3)),
    "mean": (Halved(), lambda mean: 0.5 * mean),
    "function": (doubled, lambda mean: 2 * mean),
}
"""Each with the weight that it uses, given the mean and `NOISE`."""


def by_hand(name: str, model: Any) -> Tensor:
    """The outputs for `X`."""
    layer: Any = model[0]
    return X @ OWN[name][1](layer.weight.loc.detach()).T + layer.bias.detach()


@pytest.mark.parametrize("name", OWN)
def test_a_layer_and_the_objective_use_it(name: str) -> None:
    model, other = network(OWN[name][0]), network(bl.flipout)
    with FixedNoise(NOISE):
        torch.testing.assert_close(model(X).detach(), by_hand(name, model))
    with bl.using(other, OWN[name][0]), FixedNoise(NOISE):
        torch.testing.assert_close(other(X).detach(), by_hand(name, model))
    layer: Any = other[0]
    assert layer.estimator is bl.flipout
    with FixedNoise(NOISE):
        found = bl.nelbo(model, X, Y, likelihood=bl.Categorical(), num_data=50)
    found.loss.backward()
    layer = model[0]
    squares = layer.weight.loc.detach().square().sum() + 6 * SCALE**2  # KL(N(m, s^2), N(0, 1)), six weights
    divergence = 0.5 * squares - 6 * math.log(SCALE) - 3
    expected = F.cross_entropy(by_hand(name, model), Y) + divergence / 50
    torch.testing.assert_close(found.loss.detach(), expected)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_what_it_needs_is_checked_everywhere() -> None:
    message = r"halved needs a factorised posterior, got MatrixNormal \(it was never tried with others\)"
    with pytest.raises(TypeError, match=message):
        bl.layers.Linear(3, 2, posterior=MatrixNormal, estimator=Halved())
    with pytest.raises(TypeError, match=message), bl.using(bl.layers.Linear(3, 2, posterior=MatrixNormal), Halved()):
        pytest.fail("the block must not run")


def test_one_without_a_call_says_what_to_define() -> None:
    class Empty(Estimator):
        kind = "mean"

    with pytest.raises(NotImplementedError, match=r"Empty must define `__call__\(posterior, op, x, bias\)`"):
        network(Empty())(X)


def test_predict_samples_by_what_is_joint() -> None:
    """Equal examples get equal outputs in every network, and the noise is the share of it: variance 0.4^2 x^2 s^2."""
    samples = 4000
    model = network(Shrunk(0.4))
    for asked in (None, Shrunk(0.4)):  # as the network has it, and asked for
        source = model if asked is None else network(bl.local_reparam)
        found = bl.predict(source, X, likelihood=bl.likelihoods.Gaussian(), samples=samples, estimator=asked, seed=1)
        assert found.samples is not None and torch.equal(found.samples[:, 0], found.samples[:, 3])
        layer: Any = model[0]
        std = (0.16 * SCALE**2 * X.square().sum(1, keepdim=True)).sqrt().expand(4, 2)
        mean = X @ layer.weight.loc.detach().T + layer.bias.detach()
        assert ((found.mean - mean).abs() < 5 * std / math.sqrt(samples)).all()
        assert ((found.epistemic / std.square() - 1).abs() < 5 * math.sqrt(2 / samples)).all()


@pytest.mark.parametrize("name", ["mean", "function"])
def test_predict_keeps_means_and_plain_functions(name: str) -> None:
    model = network(OWN[name][0])
    found = bl.predict(model, X, likelihood=bl.likelihoods.Gaussian(), samples=3)
    torch.testing.assert_close(found.mean, by_hand(name, model))
    torch.testing.assert_close(found.epistemic, torch.zeros(4, 2), rtol=0, atol=1e-10)


def test_a_recurrent_layer_draws_by_the_kind() -> None:
    lstm: Any = bl.bayesianize_(nn.ModuleDict({"lstm": nn.LSTM(3, 2, batch_first=True)}), estimator=Halved()).lstm
    with bl.using(lstm, bl.mean_only):
        expected = lstm(X[None])[0]
    assert torch.equal(lstm(X[None])[0], expected)
    with bl.using(lstm, Shrunk()):
        assert not torch.equal(lstm(X[None])[0], lstm(X[None])[0])


@pytest.mark.parametrize("name", OWN)
def test_files_are_loaded_into_a_network_that_has_it(name: str, tmp_path: Path) -> None:
    model = network(OWN[name][0])
    bl.save(model, tmp_path / "net")
    assert describe(model) is None
    with pytest.raises(ValueError, match=r"make the network yourself and call load\(path, model\)"):
        bl.load(tmp_path / "net")
    twin = network(OWN[name][0])
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    bl.load(tmp_path / "net", twin)
    with FixedNoise(NOISE):
        torch.testing.assert_close(twin(X).detach(), by_hand(name, model))
    with pytest.raises(ValueError, match=r"saved with the estimator \w+.*convert it first .* with the same estimator"):
        bl.load(tmp_path / "net", network(bl.weight_sample))


def test_files_tell_settings_apart(tmp_path: Path) -> None:
    bl.save(network(Shrunk(0.4)), tmp_path / "net")
    with pytest.raises(ValueError, match=r"the estimator shrunk\{'share': 0.4\}, .* has shrunk\{'share': 0.9\}"):
        bl.load(tmp_path / "net", network(Shrunk(0.9)))
    bl.load(tmp_path / "net", network(Shrunk(0.4)))  # an equal one, not the same object


def test_a_run_goes_on_with_the_same_settings_alone(tmp_path: Path) -> None:
    run = partial(bl.fit, likelihood=bl.Categorical(), checkpoint=tmp_path / "run", resume=True, seed=0, progress=False)
    run(network(Shrunk(0.4)), (X, Y), epochs=1)
    run(network(Shrunk(0.4)), (X, Y), epochs=2)
    with pytest.raises(ValueError, match=r"estimator shrunk\(share=0.4\), now shrunk\(share=0.9\)"):
        run(network(Shrunk(0.9)), (X, Y), epochs=3)


@pytest.mark.parametrize("name", OWN)
def test_exports_hold_means_or_draws_of_the_posterior(name: str, tmp_path: Path) -> None:
    import onnxruntime

    model = network(OWN[name][0])
    layer: Any = model[0]
    expected = (X @ layer.weight.loc.T + layer.bias).detach()
    torch.testing.assert_close(mean_network(model)(X).detach(), expected)
    export_onnx(model, tmp_path / "net.onnx", X)
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: X.numpy()})
    torch.testing.assert_close(torch.as_tensor(found), expected, rtol=1e-5, atol=1e-6)
    export_program(model, tmp_path / "net.pt2", X)
    torch.testing.assert_close(torch.export.load(tmp_path / "net.pt2").module()(X).detach(), expected)
    drawn: list[Any] = sample_networks(model, 400)
    spread = torch.stack([one[0].weight for one in drawn]).var(0).mean().item()  # of six weights
    if name == "mean":
        assert spread == 0
    else:
        assert spread / SCALE**2 == pytest.approx(1, abs=5 * math.sqrt(2 / 2400))


def test_predict_swaps_what_is_not_joint() -> None:
    """Differences between equal examples: none in any one network, where the estimator itself would give them."""
    layers = nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 2, 2), nn.Flatten())
    model = bl.bayesianize_(layers, estimator=PerExample())
    known = bl.likelihoods.Gaussian()
    found = bl.predict(model, torch.ones(2, 4), likelihood=known, samples=8, keep_samples=True)
    assert found.samples is not None and torch.equal(found.samples[:, 0], found.samples[:, 1])
