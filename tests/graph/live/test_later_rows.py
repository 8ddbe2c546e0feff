"""Rows of a live graph that hold from moments on: what each node of a batch reads."""

import dataclasses
import functools
import itertools

import jax
import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from test_live import RELATIONS, SIZES

import jgs
from jgs import Graph, Neighbors, kernels
from jgs.graph import TypedFeatures, VersionedFeatures, Versions
from jgs.graph.live import Live
from jgs.sampling.seeds import Seeds

N, LAST = 6, 4
DRAW = jax.jit(Neighbors((2,)).sample)
DRAW_TYPED = jax.jit(Neighbors(({"*": 2},)).sample)
GATHER = jax.jit(lambda batch, features: batch.gather(features))


def begun(typed, folder=None):
    """A live graph with room for two more nodes, of which each row says its node."""
    if not typed:
        graph = Graph.from_edges([0, 1], [1, 2], N, edge_time=[3, 4])
        return Live(
            graph,
            np.arange(2.0 * N, dtype=np.float32).reshape(N, 2),
            num_nodes=N + 2,
            folder=folder,
        )
    edges = {RELATIONS[0]: ([0, 1], [1, 2]), RELATIONS[2]: ([0], [1])}
    times = {RELATIONS[0]: [3, 4], RELATIONS[2]: [5]}
    graph = Graph.from_relations(SIZES, edges, edge_time=times)
    features = {
        "u": np.arange(14, dtype=np.float32).reshape(7, 2),
        "i": np.ones((5, 3), np.float16),
    }
    return Live(graph, features, num_nodes={"u": 9}, folder=folder)


def batch_of(live, nodes, cutoff):
    """A batch with these input nodes, which have these cutoffs."""
    graph = live.graph
    draw = DRAW if graph.schema is None else DRAW_TYPED
    drawn = draw(jax.random.key(0), graph, (), Seeds([0], [1]))
    time = None if cutoff is None else Seeds(nodes, cutoff).time
    return dataclasses.replace(drawn, nodes=jax.numpy.asarray(nodes, "int32"), cutoff=time)


def read(live, batch):
    """The rows that the batch's nodes read, each as a tuple; () in padding."""
    features, graph = live.features, live.graph
    if graph.schema is not None:
        features = TypedFeatures.from_dict(graph.schema, features)
    rows = GATHER(batch, features)
    if graph.schema is None:
        real = np.asarray(batch.nodes) < graph.num_nodes
        return [
            tuple(row) if r else ()
            for row, r in zip(np.asarray(rows).tolist(), real, strict=True)
        ]
    every = [np.asarray(jgs.ops.gather(table, rows.place)) for table in rows.tables]
    kinds = rows.kind.tolist()
    return [tuple(every[k][i].tolist()) if k >= 0 else () for i, k in enumerate(kinds)]


class Rows:
    """What the rows must be: for each node those that were set, in order, with moments."""

    def __init__(self, typed):
        widths = [3 if typed and 7 <= v < 12 else 2 for v in range(14 if typed else N + 2)]
        self.typed, self.widths = typed, widths
        self.there = [*range(12 if typed else N)]
        self.free = [*range(len(self.there), len(widths))]
        self.set = {v: [(None, (0.0,) * w)] for v, w in enumerate(widths)}
        for v in self.there:
            own = (2.0 * v, 2.0 * v + 1) if widths[v] == 2 else (1.0,) * 3
            self.set[v] = [(None, own)]

    def read(self, node, cutoff):
        if node >= len(self.widths):
            return ()
        first, *later = self.set[node]
        seen = [
            (time, i) for i, (time, _) in enumerate(later) if cutoff is None or time < cutoff
        ]
        return later[max(seen)[1]][1] if seen else first[1]

    def type_of(self, node):
        """The type of a node, and its place in it."""
        if not self.typed:
            return None, node
        return ("i", node - 7) if 7 <= node < 12 else ("u", node if node < 7 else node - 5)


def check(live, rows):
    nodes = [*range(len(rows.widths)), len(rows.widths)]
    pairs = list(itertools.product(nodes, range(LAST + 2)))
    batch = batch_of(live, *map(np.array, zip(*pairs, strict=True)))
    assert read(live, batch) == [rows.read(*pair) for pair in pairs]
    assert read(live, batch_of(live, nodes, None)) == [rows.read(v, None) for v in nodes]


ACTS = (*["later"] * 6, *["set", "append", "delete", "add", "merge", "restart"])


