"""Parts of typed graphs: each node type's table in each part, and the rows of ranks."""

from pathlib import Path

import jax
import numpy as np
import pytest
from made_parts import write
from typed_data import make_typed

from jgs import InputError
from jgs.data import Dataset
from jgs.data.parts import open_parts
from jgs.dist.batches.rank_parts import RankParts
from jgs.dist.communicators.comm import Alone
from jgs.dist.communicators.mesh import Mesh
from jgs.graph import SparseFeatures, TypedFeatures
from jgs.ops import gather
from jgs.partition import folder as module


def rows(features, ids):
    """A list of the rows of nodes, of the width of their type."""
    found = gather(features, np.asarray(ids, np.int32))
    kinds, places = np.asarray(found.kind), np.asarray(found.place, np.int32)
    made = [None] * len(kinds)
    for number, table in enumerate(found.tables):
        at = np.flatnonzero(kinds == number)
        values = np.zeros((at.size, 0)) if table is None else gather(table, places[at])
        for i, row in zip(at, np.asarray(values), strict=True):
            made[i] = row.tolist()
    return made


@pytest.fixture(scope="module")
def data():
    return make_typed()


@pytest.fixture(scope="module")
def parts(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts") / "4"
    write(folder, data, 4)
    return open_parts(folder)


def test_each_part_has_a_table_for_each_type(data, parts):
    old = np.asarray(parts.original_ids)
    for index in range(4):
        part = parts.part(index)
        own, whole = part.features, data.features
        assert own.schema == parts.schema.of_parts(index, index + 1)
        assert own.num_nodes == part.last - part.first
        assert own.table("tag").dtype == np.float16
        assert isinstance(own.table("paper"), SparseFeatures)
        assert own.table("paper").max_row == whole.table("paper").max_row
        assert own.table("venue") is None
        ids = np.arange(own.num_nodes)
        assert rows(own, ids) == rows(whole, old[part.first + ids])


def test_tables_are_memory_maps(parts):
    part = parts.part(0)
    maps = Path("/proc/self/maps").read_text().splitlines()
    bounds = [line.split()[0].split("-") for line in maps if "part-00000" in line]
    ranges = [[int(bound, 16) for bound in each] for each in bounds]
    for leaf in jax.tree.leaves(part.features):
        assert any(a <= leaf.unsafe_buffer_pointer() < b for a, b in ranges)
    assert RankParts(Alone(), parts).features[0].tables[0][0] is not None


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_ranks_have_the_rows_of_their_own_nodes(data, parts, num_ranks):
    comm = Mesh(jax.devices()[:num_ranks]) if num_ranks > 1 else Alone()
    ranks, old = RankParts(comm, parts), np.asarray(parts.original_ids)
    for rank, own in enumerate(ranks.features):
        first, stop = ranks.offsets[rank : rank + 2].tolist()
        assert own.widths == data.features.widths
        assert isinstance(own.table("author"), tuple) == (num_ranks < 4)
        ids = np.arange(stop - first)
        if num_ranks < 4:
            assert len(own.table("author")) == 4 // num_ranks
        assert rows(own, ids) == rows(data.features, old[first + ids])


def test_one_matrix_for_all_nodes_is_split_by_type_where_a_model_wants_that(tmp_path):
    data = make_typed(plain=True)
    write(tmp_path / "parts", data, 2)
    parts = open_parts(tmp_path / "parts")
    (own,), old = RankParts(Alone(), parts, typed=True).features, parts.original_ids
    assert isinstance(own, TypedFeatures)
    assert own.widths == (4, 4, 4, 4)
    ids = np.arange(data.graph.num_nodes)
    assert rows(own, ids) == np.asarray(data.features)[old].tolist()
    assert isinstance(RankParts(Alone(), parts).features[0], list)


def test_written_in_small_pieces_it_is_the_same(data, parts, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_BYTES_AT_ONCE", 64)
    monkeypatch.setattr(module, "_OPEN_AT_ONCE", 3)
    write(tmp_path / "parts", data, 4)
    assert open_parts(tmp_path / "parts").parts_id == parts.parts_id


def test_parts_of_parts_with_typed_features_are_refused(data, parts, tmp_path):
    old = np.asarray(parts.original_ids)
    graph = parts.graph
    tables = dict(zip(("author", "paper", "tag"), data.features.tables, strict=False))
    labels, splits = (
        np.asarray(data.labels)[old],
        {"train": np.asarray(parts.part(0).train_idx)},
    )
    kinds = graph.schema.numbers(np.arange(graph.num_nodes))
    for number, name in enumerate(tables):
        order = old[kinds == number] - data.graph.schema.nodes(name).start
        table = tables[name]
        tables[name] = table.to_scipy()[order] if name == "paper" else np.asarray(table)[order]
    again = Dataset.from_arrays(graph, tables, labels, splits)
    assert rows(again.features, np.arange(99)) == rows(data.features, old[:99])
    with pytest.raises(InputError, match="must be one range of ids"):
        write(tmp_path / "again", again, 2)
