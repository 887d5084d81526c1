"""What lies in an interval passes; ends, NaN, infinity and other things are refused as it says."""

import math
from typing import Any

import pytest

from bayeslim.checks.numbers import check_number


@pytest.mark.parametrize(
    ("interval", "inside", "outside"),
    [
        ("(0, inf)", [1e-300, 1], [0, -1, math.inf, math.nan, "1", None]),
        ("[0, inf)", [0, 5.0], [-1e-300, math.inf]),
        ("(0, inf]", [math.inf], [0.0]),
        ("[0, 1)", [0, 0.999], [1, -0.1]),
        ("(0, 0.5]", [0.5], [0, 0.51]),
    ],
)
def test_intervals(interval: str, inside: list[Any], outside: list[Any]) -> None:
    for value in inside:
        check_number("x", value, interval, "pass e.g. 1")
    for value in outside:
        with pytest.raises(ValueError, match=r"`x` must .*, got .*: pass e\.g\. 1"):
            check_number("x", value, interval, "pass e.g. 1")
