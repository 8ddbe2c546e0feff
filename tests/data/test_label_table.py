"""Labels of nodes at moments: what `LabelTable.from_arrays` makes and refuses."""

import numpy as np
import pytest

from jgs import InputError
from jgs.data import LabelTable

NODES, TIME, LABELS = [3, 0, 3, 1], [10, 40, 20, 30], [1, 0, 2, 1]


@pytest.mark.parametrize("split", [["train", "val", "", "test"], [0, 1, -1, 2]])
def test_arrays_become_a_table(split):
    table = LabelTable.from_arrays(NODES, TIME, LABELS, split)
    assert [each.tolist() for each in table] == [NODES, TIME, LABELS, [0, 1, -1, 2]]
    assert [str(each.dtype) for each in table] == ["int32", "int64", "int32", "int8"]
    assert table.num_classes == 3
    numbers = LabelTable.from_arrays(NODES, TIME, [0.5, 1, 2, -3], split)
    assert (numbers.labels.dtype, numbers.num_classes) == (np.float32, 1)
    assert numbers.labels.tolist() == [0.5, 1, 2, -3]


def test_rows_are_split_by_time_with_equal_times_together():
    time = np.repeat([50, 10, 30, 20, 40], [15, 40, 10, 30, 5])  # 70 rows are before 30
    split = LabelTable.from_arrays(np.zeros(100, int), time, np.zeros(100, int)).split
    assert {at: set(split[time == at].tolist()) for at in (10, 20, 30, 40, 50)} == {
        10: {0},
        20: {0},
        30: {1},
        40: {1},
        50: {2},
    }
    shuffled = np.random.default_rng(0).permutation(100)
    again = LabelTable.from_arrays(np.zeros(100, int), time[shuffled], np.zeros(100, int))
    assert np.array_equal(again.split, split[shuffled])
    negative = LabelTable.from_arrays(np.zeros(100, int), time - 100, np.zeros(100, int))
    assert np.array_equal(negative.split, split)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"nodes": [0.5, 1, 2, 3]}, "nodes of labels must be integers"),
        ({"nodes": [-1, 1, 2, 3]}, "got -1 at position 0"),
        ({"time": np.array([1, 2, 3, 4], "M8[s]")}, "time of labels must be integers"),
        ({"time": [1, 2, 3]}, r"time of labels must be \[n\].*got shape \[3\] beside \[4\]"),
        ({"labels": [0, -1, 1, 2]}, "have classes from 0; got -1 at row 1"),
        ({"labels": [0, np.nan, 1, 2]}, "have finite labels; got nan at row 1"),
        ({"labels": [0, np.inf, 1, 2]}, "rows in labels must be finite.*got inf at row 1"),
        ({"labels": list("abcd")}, "labels of labels must be numbers; got text"),
        ({"split": ["train", "valid", "", ""]}, "0, 1, 2, or empty; got valid at row 1"),
        ({"split": [0, 3, 1, 2]}, "0, 1, 2, or empty; got 3 at row 1"),
        ({"split": [1, 2, -1, 2]}, "rows to train on; got no train among 4 rows"),
        ({"split": [0, 1]}, r"split of labels must be \[n\]"),
        ({"time": [7] * 4}, "times of labels must differ enough.*got 1 different ones"),
        ({"nodes": [], "time": [], "labels": []}, "must"),
    ],
)
def test_wrong_arrays_are_refused_in_a_line(changes, says):
    given = {"nodes": NODES, "time": TIME, "labels": LABELS} | changes
    with pytest.raises(InputError, match=says) as caught:
        LabelTable.from_arrays(**given)
    assert "\n" not in str(caught.value)
