"""Layers of every kind can be copied, pickled and restored."""

import copy
import io
import pickle

import pytest
import torch

import bayeslim as bl
from bayeslim.likelihoods import Gaussian, likelihood_of
from bayeslim.likelihoods.base import remember_likelihood_
from contracts.cases import each
from contracts.members import POSTERIORS
from system.matrix import ESTIMATORS, KINDS, SAMPLING, example, layer, output


@each("kind", KINDS)
@each("estimator", ESTIMATORS)
def test_deepcopy_after_a_forward_and_backward(kind: str, estimator: str) -> None:
    original, x = layer(kind, estimator=ESTIMATORS[estimator]), example(kind)
    output(original, x).sum().backward()
    twin = copy.deepcopy(original)
    assert torch.equal(output(twin, x), output(original, x)) and torch.equal(twin.kl(), original.kl())
    before = output(original, x)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert torch.equal(output(original, x), before) and not torch.equal(output(twin, x), before)
    assert twin.estimator is original.estimator and twin.prior is not original.prior


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_pickle_round_trip(kind: str, protocol: int) -> None:
    original, x = layer(kind), example(kind)
    output(original, x)
    again = pickle.loads(pickle.dumps(original, protocol))
    assert type(again) is type(original) and again.op == original.op and again.estimator == original.estimator
    assert torch.equal(output(again, x), output(original, x)) and torch.equal(again.kl(), original.kl())


@pytest.mark.parametrize("kind", ["Linear", "Conv2d"])
@pytest.mark.parametrize("posterior", POSTERIORS)
def test_pickle_of_every_posterior(kind: str, posterior: str) -> None:
    original, x = layer(kind, posterior=POSTERIORS[posterior]), example(kind)
    again = pickle.loads(pickle.dumps(original))
    assert torch.equal(output(again, x), output(original, x))


@pytest.mark.parametrize("kind", KINDS)
def test_strict_state_dict(kind: str) -> None:
    original, other, x = layer(kind), layer(kind, seed=1), example(kind)
    assert not torch.equal(output(other, x), output(original, x))
    buffer = io.BytesIO()
    torch.save(original.state_dict(), buffer)
    buffer.seek(0)
    state = torch.load(buffer, weights_only=True)
    assert list(state) == ["weight.loc", "weight.log_scale", "bias.loc", "bias.log_scale"]
    other.load_state_dict(state, strict=True)
    assert torch.equal(output(other, x), output(original, x))
    with pytest.raises(RuntimeError, match="Missing key"):
        other.load_state_dict({name: value for name, value in state.items() if name != "weight.loc"})
    with pytest.raises(RuntimeError, match="Unexpected key"):
        other.load_state_dict(state | {"noise": torch.zeros(1)})


@each("kind", KINDS)
@each("estimator", SAMPLING)
def test_a_forward_pass_leaves_nothing_behind(kind: str, estimator: str) -> None:
    """No noise, sample or KL on the module: attributes, parameters and buffers are the same objects."""
    module, x = layer(kind, estimator=SAMPLING[estimator]), example(kind)
    modules = list(module.modules())

    def contents() -> list[dict[str, int]]:
        return [{name: id(value) for name, value in vars(m).items()} for m in modules]

    def tensors() -> dict[str, int]:
        return {name: id(value) for name, value in module.state_dict(keep_vars=True).items()}

    before = contents(), tensors()
    output(module, x).sum().backward()
    bl.kl(module)
    assert (contents(), tensors()) == before


def test_a_trained_network_is_copied_with_its_likelihood() -> None:
    model = bl.mlp([4, 3, 2])
    remember_likelihood_(model, Gaussian(0.25))
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        found = likelihood_of(again)
        assert isinstance(found, Gaussian) and found is not likelihood_of(model)
        assert found.log_noise.exp().item() == pytest.approx(0.25)


def test_layers_move_between_types() -> None:
    for kind in KINDS:
        module = layer(kind, estimator=bl.mean_only)
        x = example(kind)
        wide = copy.deepcopy(module).double()
        assert output(wide, x.double()).dtype == torch.float64
        assert torch.allclose(output(wide, x.double()).float(), output(module, x), atol=1e-5)
