"""Loading into a network gives it the layers of the file, whatever it had before."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.layers import BayesLayer, MultiheadAttention
from bayeslim.parts import describe_parts, undone_on_error
from bayeslim.storage import read_tensors, write_tensors
from contracts.cases import each

TOKENS = torch.randint(20, (6, 5), generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """An embedding, a body of one of several kinds, and a head that may share its weight with the embedding."""

    def __init__(self, kind: str = "linear") -> None:
        super().__init__()
        self.kind = kind
        self.embedding = nn.Embedding(20, 16)
        bodies: dict[str, Callable[[], nn.Module]] = {
            "lstm": lambda: nn.LSTM(16, 16, num_layers=2, batch_first=True),
            "gru": lambda: nn.GRU(16, 8, batch_first=True, bidirectional=True),
            "attention": lambda: nn.MultiheadAttention(16, 4, batch_first=True),
            "encoder": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2),
        }
        self.body = bodies.get(kind, lambda: nn.Linear(16, 16))()
        self.head = nn.Linear(16, 20)
        if kind == "tied":
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        if self.kind in ("lstm", "gru"):
            x = self.body(x)[0]
        elif self.kind == "attention":
            x = self.body(x, x, x, need_weights=False)[0]
        else:
            x = self.body(x)
        return self.head(x.mean(1))


KINDS = ["linear", "lstm", "gru", "attention", "encoder", "tied"]


def saved(kind: str, path: Path, pruned: bool = False) -> nn.Module:
    """A network with a prior, an estimator and a limit that are not the defaults, in a file."""
    torch.manual_seed(0)
    posterior = partial(bl.posteriors.MeanField, scale=0.01, max_scale=0.02)
    model = Net(kind).eval()
    bl.bayesianize_(model, prior=bl.priors.GammaARD(), posterior=posterior, estimator=bl.weight_sample)
    if pruned:
        bl.prune_(model, amount=0.3)
    bl.save(model, path)
    return model


def same(found: nn.Module, model: nn.Module) -> None:
    """Nothing is compared by its description: classes, KL, estimators and draws."""
    assert repr(found) == repr(model)
    assert torch.equal(bl.kl(found), bl.kl(model))
    ours, theirs = ([m for m in n.modules() if isinstance(m, BayesLayer)] for n in (found, model))
    assert [layer.estimator for layer in ours] == [layer.estimator for layer in theirs]
    assert len(list(found.parameters())) == len(list(model.parameters()))
    options: Any = {"samples": 3, "likelihood": bl.Categorical(), "seed": 1}
    ours, theirs = (bl.predict(each, TOKENS, **options) for each in (found, model))
    assert torch.equal(ours.mean, theirs.mean) and torch.equal(ours.epistemic, theirs.epistemic)


@each("target", ["plain", "converted", "bias"])
@each("pruned", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_file_gives_priors_estimators_limits_and_masks(
    kind: str, pruned: bool, target: str, tmp_path: Path
) -> None:
    model = saved(kind, tmp_path / "net", pruned)
    found = Net(kind).eval()
    if target != "plain":
        bl.bayesianize_(found, bias_posterior=bl.posteriors.MeanField if target == "bias" else None)
    assert bl.load(tmp_path / "net", found) is found
    assert not any(module.training for module in found.modules())
    same(found, model)


def test_parameters_stay_the_same_objects_where_they_fit(tmp_path: Path) -> None:
    """An optimiser made before loading goes on working; what was frozen stays so."""
    model = saved("lstm", tmp_path / "net")
    found = Net("lstm").eval()
    bl.bayesianize_(found)
    found.head.weight.requires_grad_(False)
    before = dict(found.named_parameters())
    bl.load(tmp_path / "net", found)
    assert all(parameter is before[name] for name, parameter in found.named_parameters())
    assert [name for name, p in found.named_parameters() if not p.requires_grad] == [
        "head.weight.loc",
        "head.weight.log_scale",
    ]
    same(found, model)


@pytest.mark.parametrize("plain", [False, True])
def test_settings_of_a_network_that_can_be_built_come_from_the_file_too(plain: bool, tmp_path: Path) -> None:
    model = bl.mlp([3, 8, 2], method="vdp", estimator=bl.taylor_moments)
    bl.prune_(model, amount=0.2)
    bl.save(model, tmp_path / "net")
    found = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    if not plain:
        bl.bayesianize_(found, prior=bl.priors.Normal(0, 0.1))
    bl.load(tmp_path / "net", found)
    assert repr(found) == repr(model) == repr(bl.load(tmp_path / "net"))
    assert torch.equal(bl.kl(found), bl.kl(model))


def test_a_single_layer_takes_the_prior_of_the_file(tmp_path: Path) -> None:
    model = bl.layers.Linear(3, 2, prior=bl.priors.ARD())
    bl.save(model, tmp_path / "net")
    found = bl.layers.Linear(3, 2, prior=bl.priors.Normal(0, 0.1))
    bl.load(tmp_path / "net", found)
    assert torch.equal(bl.kl(found), bl.kl(model))
    with pytest.raises(ValueError, match="does not fit.*convert it first by bl.bayesianize_ with the same"):
        bl.load(tmp_path / "net", nn.Linear(3, 2))


def test_a_layer_takes_its_bias_from_the_file(tmp_path: Path) -> None:
    """A posterior, a point estimate and none, each into each."""
    kinds: list[dict[str, Any]] = [{"bias": False}, {}, {"bias_posterior": bl.posteriors.MeanField}]
    x = torch.randn(4, 3)
    for stored in kinds:
        model = nn.ModuleDict({"a": bl.layers.Linear(3, 2, prior=bl.priors.ARD(), **stored)})
        bl.save(model, tmp_path / "net")
        for own in kinds:
            found = nn.ModuleDict({"a": bl.layers.Linear(3, 2, **own)})
            bl.load(tmp_path / "net", found)
            assert torch.equal(bl.kl(found), bl.kl(model)) and found.state_dict().keys() == model.state_dict().keys()
            with bl.using(found, bl.mean_only), bl.using(model, bl.mean_only):
                assert torch.equal(found["a"](x), model["a"](x))


def test_heads_that_were_removed_stay_removed(tmp_path: Path) -> None:
    model = saved("attention", tmp_path / "net")
    bl.prune_(model, amount=0.5, structure="head")
    attention = model.get_submodule("body")
    assert isinstance(attention, MultiheadAttention)
    from bayeslim.pruning.heads import cut_heads_

    cut_heads_(attention, exact=False)
    assert attention.num_heads < 4
    bl.save(model, tmp_path / "net")
    for found in (Net("attention").eval(), bl.bayesianize_(Net("attention").eval())):
        bl.load(tmp_path / "net", found)
        same(found, model)
    tensors, facts = read_tensors(tmp_path / "net")
    for bad in (0, -1, 3, True, "2", None, 10**30):
        write_tensors(tmp_path / "net", tensors, facts | {"heads": {"body": bad}})
        with pytest.raises(ValueError, match="number of heads of 'body' is not valid"):
            bl.load(tmp_path / "net", Net("attention"))


class OwnPrior(bl.priors.Normal):
    pass


def test_a_prior_of_an_own_class_must_be_there(tmp_path: Path) -> None:
    model = bl.bayesianize_(Net().eval(), prior=OwnPrior(0.0, 0.5), posterior=bl.posteriors.KTied)
    bl.save(model, tmp_path / "net")
    found = bl.bayesianize_(Net().eval(), prior=OwnPrior(0.0, 0.5), estimator=bl.weight_sample)
    bl.load(tmp_path / "net", found)
    same(found, model)
    for other in (
        Net(),
        bl.bayesianize_(Net()),
        bl.bayesianize_(Net(), prior=OwnPrior(0.0, 0.4), posterior=bl.posteriors.KTied),
    ):
        before = repr(other), dict(other.named_parameters())
        with pytest.raises(ValueError, match="saved with the prior .*OwnPrior.*bayesianize_ with the same prior"):
            bl.load(tmp_path / "net", other)
        assert repr(other) == before[0]
        assert all(parameter is before[1][name] for name, parameter in other.named_parameters())


def test_ties_of_file_and_network_must_agree(tmp_path: Path) -> None:
    saved("tied", tmp_path / "net")
    with pytest.raises(ValueError, match=r"embedding.weight.loc and head.weight.loc are one tensor only in the file"):
        bl.load(tmp_path / "net", Net())
    saved("linear", tmp_path / "net")
    with pytest.raises(ValueError, match=r"are one tensor in the network and differ in the file"):
        bl.load(tmp_path / "net", Net("tied"))


def test_files_from_before_load(tmp_path: Path) -> None:
    """Without heads and ties, and without parts where weights are tied: then the target says what they are."""
    for kind in KINDS:
        model = saved(kind, tmp_path / "net")
        tensors, facts = read_tensors(tmp_path / "net")
        old = {key: value for key, value in facts.items() if key not in ("heads", "tied")}
        write_tensors(tmp_path / "net", tensors, old if kind != "tied" else old | {"parts": {}})
        found = Net(kind).eval()
        if kind == "tied":
            posterior = partial(bl.posteriors.MeanField, scale=0.01, max_scale=0.02)
            options: Any = {"prior": bl.priors.GammaARD(), "estimator": bl.weight_sample}
            bl.bayesianize_(found, posterior=posterior, **options)
        same(bl.load(tmp_path / "net", found), model)


HOSTILE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "nothing": lambda part: {},
    "a number": lambda part: 3,
    "only a name": lambda part: {"bayes": "Linear"},
    "no weight": lambda part: part | {"weight": None},
    "no posterior": lambda part: part | {"weight": part["weight"] | {"posterior": []}},
    "a posterior of another kind": lambda part: part | {"weight": part["weight"] | {"posterior": 3}},
    "an unknown prior": lambda part: part | {"weight": part["weight"] | {"prior": ["system", {}, {}]}},
    "a prior out of range": lambda part: part | {"weight": part["weight"] | {"prior": ["Normal", {"std": -1}, {}]}},
    "a method for a buffer": lambda part: part | {"weight": part["weight"] | {"prior": ["Normal", {}, {"kl": [1]}]}},
    "endless nodes": lambda part: part | {"weight": part["weight"] | {"prior": ["StudentT", {"nodes": 10**12}, {}]}},
    "an unknown estimator": lambda part: part | {"estimator": "system"},
    "an estimator of another kind": lambda part: part | {"estimator": []},
    "an unknown op": lambda part: part | {"op": ["system", {}]},
    "a bias of another kind": lambda part: part | {"bias": "huge"},
    "an own estimator": lambda part: part | {"estimator": "own.system"},
    "another size": lambda part: part | {"weight": part["weight"] | {"shape": [2**31, 2**28]}},
    "children of another kind": lambda part: {"torch": "Sequential", "children": [3]},
    "children without number": lambda part: {"torch": "Sequential", "children": 3},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_parts_are_refused_and_change_nothing(name: str, tmp_path: Path) -> None:
    model = saved("linear", tmp_path / "net")
    tensors, facts = read_tensors(tmp_path / "net")
    facts["parts"]["body"] = HOSTILE[name](facts["parts"]["body"])
    write_tensors(tmp_path / "net", tensors, facts)
    for found in (Net(), bl.bayesianize_(Net()), model):
        before = repr(found), {key: value.clone() for key, value in found.state_dict().items()}
        with pytest.raises(ValueError, match="is not valid|does not fit|was saved with"):
            bl.load(tmp_path / "net", found)
        assert repr(found) == before[0]
        assert all(torch.equal(value, before[1][key]) for key, value in found.state_dict().items())


def test_descriptions_survive_json() -> None:
    """What is compared with a file must be as JSON gives it back."""
    model = nn.ModuleDict({"a": bl.layers.Conv2d(2, 2, 3, padding=1), "b": bl.layers.Embedding(3, 2)})
    parts = describe_parts(model)
    assert json.loads(json.dumps(parts)) == parts


def test_an_error_undoes_every_change() -> None:
    model = Net("encoder")
    names, text = list(model.state_dict()), repr(model)
    with pytest.raises(KeyboardInterrupt), undone_on_error(model):
        bl.bayesianize_(model)
        model.extra = nn.Linear(1, 1)
        raise KeyboardInterrupt
    assert list(model.state_dict()) == names and repr(model) == text
    assert model.get_submodule("body").use_nested_tensor
