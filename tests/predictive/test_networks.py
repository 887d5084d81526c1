"""Every way to run many networks computes what a plain loop over networks does."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.likelihoods import Gaussian
from bayeslim.posteriors import KTied, MatrixNormal, MeanField
from bayeslim.predictive.average import Networks, StreamingMoments, average
from bayeslim.predictive.networks import Sampled, rows_at_once, together
from bayeslim.predictive.plan import planned
from contracts.statistics import assert_gaussian_moments, assert_within
from contracts.two_samples import assert_same_moments

NETWORKS = "bayeslim.predictive.networks."
CLASSES = bl.Categorical()
MeanField03 = functools.partial(MeanField, scale=0.3)


def classifier(estimator: Callable[..., Any], posterior: Callable[..., Any] = MeanField03) -> nn.Sequential:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4))
    bl.bayesianize_(plain, posterior=posterior, estimator=estimator)
    return plain


def inputs(count: int) -> Tensor:
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(1))


def set_limits(monkeypatch: pytest.MonkeyPatch, **limits: int) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(f"{NETWORKS}{name}", value)


def samples_of(model: nn.Module, x: Tensor, samples: int, **options: Any) -> Tensor:
    found = bl.predict(model, x, samples=samples, **{"likelihood": CLASSES, "seed": 0} | options, keep_samples=True)
    assert found.samples is not None
    return found.samples


def test_one_network_at_a_time_is_the_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights that were drawn, each once, give the kept samples by plain linear algebra."""
    set_limits(monkeypatch, WEIGHTS_AT_ONCE=0, EXAMPLES_AT_ONCE=4)
    model, x = classifier(bl.weight_sample), inputs(10)
    drawn: list[list[Tensor]] = []
    groups = Sampled.groups
    monkeypatch.setattr(Sampled, "groups", lambda self: (drawn.append(group[1:]) or group for group in groups(self)))
    found = samples_of(model, x, 5)
    assert len(drawn) == 5
    for sample, ((first,), (second,)) in zip(found, drawn, strict=True):
        hidden = (x @ first.T + model.get_parameter("0.bias")).relu()
        torch.testing.assert_close(sample, (hidden @ second.T + model.get_parameter("2.bias")).softmax(-1).detach())


class Given(Networks):
    """Linear maps by given weights, three together."""

    def __init__(self, weights: Tensor, rows: int) -> None:
        super().__init__(3, rows)
        self.weights = weights

    def groups(self) -> Iterator[Tensor]:
        return iter(self.weights.split(3))

    def outputs(self, x: Tensor, network: tuple[Tensor, list[Tensor]]) -> Tensor:
        return F.linear(x, network[0])


@pytest.mark.parametrize("rows", [1, 7, 4096])
def test_groups_of_networks_are_the_plain_loop(rows: int) -> None:
    torch.manual_seed(0)
    weights, x = torch.randn(7, 4, 3), inputs(10)
    found = average(Given(weights, rows), x, CLASSES, 10_000)
    assert found.samples is not None
    expected = torch.stack([F.linear(x, weight).softmax(-1) for weight in weights])
    torch.testing.assert_close(found.samples, expected)
    torch.testing.assert_close(found.mean, expected.mean(0))
    torch.testing.assert_close(found.epistemic, expected.var(0, correction=0))


@pytest.mark.parametrize("limits", [{}, {"WEIGHTS_AT_ONCE": 0}, {"WEIGHTS_IN_CACHE": 0}, {"ROWS_AT_ONCE": 6}])
@pytest.mark.parametrize("posterior", [MeanField03, functools.partial(KTied, scale=0.3)])
def test_one_draw_of_the_weights_serves_all_blocks(
    limits: dict[str, int], posterior: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal examples get equal outputs from a network, wherever in the batch they stand."""
    set_limits(monkeypatch, EXAMPLES_AT_ONCE=5, **limits)
    found = samples_of(classifier(bl.weight_sample, posterior), inputs(1).expand(23, 3), 6)
    assert torch.allclose(found, found[:, :1].expand_as(found), atol=1e-6)
    assert len(found[:, 0].unique(dim=0)) == 6


@pytest.mark.parametrize("limits", [{}, {"WEIGHTS_AT_ONCE": 0}, {"ROWS_AT_ONCE": 300}], ids=str)
@pytest.mark.parametrize("estimator", [bl.weight_sample, bl.local_reparam, bl.flipout])
@pytest.mark.parametrize("count", [1, 3])
def test_every_way_has_the_distribution_of_a_loop(
    limits: dict[str, int], estimator: Callable[..., Any], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, EXAMPLES_AT_ONCE=2, **limits)
    model, x = classifier(bl.weight_sample), inputs(count)
    with torch.no_grad():
        torch.manual_seed(3)
        loop = torch.stack([model(x).softmax(-1) for _ in range(2000)])
    assert_same_moments(samples_of(model, x, 2000, estimator=estimator), loop)


class Difference(nn.Module):
    """`W x - W x`: zero for every network, random if `W` were drawn twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = bl.layers.Linear(3, 2, posterior=MeanField03, estimator=bl.weight_sample)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) - self.layer(x)


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("weights", [0, 2**21])
def test_a_network_has_one_weight_however_often_it_is_used(
    count: int, weights: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, WEIGHTS_AT_ONCE=weights)
    found = samples_of(Difference(), inputs(count), 20, likelihood=Gaussian())
    torch.testing.assert_close(found, torch.zeros(20, count, 2))


