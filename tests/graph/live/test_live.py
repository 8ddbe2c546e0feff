"""`jgs.graph.Live`: after any changes its rows are those of a graph that is made anew."""

import threading

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from jgs import Graph, kernels
from jgs.graph.live import Change, Live
from jgs.graph.live.rows import Rows

RELATIONS = (("u", "buys", "i"), ("i", "rev_buys", "u"), ("u", "knows", "u"))
SIZES = {"u": 7, "i": 5}


class Model:
    """What a live graph must be: its edges in a list, in the order in which they came."""

    def __init__(self, typed, timed, weighted):
        self.typed, self.timed, self.weighted, self.edges = typed, timed, weighted, []
        self.relations = RELATIONS if typed else (None,)
        self.next = 0

    def ends(self, relation):
        return (
            (sum(SIZES.values()),) * 2
            if relation is None
            else (SIZES[relation[0]], SIZES[relation[2]])
        )

    def draw(self, rng, num):
        """The arguments of `append` for random edges, with ties and parallel edges."""
        relation = self.relations[rng.integers(len(self.relations))]
        src, dst = (rng.integers(0, size, num) for size in self.ends(relation))
        given = {"edge_columns": {"n": np.arange(self.next, self.next + num)}}
        if self.timed:
            given["time"] = rng.integers(0, 6, num)
        if self.weighted:
            given["edge_weight"] = rng.integers(0, 4, num).astype(np.float32)
        if relation is not None:
            given["relation"] = relation
        return (src, dst), given

    def add(self, ends, given):
        for i, (src, dst) in enumerate(zip(*ends, strict=True)):
            time, weight = (
                given.get(n, [None] * len(ends[0]))[i] for n in ("time", "edge_weight")
            )
            self.edges.append(
                (self.next, given.get("relation"), int(src), int(dst), time, weight)
            )
            self.next += 1

    def graph(self):
        """A graph of the edges, made anew."""

        def columns(edges):
            src, dst, time, weight, number = (
                np.array([edge[i] for edge in edges]) for i in (2, 3, 4, 5, 0)
            )
            weight = weight.astype(np.float32) if self.weighted else None
            time = time.astype(np.int64) if self.timed else None
            return src.astype(int), dst.astype(int), weight, time, {"n": number.astype(int)}

        if not self.typed:
            src, dst, weight, time, column = columns(self.edges)
            size = sum(SIZES.values())
            return Graph.from_edges(src, dst, size, weight, edge_time=time, edge_columns=column)
        each = {r: columns([e for e in self.edges if e[1] == r]) for r in RELATIONS}
        return Graph.from_relations(
            SIZES,
            {r: c[:2] for r, c in each.items()},
            {r: c[2] for r, c in each.items()} if self.weighted else None,
            edge_time={r: c[3] for r, c in each.items()} if self.timed else None,
            edge_columns={r: c[4] for r, c in each.items()},
        )


def assert_equal(live, model):
    """Every array of the rows has the entries of the graph made anew."""
    made, packed = model.graph(), live.packed()
    assert live.num_edges == made.num_edges == len(model.edges)
    np.testing.assert_array_equal(packed.indptr, made.indptr)
    np.testing.assert_array_equal(packed.edge_order, made.edge_columns["n"])
    own, want = packed.edge_arrays(), made.edge_arrays()
    assert own.keys() == want.keys()
    for name in own.keys() - {"edge_order"}:
        np.testing.assert_array_equal(own[name], want[name], name)
    bounds = np.asarray(live.graph.indptr)
    np.testing.assert_array_equal(bounds[1, :-1] - bounds[0, :-1], np.diff(made.indptr))


STEPS = st.lists(st.tuples(st.sampled_from("aaabbdnm"), st.integers(0, 2**32 - 1)), max_size=14)


