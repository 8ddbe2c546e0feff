"""Negatives of links and of events: their laws, and that nothing of the future leaks."""

import functools
import sys

import jax
import numpy as np
import pytest
from cases import cases
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from rows_law import P_VALUE, assert_as_often
from scipy import stats

from jgs import Graph
from jgs.sampling import Capacity, Links, Neighbors, has_edge
from jgs.sampling.event_negatives import KINDS, event_negatives
from jgs.sampling.links import _Kinds

SMALL, EDGES, B, K = 7, 24, 4, 3
number = st.integers(0, SMALL - 1)
LINKS = {
    (sides, shared): Links(K, sides=sides, shared=shared, filtered=True, tries=30, copies=EDGES)
    for sides, shared in (("dst", False), ("both", False), ("both", True))
}


@functools.partial(jax.jit, static_argnames="which")
def drawn(key, graph, src, dst, which):
    """The batch of each kind of links, and its items."""
    sampler = Neighbors((3,), edge_ids=True)
    seeds, items = LINKS[which](key, graph, {"src": src, "dst": dst})
    capacity = Capacity((24,), seeds.nodes.shape)
    return sampler.sample(key, graph, (), seeds, capacity), items


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(number, number), min_size=EDGES, max_size=EDGES),
    st.lists(st.integers(0, EDGES), min_size=B, max_size=B),
    st.integers(0, 5),
    st.booleans(),
    st.sampled_from(list(LINKS)),
)
def test_nothing_leaks_and_no_negative_is_an_edge(edges, chosen, key, is_sorted, which):
    """All copies of an edge and of its reverse are excluded, in random multigraphs."""
    src, dst = np.array(edges).T
    graph = Graph.from_edges(src, dst, SMALL)
    graph = graph.sorted() if is_sorted else graph
    ends = np.array([*edges, (SMALL, SMALL)], np.int32)[chosen]
    batch, items = jax.device_get(drawn(jax.random.key(key), graph, *ends.T, which=which))
    assert not batch.overflow
    targets = {tuple(pair) for pair in np.r_[ends, ends[:, ::-1]].tolist()}
    nodes, all_edges = batch.nodes, graph.edge_index().T
    for block in batch.blocks:
        ids = block.edge_id[: int(block.num_edges)]
        assert not targets & {*map(tuple, all_edges[ids].tolist())}
    known, real = set(map(tuple, edges)), ends[:, 0] < SMALL
    np.testing.assert_array_equal(nodes[items["rows"][real]], ends[real])
    masked = 0
    for pair, side, node, counts in negatives_of(items, ends, nodes):
        if SMALL in pair:
            assert not counts
            continue
        made = [(v, pair[1]) if side == 0 else (pair[0], v) for v in range(SMALL)]
        wrong = [one in known or one[0] == one[1] for one in made]  # the pair is known, too
        assert counts != wrong[node]
        # A uniform node is allowed with probability 1/7 at least: 30 draws do not fail.
        assert counts or which[1] or all(wrong)
        masked += not counts
    assert items["masked"] == masked


def negatives_of(items, ends, nodes):
    """Each negative: its pair, the end that it replaces, its node, and whether it counts."""
    side, rows, mask = (items[f"negative_{name}"] for name in ("side", "rows", "mask"))
    if side.ndim == 1:  # shared
        shape = mask.shape
        side, rows = side[:, None, None], rows[:, None]
    else:
        shape, side, rows, mask = (1, *mask.shape), side[None], rows[None], mask[None]
    side, rows = np.broadcast_to(side, shape), np.broadcast_to(rows, shape)
    for s, b, k in np.ndindex(*shape):
        row = rows[s, b, k]
        node = int(nodes[row]) if row < len(nodes) else SMALL
        yield tuple(ends[b].tolist()), int(side[s, b, k]), node, bool(mask[s, b, k])


