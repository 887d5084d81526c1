"""Columns to inputs, and targets to classes or standardised numbers."""

import json
import warnings

import numpy as np
import pytest
import torch

from bayeslim.data.columns import CategoryColumn, NumberColumn, TableInputs
from bayeslim.data.preprocessing import Preprocessing
from bayeslim.data.tables import Table
from bayeslim.data.target import Target


def test_numbers_are_standardised_and_text_becomes_indicators() -> None:
    table = Table({"size": ["1", "3", " 5 ".strip()], "colour": ["red", "blue", "red"], "same": ["7", "7", "7"]})
    inputs = TableInputs.fitted(table, impute=False)
    assert inputs.dropped == ("same",) and inputs.shape == (3,)
    step = np.sqrt(1.5)  # (5 - 3) / sqrt(8 / 3)
    expected = torch.tensor([[-step, 0.0, 1.0], [0.0, 1.0, 0.0], [step, 0.0, 1.0]], dtype=torch.float32)
    torch.testing.assert_close(inputs.encode_table(table), expected)


def test_order_of_columns_and_further_ones_do_not_matter() -> None:
    inputs = TableInputs.fitted(Table({"a": ["1", "2"], "b": ["3", "5"]}), impute=False)
    shuffled = Table({"b": ["3", "5"], "id": ["x", "y"], "a": ["1", "2"]})
    torch.testing.assert_close(inputs.encode_table(shuffled), torch.tensor([[-1.0, -1.0], [1.0, 1.0]]))


def test_wrong_header_lists_what_is_missing_and_what_is_not_expected() -> None:
    inputs = TableInputs.fitted(Table({"a": ["1", "2"], "b": ["3", "5"]}), impute=False)
    with pytest.raises(ValueError, match="missing: 'b'; not expected: 'B', 'c'"):
        inputs.encode_table(Table({"a": ["1"], "B": ["1"], "c": ["1"]}))


def test_missing_values_are_counted_or_filled_in() -> None:
    table = Table({"a": ["1", "", "4", "NA"], "b": ["x", "x", "?", "y"], "c": np.array([1.0, 2.0, 3.0, np.nan])})
    with pytest.raises(ValueError, match=r"'a' \(2 of 4 rows\), 'b' \(1 of 4 rows\), 'c' \(1 of 4 rows\).*--impute"):
        TableInputs.fitted(table, impute=False)
    inputs = TableInputs.fitted(table, impute=True)
    assert inputs.columns[0] == NumberColumn("a", 2.5, 1.5, 2.5)
    assert inputs.columns[1] == CategoryColumn("b", ("x", "y"), "x")
    encoded = inputs.encode_table(table)
    torch.testing.assert_close(encoded[:, 0], torch.tensor([-1.0, 0.0, 1.0, 0.0]))
    torch.testing.assert_close(encoded[2, 1:3], torch.tensor([1.0, 0.0]))


def test_values_that_are_missing_later_are_an_error_unless_imputed() -> None:
    inputs = TableInputs.fitted(Table({"a": ["1", "2"], "b": ["x", "y"]}), impute=False)
    with pytest.raises(ValueError, match="column 'a' has no value in 1 of 2 rows, first in data row 2"):
        inputs.encode_table(Table({"a": ["1", ""], "b": ["x", "y"]}))
    with pytest.raises(ValueError, match="column 'b' has no value"):
        inputs.encode_table(Table({"a": ["1", "2"], "b": ["x", "null"]}))


def test_a_new_category_gives_zeros() -> None:
    inputs = TableInputs.fitted(Table({"b": ["x", "y"]}), impute=False)
    torch.testing.assert_close(inputs.encode_table(Table({"b": ["z", "y"]})), torch.tensor([[0.0, 0.0], [0.0, 1.0]]))


