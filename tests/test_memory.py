"""Memory: that which was freed is used again, and no copy is made of an opened graph."""

import platform
import sys

import numpy as np
import pytest
from forks import quick_python, ran

import jgs
import jgs.train.__main__ as command

PROGRAM = """
import resource, sys
import numpy as np
import jgs
if sys.argv[1] == "keep":
    assert jgs.keep_freed_memory()

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(16 << 20, np.float32)  # 64 MiB: 16,384 pages of 4 KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
def test_freed_memory_is_used_again():
    """Importing jgs alone changes nothing: each time pages are new, huge ones or not."""
    faults = {}
    for mode in ("keep", "leave"):
        faults[mode] = int(ran(sys.executable, "-c", PROGRAM, mode))
    assert faults["keep"] < 100
    assert faults["leave"] >= 30


def test_another_system_is_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert jgs.keep_freed_memory() is False


def test_the_training_command_keeps_memory_unless_told_not_to(monkeypatch):
    calls = []
    monkeypatch.setattr(command, "keep_freed_memory", lambda: calls.append(1))
    for flags in ([], ["--no-keep-memory"]):
        assert command.main(["--dataset", "no-such-data", *flags]) == 2
        assert len(calls) == 1


SCRIPT = """
import sys, jax, jax.numpy as jnp, numpy as np, jgs
from flax import nnx
from jgs.models import GraphSAGE
from jgs.sampling import Loader
from jgs.train.loop.step import init_state, make_optimizer, make_train_step

def anonymous():  # bytes of memory that are not file pages
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))

def train(graph):
    features = jnp.ones((graph.num_nodes, 4))
    labels = jnp.zeros(graph.num_nodes, jnp.int32)
    graphdef, params = nnx.split(GraphSAGE(4, 8, 2, 2, rngs=nnx.Rngs(0)))
    optimizer = make_optimizer(1e-3)
    state, step = init_state(params, optimizer), make_train_step(graphdef, optimizer)
    peak = 0
    seeds = np.arange(min(20_000, graph.num_nodes))
    with Loader(graph, seeds, min(1000, seeds.size), (5, 5), key=jax.random.key(0)) as loader:
        for batch in loader:
            x = jgs.ops.gather(features, batch.nodes)
            state = step(state, jax.random.key(1), batch, x, labels)
            peak = max(peak, anonymous())
    assert state.step == len(loader)
    return peak

train(jgs.Graph.from_edges([0, 1], [1, 0], 2))  # what JAX itself needs
before = anonymous()
print(train(jgs.Graph.open(sys.argv[1])) - before)
"""


def test_an_opened_graph_is_not_copied(tmp_path):
    """The graph has 240 MB. What grows besides file pages stays below half of that."""
    if not sys.platform.startswith("linux"):
        pytest.skip("reads /proc")
    num_nodes, degree = 1_000_000, 58
    rng = np.random.default_rng(0)
    indices = rng.integers(0, num_nodes, num_nodes * degree, dtype=np.int32)
    graph = jgs.Graph(np.arange(num_nodes + 1) * degree, indices)
    size = graph.indptr.nbytes + graph.indices.nbytes
    graph.save(tmp_path / "graph")
    grown = int(ran(quick_python(), "-c", SCRIPT, tmp_path / "graph"))
    assert grown < size / 2, f"{grown / 1e6:.0f} MB more for a graph of {size / 1e6:.0f} MB"
