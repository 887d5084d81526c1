"""Memory stays bounded, and input that makes no sense is refused."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayeslim as bl
from bayeslim.likelihoods import Gaussian
from bayeslim.posteriors import MatrixNormal
from bayeslim.predictive.average import StreamingMoments

LIMITS = "bayeslim.predictive.sample."
NETWORKS = "bayeslim.predictive.networks."
CLASSES = bl.Categorical()


def classifier() -> nn.Sequential:
    torch.manual_seed(0)
    return bl.mlp([3, 8, 4], method="graves")


Pass = tuple[int, int]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[Pass]:
    """Networks and examples of every pass of predictions, in order."""
    seen: list[Pass] = []
    add = StreamingMoments.add

    def spy(self: StreamingMoments, outputs: Tensor) -> None:
        seen.append((outputs.shape[0], outputs.shape[1]))
        add(self, outputs)

    monkeypatch.setattr(StreamingMoments, "add", spy)
    return seen


def test_a_pass_never_handles_more_rows_than_the_limit(passes: list[Pass]) -> None:
    """8192 rows at once: any number of samples and examples runs in passes of that size."""
    bl.predict(classifier(), torch.zeros(1000, 3), samples=50, likelihood=CLASSES, seed=0)
    assert passes == [(50, 163)] * 6 + [(50, 22)]  # 8192 // 50 examples with all 50 networks
    passes.clear()
    bl.predict(classifier(), torch.zeros(2, 3), samples=20_000, likelihood=CLASSES, seed=0)
    assert passes == [(4096, 2)] * 4 + [(3616, 2)]  # two examples draw outputs together
    passes.clear()
    bl.predict(classifier(), torch.zeros(3, 3), samples=20_000, likelihood=CLASSES, seed=0)
    assert passes == [(8192, 1)] * 6 + [(3616, 1)] * 3


def test_a_pass_never_draws_more_weights_than_the_limit(passes: list[Pass], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{NETWORKS}WEIGHTS_AT_ONCE", 56 * 5 + 1)  # the network has 56 weights
    bl.predict(classifier(), torch.zeros(2, 3), samples=12, likelihood=CLASSES, seed=0)
    assert passes == [(5, 2), (5, 2), (2, 2)]
    passes.clear()
    monkeypatch.setattr(f"{NETWORKS}WEIGHTS_AT_ONCE", 10)
    bl.predict(classifier(), torch.zeros(3000, 3), samples=2, likelihood=CLASSES, seed=0)
    assert passes == [(1, 3000)] * 2


def test_samples_are_kept_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Means and variances of 10 samples of 6 examples with 4 classes are 480 numbers."""
    model, x = classifier(), torch.zeros(6, 3)
    for limit, kept in ((480, True), (479, False), (100, False), (0, False)):
        monkeypatch.setattr(f"{LIMITS}KEEP_LIMIT", limit)
        for batch_size in (1, 4, 6):
            found = bl.predict(model, x, samples=10, likelihood=CLASSES, batch_size=batch_size, seed=0)
            assert (found.samples is not None) == kept, (limit, batch_size)
            assert (found.sample_variances is not None) == kept
            assert found.mean.shape == (6, 4)


def test_asking_for_samples_overrides_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{LIMITS}KEEP_LIMIT", 1)
    model, x = classifier(), torch.zeros(6, 3)
    kept = bl.predict(model, x, samples=10, likelihood=CLASSES, batch_size=4, keep_samples=True, seed=0)
    assert kept.samples is not None and kept.samples.shape == (10, 6, 4)
    monkeypatch.undo()
    dropped = bl.predict(model, x, samples=10, likelihood=CLASSES, keep_samples=False, seed=0)
    assert dropped.samples is None and dropped.sample_variances is None
    again = bl.predict(model, x, samples=10, likelihood=CLASSES, batch_size=4, keep_samples=False, seed=0)
    assert torch.equal(again.mean, kept.mean)  # keeping them changes nothing else


def test_a_stream_drops_its_samples_as_soon_as_they_are_too_many() -> None:
    """Within one batch too: a million samples of it must not pile up until its end."""
    stream = StreamingMoments(CLASSES, room=100)
    for _ in range(5):
        stream.add(torch.randn(2, 3, 4))
        assert sum(part.mean.numel() + part.variance.numel() for part in stream.kept) <= 100
    assert stream.prediction().samples is None and stream.count == 10