def bipartite():
    """Users 0 to 3 buy items 4 to 9. User 3 and items 7 and 9 have no edges."""
    buys = {("user", "buys", "item"): ([0, 0, 0, 1, 1, 2], [0, 1, 2, 0, 0, 4])}
    return Graph.from_relations({"user": 4, "item": 6}, buys)


def often(links, graph, items, keys=4000):
    """The nodes that many keys draw `[keys, ...]`, with the items that came back."""
    graph = links.prepare(graph)
    run = jax.jit(jax.vmap(lambda key: links(key, graph, items)))
    seeds, made = jax.device_get(run(jax.random.split(jax.random.key(3), keys)))
    rows = made["negative_rows"].reshape(keys, -1)
    return np.take_along_axis(seeds.nodes, rows, axis=1), made


LAWS = [("uniform", "dst", True), ("degree", "src", False), ("degree", "dst", True)]


@pytest.mark.parametrize(("negatives", "side", "shared"), LAWS)
def test_negatives_follow_their_law(negatives, side, shared):
    """Nodes of the replaced end's own type, in proportion to degree^0.75 or uniformly; also
    where the graph was prepared for another power."""
    graph = Links(negatives="degree", power=0).prepare(bipartite())
    types = ("user", "item") if shared else None
    links = Links(2, negatives, sides=side, shared=shared, types=types)
    items = {"src": np.array([1, 0]), "dst": np.array([8, 4])}
    nodes, made = often(links, graph, items)
    degree = {"src": [3, 2, 1, 0], "dst": [3, 1, 1, 0, 1, 0]}[side]
    law = np.array(degree) ** 0.75 if negatives == "degree" else np.ones(len(degree))
    law, begin = law / law.sum(), 4 * (side == "dst")
    assert_as_often(np.bincount(nodes.reshape(-1) - begin, minlength=len(law)), law)
    found = np.exp(made["negative_log_prob"].reshape(nodes.shape))
    np.testing.assert_allclose(found, law[nodes - begin], rtol=1e-5)


def test_both_ends_are_replaced_equally_often_by_nodes_of_their_own_type():
    links = Links(4, "degree", sides="both")
    nodes, made = often(links, bipartite(), {"src": np.array([1]), "dst": np.array([8])}, 1000)
    side = made["negative_side"].reshape(nodes.shape)
    assert ((nodes >= 4) == (side == 1)).all()
    assert stats.binomtest(int(side.sum()), side.size).pvalue > P_VALUE


def test_draws_are_the_pair_s_own():
    """The same in another batch and place, not at another time; shared ones for any pairs."""
    graph = Graph.from_edges(*np.random.default_rng(1).integers(0, 900, (2, 5000)), 900)
    timed = Graph.from_edges([0], [1], 900, edge_time=[5])
    ends = np.random.default_rng(2).integers(0, 900, (2, 20))
    other = np.c_[[900, 900], ends[:, ::-1][:, :7]]

    def drawn(graph, ends, shared=False, **time):
        links, items = Links(5, sides="both", shared=shared), {"src": ends[0], "dst": ends[1]}
        with jax.enable_x64(True):
            seeds, made = jax.device_get(jax.jit(links)(jax.random.key(1), graph, items | time))
        nodes = np.append(seeds.nodes, -1)  # a pair of padding has no rows
        rows = np.minimum(made["negative_rows"], seeds.nodes.size)
        return seeds, nodes[rows], made["negative_mask"]

    np.testing.assert_array_equal(drawn(graph, ends, True)[1], drawn(graph, other, True)[1])
    (_, one, _), (_, two, mask) = drawn(graph, ends), drawn(graph, other)
    np.testing.assert_array_equal(one[::-1][:7], two[1:])
    assert not mask[0].any()
    seeds, now, _ = drawn(timed, ends, time=np.full(20, 2**40))
    assert seeds.excluded is None
    assert (seeds.time[:20] == 2**40).all()
    _, later, _ = drawn(timed, ends, time=np.full(20, 2**40 + 2**33))
    assert (now != later).mean() > 0.9


