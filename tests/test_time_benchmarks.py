"""The benchmarks of cutoffs: their graph, their checks and their tables. Nothing is timed."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import jgs
from benchmarks import graph, time, time_graph, time_jgs, worker
from benchmarks.contenders import Contender

SIZE = graph.Size(10, 9_001)


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    """A setting of draws from a small graph; its folder is `setting["graph"]`."""
    cache = tmp_path_factory.mktemp("cache")
    np.save(cache / "seeds.npy", np.random.default_rng(0).permutation(1 << SIZE.scale))
    shape = {"batch": 64, "iterations": 2, "fanouts": (3, 2), "order": "random"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time_graph, "_PART", 2_000)  # the rows are sorted in parts
        folder = time_graph.cached(cache, SIZE)
    return shape | {"name": "s", "graph": str(folder), "seeds": str(cache / "seeds.npy")}


def test_the_graph_has_the_same_edges_and_each_row_is_sorted_by_time(setting):
    made = jgs.Graph.open(setting["graph"])  # which checks that times ascend
    indptr, indices = graph.rmat(SIZE)
    np.testing.assert_array_equal(made.indptr, indptr)
    row = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
    for edges in (made.indices, indices):
        order = np.lexsort((edges, row))
        np.testing.assert_array_equal(np.asarray(edges)[order], indices)
    times = np.asarray(made.edge_time)
    assert times.min() >= 0
    assert 0.99 * time_graph.SPAN < times.max() < time_graph.SPAN
    assert (times.astype(np.float32) == times).all()  # TGL has float32


def test_cutoffs_are_random_or_in_order_or_after_all_edges(setting):
    random, ordered, after = (
        time_graph.cutoffs(setting | {"order": order})
        for order in ("random", "in order", "after")
    )
    assert random.shape == ordered.shape == after.shape == (2, 64)
    assert len(np.unique(random)) > 120
    assert (np.diff(ordered.ravel()) >= 0).all()
    assert ordered[0, -1] - ordered[0, 0] < 256 < time_graph.SPAN // 1000
    seeds = worker.batches(setting)
    degree = np.diff(worker.array(setting["graph"], "indptr"))[seeds]
    np.testing.assert_array_equal(time_graph.eligible(setting["graph"], seeds, after), degree)
    some = time_graph.eligible(setting["graph"], seeds, random)
    assert 0 < some.sum() < degree.sum()


def test_an_edge_that_breaks_the_law_is_counted(setting):
    folder = setting["graph"]
    indptr, times = (worker.array(folder, name) for name in ("indptr", "edge_time"))
    row = int(np.argmax(np.diff(indptr)))
    edges = np.arange(indptr[row], indptr[row + 1])
    target = np.full(edges.size, row)

    def late(until, edges=edges, since=time_graph.SPAN):
        return time_graph.late(setting, edges, target, np.full(edges.size, until), since)

    middle = times[edges[edges.size // 2]]
    assert late(time_graph.SPAN) == 0
    assert late(middle) == (times[edges] >= middle).sum()  # at the cutoff is late too
    assert late(middle + 1) == (times[edges] > middle).sum()
    assert late(time_graph.SPAN, since=9) == (times[edges] < time_graph.SPAN - 9).sum()
    other = edges - 1  # the first one is of the row before
    assert late(time_graph.SPAN, other) == 1


def test_every_way_of_jgs_is_lawful_and_what_is_not_is_said(setting):
    first = {
        order: time.first_hop(setting["graph"], setting | {"order": order})
        for order in ("random", "after")
    }
    made = jgs.Graph.open(setting["graph"])
    runs = {}
    for way in time_jgs.WAYS:
        found = time_jgs.measure(made, way, setting | {"name": "random"})
        runs["random", f"jgs, {way}"] = [found]
    assert time.unlawful(runs, first) == []
    hops = {contender: of[0]["hops"] for (_, contender), of in runs.items()}
    assert sum(hops["jgs, window"]) < sum(hops["jgs, uniform"])
    # Cutoffs after all edges leave the work of the draw without cutoffs.
    after = time_jgs.measure(made, "uniform", setting | {"name": "after", "order": "after"})
    assert after["hops"][0] == hops["jgs, untimed"][0] == first["after"]
    few = {"hops": [first["random"] - 1, 9.0], "late": 0}
    wrong = {("random", "GraphBolt"): [few], ("random", "TGL, uniform"): [few | {"late": 3}]}
    said = time.unlawful(runs | wrong, first)
    assert [line.split(": ")[1:2] for line in said] == [["GraphBolt"], ["TGL, uniform"]]


@pytest.mark.parametrize("benchmark", time.BENCHMARKS, ids=lambda b: b.key)
def test_the_table_compares_with_the_draws_of_jgs(benchmark):
    runs = {}
    for contender in benchmark.contenders:
        ms = {"jgs, uniform": 2.0, "jgs, uniform, 1 thread": 4.0, "jgs, latest, 1 thread": 3.0}
        result = {"ms": [ms.get(contender.name, 12.0)] * 3, "hops": [1000.0, 2000.0]}
        for setting in benchmark.settings:
            if contender.settings is None or setting["name"] in contender.settings:
                key = setting["name"], contender.name
                runs[key] = [result | {"nodes": 500.0, "late": 0}]
    lines = time.table(benchmark, runs)
    assert len(lines) == 2 + len(runs)
    assert len({line.count("|") for line in lines}) == 1
    names = [line.split(" | ")[0] for line in lines[2:]]
    assert len([a for a, b in itertools.pairwise(names) if a != b]) == (
        len(benchmark.settings) - 1
    ), "the rows of a setting lie together"
    expected = {
        "sampling": {"GraphBolt": "| 12.00 | 6.00 | 4000.0 | 6.00 | 500 | 1,000 + 2,000 |"},
        "tgl": {
            "TGL, uniform, 1 thread": "| 12.00 | 3.00 |",
            "TGL, latest, 1 thread": "| 4.00 |",
        },
    }[benchmark.key]
    for name, part in expected.items():
        assert any(f"| {name} |" in line and part in line for line in lines), lines


def test_peers_import_no_jgs():
    folder = Path(time.__file__).parent
    every = [c for benchmark in time.BENCHMARKS for c in benchmark.contenders]
    for contender in [*every, Contender("", "time_graph", True)]:
        text = (folder / f"{contender.module}.py").read_text()
        assert bool(re.search(r"^(import|from) jgs", text, re.MULTILINE)) != contender.peer
