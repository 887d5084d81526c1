"""A schedule that gives something else than a factor is named, before a step is taken."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import bayeslim as bl
from bayeslim.schedules import check_value
from bayeslim.training import fit_many
from training.problems import blobs, equal, small, state

WRONG = [(None, "None"), ("1", "'1'"), (torch.ones(2), r"tensor\(\[1., 1.\]\)")]


def many(model: Any, data: Any, **options: Any) -> None:
    fit_many([model], data, **options)


@pytest.mark.parametrize(("value", "shown"), WRONG)
@pytest.mark.parametrize("name", ["kl_schedule", "lr_schedule"])
@pytest.mark.parametrize("train", [bl.fit, many])
def test_what_is_no_number_is_named(train: Callable[..., Any], name: str, value: Any, shown: str) -> None:
    model = small()
    before = state(model)
    options: dict[str, Any] = {name: lambda progress: value}
    with pytest.raises(TypeError, match=f"`{name}` gave {shown}: it must return a number, e.g. 1.0"):
        train(model, blobs(), likelihood=bl.Categorical(), epochs=1, **options)
    assert equal(model, before)


def test_numbers_of_any_library_will_do() -> None:
    for value in (0, 1, 0.5, torch.tensor(0.5)):
        check_value("kl_schedule", value)  # pyright: ignore[reportArgumentType]
    for value in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"gave {value}: it must be finite and not negative"):
            check_value("kl_schedule", value)