def test_the_places_of_types_in_parts():
    """A type's places are one stretch, also where each part has some of its nodes."""
    whole = bipartite()
    parts = whole.schema.of_nodes(np.array([0, 1, 4, 5, 6, 2, 3, 7, 8, 9]), (0, 5, 10))
    kinds = _Kinds(np.array(parts.offsets), *_Kinds.of(whole)[1:])
    sizes = np.diff(kinds.offsets).reshape(2, 2).T.reshape(-1)
    kinds = kinds._replace(begins=np.r_[0, np.cumsum(sizes)])
    nodes = kinds.node(np.arange(10))
    assert nodes.tolist() == [0, 1, 5, 6, 2, 3, 4, 7, 8, 9]
    np.testing.assert_array_equal(kinds.place(nodes), np.arange(10))
    np.testing.assert_array_equal(kinds.kind(nodes), [0] * 4 + [1] * 6)


@pytest.mark.parametrize("relations", [1, 2])
def test_edges_of_a_time(relations):
    """Also where a row has the times of each relation in turn, and at the largest time."""
    rng = np.random.default_rng(4)
    src, dst, time = (rng.integers(low, 6, (relations, 200)) for low in (0, 0, -6))
    names = [("a", f"r{i}", "a") for i in range(relations)]
    ends = dict(zip(names, zip(src, dst, strict=True), strict=True))
    times = dict(zip(names, time, strict=True))
    graph = Graph.from_relations({"a": 6}, ends, edge_time=times)
    known = {*zip(src.flat, dst.flat, time.flat, strict=True)}
    a, b, t = rng.integers([0, 0, -8], [6, 6, 8], (900, 3)).T
    t[:9] = np.iinfo(np.int64).max
    found = has_edge(graph, a, b, t)
    want = [each in known for each in zip(a.tolist(), b.tolist(), t.tolist(), strict=True)]
    np.testing.assert_array_equal(found, want)
    assert 100 < sum(want) < 800
    columns = {"edge_type": graph.edge_type, "edge_time": graph.edge_time}
    nameless = Graph(graph.indptr, graph.indices, **columns)  # by type first all the same
    np.testing.assert_array_equal(has_edge(nameless, a, b, t), want)
    refused("graph with edge_time", has_edge, Graph.from_edges([0], [1], 2), [0], [1], [5])


def test_has_edge_reads_long_rows():
    rng = np.random.default_rng(0)
    hub = np.r_[rng.permutation(40_000)[:20_000], 3]
    graph = Graph.from_edges(hub, np.r_[np.zeros(20_000, int), 1], 40_000)
    src = np.r_[3, 3, -1, 0, rng.integers(0, 40_000, 100)]
    dst = np.r_[1, 2, 1, 40_000, np.zeros(100, int)]
    want = [True, False, False, False, *np.isin(src[4:], hub[:-1])]
    for one in (graph, graph.sorted()):
        np.testing.assert_array_equal(jax.jit(has_edge)(one, src, dst), want)


def test_what_cannot_be_asked():
    graph, key, items = bipartite(), jax.random.key(0), {"src": [1], "dst": [8]}
    items = {name: np.array(nodes) for name, nodes in items.items()}

    def at(*time, dtype=int, **options):
        return lambda: Links(**options)(key, graph, items | {"time": np.array(time, dtype)})

    for make, says in (
        (lambda: Links(-1), "num_negatives must be an int of at least 0"),
        (lambda: Links(sides="left"), "sides must be one of src, dst, both"),
        (lambda: Links(power=float("nan")), "power must be from 0 to 1"),
        (lambda: Links()(key, graph, np.array([1])), "mapping with src and dst"),
        (lambda: Links(negatives="degree")(key, graph, items), "links.prepare"),
        (lambda: Links(shared=True)(key, graph, items), "the types of both ends"),
        (at(1, shared=True), "items without times"),
        # A float has no exact time, and would let in the link itself.
        (at(1.7e9, dtype=np.float32), "time of seeds must be an array of integers"),
        (at(2**63 + 5, dtype=np.uint64), "64-bit integers"),
    ):
        refused(says, make)
    # No author of an edge can replace an item by degree: nothing counts, and that is said.
    one = Graph.from_relations({"user": 2, "shop": 3}, {("user", "visits", "shop"): ([0], [1])})
    links = Links(2, "degree", sides="src")
    pair = {"src": np.array([3]), "dst": np.array([3])}
    _, made = jax.jit(links)(key, links.prepare(one), pair)
    assert not made["negative_mask"].any()
    assert made["masked"] == 2


