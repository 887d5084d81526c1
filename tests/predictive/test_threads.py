"""Threads that predict the same network at the same time."""

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.runtime.modes import evaluation_mode

X = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
Y = torch.arange(7) % 2


@pytest.fixture(autouse=True)
def _often() -> Iterator[None]:
    """Switch threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Slow(nn.Module):
    """Lets another thread go on while the network runs."""

    def __init__(self) -> None:
        super().__init__()
        self.other = threading.Event()

    def forward(self, x: Tensor) -> Tensor:
        self.other.wait(0.002)
        return x


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        bl.layers.Linear(3, 4, estimator=bl.local_reparam),
        Slow(),
        nn.BatchNorm1d(4),
        bl.layers.Linear(4, 2, estimator=bl.weight_sample),
    )


def test_several_threads_find_what_one_finds_and_leave_the_network_as_it_was() -> None:
    model, snapshots = network(), []
    source = bl.Snapshots(model, snapshots)
    for number in range(2):
        source.take_(number)
    options: dict[str, Any] = {"likelihood": bl.Categorical(), "samples": 5}
    jobs = [
        lambda: bl.predict(model, X, seed=0, **options).mean,
        lambda: bl.predict(model, X, seed=1, method="mean", **options).mean,
        lambda: bl.predict(model, X, seed=2, method="moments", **options).mean,
        lambda: bl.predict(source, X, seed=3, **options).mean,
        lambda: torch.tensor(bl.evaluate(model, (X, Y), batch_size=3, seed=4, **options)["nll"]),
    ]
    model[1] = nn.Identity()  # has a moment rule, as Slow has not
    alone = [job() for job in jobs]
    state = torch.get_rng_state()
    with ThreadPoolExecutor(5) as pool:
        found = [pool.submit(job) for _ in range(8) for job in jobs]
        results = [future.result() for future in found]
    assert all(torch.equal(result, alone[index % 5]) for index, result in enumerate(results))
    assert torch.equal(torch.get_rng_state(), state)
    assert model[0].estimator is bl.local_reparam and model[3].estimator is bl.weight_sample
    assert all(module.training for module in model.modules())


def test_two_threads_that_overlap_leave_no_estimator_behind() -> None:
    """The second begins while the first runs, and ends after it."""
    model = network()
    options: dict[str, Any] = {"likelihood": bl.Categorical(), "samples": 5, "batch_size": 2, "seed": 0}
    jobs = [lambda: bl.predict(model, X, method="mean", **options), lambda: bl.predict(model, X, **options)]
    alone = [job().mean for job in jobs]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(5):
            found = [pool.submit(job) for job in jobs]
            assert all(torch.equal(future.result().mean, mean) for future, mean in zip(found, alone, strict=True))
    assert model[0].estimator is bl.local_reparam and model[3].estimator is bl.weight_sample
    assert all(module.training for module in model.modules())


def test_a_thread_may_predict_inside_a_prediction_and_after_one_that_failed() -> None:
    model, inner = network(), bl.mlp([3, 3])

    class Inside(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return bl.predict(inner, x, likelihood=bl.Bernoulli(), method="mean").mean

    with ThreadPoolExecutor(1) as pool:
        outer = nn.Sequential(Inside(), *model)
        pool.submit(bl.predict, outer, X, likelihood=bl.Categorical(), method="mean").result(30)
        with pytest.raises(ValueError, match="does not accept inputs"):
            bl.predict(model, X[:, :2], likelihood=bl.Categorical())
        with evaluation_mode(model):
            pass
        pool.submit(bl.predict, model, X, likelihood=bl.Categorical()).result(30)
