"""Updates that are captured once and replayed: the same numbers as plain ones."""

import functools

import pytest
import torch
from torch import Tensor

import bayeslim as bl
from bayeslim.training.replay import Replayed, ReplayedUpdates
from bayeslim.training.step import Stepper

CPU = torch.device("cpu")


def test_a_function_runs_once_per_call_and_its_result_comes_back() -> None:
    total = torch.zeros(())
    replayed = Replayed(lambda: total.add_(1), CPU)
    assert [float(replayed()) for _ in range(5)] == [1, 2, 3, 4, 5]


def test_batches_are_copied_to_fixed_places() -> None:
    places: list[int] = []

    def update(x: Tensor, y: Tensor, kl: bool) -> Tensor:
        places.extend([x.data_ptr(), y.data_ptr()])
        return x.sum() + y.sum()

    updates = ReplayedUpdates(update, CPU)
    first = updates(torch.ones(2), torch.zeros(2), kl=True)
    second = updates(torch.full((2,), 3.0), torch.ones(2), kl=True)
    assert first == 2 and second == 8
    assert places[:2] == places[2:]


def test_shapes_types_and_keywords_have_places_of_their_own() -> None:
    updates = ReplayedUpdates(lambda x, y, kl: x.sum(), CPU)
    for x in (torch.ones(2), torch.ones(3), torch.ones(2, dtype=torch.float64)):
        for kl in (True, False):
            updates(x, x, kl=kl)
    assert len(updates.kinds) == 6
    updates.forget()
    assert not updates.kinds


def stepper(device: str = "cpu", **options: object) -> Stepper:
    torch.manual_seed(0)
    model = bl.mlp([4, 8, 3], method="graves").to(device)
    adam = torch.optim.Adam(model.parameters(), 1e-2, fused=True, capturable=bool(options.pop("capturable", False)))
    return Stepper(model, bl.Categorical().to(device), adam, num_data=20, **options)  # pyright: ignore[reportArgumentType]


def test_a_graph_needs_cuda() -> None:
    with pytest.raises(ValueError, match="`cuda_graph` needs a network on a CUDA device"):
        stepper(cuda_graph=True)


@pytest.mark.cuda
def test_a_graph_needs_a_capturable_optimiser_on_cuda() -> None:
    with pytest.raises(ValueError, match="capturable=True"):
        stepper("cuda", cuda_graph=True)
    with pytest.raises(ValueError, match="float16"):
        stepper("cuda", cuda_graph=True, capturable=True, autocast=torch.float16)


@pytest.mark.cuda
def test_replayed_steps_on_cuda_are_those_of_plain_ones() -> None:
    def trained(graph: bool) -> Stepper:
        chosen = stepper("cuda", cuda_graph=graph, capturable=True, clip_norm=1.0)
        torch.manual_seed(1)
        for step in range(12):
            x, y = torch.randn(5, 4, device="cuda"), torch.randint(0, 3, (5,), device="cuda")
            chosen.step([(x, y)], 0.0 if step < 2 else step / 12, 1.0 - step / 24)
        return chosen

    plain, graph = trained(False), trained(True)
    assert any(replayed.graph for _, replayed in graph.updates.kinds.values())
    for one, other in zip(plain.model.parameters(), graph.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    first, second = plain.epoch_summary(), graph.epoch_summary()
    assert first == pytest.approx(second, rel=1e-5)
    assert not graph.updates.kinds


@pytest.mark.cuda
def test_fit_by_graphs_on_cuda_learns_as_without() -> None:
    torch.manual_seed(0)
    x = torch.randn(130, 4)
    y = (x[:, 0] > 0).long()
    losses = {}
    for graph in (False, True):
        torch.manual_seed(0)
        model = bl.mlp([4, 8, 2], method="graves")
        fit = functools.partial(bl.fit, likelihood=bl.Categorical(), epochs=4, batch_size=16, lr=1e-2, seed=0)
        history = fit(model, (x, y), device="cuda", cuda_graph=graph, pretrain_epochs=1, progress=False)
        losses[graph] = [record["energy"] for record in history.records]
    assert losses[True] == pytest.approx(losses[False], rel=1e-4)
