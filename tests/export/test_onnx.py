"""ONNX graphs give torch's answers in onnxruntime, for any batch size, with and without samples."""

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.export import export_onnx, mean_network, sample_networks
from bayeslim.export.samples import BatchedSamples, LoopedSamples, batchable
from bayeslim.likelihoods import Gaussian, HeteroscedasticGaussian, Likelihood
from bayeslim.likelihoods.base import remember_likelihood_
from bayeslim.predictive.average import StreamingMoments
from export.networks import ByHand, bayesian, convolutional, outputs, pruned

BATCHES = (1, 2, 7)


def run(path: Path, x: Tensor) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"input": x.numpy()}), strict=True))


def perceptron(outputs: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return pruned(bayesian(nn.Sequential(nn.Flatten(), *bl.models.mlp([12, 20, 16, outputs], "tanh")), 0.3), 0.3)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "perceptron": (perceptron, (3, 4)),
    "convolutional": (lambda: bayesian(convolutional()), (2, 8, 8)),
    "by hand": (lambda: bayesian(ByHand()), (3, 8, 8)),
    "lenet5": (lambda: pruned(bayesian(bl.models.lenet5_caffe()), 0.9), (1, 28, 28)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_mean_network_gives_torchs_outputs(tmp_path: Path, name: str) -> None:
    torch.manual_seed(0)
    build, shape = NETWORKS[name]
    model = build()
    export_onnx(model, tmp_path / "net.onnx", torch.zeros(1, *shape))
    for batch in BATCHES:
        x = torch.randn(batch, *shape)
        found = run(tmp_path / "net.onnx", x)
        assert list(found) == ["output"]
        assert np.abs(found["output"] - outputs(mean_network(model), x).numpy()).max() < 1e-4
    assert [file.name for file in tmp_path.iterdir()] == ["net.onnx"]


LIKELIHOODS: dict[str, Callable[[], Likelihood]] = {
    "categorical": bl.Categorical,
    "bernoulli": bl.Bernoulli,
    "gaussian": lambda: Gaussian(noise=0.3),
    "gaussian per output": lambda: Gaussian(noise=0.3, learn_noise=True, outputs=4),
    "heteroscedastic": HeteroscedasticGaussian,
}


def assert_like_torch(path: Path, model: nn.Module, likelihood: Likelihood, shape: tuple[int, ...], seed: int) -> None:
    """The graph's outputs are those of `predict`'s accumulator over the same networks."""
    networks = sample_networks(model, 6, seed)
    for batch in BATCHES:
        x = torch.randn(batch, *shape)
        stream = StreamingMoments(likelihood, 0)
        with torch.no_grad():
            stream.add(torch.stack([network(x) for network in networks]))
        expected = stream.prediction()
        found = run(path, x)
        assert list(found) == ["mean", "epistemic", "aleatoric"]
        for name, values in found.items():
            reference = getattr(expected, name).detach().numpy()
            assert values.shape == reference.shape
            assert np.abs(values - reference).max() < 1e-4
        scale = expected.epistemic.max().item()
        assert np.abs(found["epistemic"] - expected.epistemic.detach().numpy()).max() < 1e-3 * scale
        assert scale > 1e-5


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_samples_of_a_perceptron(tmp_path: Path, name: str) -> None:
    model, likelihood = perceptron(4), LIKELIHOODS[name]()
    export_onnx(model, tmp_path / "net.onnx", torch.zeros(1, 3, 4), samples=6, likelihood=likelihood, seed=3)
    assert_like_torch(tmp_path / "net.onnx", model, likelihood, (3, 4), 3)
    products = [node for node in onnx.load(tmp_path / "net.onnx").graph.node if node.op_type in ("MatMul", "Gemm")]
    assert len(products) == 3  # one per layer, not one per layer and sample


@pytest.mark.parametrize("name", ["convolutional", "lenet5"])
def test_samples_of_convolutional_networks(tmp_path: Path, name: str) -> None:
    torch.manual_seed(0)
    build, shape = NETWORKS[name]
    model = build()
    export_onnx(model, tmp_path / "net.onnx", torch.zeros(2, *shape), 6, bl.Categorical(), 1)
    assert_like_torch(tmp_path / "net.onnx", model, bl.Categorical(), shape, 1)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_moments_of_a_network(tmp_path: Path, name: str) -> None:
    """Mean and variance of the logits are those of torch's moments pass, for any batch size."""
    torch.manual_seed(0)
    build, shape = NETWORKS[name]
    model = build().eval()
    export_onnx(model, tmp_path / "net.onnx", torch.zeros(1, *shape), moments=True)
    for batch in BATCHES:
        x = torch.randn(batch, *shape)
        found = run(tmp_path / "net.onnx", x)
        assert list(found) == ["mean", "variance"]
        with bl.using(model, bl.moments), torch.no_grad():
            expected: Any = model(x)
        assert expected.variance.max().item() > 1e-5
        assert np.abs(found["mean"] - expected.loc.numpy()).max() < 1e-4
        assert np.abs(found["variance"] / expected.variance.numpy() - 1).max() < 1e-3


def test_what_has_no_moments_is_refused(tmp_path: Path) -> None:
    path, x = tmp_path / "net.onnx", torch.zeros(1, 3, 4)
    with pytest.raises(ValueError, match=r"`moments` needs no samples, got samples=5: leave one of the two out"):
        export_onnx(perceptron(), path, x, samples=5, moments=True)
    with pytest.raises(ValueError, match=r"`model` has no Bayesian layer, so its output has no variance"):
        export_onnx(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)), path, x, moments=True)
    assert not path.exists()


