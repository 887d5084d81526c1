"""Randomness stays inside its block and depends on the seed alone."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from bayeslim.runtime.seeds import check_seed, derived_seed, seeded


def test_the_same_seed_draws_the_same_and_leaves_no_trace() -> None:
    torch.manual_seed(5)
    expected = torch.randn(4)
    torch.manual_seed(5)
    with seeded(0):
        first = torch.randn(3)
    with seeded(0):
        assert torch.equal(torch.randn(3), first)
    with seeded(1):
        assert not torch.equal(torch.randn(3), first)
    assert torch.equal(torch.randn(4), expected)


def test_blocks_nest() -> None:
    with seeded(0):
        whole = torch.randn(4)
    with seeded(0):
        head = torch.randn(2)
        with seeded(7):
            torch.randn(5)
        assert torch.equal(torch.cat([head, torch.randn(2)]), whole)


def test_the_state_comes_back_after_an_exception() -> None:
    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), seeded(3):
        torch.randn(2)
        raise ZeroDivisionError
    assert torch.equal(torch.get_rng_state(), before)


def test_none_uses_the_global_state() -> None:
    torch.manual_seed(11)
    expected = torch.randn(2)
    torch.manual_seed(11)
    with seeded(None):
        assert torch.equal(torch.randn(2), expected)


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_good_seeds(seed: int) -> None:
    check_seed(seed)
    with seeded(seed):
        torch.randn(1)


@pytest.mark.parametrize("kind", [np.int64, np.uint8, torch.tensor])
def test_seeds_of_other_libraries_are_plain_integers_here(kind: Any) -> None:
    seed = check_seed(kind(3))
    assert type(seed) is int and seed == 3
    with seeded(3):
        expected = torch.randn(4)
    with seeded(kind(3)):
        assert torch.equal(torch.randn(4), expected)


@pytest.mark.parametrize("seed", [-1, 2**63, 1.0, True, "0", np.int64(-1), np.float64(3), np.True_])
def test_bad_seeds(seed: Any) -> None:
    with pytest.raises(ValueError, match=r"`seed` must be an integer in \[0, 2\^63\), got .*: pass e.g. 0"):
        check_seed(seed)
    before = torch.get_rng_state()
    with pytest.raises(ValueError, match="`seed`"), seeded(seed):
        pass
    assert torch.equal(torch.get_rng_state(), before)


def test_derived_seeds_are_distinct_valid_and_well_mixed() -> None:
    seeds = [derived_seed(seed, epoch) for seed in range(64) for epoch in range(64)]
    assert len(set(seeds)) == len(seeds)
    for seed in seeds:
        check_seed(seed)
    bits = (np.array(seeds, dtype=np.uint64)[:, None] >> np.arange(63, dtype=np.uint64)) & np.uint64(1)
    assert np.abs(bits.mean(0) - 0.5).max() < 5 * 0.5 / math.sqrt(len(seeds))


def test_derived_seeds_do_not_change_between_versions() -> None:
    """A checkpoint continues with the seeds of the version that wrote it."""
    assert derived_seed(0, 0) == int(np.random.SeedSequence([0, 0]).generate_state(1, np.uint64)[0]) >> 1
    assert derived_seed(1, 2) != derived_seed(2, 1)
    assert derived_seed(3, 4) == 8142286996972879346
