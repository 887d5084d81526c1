"""Saved networks come back the same, in another process too."""

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.likelihoods import Gaussian, Likelihood
from bayeslim.likelihoods.base import remember_likelihood_
from bayeslim.priors import Normal
from bayeslim.storage import read_tensors, write_tensors
from contracts.members import KINGMA_VALID, LAYERS, POSTERIORS, PRIORS

COMBINATIONS = [
    (layer, posterior, prior)
    for layer, posterior, prior in itertools.product(LAYERS, POSTERIORS, PRIORS)
    if prior != "LogUniform-kingma" or posterior in KINGMA_VALID
]
PLACES = {name: place for axis in (LAYERS, POSTERIORS, PRIORS) for place, name in enumerate(axis)}
WITH_ALL = ("Normal", "LogUniform-kingma")
PAIRS = [one for one in COMBINATIONS if one[2] in WITH_ALL or sum(PLACES[name] for name in one) % len(LAYERS) == 0]
"""A part of them in which every layer, posterior and prior still meets every other; a test says so."""

READER = """
import sys
from pathlib import Path
import safetensors.torch
import bayeslim as bl
folder = Path(sys.argv[1])
inputs = safetensors.torch.load_file(folder / "inputs.safetensors")
found = {}
for file in sorted(folder.glob("*.net")):
    model = bl.load(file)
    x = inputs[str(model.weight.mean().ndim)]
    with bl.using(model, bl.mean_only):
        found[f"{file.stem} output"] = model(x).detach().contiguous()
    found[f"{file.stem} kl"] = bl.kl(model).detach()
safetensors.torch.save_file(found, folder / "found.safetensors")
"""


def network(kind: type[bl.layers.BayesLayer], posterior: str, prior: str, bias: bool) -> bl.layers.BayesLayer:
    """A layer whose every parameter is random; transposed ones have groups."""
    options: dict[str, Any] = {} if kind is bl.layers.Linear else {"kernel_size": 2, "groups": 2}
    if bias:
        options["bias_posterior"] = POSTERIORS[posterior if posterior in KINGMA_VALID else "MeanField"]
    build: Any = kind
    layer: bl.layers.BayesLayer = build(4, 6, posterior=POSTERIORS[posterior], prior=PRIORS[prior](), **options)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return layer


def test_every_pair_is_among_the_pairs() -> None:
    for first, second in itertools.combinations(range(3), 2):
        assert {(one[first], one[second]) for one in PAIRS} == {(one[first], one[second]) for one in COMBINATIONS}


@pytest.mark.parametrize(
    "combinations", [PAIRS, pytest.param(COMBINATIONS, marks=pytest.mark.slow)], ids=["every pair", "every triple"]
)
def test_combinations_come_back_in_a_new_process(tmp_path: Path, combinations: list[Any]) -> None:
    torch.manual_seed(0)
    inputs = {str(axes): torch.randn(2, 4, *(3,) * (axes - 2)) for axes in (2, 3, 4, 5)}
    safetensors.torch.save_file(inputs, tmp_path / "inputs.safetensors")
    expected: dict[str, Tensor] = {}
    for index, (kind, posterior, prior) in enumerate(combinations):
        layer = network(kind, posterior, prior, bias=index % 3 == 0)
        name = f"{index} {kind.__name__} {posterior} {prior}"
        bl.save(layer, tmp_path / f"{name}.net")
        with bl.using(layer, bl.mean_only):
            expected[f"{name} output"] = layer(inputs[str(layer.weight.mean().ndim)]).detach()
        expected[f"{name} kl"] = bl.kl(layer).detach()
    subprocess.run([sys.executable, "-c", READER, tmp_path], check=True, timeout=120)
    found = safetensors.torch.load_file(tmp_path / "found.safetensors")
    assert found.keys() == expected.keys()
    wrong = [name for name in expected if not torch.allclose(found[name], expected[name], rtol=1e-6)]
    assert not wrong


@pytest.mark.parametrize("method", bl.METHODS)
def test_every_method_comes_back_with_its_estimators_and_samples(tmp_path: Path, method: str) -> None:
    torch.manual_seed(0)
    bias_posterior = None if method == "kingma" else bl.posteriors.MeanField
    model = bl.mlp([3, 8, 2], method=method, activations="tanh", bias_posterior=bias_posterior)
    bl.save(model, tmp_path / "net", likelihood=bl.Categorical())
    again = bl.load(tmp_path / "net")
    assert isinstance(again, nn.Sequential) and repr(again) == repr(model)
    assert not any(tensor.is_meta for tensor in again.state_dict().values())
    assert all(parameter.requires_grad for parameter in again.parameters())
    x = torch.randn(5, 3)
    ours, theirs = (bl.predict(m, x, samples=20, likelihood=bl.Categorical(), seed=1) for m in (again, model))
    assert torch.equal(ours.mean, theirs.mean) and torch.equal(ours.epistemic, theirs.epistemic)