def test_both_ways_to_run_samples_agree() -> None:
    networks, x = sample_networks(perceptron(), 5), torch.randn(4, 3, 4)
    with torch.no_grad():
        looped, batched = LoopedSamples(networks, bl.Categorical())(x), BatchedSamples(networks, bl.Categorical())(x)
    for first, second in zip(looped, batched, strict=True):
        assert torch.allclose(first, second, atol=1e-6)
    assert batchable(networks[0]) and not batchable(nn.Sequential(nn.Conv1d(1, 1, 1)))


def test_sampled_networks_have_the_posteriors_moments() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(bl.layers.Linear(3, 2, bias_posterior=bl.posteriors.MeanField))
    layer: Any = model[0]
    with torch.no_grad():
        layer.weight.log_scale.fill_(-1.0)
        layer.bias.log_scale.fill_(0.5)
    networks = sample_networks(model, 500)
    for name, posterior in (("0.weight", layer.weight), ("0.bias", layer.bias)):
        draws = torch.stack([network.state_dict()[name] for network in networks])
        error = (posterior.variance() / 500).sqrt()
        assert ((draws.mean(0) - posterior.mean()).abs() < 5 * error).all()
        assert torch.allclose(draws.var(0), posterior.variance(), rtol=5 * (2 / 500) ** 0.5)