def test_values_that_are_all_unknown_are_a_warning() -> None:
    inputs = TableInputs.fitted(Table({"flag": ["True", "False", ""]}), impute=True)
    column = [*["1", "0"] * 5, ""]
    known = "'flag' holds only values that training did not, such as '0': it has no effect.*: 'False', 'True'$"
    with pytest.warns(UserWarning, match=known) as caught:
        encoded = inputs.encode_table(Table({"flag": column}))
        inputs.encode_table(Table({"flag": column[::-1]}))
    assert len({str(warning.message) for warning in caught}) == 1  # Python shows a text once
    assert encoded.tolist() == [*[[0.0, 0.0]] * 10, [0.0, 1.0]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inputs.encode_table(Table({"flag": column[1:]}))  # nine may be new
        inputs.encode_table(Table({"flag": [*column, "True"]}))  # one is known
        inputs.encode_table(Table({"flag": [""] * 20}))
        assert inputs.encode_table(Table({"flag": ["perhaps"]})).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("inf", "data row 2: 'inf' is infinite or beyond 3.4e38"),
        ("-1e400", "infinite or beyond"),
        ("9" * 400, "infinite or beyond"),
        ("1e39", "infinite or beyond"),
        ("two", "data row 2: 'two' is not a number"),
        ("1,5", "'1,5' is not a number .decimals take a point"),
    ],
)
def test_cells_that_are_no_finite_numbers_are_named(cell: str, message: str) -> None:
    inputs = TableInputs.fitted(Table({"a": ["1", "2"]}), impute=False)
    with pytest.raises(ValueError, match=message):
        inputs.encode_table(Table({"a": ["1", cell]}))


def test_numbers_too_far_for_float32_are_named() -> None:
    inputs = TableInputs.fitted(Table({"a": ["0.001", "0.003"]}), impute=False)
    for column in (["0.001", "-1e36"], np.array([0.001, -1e36])):
        with pytest.raises(ValueError, match=r"column 'a', data row 2: '-1.*' is too far .*\(0.002, deviation 0.001\)"):
            inputs.encode_table(Table({"a": column}))
    assert inputs.encode_table(Table({"a": ["1e35"]})).item() == pytest.approx(1e38)
    with pytest.raises(ValueError, match="column 'y', data row 1: '3e38' is too far"):
        Target("y", None, 0.0, 0.5).encode(["3e38"])


def test_unusable_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="text column 'id' has 101 different values, more than 100"):
        TableInputs.fitted(Table({"id": [f"n{i}" for i in range(101)]}), impute=False)
    with pytest.raises(ValueError, match="all are constant"):
        TableInputs.fitted(Table({"a": ["1", "1"], "b": ["x", "x"]}), impute=False)


def test_task_is_inferred_from_the_target() -> None:
    assert Target.fitted("y", ["001", "002", "010"]).classes == ("001", "002", "010")
    assert Target.fitted("y", [f"{i % 50:02}" for i in range(200)]).outputs == 50  # codes are no quantity,
    assert Target.fitted("y", ["001", "003"], "regression") == Target("y", None, 2.0, 1.0)  # unless they are said to be
    with pytest.raises(ValueError, match="has 30 different values in 30 rows and is text, such as '00'"):
        Target.fitted("y", [f"{i:02}" for i in range(30)])
    assert Target.fitted("y", ["b", "a", "b"]).classes == ("a", "b")
    assert Target.fitted("y", ["10", "9", "9.0", "10"]).classes == ("9", "10")
    assert Target.fitted("y", ["1.5", "2", "3"]).task == "regression"
    assert Target.fitted("y", [str(i) for i in range(100)]).task == "regression"
    assert Target.fitted("y", ["0", "1", "0", "1"], "regression") == Target("y", None, 0.5, 0.5)


def test_targets_are_encoded_as_classes_or_standardised() -> None:
    classes = Target.fitted("y", ["b", "a", "b"])
    assert classes.encode(["a", "b"]).tolist() == [0, 1]
    assert Target.fitted("y", ["9", "10", "10"]).encode(np.array([10.0, 9.0])).tolist() == [1, 0]
    number = Target("y", None, 2.0, 4.0)
    torch.testing.assert_close(number.encode(["6", "-2"]), torch.tensor([[1.0], [-1.0]]))


