"""Programs for GPU and TPU lower on this machine, without host callbacks or CPU kernels."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import rarely
from columns import batch_with_columns, edge_graph, edge_model
from flax import nnx
from forks import quick_python, ran

from jgs import kernels, ops
from jgs.dist.rows.picked import route_rows
from jgs.dist.rows.route import route
from jgs.models import GAT, GCN, GraphSAGE, read_inputs
from jgs.sampling import (
    Ladies,
    Loader,
    Neighbors,
    Seal,
    Shadow,
    Subgraph,
    Walk,
    sample_neighbors,
)
from jgs.sampling.matrix import MatrixSampler
from jgs.train.loop.step import init_state, make_optimizer, make_train_step

KEY = jax.random.key(0)


def lowered(function, *arguments):
    """The programs lowered for both platforms."""
    traced = jax.jit(function).trace(*arguments)
    for platform in ("cuda", "tpu"):
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        assert "callback" not in text
        assert "jgs_" not in text  # the names of kernels have it
        yield text


@pytest.fixture(scope="module")
def graph(make_graph):
    return make_graph(60, 500)


def test_the_loaders_step(graph):
    sampler = Neighbors((3, 2), relabel_inputs=False)
    loader = Loader(graph, np.arange(40), 8, sampler, key=KEY, super_batch=2, prefetch=0)
    (schedule,) = loader.source.schedules
    key_data, seeds = schedule.batches(0)
    capacity = loader.capacity

    def draw(key_data, graph, seeds):
        return loader.source._draw(key_data, graph, (), seeds, capacity)

    assert len(list(lowered(draw, key_data[:2], graph, seeds[:2]))) == 2


def training(model, graph):
    """A program that leads from the key to the new parameters, and its arguments."""
    direct = model == "sage, direct"
    make = {"gcn": GCN, "gat": GAT}.get(model, GraphSAGE)
    widths = {"heads": 2} if model == "gat" else {}
    network, edges = make(6, 8, 3, 2, dropout=0.5, rngs=nnx.Rngs(0), **widths), model == "edges"
    if edges:
        network, graph = edge_model("mean", (6, 8, 3)), edge_graph(60)
    graphdef, params = nnx.split(network)
    optimizer = make_optimizer(0.01)
    step = make_train_step(graphdef, optimizer).__wrapped__
    features, labels = jnp.ones((60, 6)), jnp.zeros(60, jnp.int32)

    def train(state, key, graph, features, labels, seeds):
        options = {"relabel_inputs": not direct, "return_edge_ids": edges}
        batch = sample_neighbors(key, graph, seeds, (3, 2), **options)
        batch = batch_with_columns(graph, batch) if edges else batch
        batch = batch if direct else batch.with_degrees(graph.degrees())
        x = read_inputs(features, batch) if direct else ops.gather(features, batch.nodes)
        return step(state, key, batch, x, labels)

    state = init_state(params, optimizer)
    return train, (state, KEY, graph, features, labels, jnp.arange(8))


def sampling(sampler, graph):
    """The jitted functions of samplers have jitted functions inside."""
    seeds = jnp.arange(8).reshape((4, 2) if isinstance(sampler, Seal) else 8)
    room = () if isinstance(sampler, Walk) else (None,)

    def draw(graph, state):
        return sampler.sample(KEY, graph, state, seeds, *room)

    return draw, (graph, sampler.init(graph))


def asking(graph):
    """What ranks ask each other for."""
    nodes, offsets = jnp.arange(9), jnp.array([0, 20, 60])

    def ask(nodes, offsets, cached, held):
        sizes = {"capacity": 4, "num_own": 20, "num_cached": 0}
        rows = route(nodes, offsets, cached, 0, 0, **sizes)
        return rows, route_rows(nodes, offsets, held, 0, 4)

    return ask, (nodes, offsets, jnp.zeros(0, jnp.int32), jnp.zeros(0, bool))


PROGRAMS = {
    "neighbors": partial(sampling, Neighbors((3, 2))),
    "walk": partial(sampling, Walk(4)),
    "subgraph": partial(sampling, Subgraph(9)),
    "ladies": partial(sampling, Ladies((9,))),
    "shadow": partial(sampling, Shadow((2,))),
    "seal": partial(sampling, Seal((2,))),
    **{f"training, {m}": partial(training, m) for m in ("gat", "sage, direct", "gcn", "edges")},
    "ranks": asking,
}


_CASE = jax.make_user_context()  # JAX reuses no function that was traced with another value
CASES = [(name, True) for name in PROGRAMS] + [("neighbors", False), ("ranks", False)]


@pytest.mark.parametrize(("name", "host_first"), rarely(CASES, 2, 3, 4, 5, 6, 9))
def test_a_trace_for_this_host_is_only_used_there(name, host_first, graph):
    """Neither that of the program itself, nor those of the functions inside."""
    with _CASE((name, host_first)):
        function, arguments = PROGRAMS[name](graph)
        program = jax.jit(function)
        for host_only in (host_first, not host_first):
            with kernels.this_host_only(host_only):
                traced = program.trace(*arguments)
            everywhere = "platform_index" in str(traced.jaxpr)
            assert everywhere == (kernels.available() and not host_only)
            if host_first and not host_only:
                list(lowered(program, *arguments))
            assert ("jgs_" in traced.lower().as_text()) == kernels.available()


def test_a_handler_of_another_platform_is_one_line(graph):
    """It is called there, and what lacks one has its plain form. Nothing runs."""
    if not kernels.available():
        pytest.skip("no kernels")
    code = """
import jax, jax.numpy as jnp
from jgs import Graph, kernels, ops
from jgs.sampling import sample_neighbors

library = jax.ffi.pycapsule(kernels.function("JgsGather", None))
kernels.register("jgs_gather", library, "CUDA")
graph = Graph.from_edges([0, 1, 2], [1, 2, 0], 3)

def draw(key, graph, x):
    batch = sample_neighbors(key, graph, jnp.arange(2), (2,))
    return ops.gather(x, batch.nodes), batch

traced = jax.jit(draw).trace(jax.random.key(0), graph, jnp.ones((3, 4)))
for platform, has in (("cuda", ["jgs_gather"]), ("tpu", []), ("cpu", None)):
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    found = [name for name in kernels.HANDLERS if f"@{name}(" in text]
    assert found == has or (has is None and len(found) > 1), (platform, found)
"""
    ran(quick_python(), "-c", code)


@pytest.mark.parametrize("host_only", [True, False])
def test_the_loaders_thread_traces_for_the_same_platforms(host_only, graph):
    seen = []

    class Noting(MatrixSampler):
        def layer(self, A, frontier, k):
            seen.append(kernels.host_only())
            return A[:, frontier].individual_sample(k)

    with kernels.this_host_only(host_only):
        loader = Loader(graph, np.arange(40), 8, Noting((3,)), key=KEY, prefetch=2)
        seen.clear()  # the capacity is planned for this host alone
        assert len(list(loader)) == 5
    assert set(seen) == {host_only}