@pytest.mark.parametrize("with_kernels", [True, False])
@pytest.mark.parametrize("typed", [False, True])
@given(timed=st.booleans(), weighted=st.booleans(), steps=STEPS)
@settings(max_examples=25, deadline=None)
def test_any_changes(with_kernels, typed, timed, weighted, steps):
    model = Model(typed, timed, weighted)
    for relation in model.relations if typed else (None,):  # some edges of each to begin with
        ends, given = Model(typed, timed, weighted).draw(np.random.default_rng(1), 6)
        if given.get("relation") == relation:
            given["edge_columns"]["n"] += model.next
            model.add(ends, given)
    with kernels.plain(not with_kernels):
        live = Live(model.graph())
        # A typed graph numbers edges by relation, as the model does where it has one of them.
        for kind, seed in steps:
            rng = np.random.default_rng(seed)
            if kind in "ab":
                ends, given = model.draw(rng, int(rng.integers(0, 9 if kind == "a" else 60)))
                numbers = live.append(*ends, **given)
                np.testing.assert_array_equal(
                    numbers, np.arange(model.next, model.next + len(numbers))
                )
                model.add(ends, given)
            elif kind == "d" and model.next:
                gone = set(rng.integers(0, model.next, 5).tolist())
                left = [edge for edge in model.edges if edge[0] not in gone]
                assert live.delete_edges(sorted(gone)) == len(model.edges) - len(left)
                model.edges = left
            elif kind == "n":
                relation = model.relations[rng.integers(len(model.relations))]
                name = None if relation is None else relation[0]
                node = int(rng.integers(model.ends(relation)[0]))

                def touches(edge, name=name, node=node):
                    ends = (None, None) if edge[1] is None else (edge[1][0], edge[1][2])
                    return (ends[0], edge[2]) == (name, node) or (ends[1], edge[3]) == (
                        name,
                        node,
                    )

                live.delete_nodes([node], type=name)
                model.edges = [edge for edge in model.edges if not touches(edge)]
            elif kind == "m" and model.edges:
                _, relation, src, dst, *_ = model.edges[rng.integers(len(model.edges))]
                left = [edge for edge in model.edges if edge[1:4] != (relation, src, dst)]
                kwargs = {} if relation is None else {"relation": relation}
                assert live.delete_between([src], [dst], **kwargs) == len(model.edges) - len(
                    left
                )
                model.edges = left
        assert_equal(live, model)
        assert_equal(Live(live.packed()), model)


SRC, DST = np.array([0, 1, 2, 2]), np.array([1, 2, 0, 1])


def small(**given):
    return Live(Graph.from_edges(SRC, DST, 3, edge_time=np.arange(4)), **given)


def names(live):
    """The numbers of the edges that are there, ascending."""
    return sorted(live.packed().edge_order.tolist())


def test_a_node_is_added_and_its_id_is_not_given_again():
    features = np.arange(6, dtype=np.float32).reshape(3, 2)
    live = small(features=features, num_nodes=5)
    assert (live.num_nodes, live.graph.num_nodes, live.features.shape) == (3, 5, (5, 2))
    refused("src must be node ids in [0, 3); got 3", live.append, [3], [0], time=[9])
    np.testing.assert_array_equal(live.add_nodes(1, rows=[[7, 8]]), [3])
    assert live.append([3, 0], [0, 3], time=[9, 9]).tolist() == [4, 5]
    np.testing.assert_array_equal(np.array(live.features), [*features, [7, 8], [0, 0]])
    live.set_rows([0], [[5, 5]])
    assert live.delete_nodes([3]) == 2
    np.testing.assert_array_equal(np.array(live.features)[[0, 3]], [[5, 5], [0, 0]])
    assert live.add_nodes(1).tolist() == [4]
    assert names(live) == [0, 1, 2, 3]
    live.delete_nodes([0, 1])
    live.append([1], [2], time=[9])
    assert live.gone.tolist() == [True, False, False, True, False]  # 1 is there again
    refused("there must be room for new nodes, of 5 ids; got 5 nodes", live.add_nodes, 1)


