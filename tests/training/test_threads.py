"""Training while other threads predict: both find what they find alone."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import bayeslim as bl
from bayeslim.schedules import Progress
from bayeslim.training import fit_many
from training.problems import blobs, small

X, Y = blobs()
OTHER = small(method="ard", seed=1)


class Spy(nn.Module):
    """Draws a number in every pass, and keeps it."""

    def __init__(self, seen: list[float]) -> None:
        super().__init__()
        self.seen = seen

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(torch.randn(()).item())
        return x


class Augmented(Dataset[Any]):
    """Examples with noise from torch's random state, as image transforms draw it."""

    def __init__(self, seen: list[float]) -> None:
        self.seen = seen

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        noise = torch.randn(())
        self.seen.append(noise.item())
        return X[index] + noise, Y[index]


@contextmanager
def predicting() -> Iterator[None]:
    """Another thread predicts another network meanwhile; ends with an error unless it found the same every time."""
    stop = threading.Event()
    options: dict[str, Any] = {"likelihood": bl.Categorical(), "samples": 20, "seed": 0}
    expected, equal = bl.predict(OTHER, X, **options).mean, []

    def work() -> None:
        while not stop.is_set() or len(equal) < 3:
            equal.append(torch.equal(bl.predict(OTHER, X, **options).mean, expected))

    with ThreadPoolExecutor(1) as pool:
        work_done = pool.submit(work)
        try:
            yield
        finally:
            stop.set()
            work_done.result(60)
    assert all(equal)


def drawn(prepared: Callable[[list[float]], Callable[[], object]]) -> tuple[list[float], list[float]]:
    """What a training draws alone, and while another thread predicts."""
    alone: list[float] = []
    together: list[float] = []
    prepared(alone)()
    train = prepared(together)  # initial weights are drawn without a turn
    before = torch.get_rng_state()
    with predicting():
        train()
    assert torch.equal(torch.get_rng_state(), before)
    return alone, together


def network(seen: list[float]) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(small(method="ard"), Spy(seen))


def test_a_thread_that_predicts_does_not_rewind_the_noise_of_training() -> None:
    def prepared(seen: list[float]) -> Callable[[], object]:
        options: dict[str, Any] = {"likelihood": bl.Categorical(), "validation": (X, Y), "progress": False}
        return partial(bl.fit, network(seen), (X, Y), epochs=5, batch_size=4, seed=0, **options)

    alone, together = drawn(prepared)
    assert len(set(alone)) > 60
    assert together == alone


def test_nor_that_of_networks_side_by_side() -> None:
    def prepared(seen: list[float]) -> Callable[[], object]:
        models = [small(method="ard", seed=seed) for seed in range(2)]

        def train() -> None:
            options: dict[str, Any] = {"likelihood": bl.Categorical(), "seeds": [0, 1], "progress": False}
            fit_many(models, (X, Y), epochs=5, batch_size=8, **options)
            seen.extend(value for model in models for p in model.parameters() for value in p.flatten().tolist())

        return train

    alone, together = drawn(prepared)
    assert together == alone


def test_nor_what_a_data_set_draws() -> None:
    def prepared(seen: list[float]) -> Callable[[], object]:
        loader = DataLoader(Augmented(seen), batch_size=8, shuffle=True)
        return partial(bl.fit, network([]), loader, likelihood=bl.Categorical(), epochs=3, seed=0, progress=False)

    alone, together = drawn(prepared)
    assert together == alone


def test_functions_called_between_epochs_may_predict_here_and_wait_for_threads_that_do() -> None:
    model, found = small(method="ard"), []
    options: dict[str, Any] = {"likelihood": bl.Categorical(), "samples": 2, "seed": 0}

    def after_epoch(trained: nn.Module, optimizer: Any, progress: Progress) -> None:
        with ThreadPoolExecutor(2) as pool:
            found.extend(pool.submit(bl.predict, one, X, **options).result(30) for one in (trained, OTHER))
        found.append(bl.predict(trained, X, **options))

    bl.fit(model, (X, Y), likelihood=bl.Categorical(), epochs=2, after_epoch=after_epoch, seed=0, progress=False)
    assert len(found) == 6 and torch.equal(found[3].mean, found[5].mean)


def test_a_function_called_between_epochs_may_train_and_leaves_the_noise_as_it_was() -> None:
    seen: list[list[float]] = [[], []]

    def after_epoch(trained: nn.Module, optimizer: Any, progress: Progress) -> None:
        bl.fit(small(), (X, Y), likelihood=bl.Categorical(), epochs=1, seed=5, progress=False)

    for own, hook in zip(seen, (None, after_epoch), strict=True):
        options: dict[str, Any] = {"likelihood": bl.Categorical(), "epochs": 2, "seed": 0, "progress": False}
        bl.fit(network(own), (X, Y), after_epoch=hook, **options)
    assert seen[0] == seen[1]
