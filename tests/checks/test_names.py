"""Names like the one that was typed."""

import doctest

from bayeslim.checks import names
from bayeslim.checks.names import did_you_mean


def test_close_names_are_offered_and_others_are_not() -> None:
    assert did_you_mean("trian", ["train", "prune"], most=1) == "did you mean train? "
    assert did_you_mean("ab", ["abc", "abd"]) in ("did you mean abc or abd? ", "did you mean abd or abc? ")
    assert did_you_mean("xyz", ["train", "prune"]) == ""


def test_the_example_in_the_docstring() -> None:
    assert doctest.testmod(names) == (0, 2)
