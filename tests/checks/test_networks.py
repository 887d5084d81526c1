"""What is no network is refused by everything that takes one, with what to pass instead."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim import analysis, baselines, export, pruning, training
from bayeslim.checks.networks import check_network
from bayeslim.export.moments import MomentsNetwork
from bayeslim.feature_selection import FeatureSelection
from bayeslim.full_covariance import full_covariance
from bayeslim.kl import named_kl
from bayeslim.optim import SpikeAndSlab
from bayeslim.report import collect
from contracts.cases import each

X, Y = torch.ones(2, 3), torch.zeros(2, dtype=torch.int64)
FILE = "net.safetensors"
MODEL = bl.mlp([3, 4, 2])
OTHERS: dict[str, Any] = {
    "estimator": bl.mean_only,
    "likelihood": bl.Categorical(),
    "data": (X, Y),
    "validation": (X, Y),
    "x": X,
    "y": Y,
    "example": X,
    "path": FILE,
    "source": [],
    "num_data": 2,
    "epochs": 1,
    "samples": 2,
    "rank": 1,
    "k": 1,
    "fractions": [0.5],
    "density": 0.5,
    "before": MODEL,
    "after": MODEL,
    "train": (X, Y),
    "test": (X, Y),
}
"""Valid values of what a function needs besides the network."""
GIVEN: dict[str, tuple[Any, str]] = {
    "path": (FILE, r"got str 'net\.safetensors': read the network first, bl\.load\(path\), and "),
    "path object": (Path(FILE), r"got \w*Path 'net\.safetensors': read the network first, bl\.load\(path\), and "),
    "state": (MODEL.state_dict(), r"got OrderedDict of 6 entries: make the network, .* by network\.load_state_dict"),
    "optimiser": (torch.optim.SGD(MODEL.parameters(), lr=0.1), "got the optimiser SGD: .* whose parameters it changes"),
    "list": ([MODEL, MODEL], r"got list of 2: .* one network at a time; bl\.predict averages .* bl\.Snapshots\("),
    "class": (nn.Linear, r"got the class Linear: pass an instance of it, Linear\(\.\.\.\)"),
    "snapshots": (bl.Snapshots(MODEL, []), r"got Snapshots: .* the network that they are of, snapshots\.model;"),
    "tensor": (X, r"got Tensor: pass one, e\.g\. bl\.mlp\("),
    "nothing": (None, r"got NoneType: pass one, e\.g\. bl\.mlp\("),
}
ALSO_SNAPSHOTS = {"predict", "evaluate", "noise_sweep"}


def public() -> dict[tuple[str, str], Callable[..., Any]]:
    """Every public function and class that takes a network, with the name of that argument."""
    found: dict[tuple[str, str], Callable[..., Any]] = {}
    for space in (bl, export, pruning, analysis, training, baselines):
        for name in space.__all__ if hasattr(space, "__all__") else dir(space):
            function = getattr(space, name)
            if callable(function) and not name.startswith("_"):
                for argument in inspect.signature(function).parameters.values():
                    if argument.annotation in ("nn.Module", "nn.Module | None", "nn.Module | Snapshots"):
                        found[name, argument.name] = function
    for function in (named_kl, MomentsNetwork, full_covariance, SpikeAndSlab, collect):
        found[function.__name__, "model"] = function
    return found


PUBLIC = public()


def test_the_functions_are_found() -> None:
    names = {name for name, _ in PUBLIC}
    assert names > {
        "kl",
        "fit",
        "nelbo",
        "predict",
        "using",
        "export_onnx",
        "save_slim",
        "saliency",
        "sparsify_",
        "nuts",
    }
    assert {argument for _, argument in PUBLIC} == {"model", "before", "after", "pruned"}


@pytest.mark.parametrize("given", GIVEN)
@each(("name", "argument"), PUBLIC)
def test_what_is_no_network_is_refused(
    name: str, argument: str, given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value, message = GIVEN[given]
    function = PUBLIC[name, argument]
    parameters = inspect.signature(function).parameters.values()
    if value is None and any(p.name == argument and p.default is None for p in parameters):
        return  # means that there is none
    if given == "snapshots" and name in ALSO_SNAPSHOTS:
        return
    monkeypatch.chdir(tmp_path)
    needed = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    options = {p.name: OTHERS[p.name] for p in needed if p.name != argument} | {argument: value}
    with pytest.raises(TypeError, match=rf"`{argument}` must be a network \(nn\.Module\), {message}"):
        result = function(**options)
        if hasattr(result, "__enter__"):
            result.__enter__()
    assert not list(tmp_path.iterdir())


def test_a_network_is_accepted() -> None:
    for model in (MODEL, nn.Linear(2, 1), nn.ModuleList()):
        check_network(model, "prune")


def test_a_list_without_networks_is_like_anything_else() -> None:
    with pytest.raises(TypeError, match=r"got list: pass one"):
        check_network([X], "prune")


def test_long_texts_are_cut() -> None:
    with pytest.raises(TypeError) as caught:
        check_network("line\n" * 1000, "prune")
    assert len(str(caught.value)) < 250 and "\n" not in str(caught.value)


def test_what_holds_a_network_says_where() -> None:
    selection = FeatureSelection(X, nn.Sequential(), 0, [], [], 0.0, None, None)
    with pytest.raises(TypeError, match=r"got FeatureSelection: save the network that it holds, selection\.network"):
        bl.save(selection, FILE)  # pyright: ignore[reportArgumentType]
    classifier = pytest.importorskip("bayeslim.sklearn").BayesianMLPClassifier()
    with pytest.raises(TypeError, match=r"got BayesianMLPClassifier: export .* estimator\.model_"):
        bl.export_onnx(classifier, "net.onnx", X)


def test_several_networks_at_once() -> None:
    options: dict[str, Any] = {"likelihood": bl.Categorical(), "epochs": 1}
    for wrong in (MODEL, FILE, MODEL.state_dict(), nn.Linear, None):
        with pytest.raises(
            TypeError, match=r"`models` must be a list of networks, got \w+: pass e\.g\. \[model, other\]"
        ):
            training.fit_many(wrong, (X, Y), **options)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"`models\[1\]` must be a network .* got the class Linear: pass an instance"):
        training.fit_many([MODEL, nn.Linear], (X, Y), **options)  # pyright: ignore[reportArgumentType]


def test_what_the_messages_say_can_be_done(tmp_path: Path) -> None:
    file = tmp_path / FILE
    bl.save(MODEL, file)
    assert bl.sparsity(bl.load(file)) == bl.sparsity(MODEL)
    networks = [bl.mlp([3, 4, 2]) for _ in range(2)]
    averaged = bl.Snapshots(networks[0], [network.state_dict() for network in networks])
    assert bl.predict(averaged, X, likelihood=bl.Categorical()).mean.shape == (2, 2)
