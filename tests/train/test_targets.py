"""How edges are dealt to training, validation and test, and what they are judged against."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from small_data import shops
from small_runs import unordered

from jgs import Graph
from jgs.dist.communicators.comm import Alone
from jgs.train.evaluation.link_metrics import Ends, judged
from jgs.train.tasks.links import Links
from jgs.train.tasks.targets import split_targets

KEY = jax.random.key(3)


def split(graph, **options):
    task = SimpleNamespace(**vars(Links()) | {"label": None} | options)
    return split_targets(Alone(), [graph], [(0, graph.num_nodes)], KEY, task)


def pairs(columns):
    return list(zip(columns["src"].tolist(), columns["dst"].tolist(), strict=True))


def edges(graph):
    return list(zip(*(a.tolist() for a in graph.edge_index()), strict=True))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 11)] * 2), min_size=30, max_size=60), st.booleans())
def test_at_random_no_held_out_pair_is_a_message(drawn, both_ways):
    """In either direction, and in no copy; and each pair of nodes is one target."""
    drawn += [(0, 1), (1, 2), (2, 3), (3, 4)]  # never too few
    drawn += [(b, a) for a, b in drawn] * both_ways
    graph = Graph.from_edges(*zip(*drawn, strict=True), 12)
    found = split(graph, test_share=0.3, val_share=0.2, val_messages=True)
    every = [pair for part in found[:3] for pair in pairs(part)]
    real = {(a, b) for a, b in drawn if a != b}
    if found.undirected:
        real = {(a, b) for a, b in real if a < b}
    assert sorted(every) == sorted(real)
    train, val, test = (unordered(part["src"], part["dst"]) for part in found[:3])
    assert len(train) + len(val) + len(test) == len(train | val | test)
    messages, at_test = edges(found.messages[0]), edges(found.at_test[0])
    assert sorted(messages) == sorted(p for p in drawn if tuple(sorted(p)) not in val | test)
    assert sorted(at_test) == sorted(p for p in drawn if tuple(sorted(p)) not in test)
    again = split(graph, test_share=0.3, val_share=0.2)
    assert [pairs(part) for part in again[:3]] == [pairs(part) for part in found[:3]]


def test_an_answer_is_an_event_of_its_own():
    """A graph whose every message is answered later has no reverse edges."""
    src, dst = np.random.default_rng(0).integers(0, 20, (2, 300))
    time = 10 * np.arange(src.size)
    both = np.append(src, dst), np.append(dst, src)
    for later in (0, 5):
        graph = Graph.from_edges(*both, 20, edge_time=np.append(time, time + later))
        found = split(graph, temporal=True)
        apart = np.count_nonzero(src != dst)
        assert found.undirected == (later == 0)
        assert sum(len(p["src"]) for p in found[:3]) == apart * (1 if found.undirected else 2)


def test_by_time_the_latest_are_the_test():
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 20, (2, 400))
    time = rng.integers(0, 90, 400)
    graph = Graph.from_edges(src, dst, 20, edge_time=time)
    found = split(graph, test_share=0.2, val_share=0.1)
    when = {}
    for a, b, t in zip(src.tolist(), dst.tolist(), time.tolist(), strict=True):
        when.setdefault((a, b), []).append(t)
    latest = [[t for pair in set(pairs(part)) for t in when[pair]] for part in found[:3]]
    begins = sorted(time[src != dst])[-int(0.2 * (src != dst).sum())]
    assert len(pairs(found.test)) == ((time >= begins) & (src != dst)).sum()
    assert all(max(when[pair]) >= begins for pair in pairs(found.test))
    assert min(latest[0]) < begins
    first = sorted(time[src != dst])[-int(0.1 * (src != dst).sum()) - (src != dst).sum() // 5]
    assert found.messages[0].num_edges == (time < first).sum()
    assert found.messages[0].edge_time is None
    assert found.messages[0].sorted_by_source


def test_by_the_column_and_with_labels():
    rng = np.random.default_rng(1)
    src, dst = rng.integers(0, 20, (2, 200))
    column = rng.integers(-1, 3, 200).astype(np.int8)
    label = np.where(rng.random(200) < 0.8, rng.normal(size=200), np.nan).astype(np.float32)
    own = {"split": column, "label": label, "reverse": np.zeros(200, bool)}
    back = own | {"reverse": np.ones(200, bool)}
    both = {name: np.concatenate([own[name], back[name]]) for name in own}
    graph = Graph.from_edges(np.r_[src, dst], np.r_[dst, src], 20, edge_columns=both)
    found = split(graph, label="label")
    for number, part in enumerate(found[:3]):
        chosen = (column == number) & np.isfinite(label)
        assert pairs(part) == list(zip(src[chosen], dst[chosen], strict=True))  # in its order
        np.testing.assert_array_equal(part["label"], label[chosen])
    assert not found.undirected
    assert found.messages[0].num_edges == 2 * (column < 1).sum()
    assert set(found.messages[0].edge_columns) == {"reverse"}
    # Without such marks an edge is a target of its own if its reverse has other columns.
    marked, other = {"split": column, "label": label}, {"label": -label, "split": -column}
    for name in (None, *marked):
        columns = {n: np.r_[a, other[n] if n == name else a] for n, a in marked.items()}
        graph_of = Graph.from_edges(np.r_[src, dst], np.r_[dst, src], 20, edge_columns=columns)
        each = split(graph_of, label="label")
        assert each.undirected == (name is None)
        chosen = (columns["split"] >= 0) & np.isfinite(columns["label"])
        kept = np.r_[src <= dst, dst <= src] if name is None else True
        assert sum(len(part["src"]) for part in each[:3]) == (chosen & kept).sum()
    alike = split(graph, split="random")
    hidden = unordered(alike.test["src"], alike.test["dst"])
    assert hidden.isdisjoint(unordered(*alike.messages[0].edge_index()))


def test_a_column_of_events_goes_by_time():
    src, dst, time = np.arange(300) % 9, np.arange(1, 301) % 9, np.arange(300)
    column = np.searchsorted([150, 280], time, side="right").astype(np.int8)

    def targets():
        own = {"edge_time": time, "edge_columns": {"split": column}}
        return split(Graph.from_edges(src, dst, 9, **own), temporal=True)

    times = [np.sort(part["time"]).tolist() for part in targets()[:3]]
    assert times == [[*range(150)], [*range(150, 280)], [*range(280, 300)]]
    column[7] = 2
    refused("test of --temporal must be later than val", targets)


def test_relations_are_chosen():
    graph = shops().graph
    one = split(graph, relation="buys")
    assert one.types == ("user", "item")
    assert {n for part in one[:3] for n in part["relation"].tolist()} == {0}
    kinds = [graph.schema.nodes(name) for name in one.types]
    assert all(a in kinds[0] and b in kinds[1] for part in one[:3] for a, b in pairs(part))
    both = split(graph)
    assert both.types is None
    assert {n for part in both[:3] for n in part["relation"].tolist()} == {0, 1, 2}
    refused("", split, graph, relation="sells")


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("size", [12, 3000])
def test_negatives_are_no_edges(size, undirected):
    """Of few nodes they are chosen from a list of all pairs, of many they are drawn."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, size, (2, 40))
    real = {*zip(src.tolist(), dst.tolist(), strict=True)}
    real |= {(b, a) for a, b in real} if undirected else set()

    def joined(a, b):
        asked = zip(a.tolist(), b.tolist(), strict=True)
        return np.array([pair in real for pair in asked], bool)

    every = np.arange(size, dtype=np.int32)
    links = {"src": src, "dst": dst}
    of = (links, Ends(every, every, undirected), joined, np.array([0, 5], np.uint32))
    found = judged(*of, "pairs", 0)
    drawn = list(zip(found.other_src.tolist(), found.other_dst.tolist(), strict=True))
    assert len(drawn) == len(set(drawn)) == 40
    assert not set(drawn) & real
    assert all(a < b if undirected else a != b for a, b in drawn)
    found = judged(*of, "nodes", 9)
    assert found.mask.shape == (40, 9)
    for a, row, mask in zip(src, found.other_dst, found.mask, strict=True):
        assert mask.tolist() == [(a, b) not in real and a != b for b in row]


def test_the_data_s_own_negatives_are_taken():
    links = {"src": np.array([0, 1]), "dst": np.array([2, 3])}
    of = (links, Ends(*[np.arange(9)] * 2, False), lambda a, b: a < 0, np.zeros(2, np.uint32))
    own = np.array([[4, 5], [6, 7], [8, 0]], np.int32)
    found = judged(*of, "pairs", 0, own)
    assert (found.other_src.tolist(), found.other_dst.tolist()) == ([4, 6, 8], [5, 7, 0])
    targets = np.array([[4, 5, 6], [6, 7, 8]], np.int32)
    found = judged(*of, "nodes", 9, targets)
    assert found.other_src.tolist() == [[0] * 3, [1] * 3]
    assert found.other_dst.tolist() == targets.tolist()
    refused("as many rows of negatives as links", judged, *of, "nodes", 9, targets[:1])
