"""Figure 5's graph is as described, and its report can be printed. Nothing is timed."""

import numpy as np
import pytest

import jgs
from benchmarks import batch_sizes, papers_graph


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return papers_graph.cached(tmp_path_factory.mktemp("graphs"), papers_graph.Size(14))


def test_the_graph_has_the_mean_degree_and_is_symmetric(folder):
    graph = jgs.Graph.open(folder)
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    num_nodes = 1 << 14
    assert graph.num_nodes == num_nodes
    assert 0.97 * 29 < indices.size / num_nodes <= 29
    target = np.repeat(np.arange(num_nodes), np.diff(indptr))
    assert not (target == indices).any()
    there, back = target * num_nodes + indices, indices * num_nodes + target
    np.testing.assert_array_equal(there, np.sort(back))  # rows are sorted
    assert np.unique(there).size == there.size


def test_the_degrees_are_log_normal(folder):
    """The median and the 99th percentile of the weights, and of Poisson numbers about them."""
    found = papers_graph.describe(folder)
    rng = np.random.default_rng(5)
    weight = rng.lognormal(0, 1.2, 1 << 20)
    expected = np.percentile(rng.poisson(29 * weight / weight.mean()), (50, 99))
    assert abs(found["median"] - expected[0]) <= 1
    assert abs(found["99 %"] / expected[1] - 1) < 0.1
    assert found["mean"] > 1.8 * found["median"]
    assert found["largest"] > 4 * found["99 %"] / 2


def test_the_report():
    runs = []
    for contender in batch_sizes.CONTENDERS:
        for batch in batch_sizes.BATCHES:
            ms = [2.0] * 3 if contender.name == batch_sizes.FUSED else [5.0, 1.0, 90.0]
            result = {"contender": contender.name, "name": str(batch), "ms": ms}
            runs.append(result | {"nodes": 1000, "edges": 9000})
    machine = {"cpu": "a CPU", "cores": 2, "memory_gib": 1, "load_before": 0.0}
    graph = {"nodes": 8, "edges": 9, "mean": 29.0, "median": 14.0, "90 %": 66.0, "99 %": 230.0}
    graph |= {"largest": 3000, "without_edges": 0.001}
    results = {"machine": machine, "graph": graph, "threads": 2, "runs": runs}
    lines = batch_sizes.render(results | {"failures": ["DGL: oops"]}).splitlines()
    assert "mean 29.0, median 14, 90 % 66, 99 % 230, largest 3,000; 0.10%" in lines[1]
    rows = [line for line in lines if line.startswith("| ")]
    assert len(rows) == 1 + 10 + 1
    assert len({row.count("|") for row in rows}) == 1
    assert rows[1].startswith("| 1,000 | 2.0 | 5.0, 2.50× | 5.0, 2.50× |")
    assert rows[1].endswith("| 1,000 / 9,000 |")
    assert rows[-1].startswith("| geometric mean |  | 2.50× |")
    assert lines[-1] == "Failed: DGL: oops"