KEY, N, BEGIN = jax.random.key(5), 40, 30
RNG = np.random.default_rng(1)
LOW, HIGH = {"src": 0, "dst": 4, "time": 0}, {"src": 4, "dst": N, "time": 60}
HISTORY = {name: RNG.integers(LOW[name], HIGH[name], 200) for name in LOW}
LATE = {name: column[HISTORY["time"] >= BEGIN] for name, column in HISTORY.items()}
CANDIDATES, EVENT = np.arange(4, N), {"src": [0], "dst": [1], "time": [5]}


def partners(src, low, high):
    """The targets of a source whose first event with it is in [low, high)."""
    found = {}
    for s, d, t in zip(*HISTORY.values(), strict=True):
        if s == src:
            found[int(d)] = min(int(t), found.get(int(d), 1 << 30))
    return {d for d, t in found.items() if low <= t < high}


def at(src, time):
    same = (HISTORY["src"] == src) & (HISTORY["time"] == time)
    return {*HISTORY["dst"][same].tolist()}


@cases(
    "changes, says",
    ({"events": {"src": [0], "time": [5]}}, "events must have src, dst, time; got no dst"),
    ({"history": EVENT | {"dst": [1, 2]}}, "of one length; got src 1, dst 2"),
    ({"events": EVENT | {"time": [5.0]}}, "time of events must be integers"),
    ({"candidates": []}, "candidates must be distinct nodes, at least one"),
    ({"candidates": [3, 3]}, "2, of which 1 are distinct"),
    ({"candidates": [2**33]}, "candidates of the nodes must be node ids"),
    ({"born": [1]}, "got candidates 3, born 1"),
    ({"kind": "past"}, "kind must be one of"),
    ({"kind": "inductive"}, "need a begin"),
    ({"num": 0}, "num must be"),
)
def test_what_does_not_fit_is_refused(changes, says):
    given = {"history": EVENT, "events": EVENT, "candidates": [1, 2, 3], "num": 1} | changes
    refused(says, event_negatives, KEY, **given)


def test_an_event_that_the_history_lacks_has_other_negatives_than_its_target():
    history = {"src": [0], "dst": [1], "time": [0]}
    events = {"src": np.zeros(40, int), "dst": np.arange(40) % 3 + 1, "time": np.arange(40) + 1}
    made = event_negatives(KEY, history, events, np.arange(1, 4), 2)
    assert (made >= 1).all()
    assert (made != events["dst"][:, None]).all()


BORN = RNG.permutation(len(CANDIDATES)) + 20  # 20 to 55


@pytest.mark.parametrize(("kind", "born"), [*((k, None) for k in KINDS), ("random", BORN)])
def test_what_negatives_are(kind, born):
    """Distinct, no target of now, born before: those of the kind, then random ones."""
    asked = {"kind": kind, "begin": BEGIN, "born": born}
    made = event_negatives(KEY, HISTORY, LATE, CANDIDATES, N, **asked)
    some = event_negatives(KEY, HISTORY, LATE, CANDIDATES, 2, **asked)
    full = 0
    for row, two, src, time in zip(made, some, LATE["src"], LATE["time"], strict=True):
        real, now, own = row[row >= 0].tolist(), at(src, time), set()
        if kind != "random":
            own = partners(src, BEGIN if kind == "inductive" else -1, time) - now
        assert len({*real}) == len(real)
        old = CANDIDATES if born is None else CANDIDATES[born < time]
        assert {*real} == {*old.tolist()} - now
        assert {*real[: len(own)]} == own
        assert len(own) < 2 or {*two.tolist()} <= own
        full += len(own) >= 2
    assert kind == "random" or full > 20