def test_classes_are_found_by_their_text_then_as_numbers() -> None:
    """What else the column holds makes no difference: a large file comes in pieces."""
    mixed = Target.fitted("y", ["1.0", "2.0", "007", "x"])
    assert mixed.classes == ("1.0", "2.0", "007", "x")
    assert mixed.encode(["1.0", "007"]).tolist() == [0, 2]
    assert mixed.encode(["007", "x"]).tolist() == [2, 3]
    assert mixed.encode(np.array([2.0, 7.0])).tolist() == [1, 2]  # a file that keeps numbers
    assert Target("y", ("1", "7")).encode(["1.0", "007", "7"]).tolist() == [0, 1, 1]
    codes = Target("y", ("001", "01", "002"))
    assert codes.encode(["01", "001", "2"]).tolist() == [1, 0, 2]
    with pytest.raises(ValueError, match="classes that training did not: '1', '3'; it had '001', '01', '002': corr"):
        codes.encode(["1", "3", "01"])  # 1 may be either


def test_bad_targets_are_refused() -> None:
    for column, task, message in [
        (["a", "", "b", ""], None, "target 'y' is missing in 2 of 4 rows, first in data row 2: fill it in"),
        (["1", "inf"], "classes", "column 'y', data row 2: 'inf' is infinite"),
        (["a", "a"], None, "has 1 different values: classes must be 2"),
        ([f"n{i}" for i in range(1001)], None, "has 1001 different values"),
        (["1.5", "1.5"], None, "is 1.5 in every row"),
        (["a", "b"], "regression", "'a' is not a number"),
    ]:
        with pytest.raises(ValueError, match=message):
            Target.fitted("y", column, task)
    with pytest.raises(ValueError, match="holds classes that training did not: 'c'"):
        Target("y", ("a", "b")).encode(["a", "c"])
    with pytest.raises(ValueError, match="target 'y' is missing in 1 of 2 rows, first in data row 2"):
        Target("y", ("a", "b")).encode(["a", ""])


def test_preprocessing_survives_json() -> None:
    table = Table({"a": ["1", "", "4"], "b": ["x", "x", "y"], "c": ["1", "1", "1"]})
    before = Preprocessing(TableInputs.fitted(table, impute=True), Target("y", None, 0.1, 1 / 3), "sha")
    assert Preprocessing.from_json(before.to_json()) == before
    facts = json.loads(before.to_json())
    del facts["target"]["std"]
    with pytest.raises(ValueError, match="preprocessing.json is damaged"):
        Preprocessing.from_json(json.dumps(facts).encode())


def test_class_names_with_zero_characters_are_refused() -> None:
    with pytest.raises(ValueError, match=r"the target 'y' holds a zero character in 'a\\x00'"):
        Target.fitted("y", ["a", "a\0"])


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("number", "name", ["x"]),
        ("number", "mean", "Infinity"),
        ("number", "std", 0),
        ("number", "fill", "x"),
        ("text", "name", {}),
        ("text", "values", "ab"),
        ("text", "values", [1, 2]),
        ("text", "fill", 3),
        ("target", "name", None),
        ("target", "std", -1),
    ],
)
def test_stored_facts_of_the_wrong_kind_are_refused(part: str, key: str, value: object) -> None:
    inputs = TableInputs.fitted(Table({"x": ["1", "2"], "soil": ["clay", "sand"]}), impute=False)
    facts = json.loads(Preprocessing(inputs, Target("y", None, 1.0, 2.0)).to_json())
    number, text = facts["inputs"]["columns"]
    {"number": number, "text": text, "target": facts["target"]}[part][key] = value
    with pytest.raises(ValueError, match="run/preprocessing.json is damaged .*(wrong kind|no such name)"):
        Preprocessing.from_json(json.dumps(facts).encode(), "run/preprocessing.json")


@pytest.mark.parametrize(
    "inputs",
    [
        {"kind": "images", "shape": [1, 0, 3], "mean": 0, "std": 1, "unit": True},
        {"kind": "images", "shape": [1, 2, 3], "mean": 0, "std": 0, "unit": True},
        {"kind": "text", "words": ["a"], "length": 0},
    ],
)
def test_stored_shapes_that_cannot_be_are_refused(inputs: dict[str, object]) -> None:
    facts = {"inputs": inputs, "target": Target("y").to_json(), "source": ""}
    with pytest.raises(ValueError, match="is damaged"):
        Preprocessing.from_json(json.dumps(facts).encode())
