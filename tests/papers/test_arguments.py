"""`--seeds` says how many or which."""

from __future__ import annotations

import argparse

import pytest

from bayeslim_papers.arguments import add_seeds


def parsed(*words: str) -> list[int]:
    parser = argparse.ArgumentParser()
    add_seeds(parser, "--splits", default=(0, 1))
    return parser.parse_args(words).seeds


@pytest.mark.parametrize(
    ("words", "seeds"),
    [
        (["5"], [0, 1, 2, 3, 4]),
        (["1"], [0]),
        (["7-7"], [7]),
        (["3-5"], [3, 4, 5]),
        (["10", "0", "1"], [10, 0, 1]),
        (["10", "0-2"], [10, 0, 1, 2]),
    ],
)
def test_seeds(words: list[str], seeds: list[int]) -> None:
    assert parsed("--seeds", *words) == parsed("--splits", *words) == seeds
    assert parsed() == [0, 1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["0"], "--seeds 0 asks for none: pass 1 for seed 0 alone"),
        (["5-3"], "asks for none"),
        (["1", "1"], "asks for one twice"),
        (["0-3", "2"], "asks for one twice"),
        (["x"], "--seeds x: pass how many, or several numbers, or ranges such as 3-5"),
        (["1.5"], "pass how many"),
        (["3-"], "pass how many"),
        (["\u0665"], "pass how many"),  # a five that is not ASCII
        (["9" * 5000], "pass how many"),
        (["1" + 12 * "0"], "asks for more than 10000"),
        (["0-9999999999999"], "asks for more than 10000"),
    ],
)
def test_bad_seeds(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parsed("--seeds", *words)
    assert message in capsys.readouterr().err
