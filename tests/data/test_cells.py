"""Cells that look like something else: decimal commas, codes with underscores, and very small numbers."""

import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch

from bayeslim.data.cells import decimal_comma, deviation, is_number
from bayeslim.data.columns import CategoryColumn, NumberColumn, TableInputs
from bayeslim.data.problems import from_table
from bayeslim.data.tables import Table
from bayeslim.data.target import Target

COMMAS = [f"{'-' if i % 2 else ''}0,{i:03}" for i in range(60)]


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        (["0,5", "-1,25", "3"], "0,5"),
        (["", "1", "2", "1,5e-3", "?"], "1,5e-3"),
        (["0,5", "unknown", "0,7"], "0,5"),
        (["1.5", "2"], None),
        (["1,234,567", "2,000,000"], None),
        (["a,b", "1,5", "c"], None),
        (["1,2,3", "x"], None),
        ([], None),
    ],
)
def test_decimal_commas_are_seen(cells: list[str], found: str | None) -> None:
    assert decimal_comma(cells) == found


def test_inputs_with_a_decimal_comma_are_refused() -> None:
    for cells in (COMMAS, ["1,5", "2,5"] * 10):  # many values, and two that could be categories
        with pytest.raises(ValueError, match=f"column 'a' holds cells such as '{cells[0]}', .* decimal comma: "):
            TableInputs.fitted(Table({"a": cells}), impute=False)


def test_targets_with_a_decimal_comma_are_refused() -> None:
    for cells in (COMMAS, COMMAS[:5]):
        with pytest.raises(ValueError, match="the target 'y' holds cells such as '0,000', .* decimal comma"):
            Target.fitted("y", cells)
        with pytest.raises(ValueError, match="'0,000' is not a number .decimals take a point"):
            Target.fitted("y", cells, "regression")
        assert len(Target.fitted("y", cells, "classes").classes or ()) == len(cells)


def test_a_class_of_its_own_in_most_rows_needs_a_word() -> None:
    names = [f"n{i}" for i in range(11)]
    assert len(Target.fitted("y", names).classes or ()) == 11  # too few rows to doubt it
    with pytest.raises(ValueError, match="'y' has 11 different values in 21 rows .* such as 'n0': .*--task c"):
        Target.fitted("y", [*names, *["n0"] * 10])
    assert Target.fitted("y", [*names, *["n0"] * 10], "classes").classes == tuple(sorted(names))
    assert len(Target.fitted("y", names * 2).classes or ()) == 11  # half of the rows
    assert Target.fitted("y", [*names, *["n0"] * 8]).task == "classes"  # 19 rows
    with pytest.raises(ValueError, match="11 different values in 20 rows"):
        Target.fitted("y", [*names, *["n0"] * 9])
    with pytest.raises(ValueError, match="such as 'about 3'"):
        Target.fitted("y", [*map(str, range(30)), "about 3"])


def test_codes_with_underscores_are_text() -> None:
    assert [is_number(cell) for cell in ("10", "1e5", "1_0", "1e1_0", "_1", "x")] == [True, True, *[False] * 4]
    table = Table({"code": ["1_0", "2_0", "1_0"], "n": ["1", "2", "3"]})
    inputs = TableInputs.fitted(table, impute=False)
    assert inputs.columns[0] == CategoryColumn("code", ("1_0", "2_0"), None)
    torch.testing.assert_close(inputs.encode_table(table)[:, 0], torch.tensor([1.0, 0.0, 1.0]))
    with pytest.raises(ValueError, match="column 'n', data row 2: '1_0' is not a number"):
        inputs.encode_table(Table({"code": ["1_0", "1_0"], "n": ["1", "1_0"]}))
    assert Target.fitted("y", ["1_0", "10", "9"]).classes == ("9", "10", "1_0")  # not 10 twice


@pytest.mark.parametrize("scale", [1e-170, 1e-160, 1e-139, 1e-30, 1.0, 1e30])
def test_deviations_are_right_at_any_scale(scale: float) -> None:
    values = np.random.default_rng(0).normal(3, 1, 50) * scale
    exact = [Fraction(value) for value in values.tolist()]
    mean = sum(exact) / len(exact)
    size = Fraction(scale)
    variance = sum(((value - mean) / size) ** 2 for value in exact) / len(exact)
    assert deviation(values) / scale == pytest.approx(float(variance) ** 0.5, rel=1e-12)


def test_ordinary_deviations_are_those_of_numpy() -> None:
    """Bit by bit: a run compares the statistics of its data with the stored ones."""
    values = np.random.default_rng(1).normal(5, 2, 100)
    assert deviation(values) == float(values.std())


def test_the_smallest_numbers_have_a_deviation() -> None:
    assert 0 < deviation(np.array([0.0, 5e-324])) <= 5e-324
    assert deviation(np.array([0.0, 5e-324, 1e-320])) > 0


def test_tiny_columns_and_targets_are_prepared_without_warnings() -> None:
    generator = np.random.default_rng(0)
    a, y = generator.normal(2, 1, 100), generator.normal(size=100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tiny = from_table(Table({"a": a * 1e-170, "y": [repr(v) for v in (y * 1e-170).tolist()]}), "y")
    plain = from_table(Table({"a": a, "y": y}), "y")
    for small, usual in zip(tiny.splits.train, plain.splits.train, strict=True):
        torch.testing.assert_close(small, usual)
    assert tiny.preprocessing.target.std == pytest.approx(plain.preprocessing.target.std * 1e-170, rel=1e-9)
    column = tiny.preprocessing.inputs.columns[0]  # pyright: ignore[reportAttributeAccessIssue]
    assert isinstance(column, NumberColumn) and 0.5e-170 < column.std < 2e-170
