"""Sharded networks train as whole ones do, whatever the number of processes, and any number resumes their runs."""

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.divergence import is_sharded
from bayeslim.runtime.seeds import derived_seed
from bayeslim.training.sharding import full_state, shard_, unsharded
from contracts.cases import each
from system import sharded_runs
from system.launching import ENVIRONMENT, TORCHRUN, launched
from training.problems import blobs, distance, equal, small

Seen = list[dict[str, Any]]


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(f"shards-{request.param}")
    torch.save(launched(sharded_runs.__file__, request.param, folder), folder / "seen.pt")
    return folder


@pytest.fixture
def seen(place: Path) -> Seen:
    return torch.load(place / "seen.pt", weights_only=False)


@each("name", [*sharded_runs.PAIRS, "pruned"])
def test_the_kl_and_its_gradient_are_those_of_the_whole_network(seen: Seen, name: str) -> None:
    whole, shards = seen[0]["divergences"][name]
    assert whole.keys() == shards.keys()
    for key in whole:
        torch.testing.assert_close(shards[key], whole[key], rtol=1e-5, atol=1e-5)
    assert all(torch.equal(rank["divergences"][name][1]["kl"], shards["kl"]) for rank in seen)
    assert max(value.abs().max().item() for key, value in whole.items() if key != "kl") > 0.1


@each("name", sharded_runs.PAIRS)
def test_the_gradient_is_that_of_one_process_with_shared_noise(seen: Seen, name: str) -> None:
    alone = sharded_runs.pair_gradient(name)
    assert distance(alone, seen[0]["pairs"][name]) < 1e-5
    assert max(value.abs().max().item() for value in alone.values()) > 0.1


