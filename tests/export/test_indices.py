"""Index codings say where the non-zeros are, whatever the pattern, and refuse bytes that cannot be theirs."""

import itertools
from typing import Any

import numpy as np
import pytest

from bayeslim.export.indices import WIDTHS, Positions, cheapest, decode, encode, index_size
from contracts.cases import each

SPARSITIES = (0.0, 0.3, 0.8, 0.95, 0.985, 0.9995, 1.0)


def brute_force(content: Any, coding: list[Any], size: int) -> list[int]:
    """Read the bytes bit by bit, as the module's docstring says."""
    bits = "".join(f"{byte:08b}" for byte in content.tolist())
    if coding[0] == "bitmap":
        return [index for index in range(size) if bits[index] == "1"]
    _, width, count = coding
    found, position = [], 0
    for index in range(count):
        symbol = int(bits[index * width : (index + 1) * width], 2)
        position += symbol
        if symbol != 2**width - 1:
            found.append(position)
            position += 1
    return found


def codings(positions: Positions, size: int) -> list[list[Any]]:
    gaps = np.diff(positions, prepend=-1) - 1
    return [["bitmap"], *(["gaps", w, len(gaps) + int((gaps // (2**w - 1)).sum())] for w in WIDTHS)]


def patterns() -> list[tuple[Positions, int]]:
    random = np.random.default_rng(0)
    cases = [(np.flatnonzero(random.random(size) >= part), size) for size in (1, 7, 700) for part in SPARSITIES]
    fixed = [([], 0), ([0], 1), ([999], 1000), ([0, 256, 512, 767], 800), ([254, 510, 767], 768), ([0, 70_000], 70_001)]
    fixed += [([], 5000), (list(range(16)), 16), ([2], 4), ([3], 4), ([14, 30], 40)]
    return cases + [(np.array(positions, np.int64), size) for positions, size in fixed]


@each(("positions", "size"), patterns())
def test_every_coding_gives_the_positions_back(positions: Positions, size: int) -> None:
    for coding in codings(positions, size):
        content = encode(positions, size, coding)
        assert content.dtype == np.uint8
        assert len(content) == index_size(coding, size)
        assert decode(content, size, coding).tolist() == positions.tolist()
        if len(positions) < 100:
            assert brute_force(content, coding, size) == positions.tolist()


@each(("positions", "size"), patterns())
def test_the_cheapest_coding_is_the_smallest(positions: Positions, size: int) -> None:
    chosen = cheapest(positions, size)
    assert chosen in codings(positions, size)
    assert index_size(chosen, size) == min(index_size(coding, size) for coding in codings(positions, size))


def test_different_sparsities_have_different_codings() -> None:
    random = np.random.default_rng(0)
    chosen = [cheapest(np.flatnonzero(random.random(20_000) >= part), 20_000) for part in (0.3, 0.9, 0.985, 0.9995)]
    assert chosen[0] == ["bitmap"]
    widths = [coding[1] for coding in chosen[1:]]
    assert widths == sorted(widths)
    assert len(set(widths)) == 3


def test_a_position_past_the_end_is_refused() -> None:
    coding = ["gaps", 8, 1]
    content = encode(np.array([9]), 10, coding)
    assert decode(content, 10, coding).tolist() == [9]
    with pytest.raises(ValueError, match="element 9 of 9"):
        decode(content, 9, coding)


def test_a_gap_without_end_is_refused() -> None:
    with pytest.raises(ValueError, match="does not end"):
        decode(np.array([255], np.uint8), 1000, ["gaps", 8, 1])


def test_random_bytes_never_point_outside() -> None:
    random = np.random.default_rng(0)
    for width, count in itertools.product(WIDTHS, (0, 1, 5, 50)):
        coding = ["gaps", width, count]
        content = random.integers(0, 256, index_size(coding, 100), np.uint8)
        try:
            positions = decode(content, 100, coding)
        except ValueError:
            continue
        assert positions.tolist() == sorted(set(positions.tolist()))
        assert all(0 <= position < 100 for position in positions)
