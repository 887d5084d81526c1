"""Networks that end in a squeeze: outputs (N,) are those of one column."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.likelihoods import Gaussian, Likelihood

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
REAL = X[:, 0] - 0.5 * X[:, 1]
YES = (REAL > 0).float()


class Squeeze(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.squeeze(-1)


def network(flat: bool, method: str = "graves") -> nn.Sequential:
    torch.manual_seed(0)
    model = bl.mlp([3, 8, 1], method=method, init_log_variance=-3.0)
    return model.append(Squeeze()) if flat else model


CASES = [
    (Gaussian(0.3), REAL),
    (Gaussian(0.3, learn_noise=True), REAL),
    (Gaussian(0.3, outputs=1), REAL),
    (bl.Bernoulli(), YES),
]


@pytest.mark.parametrize(("likelihood", "y"), CASES)
def test_the_loss_is_that_of_one_column(likelihood: Likelihood, y: Tensor) -> None:
    losses = []
    for flat in (False, True):
        model = network(flat)
        for target in (y, y[:, None]):
            checked = likelihood.check_targets(target, model(X).shape)
            assert checked.shape == model(X).shape
            for given in (target, checked):
                torch.manual_seed(1)
                losses.append(bl.nelbo(model, X, given, likelihood=likelihood, num_data=40).loss)
    assert all(torch.equal(loss, losses[0]) for loss in losses)


@pytest.mark.parametrize("method", ["graves", "vdp"])
@pytest.mark.parametrize(("likelihood", "y"), CASES)
def test_training_predictions_and_scores_are_those_of_one_column(
    likelihood: Likelihood, y: Tensor, method: str
) -> None:
    state = {name: value.clone() for name, value in likelihood.state_dict().items()}
    found: list[Any] = []
    for flat in (False, True):
        for target in (y, y[:, None]):
            likelihood.load_state_dict(state)
            model = network(flat, method)
            history = bl.fit(model, (X, target), likelihood=likelihood, epochs=3, lr=0.01, batch_size=16, seed=0)
            options: dict[str, Any] = {"method": "moments"} if method == "vdp" else {"samples": 30}
            prediction = bl.predict(model, X, seed=0, **options)
            assert prediction.mean.shape == ((40,) if flat else (40, 1))
            parts = [prediction.mean, prediction.total, prediction.entropy, prediction.mutual_information]
            parts += prediction.interval(method="normal")
            scores = bl.evaluate(model, (X, target), batch_size=16, **options)
            found.append((history["nll"], [part.flatten() for part in parts], scores))
    for nll, parts, scores in found[1:]:
        assert nll == pytest.approx(found[0][0], rel=1e-6)
        assert all(torch.allclose(part, first, atol=1e-6) for part, first in zip(parts, found[0][1], strict=True))
        assert scores == pytest.approx(found[0][2], rel=1e-5)


def test_what_has_no_single_column_is_refused() -> None:
    model = network(flat=True)
    for likelihood, message in (
        (bl.Categorical(), "for one logit use Bernoulli"),
        (bl.likelihoods.HeteroscedasticGaussian(), "an even number of model outputs"),
        (Gaussian(outputs=40), r"a noise for 40 outputs, but the model has 1: pass outputs=1"),
    ):
        with pytest.raises(ValueError, match=message):
            bl.predict(model, X, likelihood=likelihood)
    with pytest.raises(ValueError, match=r"`y` has \(2,\) values per example, the model predicts \(\)"):
        bl.fit(model, (X, X[:, :2]), likelihood=Gaussian(), epochs=1)
    with pytest.raises(ValueError, match=r"`y` has shape \(40, 2\), the predictions \(40,\)"):
        bl.evaluate(model, (X, X[:, :2]), likelihood=Gaussian())


def test_decisions_of_predictions() -> None:
    for flat in (False, True):
        prediction = bl.predict(network(flat), X, likelihood=bl.Bernoulli(), seed=0)
        assert torch.equal(prediction.classes, (prediction.mean.flatten() > 0.5).long())
        assert 0 < int(prediction.classes.sum()) < 40
    several = bl.predict(bl.mlp([3, 4]), X, likelihood=bl.Bernoulli(), seed=0)
    assert torch.equal(several.classes, (several.mean > 0.5).long())
    with pytest.raises(ValueError, match="Gaussian has no classes: take the `mean` of the prediction"):
        _ = bl.predict(network(flat=False), X, likelihood=Gaussian()).classes


class SqueezeAll(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.squeeze()


def test_a_squeeze_that_loses_the_only_example_is_explained() -> None:
    """Batches of one row, be it the last one."""
    model, likelihood = bl.mlp([3, 8, 1], method="graves").append(SqueezeAll()), Gaussian()
    for method in ("sample", "mean", "moments"):
        for x in (X[:1], X[:9]):
            with pytest.raises(ValueError, match=r"without an axis of examples: write squeeze\(-1\) for squeeze\(\)"):
                bl.predict(model, x, likelihood=likelihood, method=method, batch_size=4)
        assert bl.predict(model, X, likelihood=likelihood, method=method).mean.shape == (40,)
    for count in (1, 9):
        with pytest.raises(ValueError, match=r"write squeeze\(-1\) for squeeze\(\)"):
            bl.fit(model, (X[:count], REAL[:count]), likelihood=likelihood, epochs=1, batch_size=4)
