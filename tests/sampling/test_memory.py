"""Invariant 4: sampling from an opened graph makes no second copy of the topology."""

import subprocess
import sys

import numpy as np
import pytest

import jgs

SCRIPT = """
import resource, sys, jax, numpy as np, jgs
from jgs.sampling import Loader

def anonymous():  # bytes of memory that are not file pages
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))

warm = jgs.Graph.from_edges([0, 1], [1, 0], 2)
list(Loader(warm, np.arange(2), 2, (2, 2), key=jax.random.key(0)))
before = anonymous()
graph = jgs.Graph.open(sys.argv[1])
peak = 0
for batch in Loader(graph, np.arange(20_000), 1000, (5, 5), key=jax.random.key(0)):
    peak = max(peak, anonymous())
print(peak - before)
"""


def test_an_opened_graph_is_not_copied(tmp_path):
    """A graph of 240 MB; what grows besides file pages stays below a third of that."""
    if not sys.platform.startswith("linux"):
        pytest.skip("reads /proc")
    num_nodes, degree = 1_000_000, 58
    rng = np.random.default_rng(0)
    indices = rng.integers(0, num_nodes, num_nodes * degree, dtype=np.int32)
    graph = jgs.Graph(np.arange(num_nodes + 1) * degree, indices)
    size = graph.indptr.nbytes + graph.indices.nbytes
    assert size >= 200e6
    graph.save(tmp_path / "graph")
    run = [sys.executable, "-c", SCRIPT, str(tmp_path / "graph")]
    grown = int(subprocess.run(run, capture_output=True, text=True, check=True).stdout)
    assert grown < size / 3, f"{grown / 1e6:.0f} MB more for a graph of {size / 1e6:.0f} MB"