def test_streams_do_not_lose_digits_far_from_zero() -> None:
    """A spread of 1e-3 around 1000: squares minus squared means would be all noise in float32."""
    torch.manual_seed(0)
    values = 1000 + 1e-3 * torch.randn(400, 1, 1, dtype=torch.float64)
    stream = StreamingMoments(Gaussian(), room=0)
    for part in values.float().split(7):
        stream.add(part)
    expected = values.float().double().var(0, correction=0)
    assert stream.prediction().epistemic.double() == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        (torch.zeros(2, 3), {"samples": 0}, "`samples` must be a positive integer, got 0"),
        (torch.zeros(2, 3), {"method": "median"}, "`method` must be one of 'sample', 'moments', .*got 'median'"),
        (torch.zeros(2, 3), {"batch_size": 0}, "`batch_size` must be a positive integer, got 0"),
        (torch.zeros(2, 3), {"seed": -1}, "`seed` must be an integer"),
        (torch.zeros(2, 3), {"estimator": bl.moments}, "ask for moments by method='moments'"),
        (torch.zeros(2, 3), {"estimator": bl.flipout, "method": "mean"}, "`estimator` says how to draw samples"),
        (torch.zeros(0, 3), {}, r"`x` must have at least one row, got shape \(0, 3\)"),
        (torch.zeros(2, 4), {}, r"does not accept inputs of shape \(N, 4\) and dtype torch.float32"),
        (torch.zeros(2, 3, dtype=torch.int64), {}, r"does not accept inputs of shape \(N, 3\) and dtype torch.int64"),
        (torch.full((2, 3), torch.nan), {}, "`x` holds NaN or infinite values in 2 of 2 rows, first in row 0"),
        (np.array([[0.0, 1.0, np.inf]]), {}, "`x` holds NaN or infinite values"),
    ],
)
def test_what_makes_no_sense_is_refused(x: Any, options: dict[str, Any], message: str) -> None:
    options = {"likelihood": CLASSES} | options
    with pytest.raises(ValueError, match=message):
        bl.predict(classifier(), x, **options)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.array([["a", "b", "c"]]), "`x` must hold numbers, got ndarray of dtype <U1"),
        (torch.zeros(2, 3, dtype=torch.complex64), "`x` must be real, got torch.complex64"),
        (None, "`x` must hold numbers, got NoneType"),
    ],
)
def test_types_that_are_no_input_are_refused(x: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        bl.predict(classifier(), x, likelihood=CLASSES)


def test_an_empty_loader_is_refused() -> None:
    loader = DataLoader(TensorDataset(torch.zeros(2, 3)), 4, drop_last=True)
    with pytest.raises(ValueError, match="`x` gave no batches: the loader is empty"):
        bl.predict(classifier(), loader, likelihood=CLASSES)


def test_an_unknown_likelihood_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`likelihood` is not known: .*likelihood=bl.Categorical\(\)"):
        bl.predict(classifier(), torch.zeros(2, 3))


def test_moments_of_a_plain_network_are_refused() -> None:
    with pytest.raises(ValueError, match="needs something uncertain: a Bayesian layer, or `input_variance`"):
        bl.predict(nn.Linear(3, 4), torch.zeros(2, 3), likelihood=CLASSES, method="moments")


@pytest.mark.parametrize("variance", [-1.0, float("nan"), float("inf"), torch.ones(2), "much"])
def test_input_noise_must_be_a_variance_in_the_shape_of_an_example(variance: Any) -> None:
    with pytest.raises(ValueError, match=r"`input_variance` must be a finite number .* example \(3,\)"):
        bl.predict(nn.Linear(3, 4), torch.zeros(2, 3), likelihood=CLASSES, method="moments", input_variance=variance)


def test_input_noise_without_a_place_is_refused() -> None:
    with pytest.raises(ValueError, match="has no effect on method='mean'"):
        bl.predict(nn.Linear(3, 4), torch.zeros(2, 3), likelihood=CLASSES, method="mean", input_variance=1.0)


def test_flipout_of_correlated_weights_is_refused_and_changes_nothing() -> None:
    model = nn.Sequential(bl.layers.Linear(3, 4), bl.layers.Linear(4, 4, posterior=MatrixNormal))
    with pytest.raises(TypeError, match="flipout needs a factorised posterior"):
        bl.predict(model, torch.zeros(2, 3), likelihood=CLASSES, estimator=bl.flipout)
    assert [layer.estimator for layer in model] == [bl.local_reparam] * 2 and model.training


def test_running_out_of_memory_stays_what_it_is() -> None:
    class Exhausted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise torch.OutOfMemoryError("out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        bl.predict(Exhausted(), torch.zeros(2, 3), likelihood=CLASSES)