@pytest.mark.parametrize("kind", KINDS)
def test_the_future_decides_nothing(kind):
    """Events after the judged one may be anything: its negatives are the same."""
    event = {"src": np.array([1]), "dst": np.array([5]), "time": np.array([40])}
    past = {name: column[HISTORY["time"] <= 40] for name, column in HISTORY.items()}
    more = {"src": np.ones(50, int), "dst": np.arange(4, 54) % N, "time": np.arange(41, 91)}
    other = {name: np.concatenate([past[name], more[name]]) for name in past}
    made = event_negatives(KEY, past, event, CANDIDATES, 3, kind, BEGIN)
    for history in (HISTORY, other):
        same = event_negatives(KEY, history, event, CANDIDATES, 3, kind, BEGIN)
        np.testing.assert_array_equal(same, made)


@pytest.mark.parametrize("kind", ["random", "historical"])
@pytest.mark.parametrize("num", [1, 3])
def test_they_are_uniform(kind, num):
    """Of 24 nodes all subsets alike, whether a few are drawn or all are put in order."""
    event = {"src": np.full(9_000, 0), "dst": np.full(9_000, 2), "time": 99 + np.arange(9_000)}
    for late in (24, 5):  # with a time of few nodes too
        nodes = np.arange(4, 4 + late)
        known = {"src": np.full(late, 0), "dst": nodes, "time": np.arange(late)}
        made = event_negatives(KEY, known, event, nodes, num, kind)
        for drawn in (made, made[:, 0]):
            assert_as_often(np.bincount(drawn.reshape(-1))[4:], np.ones(late))


def test_an_event_draws_for_itself():
    """Not the other events, their order and number decide, and a hub's are as others'."""
    rng = np.random.default_rng(3)
    hub = {"src": rng.integers(0, 3, 3_000), "dst": rng.integers(0, 900, 3_000)}
    hub["time"] = rng.integers(-9, 2_000, 3_000)
    hub["time"][:400], hub["src"][:400] = 1_500, 1  # 400 targets at once
    for kind in KINDS:
        options = {"candidates": np.arange(900), "num": 150, "kind": kind, "begin": 900}
        whole = event_negatives(KEY, hub, hub, **options)
        some = rng.permutation(3_000)[:200]
        own = {name: column[some] for name, column in hub.items()}
        np.testing.assert_array_equal(event_negatives(KEY, hub, own, **options), whole[some])
        assert (whole >= 0).all()
        taken = {*hub["dst"][(hub["time"] == 1_500) & (hub["src"] == 1)].tolist(), 1}
        assert not {*whole[0].tolist()} & taken
        assert all(len({*row.tolist()}) == 150 for row in whole[:50])
    assert len(np.unique(whole[:400], axis=0)) > 300  # each event of a moment has its own


def test_memory_is_bounded(monkeypatch):
    """Also where many events of one source and time each leave out the targets of all."""
    module = sys.modules["jgs.sampling.event_negatives"]
    same = {"src": np.zeros(300, int), "dst": np.arange(300) % 200, "time": np.zeros(300, int)}
    of, at, sizes = (KEY, same, same, np.arange(900), 5), module._Past.at, []

    def watched(self, *events):
        sizes.append(len(found := at(self, *events)))
        return found

    whole = event_negatives(*of)
    monkeypatch.setattr(module, "_AT_ONCE", 1_000)
    monkeypatch.setattr(module._Past, "at", watched)
    np.testing.assert_array_equal(event_negatives(*of), whole)
    assert max(sizes) < 1_400
