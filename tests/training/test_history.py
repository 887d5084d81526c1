"""A history is a table: columns by name, records by number or in a loop."""

import pytest

from bayeslim.training import History


def test_columns_have_names_and_epochs_numbers() -> None:
    history = History([{"epoch": 0, "nll": 2.0}, {"epoch": 1, "nll": 1.0, "validation_nll": 3.0}])
    assert [record["epoch"] for record in history] == [0, 1] and len(history) == 2
    assert list(reversed(history)) == history.records[::-1]
    assert history["nll"] == [2.0, 1.0] and history["validation_nll"] == [None, 3.0]
    assert history[0] == {"epoch": 0, "nll": 2.0} and history[-1] is history.last
    assert "nll" in history and "accuracy" not in history and history[0] not in history
    with pytest.raises(KeyError, match="no column 'accuracy': there are epoch, nll, validation_nll"):
        history["accuracy"]
    with pytest.raises(IndexError):
        history[2]


def test_a_history_without_epochs() -> None:
    history = History()
    assert list(history) == [] and history["nll"] == [] and "nll" not in history
