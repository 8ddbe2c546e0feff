"""The benchmark's graph is what it says, and its report can be printed. Nothing is timed."""

import re
from pathlib import Path

import numpy as np
import pytest

import jgs
from benchmarks import contenders, graph, superbatch, table

SIZE = graph.Size(10, 9_001)


def test_the_graph_is_symmetric_without_self_loops():
    indptr, indices = graph.rmat(SIZE)
    num_nodes = 1 << SIZE.scale
    assert indptr.shape == (num_nodes + 1,)
    assert indptr.dtype == np.int64
    assert indices.dtype == np.int32
    target = np.repeat(np.arange(num_nodes), np.diff(indptr))
    assert not (target == indices).any()
    there, back = target * num_nodes + indices, indices * num_nodes + target
    np.testing.assert_array_equal(there, np.sort(back))  # rows are sorted
    assert 0.98 * 2 * SIZE.num_undirected < indptr[-1] <= 2 * SIZE.num_undirected


def test_the_graph_is_a_function_of_its_seed():
    first, again, other = (graph.rmat(SIZE, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first[1], again[1])
    assert not np.array_equal(first[0], other[0])


def test_the_degrees_are_those_of_rmat():
    """The largest is that of the node all of whose bits are 0, less its self-loops."""
    scale, num = 10, 200_000
    indptr, _ = graph.rmat(graph.Size(scale, num))
    a, b, c, _ = graph.QUADRANTS
    expected = num * ((a + b) ** scale + (a + c) ** scale - 2 * a**scale)
    largest = np.diff(indptr).max()
    assert abs(largest - expected) < 5 * np.sqrt(expected), f"{largest}, expected {expected}"


@pytest.mark.parametrize("benchmark", contenders.BENCHMARKS, ids=lambda b: b.key)
def test_peers_import_no_jgs(benchmark):
    folder = Path(graph.__file__).parent
    for contender in benchmark.contenders:
        text = (folder / f"{contender.module}.py").read_text()
        assert bool(re.search(r"^(import|from) jgs", text, re.MULTILINE)) != contender.peer


def canned() -> dict:
    """Results in which jgs takes 2 ms, everyone else 8, and DGL's fused sampler falls short."""
    runs = []
    for benchmark in contenders.BENCHMARKS:
        for contender in benchmark.contenders:
            for tuned in (False, True):
                for setting in benchmark.settings:
                    short = "fused, int64" in contender.name
                    ms = [2.0] * 3 if contender.name == "jgs" else [8.0] * 3
                    runs.append(
                        {"benchmark": benchmark.key, "contender": contender.name}
                        | {"tuned": tuned, "round": 0, "name": setting["name"], "ms": ms}
                        | {"nodes": 1000, "edges": 900 if short else 1000, "check": [1.0]}
                        | {"sample_bytes": 10**6, "peak_bytes": 10**8, "before_bytes": 10**7}
                        | {"parts": dict.fromkeys(("sampling", "features", "computing"), ms)}
                    )
    return {
        "machine": {"cpu": "a CPU", "mhz": "1", "cores": 2, "memory_gib": 1, "system": "none"}
        | {"huge_pages": "never", "load_before": 0.0, "versions": {"jgs": "0"}},
        "graph": {"nodes": 8, "edges": 9, "largest_degree": 3, "without_edges": 0.25}
        | {"array_bytes": 10**7},
        "threads": 2,
        "quick": True,
        "block": {"targets": 1, "sources": 2, "edges": 3},
        "peers": "none",
        "random_reads": [{"mapped": 5.0, "huge_pages": 4.0}],
        "runs": runs,
        "failures": [
            {"benchmark": "step", "contender": "DGL", "tuned": True} | {"error": "oops"}
        ],
    }


def test_the_table():
    text = table.render(canned())
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    cells = {row.count("|") for row in rows}
    assert cells == {8}
    assert "| 2.0 | 1.00× | 2.0 | 1.00× |" in text
    assert "| 8.0 | 4.00× | 8.0 | 4.00× |" in text
    assert text.count("not the same work") == len(contenders.BENCHMARKS[0].settings)
    assert "step, DGL, tuned: oops" in text


def test_the_table_without_peers():
    results = canned()
    results["runs"] = [run for run in results["runs"] if run["contender"].startswith("jgs")]
    results["random_reads"] = []
    text = table.render(results)
    assert "DGL's best" not in text
    assert "| 2.0 | 1.00× |" in text


def test_super_batches_are_measured_with_every_size():
    data = jgs.Graph(*graph.rmat(SIZE))
    rates, chosen = superbatch.measure(data, np.arange(200), 32, (3, 2), rounds=1)
    assert tuple(rates) == superbatch.SIZES
    assert min(rates.values()) > 0
    assert chosen == 7  # an epoch is no longer