def test_more_ids_of_a_type_follow_all_others():
    graph = Graph.from_relations(SIZES, {RELATIONS[0]: ([6], [4]), RELATIONS[2]: ([0], [1])})
    features = {"u": np.ones((7, 2), np.float32), "i": np.ones((5, 3), np.int8)}
    live = Live(graph, features, num_nodes={"u": 9})
    assert live.num_nodes == SIZES
    assert live.graph.schema.num_nodes == 14
    assert live.packed().edge_index().tolist() == graph.edge_index().tolist()
    assert live.graph.schema.ranges("u") == (range(7), range(12, 14))
    assert live.add_nodes(2, type="u", rows=[[3, 3], [4, 4]]).tolist() == [12, 13]
    assert {name: rows.shape for name, rows in live.features.items()} == {
        "u": (9, 2),
        "i": (5, 3),
    }
    assert live.features["u"][:, 0].tolist() == [1] * 7 + [3, 4]
    live.set_rows([8, 0], [[5, 5], [6, 6]], type="u")
    assert live.features["u"][:, 0].tolist() == [6] + [1] * 6 + [3, 5]
    live.append([8], [0], relation="buys")
    live.append([1], [7], relation="knows")
    assert live.ids([8, 2], "u").tolist() == [13, 2]
    rows = {v: np.asarray(live.graph.indices)[slice(*live.graph.indptr[:, v])] for v in (7, 12)}
    assert [rows[7].tolist(), rows[12].tolist()] == [[13], [1]]
    again = Live(live.packed(), num_nodes={"i": 7})
    assert again.add_nodes(1, type="i").tolist() == [14]
    assert again.graph.schema.ranges("i") == (range(7, 12), range(14, 14), range(14, 16))
    assert live.delete_nodes([4], type="i") == 1
    assert live.features["i"][:, 0].tolist() == [1, 1, 1, 1, 0]
    refused("src must be node ids in [0, 9)", live.append, [9], [0], relation="buys")


def test_new_nodes_are_found_by_name_until_they_are_deleted():
    live = small(num_nodes=9)
    live.add_nodes(2, names=["ann", "x" * 90])
    live.add_nodes(1)
    live.add_nodes(1, names=[7])
    assert (live.named["ann"], live.named["7"], live.names[6]) == (3, 6, 7)
    for names in (["bob", "bob"], ["ann", "bob"], ["bob"], [1.5, 2.5], "ab", [7, 9]):
        with pytest.raises(ValueError, match="names of new nodes"):
            live.add_nodes(2, names=names)
    live.delete_nodes([3, 5])
    assert live.named == {"x" * 90: 4, "7": 6}
    live.add_nodes(1, names=["ann"])
    assert live.names == {4: "x" * 90, 6: 7, 7: "ann"}


def test_a_time_to_live_is_a_cutoff_from_below():
    live = small(keep=2)
    assert names(live) == [1, 2, 3]  # of times 1, 2, 3
    live.append([0, 1], [0, 0], time=[4, 1])  # the second is over as it comes
    assert names(live) == [2, 3, 4]
    for _ in range(40):  # many small runs of times, of which some are merged
        live.append([0], [1], time=[5])
    assert names(live) == [*range(3, 5), *range(6, 46)]
    live.append([0], [1], time=[9])
    assert names(live) == [46]


def test_a_change_donates_the_graph_and_waits_for_programs():
    live = small()
    graph = live.graph
    assert live.graph.indices is graph.indices  # it is made once
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 3000, lambda i, s: s + (x * i).sum(), 0.0))
    before = slow(graph.indices)
    running = slow(graph.indices)
    live.append([0], [1], time=[7])
    assert running == before
    with pytest.raises(RuntimeError, match="deleted"):
        slow(graph.indices)