@pytest.mark.parametrize("method", ["graves", "ard"])
def test_the_gradient_is_that_of_the_batch_under_every_ranks_noise(seen: Seen, method: str) -> None:
    """`sum_r (n_r / n) nll_r + KL / num_data`, by `weight_sample` and `local_reparam`."""
    (x, y), model, count = blobs(13), small(method=method), len(seen)
    torch.manual_seed(derived_seed(5, 0))
    order = torch.randperm(13)
    bounds = [13 * rank // count for rank in range(count + 1)]
    loss = bl.kl(model) / 13
    for rank in range(count):
        rows = order[bounds[rank] : bounds[rank + 1]]
        if rank > 0:
            torch.manual_seed(derived_seed(5, 0, rank))
        loss = loss + len(rows) / 13 * bl.Categorical().expected_nll(model(x[rows]), y[rows]).mean()
    loss.backward()
    gradient = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert distance(seen[0][method], gradient) < 1e-5
    assert max(value.abs().max().item() for value in gradient.values()) > 0.1


def test_a_run_is_that_of_one_process(seen: Seen, tmp_path: Path) -> None:
    """Phases, noise of the likelihood, accumulation, clipping, early stopping; begun with rank 0's weights."""
    alone = sharded_runs.everything(tmp_path)
    assert distance(alone["state"], seen[0]["everything"]["state"]) < 1e-5
    for rank in seen:
        history = rank["everything"]["history"]
        assert history == seen[0]["everything"]["history"] and len(history) == len(alone["history"])
        for one, many in zip(alone["history"], history, strict=True):
            assert many["sparsity"] == one["sparsity"]
            for column in ("energy", "nll", "kl", "validation_nll"):
                assert many[column] == pytest.approx(one[column], rel=1e-5)


def test_blocks_train_and_predict_as_in_one_process(seen: Seen, tmp_path: Path) -> None:
    alone = sharded_runs.blocks(tmp_path)
    assert distance(alone["state"], seen[0]["blocks"]["state"]) < 1e-5
    for rank in seen:
        assert rank["blocks"]["plain"]
        torch.testing.assert_close(rank["blocks"]["mean"], alone["mean"], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(rank["blocks"]["prediction"], alone["prediction"], rtol=1e-4, atol=1e-5)
        assert rank["blocks"]["units"] == ["", "patches", "layers.0", "layers.1", "head"]
        assert rank["blocks"]["bayes"] == 2 + 2 * 6


def test_a_network_of_bfloat16_computes_in_it_and_learns_its_scales(seen: Seen, tmp_path: Path) -> None:
    """All of a posterior is float32 then. Scales are rounded to bfloat16 for a pass, and not for the KL."""
    alone, whole = sharded_runs.sixteen_bits(tmp_path), sharded_runs.kl_and_gradient(sharded_runs.vision().bfloat16())
    for rank in seen:
        found = rank["sixteen bits"]
        assert found["types"] == {torch.float32} and found["output"] == torch.bfloat16
        torch.testing.assert_close(found["prediction"], alone["prediction"], rtol=0, atol=0.03)
    first = seen[0]["sixteen bits"]
    assert min(alone["moved"].values()) > 0.05
    assert first["moved"] == pytest.approx(alone["moved"], rel=0.05)
    for name, value in first["divergence"].items():
        exact = name == "kl" or name.endswith("log_scale")
        torch.testing.assert_close(value, whole[name].float(), rtol=1e-5 if exact else 2**-8, atol=1e-4)


def test_a_rank_holds_its_part_of_the_parameters(seen: Seen) -> None:
    whole = sum(parameter.numel() for parameter in sharded_runs.vision().parameters())
    parts = [rank["blocks"]["numbers"] for rank in seen]
    assert sum(parts) == whole
    assert max(parts) < 1.05 * whole / len(seen)


def test_a_resumed_run_ends_as_one_that_never_stopped(seen: Seen) -> None:
    assert equal(seen[0]["resumed"]["state"], seen[0]["resumed"]["whole"])
    assert all(rank["resumed"]["state"] == {} for rank in seen[1:])


def test_one_process_resumes_the_run_of_many(seen: Seen, place: Path) -> None:
    model = small(seed=1, method="graves")
    sharded_runs.train(model, place / "one")
    assert distance(model, seen[0]["resumed"]["whole"]) < 1e-5


@pytest.mark.slow
def test_four_processes_resume_the_run_of_others(seen: Seen, place: Path) -> None:
    state = launched(sharded_runs.__file__, 4, place / "four", "resume")[0]["state"]
    assert distance(state, seen[0]["resumed"]["whole"]) < 1e-5


def test_what_cannot_be_sharded_is_refused(seen: Seen) -> None:
    for rank in seen:
        messages = {name: answer["message"] for name, answer in rank["refusals"].items()}
        assert "`compile` cannot be used with a sharded network" in messages["compile"]
        assert "torch gathers no gradients: sample instead" in messages["moments"]
        assert "use torch.bfloat16" in messages["autocast"]
        assert "SGLD draws noise for whole parameters" in messages["sampler"]
        assert "sharded already: call shard_ once" in messages["again"]
        assert "0.0 and 1.1 share a parameter" in messages["shared"] and "`blocks`" in messages["shared"]


def test_a_shard_that_is_not_finite_stops_all_ranks(seen: Seen) -> None:
    assert all("0.weight.log_scale is no longer finite" in rank["spoilt"]["message"] for rank in seen)


@pytest.mark.slow
def test_the_example_runs_on_two_processes_and_goes_on_on_one(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "examples" / "vit_fsdp.py"
    options = [str(script), "--small", "--out", str(tmp_path), "--epochs"]
    for launcher, epochs in (([*TORCHRUN, "2"], "1"), ([sys.executable], "2")):
        command = [*launcher, *options, epochs]
        done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=120)
        assert done.returncode == 0, done.stderr
        assert "rank 1 of 2 holds" in done.stdout or epochs == "2"
        assert f"epoch {int(epochs) - 1}: nll" in done.stdout
    network = bl.load(tmp_path / "network.safetensors", runpy.run_path(str(script))["network"](small=True))
    assert bl.predict(network, torch.zeros(2, 3, 32, 32), samples=3).mean.shape == (2, 8)


def test_a_single_process_shards_nothing() -> None:
    model = small()
    before = full_state(model)
    assert shard_(model) is model and not is_sharded(model)
    with unsharded(model):
        assert equal(before, model)
    assert all(type(parameter) is nn.Parameter for parameter in model.parameters())
    assert all(type(value) is Tensor for value in before.values())
