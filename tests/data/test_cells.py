"""Cells that look like something else: decimal commas, codes, text among numbers, and very small numbers."""

import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch

from bayeslim.data.cells import decimal_comma, deviation, is_number, is_numeric, stray_text
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
        Target.fitted("y", [*map(str, range(10)), *(f"about {i}" for i in range(3, 15))])


def test_codes_with_underscores_are_text() -> None:
    assert [is_number(cell) for cell in ("10", "1e5", "1_0", "1e1_0", "_1", "x")] == [True, True, *[False] * 4]
    table = Table({"code": ["1_0", "2_0", "1_0"], "n": ["1", "2", "3"]})
    inputs = TableInputs.fitted(table, impute=False)
    assert inputs.columns[0] == CategoryColumn("code", ("1_0", "2_0"), None)
    torch.testing.assert_close(inputs.encode_table(table)[:, 0], torch.tensor([1.0, 0.0, 1.0]))
    with pytest.raises(ValueError, match="column 'n', data row 2: '1_0' is not a number"):
        inputs.encode_table(Table({"code": ["1_0", "1_0"], "n": ["1", "1_0"]}))
    assert Target.fitted("y", ["1_0", "10", "9"]).classes == ("9", "10", "1_0")  # not 10 twice


@pytest.mark.parametrize(
    ("cells", "row"),
    [
        ([*map(str, range(21)), "abc"] * 9, 21),  # 21 different numbers
        ([*map(str, range(20)), "abc"] * 9, None),  # 20 may be codes
        (["1", "2", "3", "other"] * 5, None),
        (["1.5", "abc", "2.5", "3.5"], 1),  # few rows, but most of their numbers differ
        (["1", "1", "2", "2", "x"], None),
        (["", "?", "1.5", "NA", "abc", "2.5"], 4),  # missing cells count neither way
        ([*map(str, range(50)), *["abc"] * 50], None),  # half of the cells
        ([*map(str, range(50)), *["abc"] * 49], 50),
        ([*(f"{i:02}" for i in range(1, 96)), "2A", "2B"], None),  # padded codes
        (list(map(str, range(50))), None),
        (["a", "b"], None),
        ([], None),
        (np.arange(3.0), None),
    ],
)
def test_text_among_numbers_is_found_unless_these_can_be_codes(cells: list[str] | np.ndarray, row: int | None) -> None:
    assert stray_text(cells) == row


def test_text_among_numbers_is_refused_with_its_row() -> None:
    for count in (60, 300):  # below and above the most categories
        areas = [f"{100 + i / 10}" for i in range(count)]
        areas[20] = "abc"
        with pytest.raises(ValueError, match="column 'area', data row 21: 'abc' is not a number, .*--impute.* letter"):
            TableInputs.fitted(Table({"area": areas}), impute=False)
        areas[20] = ""
        assert isinstance(TableInputs.fitted(Table({"area": areas}), impute=True).columns[0], NumberColumn)
    codes = TableInputs.fitted(Table({"grade": ["1", "2", "3", "other"] * 5}), impute=False)
    assert codes.columns == (CategoryColumn("grade", ("1", "2", "3", "other"), None),)


def test_a_target_of_numbers_with_a_stray_text_is_refused_unless_the_task_is_said() -> None:
    ages = [str(20 + i % 40) for i in range(200)]
    ages[150] = "abc"
    with pytest.raises(ValueError, match="the target 'age', data row 151: 'abc' is not a number, .*--task classes"):
        Target.fitted("age", ages)
    assert Target.fitted("age", ages, "classes").outputs == 41
    assert Target.fitted("grade", ["1", "2", "3", "other"] * 10).classes == ("1", "2", "3", "other")


@pytest.mark.parametrize(
    ("cells", "numeric"),
    [
        (["007", "042", "113"], False),
        (["", "01", "12", "100"], False),  # to a width of two
        (["00", "11"], False),
        (["5", "05", "12"], True),  # typed by hand
        (["001", "10"], True),
        (["0", "1", "10"], True),
        (["007.50", "012.25"], True),
        (["-05", "-07"], True),
        ([], True),
    ],
)
def test_whole_numbers_with_zeros_before_them_are_codes(cells: list[str], numeric: bool) -> None:
    assert is_numeric(cells) is numeric


def test_columns_of_codes_are_text() -> None:
    codes = ["02139", "10001"] * 5
    inputs = TableInputs.fitted(Table({"zip": codes}), impute=False)
    assert inputs.columns == (CategoryColumn("zip", ("02139", "10001"), None),)
    with pytest.raises(ValueError, match="'n' has 101 different values.*such as '000'.*; if .* without zeros before"):
        TableInputs.fitted(Table({"n": ["", *(f"{i:03}" for i in range(101))]}), impute=True)
    with pytest.raises(ValueError, match="'n' has 120 different values.*such as 'n0'.*group its values$"):
        TableInputs.fitted(Table({"n": [cell for i in range(60) for cell in (str(i), f"n{i}")]}), impute=False)
    trained = TableInputs.fitted(Table({"hour": ["8", "12"]}), impute=False)
    assert trained.encode_table(Table({"hour": ["08", "12"]})).tolist() == [[-1.0], [1.0]]  # numbers stay numbers


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
