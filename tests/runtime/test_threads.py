"""Turns: one thread at a time, again and again by the same one, and nobody is kept waiting."""

import multiprocessing
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from bayeslim.runtime.seeds import seeded
from bayeslim.runtime.threads import TURN, Turns


def test_a_thread_takes_it_again_and_others_wait_for_the_last_exit() -> None:
    turn, order = Turns(), []

    def other() -> None:
        with turn:
            order.append("other")

    thread = threading.Thread(target=other)
    with turn:
        with turn:
            thread.start()
        thread.join(0.05)
        order.append("first")
    thread.join(10)
    assert order == ["first", "other"]


def test_it_is_free_after_an_exception() -> None:
    turn = Turns()
    with pytest.raises(ZeroDivisionError), turn:
        raise ZeroDivisionError
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(turn.__enter__).result(10) is None


def test_a_thread_that_takes_it_again_at_once_lets_one_that_waits_go_first() -> None:
    turn, stop, steps, waited = Turns(), threading.Event(), [0], []

    def work() -> None:
        while not stop.is_set():
            with turn:
                time.sleep(0.002)
            steps[0] += 1

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(20):
        before = steps[0]
        with turn:
            waited.append(steps[0] - before)
        time.sleep(0.003)
    stop.set()
    thread.join()
    # The turn under way; more only where this thread was suspended before it came to the door.
    assert sorted(waited)[10] <= 1


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_a_forked_process_does_not_wait_for_a_thread_that_it_has_not() -> None:
    release, holds = threading.Event(), threading.Event()

    def hold() -> None:
        with TURN:
            holds.set()
            release.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert holds.wait(10)
    process = multiprocessing.get_context("fork").Process(target=TURN.__enter__)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads, which is the case here
            process.start()
        process.join(20)
        assert process.exitcode == 0
    finally:
        process.kill()
        release.set()
        thread.join()


def test_seeded_blocks_of_two_threads_draw_what_they_draw_alone_and_leave_no_trace() -> None:
    def draw(seed: int) -> torch.Tensor:
        with seeded(seed):
            first = torch.randn(2)
            time.sleep(0.001)
            return torch.cat([first, torch.randn(2)])

    alone, before = [draw(seed) for seed in range(4)], torch.get_rng_state()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(draw, [0, 1, 2, 3] * 5))
    assert all(torch.equal(one, alone[index % 4]) for index, one in enumerate(found))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_block_that_lasts_lets_others_have_turns_and_they_leave_it_as_it_is() -> None:
    def other() -> None:
        with seeded(9):
            torch.randn(5)

    with seeded(3):
        expected = torch.randn(4)
    before = torch.get_rng_state()
    with seeded(3, alone=False), ThreadPoolExecutor(1) as pool:
        head = torch.randn(2)
        pool.submit(other).result(10)
        assert torch.equal(torch.cat([head, torch.randn(2)]), expected)
    assert torch.equal(torch.get_rng_state(), before)
