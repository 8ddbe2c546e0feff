"""`RelationIndex`: the runs of each row, by the kernel and in NumPy."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jgs import Graph, kernels
from jgs.graph import grouping
from jgs.graph.grouping import RUN_BITS, index_of

ROWS = st.lists(st.lists(st.integers(0, 3), max_size=6).map(sorted), max_size=9)


@given(ROWS)
def test_the_runs_of_each_row(rows):
    ends = np.cumsum([0, *map(len, rows)])
    types = np.array([kind for row in rows for kind in row], np.int16)
    graph = Graph(ends, np.zeros(types.size, np.int32), edge_type=types)
    expected = [
        (int(ends[v]) + row.index(kind)) << RUN_BITS | kind
        for v, row in enumerate(rows)
        for kind in sorted(set(row))
    ]
    for plain in (True, False):
        with kernels.plain(plain):
            index = index_of(graph)
        assert np.asarray(index.runs).tolist() == [*expected, types.size << RUN_BITS]
        assert np.diff(index.indptr).tolist() == [len(set(row)) for row in rows]


def test_pieces_of_rows(monkeypatch):
    """Rows are read in pieces, of which some have no edges."""
    monkeypatch.setattr(grouping, "row_chunks", lambda indptr: [(0, 1), (1, 3), (3, 5)])
    graph = Graph([0, 0, 0, 0, 2, 3], [0, 1, 2], edge_type=np.array([0, 1, 1], np.int16))
    for plain in (True, False):
        with kernels.plain(plain):
            runs = np.asarray(index_of(graph).runs)
        assert runs.tolist() == [0 << 15 | 0, 1 << 15 | 1, 2 << 15 | 1, 3 << 15]
