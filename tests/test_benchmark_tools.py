"""What benchmarks are made of: graphs, caches, faults, hosts, two builds. Nothing is timed."""

import pkgutil
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import jgs
from benchmarks import graph, harmed, kernels_in_turn, papers_graph, revision
from jgs import kernels

pytestmark = pytest.mark.slow
SIZE = graph.Size(10, 9_001)


def test_the_graphs_are_symmetric_without_self_loops(tmp_path):
    papers = jgs.Graph.open(papers_graph.cached(tmp_path, papers_graph.Size(14)))
    for made, most in (
        (jgs.Graph(*graph.rmat(SIZE)), 2 * SIZE.num_undirected),
        (papers, papers_graph.DEGREE << 14),
    ):
        source, target = made.edge_index()
        assert not (target == source).any()
        there, back = ((a << 14) + b for a, b in ((target, source), (source, target)))
        np.testing.assert_array_equal(there, np.sort(back))
        assert 0.97 * most < made.num_edges <= most


def test_a_fault_happens_at_its_moment(monkeypatch):
    acted = []
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    at = harmed.At("colorsys", "rgb_to_hsv", 2, lambda: acted.append(1))
    monkeypatch.setattr(sys, "meta_path", [at, *sys.meta_path])
    import colorsys

    found = [(colorsys.rgb_to_hsv(0, 0, i), len(acted)) for i in range(3)]
    assert [seen for _, seen in found] == [0, 1, 1]
    assert found[1][0][2] == 1
    for module, function, _ in (*harmed.MOMENTS.values(), harmed._WRITING):
        pkgutil.resolve_name(f"{module}:{function}")


def test_two_builds_draw_in_turn(tmp_path):
    """The other build is this one under the other name."""
    if not kernels.available():
        pytest.skip("no kernels")
    package = revision.renamed(Path(jgs.__file__).parent, tmp_path)
    shutil.copy(kernels.library(), package / "kernels/libjgs_kernels.so")
    before = revision.imported(package)
    assert all(target.startswith("jgs_before_") for target in before.kernels.HANDLERS)
    data = jgs.Graph(*graph.rmat(SIZE))
    what, nodes = ("uniform", "walk", "excluded"), np.arange(1 << SIZE.scale)
    lines = list(kernels_in_turn.measure(before, data, nodes, what, draws=2))
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]
    assert [row[1] for row in cells] == ["1", "2"] * 3
    assert [row[-1] for row in cells] == ["yes"] * 4 + [""] * 2