def test_a_loaded_network_trains_on_like_the_original(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(32, 3), torch.randint(2, (32,))
    model = bl.mlp([3, 8, 2])
    bl.save(model, tmp_path / "net")
    again = bl.load(tmp_path / "net")
    for each in (model, again):
        bl.fit(each, (x, y), likelihood=bl.Categorical(), epochs=2, seed=3)
    for name, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value)


def test_float64_and_batchnorm_statistics_survive(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1)).double()
    bl.bayesianize_(model, where=lambda name, _: name == "3")
    x = torch.randn(16, 3, dtype=torch.float64)
    model(x)
    bl.save(model, tmp_path / "net")
    again = bl.load(tmp_path / "net").eval()
    with bl.using(model.eval(), bl.mean_only), bl.using(again, bl.mean_only):
        assert again(x).dtype == torch.float64 and torch.equal(again(x), model(x))


@pytest.mark.parametrize(
    "likelihood", [Gaussian(0.2), Gaussian(0.2, learn_noise=True), Gaussian(0.2, learn_noise=True, outputs=2)]
)
def test_the_noise_is_stored_with_the_network(tmp_path: Path, likelihood: Gaussian) -> None:
    model = bl.mlp([3, 2])
    with torch.no_grad():
        likelihood.log_noise.add_(0.5)
    remember_likelihood_(model, likelihood)
    bl.save(model, tmp_path / "net")
    prediction = bl.predict(bl.load(tmp_path / "net"), torch.zeros(1, 3), samples=2)
    found = prediction.likelihood
    assert isinstance(found, Gaussian) and found.learn_noise == likelihood.learn_noise
    assert torch.equal(found.log_noise, likelihood.log_noise)
    assert len(list(found.parameters())) == len(list(likelihood.parameters()))
    assert torch.equal(prediction.aleatoric, torch.exp(2 * likelihood.log_noise).detach().expand(1, 2))


def test_an_argument_beats_the_remembered_likelihood(tmp_path: Path) -> None:
    model = bl.mlp([3, 2])
    remember_likelihood_(model, Gaussian())
    bl.save(model, tmp_path / "net", likelihood=bl.Categorical())
    assert isinstance(bl.predict(bl.load(tmp_path / "net"), torch.zeros(1, 3)).likelihood, bl.Categorical)


def test_tensor_priors_are_stored(tmp_path: Path) -> None:
    torch.manual_seed(0)
    prior = Normal(torch.randn(2, 3), torch.rand(2, 3) + 0.5)
    layer = bl.layers.Linear(3, 2, prior=prior)
    bl.save(layer, tmp_path / "net")
    again = bl.load(tmp_path / "net")
    assert torch.equal(bl.kl(again), bl.kl(layer))
    assert not torch.allclose(bl.kl(again), bl.kl(bl.layers.Linear(3, 2)))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = bl.mlp([3, 8, 3])

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class OwnLikelihood(bl.Categorical):
    pass


