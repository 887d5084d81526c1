"""Several batches that make one step count by their rows: the step is that of all rows as one batch."""

import functools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayeslim as bl
from bayeslim.training import History, fit_many
from bayeslim.training.batches import Batch
from bayeslim.training.step import Stepper
from training.problems import blobs, distance, small, state

SGD = functools.partial(torch.optim.SGD, lr=0.5)


def noiseless(seed: int = 0) -> nn.Module:
    """With a KL, which must count once, and without noise."""
    torch.manual_seed(seed)
    return bl.bayesianize_(bl.models.mlp([3, 8, 3]), estimator=bl.mean_only)


def trained(data: Any, **options: Any) -> tuple[dict[str, Tensor], History]:
    model = noiseless()
    own: dict[str, Any] = {"likelihood": bl.Categorical(), "epochs": 2, "optimizer": SGD, "seed": 0} | options
    history = bl.fit(model, data, **own)
    return state(model), history


@pytest.mark.parametrize("rows", [101, 130, 150])
@pytest.mark.parametrize("kind", ["tensors", "loader"])
def test_a_short_last_batch_counts_by_its_rows(rows: int, kind: str) -> None:
    """Losses too: the epoch's averages are those over the examples."""
    data = blobs(rows)
    parts: Any = data if kind == "tensors" else DataLoader(TensorDataset(*data), 50)
    whole, once = trained(data, batch_size=rows)
    found, history = trained(parts, batch_size=50, accumulate=3)
    assert distance(found, whole) < 1e-6
    for name in ("energy", "nll", "kl"):
        assert history[name] == pytest.approx(once[name], rel=1e-5)


@pytest.mark.parametrize("options", [{"clip_norm": 0.1}, {"autocast": torch.float16}, {"pretrain_epochs": 1}])
def test_it_does_so_with_what_follows_the_gradients(options: dict[str, Any]) -> None:
    whole, _ = trained(blobs(101), batch_size=101, **options)
    found, _ = trained(blobs(101), batch_size=50, accumulate=3, **options)
    # float16 rounds logits of about 1 by 5e-4; a single row in place of fifty moves parameters by 0.1.
    assert distance(found, whole) < (2e-3 if "autocast" in options else 1e-6)


def test_parts_of_several_processes_count_by_the_rows_of_all() -> None:
    """The rank that gets no row of the last batch knows nevertheless how many it has."""
    x, y = blobs(33)
    model = noiseless()
    stepper = Stepper(model, bl.Categorical(), SGD(model.parameters()), 33)
    expected = bl.nelbo(model, x[:16], y[:16], likelihood=bl.Categorical(), num_data=33)
    last: Batch = (x[32:], y[32:], 0.0, 1)  # weight 0: of the nll of another rank's row
    (32 / 33 * expected.nll + expected.kl / 33).backward()
    gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    first: Batch = (x[:16], y[:16], 1.0, 32)
    stepper.beta.fill_(1.0)
    stepper._gradients([first, last], [stepper._rows(batch) for batch in (first, last)], kl=True)
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_a_stack_averages_over_the_examples_too() -> None:
    models = [small(seed) for seed in range(2)]
    alone = small(1)
    own: dict[str, Any] = {"likelihood": bl.Categorical(), "epochs": 2, "batch_size": 16, "pretrain_epochs": 2}
    histories = fit_many(models, blobs(33), seeds=range(2), **own)
    history = bl.fit(alone, blobs(33), seed=1, **own)
    for name in ("energy", "nll", "kl"):
        assert histories[1][name] == pytest.approx(history[name], rel=1e-5)


@pytest.mark.cuda
def test_a_cuda_graph_weighs_batches_alike() -> None:
    adam = functools.partial(torch.optim.Adam, lr=1e-2, capturable=True)
    own: dict[str, Any] = {"epochs": 6, "batch_size": 50, "accumulate": 3, "optimizer": adam, "device": "cuda"}
    plain, _ = trained(blobs(101), **own)
    graph, _ = trained(blobs(101), cuda_graph=True, **own)
    assert distance(graph, plain) < 1e-5


def test_replayed_steps_weigh_batches_alike() -> None:
    """On a CPU the graph is the function itself."""
    x, y = blobs(101)
    batches: list[Batch] = [(x[:50], y[:50]), (x[50:100], y[50:100]), (x[100:], y[100:])]
    ends: list[dict[str, Tensor]] = []
    for replayed in (False, True):
        model = noiseless()
        stepper = Stepper(model, bl.Categorical(), SGD(model.parameters()), 101)
        stepper.cuda_graph = replayed
        stepper.step(batches, 1.0, 1.0)
        assert [rows for _, rows in stepper.seen] == [50, 50, 1]
        ends.append(state(model))
    assert distance(*ends) == 0
