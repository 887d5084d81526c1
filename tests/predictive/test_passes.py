"""Passes that a device refuses for their size are halved, and change nothing but their size."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.gaussian import Gaussian as Uncertain
from bayeslim.kernels.noise import normals
from bayeslim.posteriors import MeanField
from bayeslim.predictive.networks import rows_at_once, together
from bayeslim.predictive.passes import Attempt, is_too_large
from contracts.cases import each

CLASSES = bl.Categorical()
MeanField03 = functools.partial(MeanField, scale=0.3)
Y = torch.arange(6) % 4

CUDNN = "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a non-contiguous input."
INDEX = "Expected canUse32BitIndexMath(input) && canUse32BitIndexMath(output) to be true, but got false."


class OnDevice(torch.autograd.Function):
    """What a device does with a tensor; under `torch.vmap` with that of all networks at once, as torch's kernels do."""

    @staticmethod
    def forward(x: Tensor, limited: Limited) -> Tensor:
        limited.seen.append(x.numel())
        if x.numel() > limited.most:
            limited.failure()
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Any, int]:
        return OnDevice.apply(*args), in_dims[0]


class Limited(nn.Module):
    """The identity, for up to `most` numbers of all networks and examples."""

    def __init__(self, failure: Callable[[], Any] | None = None) -> None:
        super().__init__()
        self.most, self.failure, self.seen = 10**9, failure or refusing(RuntimeError, CUDNN), []

    def forward(self, x: Any) -> Any:
        return x.map(self) if isinstance(x, Uncertain) else OnDevice.apply(x, self)

    def passed(self) -> list[int]:
        """The sizes that went through since this was asked."""
        found = [size for size in self.seen if size <= self.most]
        self.seen.clear()
        return found


def refusing(kind: type[Exception], message: str) -> Callable[[], Any]:
    def failure() -> Any:
        raise kind(message)

    return failure


def allocation() -> Any:
    """The failure of a CPU itself."""
    return torch.empty(2**58, dtype=torch.uint8)


FAILURES = {
    "cuDNN": refusing(RuntimeError, CUDNN),
    "index": refusing(RuntimeError, INDEX),
    "CUDA": refusing(torch.OutOfMemoryError, "CUDA out of memory. Tried to allocate 9.77 GiB."),
    "CPU": allocation,
}