def test_any_module_is_saved_and_loaded_into_an_instance(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, other = Residual(), Residual()
    bl.save(model, tmp_path / "net", likelihood=Gaussian(0.5))
    with pytest.raises(ValueError, match=r"does not describe its architecture.*call load\(path, model\)"):
        bl.load(tmp_path / "net")
    assert bl.load(tmp_path / "net", other) is other
    x = torch.randn(4, 3)
    with bl.using(model, bl.mean_only), bl.using(other, bl.mean_only):
        assert torch.equal(other(x), model(x))
    assert isinstance(bl.predict(other, x).likelihood, Gaussian)


class Block(nn.Module):
    """A plain network of a class of its own, with a part inside a part."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.inner = nn.ModuleDict({"wide": nn.Linear(3, 16)})
        self.head = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.inner["wide"](self.norm(x))))


@pytest.mark.parametrize("form", ["converted", "pruned", "compacted", "collapsed"])
def test_the_layers_of_a_network_of_an_own_class_come_back(form: str, tmp_path: Path) -> None:
    """The class gives the forward pass; Bayesian, masked and smaller layers come from the file."""
    torch.manual_seed(0)
    model: nn.Module = Block().eval()
    bl.bayesianize_(model, prior=bl.priors.ARD())
    if form != "converted":
        bl.prune_(model, amount=0.5, structure="output", where=lambda name, _: name == "inner.wide")
    if form in ("compacted", "collapsed"):
        model = bl.compact(model, torch.randn(4, 3))
        assert bl.footprint(model).weights < 16 * 5
    if form == "collapsed":
        bl.collapse_(model)
    bl.save(model, tmp_path / "net", likelihood=bl.Categorical())
    found = bl.load(tmp_path / "net", Block().eval())
    assert isinstance(found, Block) and not any(module.training for module in found.modules())
    x, options = torch.randn(5, 3), {"samples": 10, "likelihood": bl.Categorical(), "seed": 0}
    assert torch.equal(bl.predict(found, x, **options).mean, bl.predict(model, x, **options).mean)


class Volume(nn.Module):
    """Three-dimensional images, with a norm between a Bayesian layer and the next."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Conv3d(1, 12, 3), nn.BatchNorm3d(12), nn.Conv3d(12, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.norm(self.first(x)))).flatten(2).mean(2)


class Decoder(nn.Module):
    """A plain transposed convolution behind a Bayesian layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.act, self.up = nn.Conv2d(1, 12, 3), nn.ReLU(), nn.ConvTranspose2d(12, 2, 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.act(self.first(x))).flatten(2).mean(2)


@pytest.mark.parametrize(("kind", "shape"), [(Volume, (4, 1, 5, 5, 5)), (Decoder, (4, 1, 6, 6))])
def test_plain_layers_that_compaction_made_smaller_come_back(
    kind: type[nn.Module], shape: tuple[int, ...], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model, x = kind().eval(), torch.randn(shape)
    bl.bayesianize_(model, where=lambda name, _: name == "first")
    bl.prune_(model, amount=0.5, structure="output")
    small = bl.compact(model, x)
    assert sum(p.numel() for p in small.parameters()) < 0.7 * sum(p.numel() for p in model.parameters())
    bl.save(small, tmp_path / "net")
    found = bl.load(tmp_path / "net", kind().eval())
    with bl.using(found, bl.mean_only), bl.using(small, bl.mean_only):
        assert torch.equal(found(x), small(x))


def test_an_empty_path_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = bl.mlp([3, 2])
    for call in (bl.save, bl.export.save_slim):
        with pytest.raises(ValueError, match="`path` is empty: pass the name of a file"):
            call(model, "")
    for read in (bl.load, bl.export.load_slim):
        with pytest.raises(ValueError, match="`path` is empty"):
            read("")
    with pytest.raises(IsADirectoryError, match="is a folder: choose the name of a file in it"):
        bl.save(model, tmp_path)
    assert not os.listdir(tmp_path)


def test_parts_that_do_not_fit_change_nothing(tmp_path: Path) -> None:
    model = Block()
    bl.bayesianize_(model)
    bl.save(model, tmp_path / "net")
    tensors, facts = read_tensors(tmp_path / "net")
    other = Block()
    other.more = nn.Linear(1, 1)
    before = {name: value.clone() for name, value in other.state_dict().items()}
    with pytest.raises(ValueError, match="does not fit the network: missing more.weight; missing more.bias"):
        bl.load(tmp_path / "net", other)
    parts = facts["parts"]
    for bad, message in (
        (list(parts), "holds a list of parts that is not valid"),
        (parts | {"inner": parts["head"]}, "holds a list of parts that is not valid"),
        (parts | {"head": {"torch": "system"}}, "the stored architecture is not valid"),
        ({"": parts["head"]}, "holds a list of parts that is not valid"),
    ):
        write_tensors(tmp_path / "net", tensors, facts | {"parts": bad})
        with pytest.raises(ValueError, match=message):
            bl.load(tmp_path / "net", other)
    assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())
    assert type(other.head) is nn.Linear


def test_a_file_that_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    bl.save(bl.mlp([3, 8, 2]), tmp_path / "net")
    for other, message in (
        (bl.mlp([3, 9, 2]), r"0.weight.loc is \(8, 3\), expected \(9, 3\).* and 2 more"),
        (bl.mlp([3, 2]), "unexpected 2.weight.loc"),
        (bl.mlp([3, 8, 4, 2]), "missing 4.weight.loc"),
    ):
        before = {name: value.clone() for name, value in other.state_dict().items()}
        with pytest.raises(ValueError, match=f"does not fit the network: .*{message}"):
            bl.load(tmp_path / "net", other)
        assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())


def test_numbers_of_another_kind_do_not_fit(tmp_path: Path) -> None:
    bl.save(nn.Linear(2, 1), tmp_path / "net")
    tensors, facts = read_tensors(tmp_path / "net")
    tensors["model.weight"] = torch.ones(1, 2, dtype=torch.int64)
    write_tensors(tmp_path / "net", tensors, facts)
    for target in (None, nn.Linear(2, 1)):
        with pytest.raises(ValueError, match="weight is torch.int64, expected torch.float32"):
            bl.load(tmp_path / "net", target)


def test_an_own_likelihood_is_left_out_with_a_warning(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="likelihood OwnLikelihood is of a class of your own.*bl.predict again"):
        bl.save(bl.mlp([3, 2]), tmp_path / "net", likelihood=OwnLikelihood())
    with pytest.raises(ValueError, match="`likelihood` is not known"):
        bl.predict(bl.load(tmp_path / "net"), torch.zeros(1, 3))


def test_the_file_says_its_version_and_what_it_is(tmp_path: Path) -> None:
    bl.save(bl.mlp([3, 2]), tmp_path / "net")
    with safetensors.safe_open(tmp_path / "net", "pt") as file:
        assert file.metadata()["bayeslim_version"] == "1"
    _, facts = read_tensors(tmp_path / "net")
    assert facts["kind"] == "model"


def test_other_files_are_refused(tmp_path: Path) -> None:
    model = bl.mlp([3, 2])
    data = torch.randn(8, 3), torch.randint(2, (8,))
    bl.fit(model, data, likelihood=bl.Categorical(), epochs=1, checkpoint=tmp_path, seed=0)
    with pytest.raises(ValueError, match="holds 'checkpoint', not a saved network"):
        bl.load(tmp_path / "checkpoint.safetensors")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        bl.load(tmp_path / "absent")
    safetensors.torch.save_file({"weight": torch.zeros(2)}, tmp_path / "foreign")
    with pytest.raises(ValueError, match="not written by bayeslim"):
        bl.load(tmp_path / "foreign")
    write_tensors(tmp_path / "hostile", {}, {"kind": "model", "architecture": {"torch": "system"}})
    with pytest.raises(ValueError, match="the stored architecture is not valid: KeyError"):
        bl.load(tmp_path / "hostile")


@pytest.mark.parametrize("likelihood", [{"type": "Gaussian", "config": {"outputs": 3}}, {"type": "Other"}, 3])
def test_a_stored_likelihood_that_makes_no_sense_is_refused(tmp_path: Path, likelihood: object) -> None:
    bl.save(bl.mlp([3, 2]), tmp_path / "net", likelihood=Gaussian())
    tensors, facts = read_tensors(tmp_path / "net")
    write_tensors(tmp_path / "net", tensors, facts | {"likelihood": likelihood})
    with pytest.raises(ValueError, match="likelihood is not valid|does not fit the network"):
        bl.load(tmp_path / "net")


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = bl.mlp([3, 2]), bl.mlp([3, 2])
    bl.save(old, tmp_path / "net")

    def fail(descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        bl.save(new, tmp_path / "net")
    monkeypatch.undo()
    loaded = bl.load(tmp_path / "net").state_dict()
    assert all(torch.equal(value, loaded[name]) for name, value in old.state_dict().items())
    assert os.listdir(tmp_path) == ["net"]


def test_snapshots_say_where_they_are_kept(tmp_path: Path) -> None:
    model = bl.mlp([2, 3, 1])
    snapshots: Any = bl.Snapshots(model, tmp_path / "snapshots")
    snapshots.take_(0)
    bl.save(snapshots.model, tmp_path / "net.safetensors")
    message = r"got Snapshots: {} the network .* snapshots\.model; .* saved already, and bl\.Snapshots\(model, folder\)"
    with pytest.raises(TypeError, match=message.format("save")):
        bl.save(snapshots, tmp_path / "other.safetensors")
    with pytest.raises(TypeError, match=message.format("load into")):
        bl.load(tmp_path / "net.safetensors", snapshots)
    assert not (tmp_path / "other.safetensors").exists()
    assert len(bl.Snapshots(bl.load(tmp_path / "net.safetensors"), tmp_path / "snapshots")) == 1


def test_likelihoods_stay_out_of_the_module_tree() -> None:
    model = bl.mlp([3, 2])
    names = list(model.state_dict())
    likelihood: Likelihood = Gaussian(learn_noise=True)
    remember_likelihood_(model, likelihood)
    assert list(model.state_dict()) == names and len(model) == 1


def test_a_sharded_network_says_how_to_save_it(tmp_path: Path) -> None:
    model = bl.mlp([2, 2])
    next(model.parameters()).device_mesh = None  # pyright: ignore[reportAttributeAccessIssue] (as a DTensor has)
    with pytest.raises(ValueError, match="full_state"):
        bl.save(model, tmp_path / "net.safetensors")
    with pytest.raises(ValueError, match="unsharded"):
        bl.predict(model, torch.zeros(1, 2), likelihood=bl.Categorical())