def test_a_numpy_array_of_the_graph_stays_as_it_was(monkeypatch, caplog):
    monkeypatch.setattr("jgs.graph.live.snapshot._WAIT", 0.05)
    live = small(features=np.ones((3, 1), np.float32))
    held, rows = np.asarray(live.graph.edge_time), np.asarray(live.features)
    copies = held.copy(), rows.copy()
    live.append([0, 0], [2, 1], time=[2, 0])
    live.set_rows([0], [[3]])
    np.testing.assert_array_equal(held, copies[0])
    np.testing.assert_array_equal(rows, copies[1])
    assert "is copied" in caplog.text
    assert names(live) == [*range(6)]


def test_reading_keeps_other_threads_away():
    live, done = small(), threading.Event()

    def change():
        live.append([0], [1], time=[7])
        done.set()

    with live.reading() as graph:
        thread = threading.Thread(target=change)
        thread.start()
        assert not done.wait(0.1)
        assert np.asarray(graph.edge_time).max() == 3
    thread.join(10)
    assert done.is_set()
    assert live.position == 1


def test_a_graph_that_has_no_more_room_is_laid_out_again():
    live = small()
    capacity = live.graph.num_edges
    for _ in range(8):
        live.append(np.zeros(1000, int), np.ones(1000, int), time=np.full(1000, 9))
    assert live.graph.num_edges > capacity
    assert live.num_edges == 8004


def test_a_room_that_a_row_left_is_used_again():
    rows = Rows(
        np.array([0, 0, 0]),
        {"indices": np.zeros(0, np.int32), "edge_order": np.zeros(0, np.int32)},
    )
    for i in range(40):
        for row in (0, 1):
            rows.insert(
                np.array([row]), {"indices": np.array([i]), "edge_order": np.array([i])}
            )
    assert rows.used < 3 * 80
    _, arrays = rows.packed()
    np.testing.assert_array_equal(arrays["indices"], [*range(40)] * 2)


def test_what_is_no_change_is_refused_and_changes_nothing():
    live = small(num_nodes=4)
    for wrong, match in (
        (lambda: live.append([0], [1]), "new edges must have time"),
        (lambda: live.append([0], [1], time=[0.5]), "integers"),
        (lambda: live.append([0], [1, 2], time=[0]), "src and dst"),
        (lambda: live.append([0], [1], time=[0], edge_weight=[1.0]), "edge_weight"),
        (lambda: live.append([0], [1], time=[0], relation="knows"), "relation must be"),
        (lambda: live.append([0], [1], time=[0], edge_columns={"x": [1]}), "columns"),
        (lambda: live.append([0.5], [1], time=[0]), "src"),
        (lambda: live.delete_edges([4]), "numbers must be those of edges"),
        (lambda: live.delete_nodes([3]), "nodes must be node ids in [0, 3)"),
        (lambda: live.set_rows([0], [[1]]), "rows must be for nodes that have features"),
        (lambda: live.add_nodes(1, type="u"), "the type of new nodes"),
        (lambda: live.add_nodes(1, time=[3]), "the times of new nodes"),
        (lambda: live.apply(Change("grow", {})), "a change must be one of"),
        (lambda: Live(live.graph), "must begin with a jgs.Graph"),
        (lambda: small(keep=0), "keep"),
        (lambda: small(num_nodes=2), "num_nodes must be at least the graph's 3"),
        (lambda: small(num_nodes={"u": 9}), "num_nodes must be an int"),
        (lambda: small(features=np.ones((2, 1))), "features"),
        (lambda: live.graph.sorted(), "rows without room"),
        (lambda: live.graph.save("nowhere"), "rows without room"),
        (lambda: live.graph.edge_index(), "rows without room"),
        (lambda: live.graph.to_scipy(), "rows without room"),
        (lambda: live.graph.with_edges([0], [1], [9]), "rows without room"),
    ):
        refused(match, wrong)
    assert live.position == 0
    assert names(live) == [0, 1, 2, 3]
