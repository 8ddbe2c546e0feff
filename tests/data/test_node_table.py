import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from jgs import InputError
from jgs.data.column_rule import ColumnRule
from jgs.data.node_table import read_nodes


@pytest.fixture
def write(tmp_path):
    def write(**columns):
        parquet.write_table(pa.table(columns), tmp_path / "nodes.parquet")
        return read_nodes(tmp_path / "nodes.parquet", ColumnRule(max_categories=3))

    return write


def test_columns_of_parquet(write):
    table = write(
        id=["x", "y", "z"],
        vector=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
        big=pa.array([1, None, 3], pa.int64()),
        flag=[True, None, False],
        word=pa.array(["b", None, "a"]).dictionary_encode(),
        empty_text=["", "c", "c"],
        label=["p", None, "q"],
        split=["train", None, "test"],
    )
    assert table.ids.values.tolist() == ["x", "y", "z"]
    assert table.features.dtype == np.float32
    assert table.features.tolist() == [
        # vector, big, missing, flag, missing, word a, b, missing, empty_text c, missing
        [1, 2, 1, 0, 1, 0, 0, 1, 0, 0, 1],
        [3, 4, 0, 1, 0, 1, 0, 0, 1, 1, 0],
        [5, 6, 3, 0, 0, 0, 1, 0, 0, 1, 0],
    ]
    assert table.columns.filled == {"big": 1, "flag": 1, "word": 1, "empty_text": 1}
    assert table.label.tolist() == ["p", None, "q"]
    assert write(id=[3, 1]).features is None


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"id": [1, None]}, "must have an id; got none at row 1"),
        ({"id": ["a", ""]}, "must have an id; got none at row 1"),
        ({"id": [0.5, 1.5]}, "nodes.parquet: the ids of nodes must be integers"),
        ({"id": [1, 2], "x": [[1.0], [1.0, 2.0]]}, "long lists of numbers; got lists of uneq"),
        ({"id": [1, 2], "x": [[1.0], [np.nan]]}, "must have whole lists; got [nan] at row 1"),
        ({"id": [1, 2], "x": [1e300, 1.0]}, "must be finite; got 1e+300 at row 0"),
        (
            {"id": [1, 2], "x": [None, ""]},
            "have a value somewhere; got none. Delete the column, o",
        ),
        ({"id": [1, 2], "x": [{"a": 1}, {"a": 2}]}, "long lists of numbers; got lists of uneq"),
    ],
)
def test_bad_columns_are_refused(write, columns, says):
    with pytest.raises(InputError) as caught:
        write(**columns)
    assert says in str(caught.value), str(caught.value)
    assert "\n" not in str(caught.value)
