"""What XLA compiles from edge maps: one loop. A reduction keeps no array of edges in memory."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jgs import kernels
from jgs.sampling.matrix import Matrix, Room

ROOM = 4099  # edges; no other array has this size
COLUMNS = np.arange(50, dtype=np.int32)
whole_arrays = re.compile(rf"= \(?(?:[^=]*, )?(\w+)\[{ROOM}[,\]].* ([\w-]+)\(")


def arrays_of_edges(function, graph):
    """`(dtype, operation)` of every array of edges that the compiled program keeps in memory.
    Arrays inside a fusion are never in memory, so they are not counted."""
    text = jax.jit(function).lower(graph, jnp.ones(50), jnp.ones(graph.num_nodes)).compile()
    text = text.as_text()
    fused = set(re.findall(r"fusion\(.*calls=%?([\w.-]+)", text))
    found, inside = [], False
    for line in text.splitlines():
        if header := re.match(r"(?:ENTRY )?%?([\w.-]+) .*\{$", line):
            inside = header[1] in fused
        elif not inside and (array := whole_arrays.search(line)):
            found.append((array[1], array[2]))
    return found, text


def chain(graph, by_column, by_row):
    sub = Matrix(graph, room=Room(ROOM))[:, COLUMNS].built()
    return 2 * ((sub.div(by_column, axis=0) ** 2 + 1).mul(by_row, axis=1) - 3)


def test_a_chain_of_edge_maps_is_one_loop(make_graph):
    graph = make_graph(300, 4000).unweighted()

    def built(graph, by_column, by_row):
        return chain(graph, by_column, by_row).edges.row

    def values(graph, by_column, by_row):
        return chain(graph, by_column, by_row).values

    alone, _ = arrays_of_edges(built, graph)
    mapped, _ = arrays_of_edges(values, graph)
    # The pattern does match such arrays where they exist.
    assert sum(kind == "s32" for kind, _ in alone) > 0
    assert [operation for kind, operation in mapped if kind == "f32"] == ["fusion"]


@pytest.mark.skipif(not kernels.available(), reason="without the kernels XLA sums an array")
def test_a_reduction_at_its_end_writes_no_array_of_edges(make_graph):
    graph = make_graph(300, 4000).unweighted()

    def summed(graph, by_column, by_row):
        A = Matrix(graph, room=Room(ROOM)).mul(by_row, axis=1)
        sub = A[:, COLUMNS].div(by_column, axis=0)
        return [(sub**2).sum(axis) for axis in (0, 1)]

    arrays, text = arrays_of_edges(summed, graph)
    assert arrays == []
    assert text.count("custom-call(") >= 2
    assert text.count('"jgs_sum_chain"') == 2