@settings(max_examples=15, deadline=None)
@given(
    st.booleans(),
    st.integers(0, 1 << 30),
    st.lists(st.sampled_from(ACTS), min_size=4, max_size=12),
)
def test_each_node_reads_the_row_of_its_cutoff(tmp_path_factory, typed, seed, acts):
    rng, folder = np.random.default_rng(seed), tmp_path_factory.mktemp("live") / "live"
    live, rows, seen = begun(typed, folder), Rows(typed), {}
    for act in acts:
        if act == "append":
            live.append(
                [1], [0], time=[rng.integers(LAST)], relation=RELATIONS[2] if typed else None
            )
        elif act in ("set", "later"):
            node = int(rng.choice(rows.there))
            kind, _ = rows.type_of(node)
            alike = [v for v in rows.there if rows.type_of(v)[0] == kind][:3]  # ties
            many = rng.choice(
                alike, rng.integers(1, 1 + len(alike)), replace=act == "later"
            ).tolist()
            new = rng.integers(0, 99, (len(many), rows.widths[node])).astype(float)
            time = rng.integers(0, LAST, len(many)) if act == "later" else None
            live.set_rows([rows.type_of(v)[1] for v in many], new, type=kind, time=time)
            for i, v in enumerate(many):
                if act == "set":
                    rows.set[v] = [(None, tuple(new[i]))]
                else:
                    rows.set[v].append((int(time[i]), tuple(new[i])))
        elif act == "delete" and len(rows.there) > 4:
            node = int(rng.choice(rows.there))
            live.delete_nodes([node])
            rows.set[node] = [(None, (0.0,) * rows.widths[node])]
            rows.there = [v for v in rows.there if v != node]
        elif act == "add" and rows.free:
            node = rows.free.pop(0)
            live.add_nodes(1, rows=[[7, 8]], type="u" if typed else None)
            rows.set[node] = [(None, (7.0, 8.0))]
            rows.there.append(node)
        elif act == "merge":
            live.merge()
            seen = {}
        elif act == "restart":
            live.close()
            live = Live.open(folder)
        check(live, rows)
        seen[live.position] = {v: list(own) for v, own in rows.set.items()}
    for position, own in seen.items():
        rows.set = own
        check(live.at(position), rows)
    live.close()


def test_a_drawn_batch_reads_the_rows_of_its_cutoffs():
    """Two seeds reach a node under two cutoffs: the node is twice there, with two rows."""
    live = begun(False)
    live.append([0, 0], [4, 5], time=[1, 1])
    live.set_rows([0, 0, 0], [[1, 1], [2, 2], [3, 3]], time=[5, 7, 5])
    live.set_rows([4], [[-0.0, 1]])
    cutoffs = [5, 6, 8, 9]
    seeds = Seeds([4, 5, 4, 5], cutoffs)
    for plain in (True, False):
        with kernels.plain(plain):
            batch = DRAW(jax.random.key(0), live.graph, (), seeds)
            assert np.signbit(batch.gather(live.features)[0, 0])  # the bits of before
        own = np.asarray(batch.nodes) == 0
        found = dict(
            zip(
                batch.cutoff[own].tolist(),
                batch.gather(live.features)[own, 0].tolist(),
                strict=True,
            )
        )
        assert found == {5: 0, 6: 3, 8: 2, 9: 2}
    inclusive = DRAW(jax.random.key(0), live.graph, (), Seeds([4], [5], inclusive=True))
    own = np.asarray(inclusive.nodes) == 0
    assert inclusive.gather(live.features)[own].tolist() == [[3, 3]]
    latest = DRAW(jax.random.key(0), live.graph, (), Seeds([4]))
    assert latest.gather(live.features)[np.asarray(latest.nodes) == 0].tolist() == [[2, 2]]