def test_seeds_fix_the_samples_and_leave_torchs_state_alone() -> None:
    model = perceptron()
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first, again, other = (sample_networks(model, 2, seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    weights = [networks[1].state_dict()["1.weight"] for networks in (first, again, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    assert not torch.equal(first[0].state_dict()["1.weight"], weights[0])


def test_pruned_weights_stay_zero_and_fixed_parts_are_shared() -> None:
    model: Any = perceptron()
    model[3].estimator = bl.mean_only
    first, second = sample_networks(model, 2)
    mask = model[1].weight.mask
    assert not (first.state_dict()["1.weight"][mask == 0]).any()
    assert first.get_parameter("1.weight") is not second.get_parameter("1.weight")
    assert first.get_parameter("3.weight") is second.get_parameter("3.weight")
    assert torch.equal(first.get_parameter("3.weight"), model[3].weight.mean())
    assert first.get_parameter("1.bias") is second.get_parameter("1.bias")


def test_nothing_but_means_has_no_epistemic_variance(tmp_path: Path) -> None:
    model, x = perceptron(), torch.randn(5, 3, 4)
    with bl.using(model, bl.mean_only):
        export_onnx(model, tmp_path / "net.onnx", x, 3, bl.Categorical())
    found = run(tmp_path / "net.onnx", x)
    assert np.abs(found["mean"] - outputs(mean_network(model), x).softmax(-1).numpy()).max() < 1e-5
    assert np.abs(found["epistemic"]).max() < 1e-12


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).tanh())


def test_tied_weights_are_drawn_once(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = bayesian(Tied(), 0.5)
    for network in sample_networks(model, 3):
        assert torch.equal(network.get_parameter("first.weight"), network.get_parameter("second.weight"))
    export_onnx(model, tmp_path / "net.onnx", torch.zeros(1, 4), 6, bl.Categorical())
    assert_like_torch(tmp_path / "net.onnx", model, bl.Categorical(), (4,), 0)


class LastState(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.recurrent, self.head = nn.LSTM(3, 5, batch_first=True), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.recurrent(x)[0][:, -1])


def test_a_recurrent_network(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = bayesian(LastState(), 0.3)
    export_onnx(model, tmp_path / "net.onnx", torch.zeros(1, 4, 3), 6, bl.Categorical())
    assert_like_torch(tmp_path / "net.onnx", model, bl.Categorical(), (4, 3), 0)


def test_the_file_names_no_source_and_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        export_onnx(perceptron(), tmp_path / "net.onnx", torch.zeros(1, 3, 4), 2, bl.Categorical())
    content = (tmp_path / "net.onnx").read_bytes()
    assert b".py" not in content and b"bayeslim" not in content
    assert not caplog.records


def test_the_model_is_left_alone(tmp_path: Path) -> None:
    model = perceptron().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    export_onnx(model, tmp_path / "net.onnx", torch.zeros(1, 3, 4), 2, bl.Categorical())
    assert model.training and all(module.training for module in model.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_the_likelihood_of_fit_is_remembered(tmp_path: Path) -> None:
    model = perceptron()
    with pytest.raises(ValueError, match="`likelihood` is not known"):
        export_onnx(model, tmp_path / "net.onnx", torch.zeros(1, 3, 4), 2)
    remember_likelihood_(model, Gaussian(noise=0.5))
    export_onnx(model, tmp_path / "net.onnx", torch.zeros(1, 3, 4), 2)
    assert np.allclose(run(tmp_path / "net.onnx", torch.randn(2, 3, 4))["aleatoric"], 0.25)


@pytest.mark.parametrize("samples", [0, -1, 2.5, True])
def test_bad_samples_are_refused(tmp_path: Path, samples: Any) -> None:
    with pytest.raises(ValueError, match="`samples` must be a positive integer"):
        export_onnx(perceptron(), tmp_path / "net.onnx", torch.zeros(1, 3, 4), samples, bl.Categorical())


def test_what_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    with pytest.raises(ValueError, match="no Bayesian layer to sample"):
        export_onnx(nn.Linear(3, 2), path, torch.zeros(1, 3), 2, bl.Categorical())
    with pytest.raises(ValueError, match="does not accept inputs of shape \\(N, 5\\)"):
        export_onnx(nn.Linear(3, 2), path, torch.zeros(1, 5))
    with pytest.raises(ValueError, match="`example` must have at least one row"):
        export_onnx(nn.Linear(3, 2), path, torch.zeros(0, 3))
    with pytest.raises(ValueError, match="`seed`"):
        export_onnx(perceptron(), path, torch.zeros(1, 3, 4), 2, bl.Categorical(), seed=-1)
    with pytest.raises(TypeError, match="must return one tensor"):
        export_onnx(nn.LSTM(3, 2), path, torch.zeros(1, 4, 3))
    with pytest.raises(ValueError, match="put the batch first"):
        export_onnx(nn.Flatten(0), path, torch.zeros(1, 3))
    assert not path.exists()


class Stubborn(nn.Module):
    """Asks for the batch size it was traced with."""

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(2, 3)


def test_a_graph_for_one_batch_size_only_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="open batch size"):
        export_onnx(Stubborn(), tmp_path / "net.onnx", torch.zeros(2, 3))


def test_too_large_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bayeslim.export.onnx_graph.MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="2 GiB: compact the network or lower"):
        export_onnx(perceptron(), tmp_path / "net.onnx", torch.zeros(1, 3, 4))


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ModuleNotFoundError, match="onnxscript: pip install bayeslim\\[export\\]"):
        export_onnx(nn.Linear(3, 2), tmp_path / "net.onnx", torch.zeros(1, 3))
