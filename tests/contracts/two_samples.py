"""Whether two sets of draws can have come from one distribution."""

from __future__ import annotations

import math

from torch import Tensor

from contracts.statistics import assert_within


def assert_same_moments(first: Tensor, second: Tensor) -> None:
    """Means and variances over the first axis agree; each set's own spread gives its standard error."""
    values = [samples.double() for samples in (first, second)]
    centre = values[1].mean(0)
    for power in (1, 2):
        terms = [(samples - centre) ** power for samples in values]
        errors = [term.std(0) / math.sqrt(len(term)) for term in terms]
        assert_within(terms[0].mean(0) - terms[1].mean(0), (errors[0].square() + errors[1].square()).sqrt())