@pytest.mark.parametrize("form", ["float32", "float16", "int8", "sparse"])
def test_rows_of_any_form_hold_from_moments_on(form):
    """Kernel and plain, gathered and aggregated, by rows that are made by hand."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 9, (2, 60))
    graph = Graph.from_edges(src, dst, 9, edge_time=rng.integers(0, LAST, 60))
    table = rng.integers(0, 5, (9 + 20, 3)).astype(np.float32)
    nodes, time = rng.integers(0, 9, 20), rng.integers(0, LAST, 20)
    if form == "sparse":
        kept = jgs.SparseFeatures.from_scipy(scipy.sparse.csr_matrix(table))
    else:
        kept = jgs.graph.row_tables.table.kept_as(jax.numpy.asarray(table), form)
    features = VersionedFeatures(kept, Versions.of(9, nodes, time))
    seeds = Seeds(rng.integers(0, 9, 16), rng.integers(1, LAST + 2, 16))
    rows = np.asarray(jgs.ops.gather(kept, np.arange(29)))

    def row(node, cutoff):
        seen = [
            (t, 9 + i)
            for i, (v, t) in enumerate(zip(nodes, time, strict=True))
            if v == node and t < cutoff
        ]
        return rows[max(seen)[1] if seen else node]

    for plain in (True, False):
        with kernels.plain(plain):
            batch = jax.jit(Neighbors((3, 3)).sample)(jax.random.key(1), graph, (), seeds)
            x = np.asarray(GATHER(batch, features))
            pairs = zip(batch.nodes.tolist(), batch.cutoff.tolist(), strict=True)
            wanted = [row(v, t) if v < 9 else np.zeros(3) for v, t in pairs]
            np.testing.assert_array_equal(x, wanted)
            if form == "sparse":
                continue
            direct = Neighbors((3, 3), relabel_inputs=False)
            apart = jax.jit(direct.sample)(jax.random.key(1), graph, (), seeds)
            inputs = jgs.models.read_inputs(features, apart, "sum")
            summed = jgs.ops.aggregate(batch.blocks[0], x, "sum")
            real = int(batch.blocks[0].num_targets)
            np.testing.assert_allclose(inputs.aggregated[:real], summed[:real], rtol=1e-6)
            np.testing.assert_array_equal(inputs.own[:real], x[:real])


def test_rows_on_disk_and_hot_rows_hold_from_moments_on(tmp_path):
    """A loader's batches name the rows of a table that has those of versions too."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 9, (2, 60))
    graph = Graph.from_edges(src, dst, 9, edge_time=rng.integers(0, LAST, 60))
    table = rng.random((9 + 20, 3)).astype(np.float32)
    np.save(tmp_path / "first.npy", table[:9])
    np.save(tmp_path / "later.npy", table[9:])
    versions = Versions.of(9, rng.integers(0, 9, 20), rng.integers(0, LAST, 20))
    features = VersionedFeatures(jax.numpy.asarray(table), versions)
    items = {"nodes": rng.integers(0, 9, 26), "time": rng.integers(0, LAST + 1, 26)}
    key, sampler = jax.random.key(0), Neighbors((3, 3))
    hot = jgs.sampling.HotRows(jax.numpy.asarray(table), np.arange(0, 29, 2))
    disk = jgs.sampling.DiskRows([tmp_path / "first.npy", tmp_path / "later.npy"], 1 << 10)
    seen = 0
    for read in (hot, disk):
        options = {"after": functools.partial(versions.batch, num_rows=29), "read": read}
        plain = jgs.Loader(graph, items, 8, sampler, key=key, shuffle=False)
        apart = jgs.Loader(graph, items, 8, sampler, key=key, shuffle=False, **options)
        for batch, (named, rows) in zip(plain, apart, strict=True):
            x = (
                rows
                if read is disk
                else jgs.ops.gather(hot.joined(hot.table, rows), rows.place)
            )
            np.testing.assert_array_equal(x, batch.gather(features))
            np.testing.assert_array_equal(named.seed_mask, batch.seed_mask)
            seen += int(((named.nodes >= 9) & (named.nodes < 29)).sum())
    assert seen > 50


def test_what_is_refused():
    live = begun(False)
    live.set_rows([1], [[5, 5]], time=[3])
    says = "must be read by a batch, whose nodes have cutoffs; got a read by ids alone"
    refused(says, jgs.ops.gather, live.features, np.arange(3))
    refused("must be read by a batch", jgs.sampling.HotRows, live.features, [0])
    rule = "rows that hold from moments on must be"
    untimed = Live(Graph.from_edges([0], [1], 3), np.ones((3, 2)))
    refused(f"{rule}*no edge_time", untimed.set_rows, [0], [[1, 1]], time=[3])
    flat = Live(Graph.from_edges([0], [1], 3, edge_time=[1]), np.ones(3))
    refused(f"{rule}*[1], edge_time", flat.set_rows, [0], [1], time=[3])
    refused("time", live.set_rows, [0, 1], [[1, 1]] * 2, time=[3])
    refused("time", live.set_rows, [0], [[1, 1]], time=[0.5])
    refused("nodes", live.set_rows, [0, 0], [[1, 1]] * 2)
    assert live.position == 1


def test_nothing_of_a_deleted_node_is_in_a_file_after_a_merge(tmp_path):
    live = begun(False, tmp_path / "live")
    for times in np.arange(1500).reshape(3, 500):  # the rows get more room
        own = np.stack([times, np.full(500, 1234567)], axis=1)
        live.set_rows(times % 5, own, time=times)
    assert live.latest == 1499
    rows = [[1234567, 7654321]]
    live.set_rows([3], rows, time=5)
    live.delete_nodes([3])
    live.set_rows([2], [[1, 2]])
    live.merge()
    files = [path.read_bytes() for path in (tmp_path / "live").rglob("*") if path.is_file()]
    assert not any(np.float32(rows).tobytes() in file for file in files)
    live.close()
    live = Live.open(tmp_path / "live")
    nodes = np.array([0, 1, 2, 3, 4, 0])
    found = read(live, batch_of(live, nodes, [1000, 1000, 1000, 1000, 1000, 3]))
    assert [row[0] for row in found] == [995, 996, 1, 0, 999, 0]
    assert live.latest == 1499
    live.set_rows([3], rows, time=5)  # rows that were free
    assert read(live, batch_of(live, [3, 3], [5, 6])) == [(0, 0), tuple(rows[0])]
