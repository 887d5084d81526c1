"""One process among several, as far as one process can tell; the rest is in system/test_distributed.py."""

import signal
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import bayeslim as bl
from bayeslim.training import ranks as module
from bayeslim.training.batches import make_batches
from bayeslim.training.interrupts import StopRequest
from bayeslim.training.ranks import Ranks, join, weighted
from bayeslim.training.step import Stepper
from contracts.cases import each
from training.problems import blobs, small


@each("count", [1, 2, 3, 4])
@each("size", [1, 2, 3, 13, 16])
def test_parts_cover_a_batch_once_and_their_weights_give_its_mean(size: int, count: int) -> None:
    values = torch.randn(size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parts = [Ranks(index, count).part(size) for index in range(count)]
    covered = [row for rows, weight in parts if weight > 0 for row in range(size)[rows]]
    assert covered == list(range(size))
    assert all(len(values[rows]) > 0 for rows, _ in parts)
    mean = sum(weight * values[rows].mean() for rows, weight in parts) / count
    assert mean == pytest.approx(values.mean().item(), rel=1e-12)
    if size % count == 0:
        assert {weight for _, weight in parts} == {1.0}


def test_a_weight_is_of_the_nll_alone() -> None:
    (x, y), model = blobs(), small(method="ard")
    result = bl.nelbo(model, x, y, likelihood=bl.Categorical(), num_data=48, beta=0.5)
    half = weighted(result, 0.25)
    assert half.loss.item() == pytest.approx(0.25 * result.nll.item() + 0.5 * result.kl.item() / 48, rel=1e-6)
    assert half.nll.item() == pytest.approx(0.25 * result.nll.item()) and half.kl is result.kl


def test_outside_a_launcher_this_is_the_only_rank() -> None:
    ranks, model = join(), small()
    before = [parameter.clone() for parameter in model.parameters()]
    assert ranks == Ranks() and ranks.first
    assert ranks.means([1.5, -2.0]) == [1.5, -2.0]
    assert ranks.from_first(lambda: "answer") == "answer"
    assert ranks.parallel(bl.nelbo, model) is bl.nelbo
    ranks.align_(model)
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


def test_a_launcher_of_one_process_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    assert join() == Ranks() and not torch.distributed.is_initialized()


def test_a_signal_stops_the_only_rank_at_once() -> None:
    stop = StopRequest()
    check = Ranks().checker(stop)
    check()
    stop.signal = signal.SIGINT
    with pytest.raises(KeyboardInterrupt):
        check()


def test_a_lost_connection_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LAUNCHER_LOOKS", 0.0)
    broken = RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:9")
    lost = "rank 1 of 3 lost its connection: another rank has ended"
    with pytest.raises(ConnectionError, match=lost), Ranks(1, 3).explained():
        raise broken
    with pytest.raises(RuntimeError, match="Connection closed"), Ranks().explained():
        raise broken
    with pytest.raises(RuntimeError, match="mat1 and mat2"), Ranks(1, 3).explained():
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


def epoch(data: Any, index: int, count: int) -> list[Any]:
    torch.manual_seed(3)
    return list(make_batches(data, 16, None, small(), bl.Categorical(), Ranks(index, count)))


@pytest.mark.parametrize("wrapped", [False, True], ids=["tensors", "dataset"])
def test_ranks_share_the_batches_of_one_process(wrapped: bool) -> None:
    data = TensorDataset(*blobs(49)) if wrapped else blobs(49)
    whole = epoch(data, 0, 1)
    parts = [epoch(data, index, 3) for index in range(3)]
    assert [len(batch[0]) for batch in whole] == [16, 16, 16, 1]
    assert all(len(batch) == 2 for batch in whole)
    for number, (x, y) in enumerate(whole):
        own = [part[number] for part in parts]
        real = [batch for batch in own if len(batch) == 2 or batch[2] > 0]
        assert torch.equal(torch.cat([batch[0] for batch in real]), x)
        assert torch.equal(torch.cat([batch[1] for batch in real]), y)
        assert sum(batch[2] if len(batch) > 2 else 1.0 for batch in own) == pytest.approx(3)
        assert all(batch[3] == len(x) for batch in own if len(batch) > 2)
    assert [len(batch[0]) for batch in parts[0]] == [5, 5, 5, 1] and parts[0][-1][2] == 0.0


def test_a_distributed_sampler_tells_the_size_of_the_data_and_learns_the_epoch() -> None:
    data = TensorDataset(*blobs(48))
    sampler = DistributedSampler(data, num_replicas=2, rank=1)
    loader = DataLoader(data, 8, sampler=sampler)
    batches = make_batches(loader, 1, None, small(), bl.Categorical(), Ranks(1, 2))
    assert batches.num_data == 48 and len(batches) == 3
    first = torch.cat([batch[0] for batch in batches])
    batches.begin(5)
    assert sampler.epoch == 5 and not torch.equal(torch.cat([batch[0] for batch in batches]), first)


def test_a_loader_for_one_process_is_refused_with_several() -> None:
    data = TensorDataset(*blobs(48))
    with pytest.raises(ValueError, match="RandomSampler, which gives all 2 processes the same examples.*Distributed"):
        make_batches(DataLoader(data, 8, shuffle=True), 1, None, small(), bl.Categorical(), Ranks(0, 2))
    wrong = DataLoader(data, 8, sampler=DistributedSampler(data, num_replicas=2, rank=1))
    with pytest.raises(ValueError, match="process 1 of 2, this is 0 of 2: leave out its `rank`"):
        make_batches(wrong, 1, None, small(), bl.Categorical(), Ranks(0, 2))


def test_a_cuda_graph_is_refused_with_several() -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="`cuda_graph` cannot be used by 2 processes"):
        Stepper(model, bl.Categorical(), optimizer, 48, cuda_graph=True, ranks=Ranks(0, 2))