def convolutional(limited: Limited, estimator: Any = bl.weight_sample) -> nn.Sequential:
    """Images (1, 8, 8) to activations of 72 numbers, which meet the limit, to 4 classes."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), limited, nn.Conv2d(2, 4, 6), nn.Flatten())
    bl.bayesianize_(model, posterior=MeanField03, estimator=estimator)
    return model


def vectors(limited: Limited) -> nn.Sequential:
    """Vectors of 3 features to activations of 5, which meet the limit, to 4 classes."""
    torch.manual_seed(0)
    bayes: dict[str, Any] = {"posterior": MeanField03, "estimator": bl.local_reparam}
    return nn.Sequential(bl.layers.Linear(3, 5, **bayes), limited, bl.layers.Linear(5, 4, **bayes)).eval()


def images(count: int = 6) -> Tensor:
    return torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def samples_of(model: Any, x: Tensor, samples: int = 5, **options: Any) -> Tensor:
    found = bl.predict(model, x, samples=samples, **{"likelihood": CLASSES, "seed": 0} | options, keep_samples=True)
    assert found.samples is not None and len(found.samples) == samples
    return found.samples


@each("failure", FAILURES)
@each("most", [72, 100, 5 * 72, 11 * 72])
def test_halved_passes_of_a_convolutional_network_give_the_same_samples(failure: str, most: int) -> None:
    limited = Limited(FAILURES[failure])
    model = convolutional(limited)
    expected = samples_of(model, images())
    limited.passed()
    limited.most = most
    torch.testing.assert_close(samples_of(model, images()), expected)
    passed = limited.passed()
    assert sum(passed) == 5 * 6 * 72
    assert max(passed) > most // 3 or max(passed) == 72


def test_a_refusal_late_on_halves_what_follows_it_alone() -> None:
    limited = Limited()
    model = convolutional(limited)
    expected = samples_of(model, images(40), 3)  # network by network
    assert limited.passed()[-3:] == [40 * 72] * 3
    limited.most = 20 * 72
    torch.testing.assert_close(samples_of(model, images(40), 3), expected)
    assert limited.passed()[-6:] == [20 * 72] * 6
    assert limited.seen == []


@each("most", [5, 3 * 4 * 5, 30])
def test_drawn_outputs_stay_the_same_too(most: int) -> None:
    limited = Limited()
    model, x = vectors(limited), torch.randn(4, 3)
    expected = samples_of(model, x, 12)
    limited.most = most
    torch.testing.assert_close(samples_of(model, x, 12), expected)


def test_what_layers_draw_in_a_pass_is_drawn_as_if_it_had_been_so_small_from_the_start() -> None:
    """By estimators that are asked for."""
    limited = Limited()
    model, x = vectors(limited), torch.randn(4, 3)
    limited.most = 3 * 4 * 5  # of 12 networks three run together
    found = samples_of(model, x, 12, estimator=bl.local_reparam)
    assert limited.passed()[-4:] == [60] * 4
    torch.manual_seed(0)
    with torch.no_grad():
        slow = torch.vmap(lambda _: model(x), randomness="different", chunk_size=3)(torch.empty(12))
    torch.testing.assert_close(found, slow.softmax(-1))


@pytest.mark.parametrize("most", [7 * 5, 5])
def test_examples_whose_outputs_are_drawn_jointly_run_apart_where_they_do_not_fit(most: int, monkeypatch: Any) -> None:
    limited = Limited()
    torch.manual_seed(0)
    bayes = {"posterior": MeanField03, "estimator": bl.weight_sample}
    model = nn.Sequential(bl.layers.Linear(80, 5, **bayes), limited, bl.layers.Linear(5, 4, **bayes))
    x = torch.randn(8, 80)
    limited.most = most  # seven examples through one network, or one
    found = samples_of(model, x)
    monkeypatch.setattr("bayeslim.predictive.networks.EXAMPLES_JOINTLY", 0)
    limited.most = 10**9
    torch.testing.assert_close(found, samples_of(model, x))


def test_weights_that_do_not_fit_together_are_drawn_in_smaller_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    def few(shape: Any, like: Tensor) -> Tensor:
        counts.append(shape[0])
        return normals(shape, like) if shape[0] <= 2 else allocation()

    monkeypatch.setattr("bayeslim.kernels.normals", few)
    found = samples_of(convolutional(Limited()), images(), 8)
    assert counts == [8, 8, 4, *[2, 2] * 4] and len(found[:, 0].unique(dim=0)) == 8


@each("method", ["mean", "moments", "taylor"])
@each("most", [2 * 72, 72])
def test_passes_of_means_and_moments_are_halved(method: Any, most: int) -> None:
    limited = Limited()
    model = convolutional(limited)
    options: dict[str, Any] = {"likelihood": CLASSES, "method": method, "seed": 0, "samples": 50}
    expected = bl.predict(model, images(), **options)
    limited.most = most
    found = bl.predict(model, images(), **options)
    for name in ("mean", "epistemic", "aleatoric", "entropy"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name))


def test_evaluation_and_snapshots_are_halved() -> None:
    limited = Limited()
    model, path = convolutional(limited), convolutional(limited, bl.mean_only)
    snapshots = bl.Snapshots(path, [])
    for number in range(3):
        snapshots.take_(number)
        path.get_parameter("0.weight.loc").data += 0.1
    ways: list[tuple[Any, dict[str, Any]]] = [(model, {}), (model, {"samples": 0}), (snapshots, {})]
    for source, options in [*ways, (model, {"method": "moments"})]:
        limited.most = 10**9
        expected = bl.evaluate(source, (images(), Y), likelihood=CLASSES, **options)
        limited.most = 72
        assert bl.evaluate(source, (images(), Y), likelihood=CLASSES, **options) == pytest.approx(expected, rel=1e-5)


@each("failure", FAILURES)
@each("method", ["sample", "mean", "moments"])
def test_what_is_too_large_by_itself_is_refused_in_the_words_of_the_device(failure: str, method: Any) -> None:
    limited = Limited(FAILURES[failure])
    model = convolutional(limited)
    limited.most = 71
    with pytest.raises(RuntimeError) as before:
        FAILURES[failure]()
    with pytest.raises(RuntimeError) as found:
        bl.predict(model, images(), samples=5, likelihood=CLASSES, method=method)
    assert type(found.value) is type(before.value) and str(found.value) == str(before.value)
    assert found.value.__notes__[0].startswith("one example through one network is already more than the device takes")
    assert len(limited.seen) < 12 and 72 in limited.seen
    assert [layer.estimator for layer in (model[0], model[3])] == [bl.weight_sample] * 2 and model.training


@pytest.mark.parametrize(
    "message", ["my own check", "CUDA error: device-side assert triggered", "CUDNN_STATUS_MAPPING_ERROR of type 3"]
)
def test_other_errors_are_shown_as_they_are_at_once(message: str) -> None:
    limited = Limited(refusing(RuntimeError, message))
    model = convolutional(limited)
    limited.most = 2 * 72
    with pytest.raises(RuntimeError) as found:
        bl.predict(model, images(), samples=5, likelihood=CLASSES)
    assert str(found.value) == message and not hasattr(found.value, "__notes__")
    assert limited.seen[-1] > 2 * 72  # no smaller one was tried


def test_an_attempt_that_is_refused_leaves_the_random_numbers_as_they_were() -> None:
    assert not is_too_large(ValueError("out of memory")) and is_too_large(MemoryError())
    drawn: list[Tensor] = []
    for failure in (FAILURES["CPU"], FAILURES["cuDNN"]):
        with Attempt(torch.device("cpu"), final=False) as attempt:
            drawn.append(torch.rand(3))
            failure()
        assert attempt.refused
    assert torch.equal(drawn[0], drawn[1]) and torch.equal(drawn[0], torch.rand(3))
    with pytest.raises(RuntimeError, match="CUDNN"), Attempt(torch.device("cpu"), final=True):
        FAILURES["cuDNN"]()


class Wide(nn.Module):
    """Activations of 10 000 numbers per example."""

    def forward(self, x: Tensor) -> Tensor:
        return x.repeat(1, 2500)


def test_a_pass_holds_no_more_numbers_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    limited = Limited()
    monkeypatch.setattr("bayeslim.predictive.networks.NUMBERS_AT_ONCE", 10**6)
    model = nn.Sequential(bl.layers.Linear(3, 4, posterior=MeanField03), Wide(), limited, bl.layers.Linear(10_000, 2))
    samples_of(model, torch.randn(30, 3), 50)
    assert 5 * 10**5 <= max(limited.passed()) <= 10**6


@pytest.mark.parametrize(("count", "expected"), [(10_000, 1), (1000, 4), (100, 6)])
def test_a_gpu_takes_no_grouped_convolution_beyond_its_kernels(count: int, expected: int) -> None:
    """ResNet-18 has 11 million weights and activations of 65 536 numbers."""

    class OnCuda:
        device, ndim = torch.device("cuda"), 4

        def __len__(self) -> int:
            return count

    x: Any = OnCuda()
    networks = together(20, [torch.Size([11_000_000, 1, 1, 1])], x, rows_at_once(x, 65_536))
    assert networks == expected and networks * min(count, 4096 // networks) * 65_536 < 2**31