def test_correlated_outputs_of_a_single_example_stay_correlated() -> None:
    """`Var[a^T W x] = (a^T B a) (x^T A x)` for `a = (1, -1)`: drawing outputs one by one would miss the covariance."""
    torch.manual_seed(0)
    layer = bl.layers.Linear(
        3, 2, posterior=functools.partial(MatrixNormal, scale=0.3), bias=False, estimator=bl.weight_sample
    ).double()
    assert isinstance(layer.weight, MatrixNormal)
    with torch.no_grad():
        layer.weight.out_factor[1, 0] = 0.5
    x, a = inputs(1).double(), torch.tensor([1.0, -1.0], dtype=torch.float64)
    out_factor = torch.tensor([[0.3**0.5, 0.0], [0.5, 0.3**0.5]], dtype=torch.float64)
    variance = (a @ out_factor).square().sum() * 0.3 * x.square().sum()
    found = samples_of(layer, x, 20_000, likelihood=Gaussian().double()) @ a
    assert_gaussian_moments(found, (layer.weight.loc @ x[0] @ a).detach()[None], variance[None])


def convolutional() -> nn.Sequential:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))
    bl.bayesianize_(plain, posterior=MeanField03)
    return plain


def test_many_images_run_one_network_at_a_time_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []
    add = StreamingMoments.add
    monkeypatch.setattr(StreamingMoments, "add", lambda self, y: seen.append(tuple(y.shape)) or add(self, y))
    set_limits(monkeypatch, IMAGES_AT_ONCE=4, FEW_EXAMPLES=5)
    model, x = convolutional(), torch.randn(6, 1, 8, 8)
    with_kernels = samples_of(model, x, 400)
    assert seen == [(1, 6, 3)] * 400
    shapes = [layer.weight.mean().shape for layer in model if isinstance(layer, bl.layers.BayesLayer)]
    assert together(400, shapes, torch.empty(6, device="meta"), 8192) == 400
    assert together(400, shapes, x, 8192) == 1 and together(400, shapes, x[:5], 8192) == 400
    vectorised = torch.vmap(lambda _: model(x).softmax(-1), randomness="different")
    with torch.no_grad(), bl.using(model, bl.weight_sample):
        assert_same_moments(with_kernels, vectorised(torch.empty(400)))


@pytest.mark.parametrize(
    ("count", "samples", "weights", "expected"),
    [
        (10_000, 200, 266_200, 1),  # large, many examples: one by one
        (32, 200, 266_200, 15),  # few examples: several
        (10_000, 200, 1_000, 200),  # small: all of them
        (10_000, 200, 0, 200),  # nothing but outputs is drawn
        (1, 10_000, 0, 8192),
    ],
)
def test_how_many_networks_run_together(count: int, samples: int, weights: int, expected: int) -> None:
    x = torch.empty(count, 1)
    assert together(samples, [torch.Size([weights])] if weights else [], x, rows_at_once(x)) == expected


@pytest.mark.parametrize(
    ("count", "samples", "weights", "expected"),
    [(10_000, 200, 266_200, 63), (32, 200, 266_200, 200), (32, 200, 2**24, 4), (10**6, 200, 2**24, 1)],
)
def test_a_gpu_runs_more_of_them(count: int, samples: int, weights: int, expected: int) -> None:
    class OnCuda:
        device, ndim = torch.device("cuda"), 2

        def __len__(self) -> int:
            return count

    x: Any = OnCuda()
    assert together(samples, [torch.Size([weights])], x, rows_at_once(x)) == expected


class Counted(nn.Linear):
    """Counts the examples it sees."""

    rows = 0

    def forward(self, input: Tensor) -> Tensor:
        self.rows += len(input)
        return super().forward(input)


@pytest.mark.parametrize("estimator", [bl.weight_sample, bl.local_reparam])
def test_plain_layers_in_front_run_once_per_example(estimator: Callable[..., Any]) -> None:
    counted = Counted(3, 8)
    model = nn.Sequential(counted, nn.ReLU(), bl.layers.Linear(8, 4, estimator=estimator))
    bl.predict(model, inputs(1000), samples=50, likelihood=CLASSES)
    assert counted.rows == 1 + 1000  # a trial, then each example once for all 50 networks


class Louder(MeanField):
    """States four times the variance of its outputs, and notes for how many rows it was asked."""

    rows = 0

    def output_variance(self, op: Any, x: Tensor) -> Tensor:
        self.rows += len(x)
        return 4 * super().output_variance(op, x)


def test_a_variance_of_ones_own_is_used_and_in_a_first_layer_once_per_example() -> None:
    torch.manual_seed(0)
    model: Any = nn.Sequential(bl.layers.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    model[0].weight = Louder(model[0].weight.mean(), scale=0.01)
    louder = bl.predict(model, inputs(1000), samples=2000, likelihood=Gaussian(), seed=0).epistemic
    assert model[0].weight.rows == 1000
    model[0].weight = MeanField(model[0].weight.mean(), scale=0.02)
    expected = bl.predict(model, inputs(1000), samples=2000, likelihood=Gaussian(), seed=0).epistemic
    torch.testing.assert_close(louder, expected, rtol=1e-3, atol=0)


@pytest.mark.parametrize("count", [1, 5, 40])
@pytest.mark.parametrize("kind", ["weights", "outputs", "kernels"])
def test_bfloat16_autocast_gives_the_same_predictions(kind: str, count: int) -> None:
    model = (
        convolutional()
        if kind == "kernels"
        else classifier(bl.weight_sample if kind == "weights" else bl.local_reparam)
    )
    x = torch.randn(count, 1, 8, 8) if kind == "kernels" else inputs(count)
    run = functools.partial(bl.predict, model, x, samples=1000, likelihood=CLASSES)
    exact = run(seed=0)
    with torch.autocast("cpu", torch.bfloat16):
        half = run(seed=1)
    assert half.mean.dtype == torch.float32
    assert_within(half.mean - exact.mean, (2 * exact.epistemic / 1000).sqrt() + 2**-9)


class Branching(nn.Module):
    """Looks at a value, which torch.vmap cannot follow."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls = bl.layers.Linear(3, 4, posterior=MeanField03), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        y = self.layer(x)
        return y if y.sum().item() < 1e9 else -y


def test_networks_that_vmap_cannot_run_are_tried_once() -> None:
    model = Branching()
    found = samples_of(model, inputs(5), 10)
    assert model.calls == 3 + 10 and len(found[:, 0].unique(dim=0)) == 10


def test_networks_that_vmap_cannot_run_draw_outputs_too() -> None:
    torch.manual_seed(0)
    model = Branching()
    with torch.no_grad():
        layers: list[bl.layers.BayesLayer] = [model.layer]
        plan = planned(model, inputs(5), layers, forced=False)
    assert not plan.vectorises and plan.separate == (0,) and plan.weights == ()


def test_nothing_stays_on_the_posteriors_after_an_error() -> None:
    for estimator in (bl.weight_sample, bl.local_reparam):
        model = classifier(estimator)
        for count in (1, 5):
            with pytest.raises(ValueError, match="does not accept inputs"):
                bl.predict(model, torch.zeros(count, 4), samples=3, likelihood=CLASSES)
            bl.predict(model, inputs(count), samples=3, likelihood=CLASSES)
            for layer in (model[0], model[2]):
                assert layer.estimator is estimator and "rsample" not in vars(layer.weight)


class Unusual(nn.Module):
    """A network around `function`, which takes the output of a Bayesian layer."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.function = bl.layers.Linear(4, 3), function

    def forward(self, x: Tensor) -> Any:
        return self.function(self.layer(x))


@pytest.mark.parametrize("count", [2, 100])
def test_networks_that_leave_torch_are_sampled_in_a_loop(count: int) -> None:
    """Neither NumPy nor a list can hold a value inside vmap."""
    for function in (lambda y: torch.from_numpy(y.numpy()), lambda y: torch.tensor(y.tolist())):
        torch.manual_seed(0)
        model, x = Unusual(function), torch.randn(count, 4)
        found = bl.predict(model, x, samples=3000, likelihood=bl.likelihoods.Gaussian(noise=1.0), seed=0)
        with bl.using(model, bl.moments), torch.no_grad():
            exact: Any = model.layer(x)
        ratios = found.epistemic / exact.variance
        assert (ratios - 1).abs().max() < 6 * (2 / 3000) ** 0.5


@pytest.mark.parametrize("method", ["sample", "mean"])
@pytest.mark.parametrize("function", [lambda y: (y, y), lambda y: {"logits": y}])
def test_networks_that_return_several_things_are_refused(function: Callable[[Tensor], Any], method: Any) -> None:
    with pytest.raises(TypeError, match="the network must return one tensor, not (tuple|dict): wrap it"):
        bl.predict(Unusual(function), torch.randn(2, 4), method=method, likelihood=bl.Categorical())


def test_packed_sequences_give_no_warning() -> None:
    """Packing is a loop inside vmap, of which torch warns users who can do nothing about it."""
    layer = bl.layers.LSTM(3, 4, batch_first=True)
    pack = nn.utils.rnn.pack_padded_sequence

    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.layer = bl.layers.Linear(2, 3), layer

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(pack(self.first(x), torch.full((len(x),), 3), batch_first=True))[1][0][0]

    prediction = bl.predict(Packed(), torch.randn(2, 5, 2), samples=10, likelihood=bl.Categorical(), seed=0)
    assert prediction.mean.shape == (2, 4)
