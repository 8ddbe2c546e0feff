"""Programs for GPU and TPU lower on this machine, without host callbacks or CPU kernels."""

import re
from collections import Counter
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import rarely
from columns import batch_with_columns, edge_graph, edge_model
from flax import nnx
from forks import quick_python, ran
from jax.sharding import AbstractDevice, AbstractMesh, AxisType

import jgs
from jgs import kernels, ops
from jgs.dist import Mesh
from jgs.dist.batches.answers import route_rows
from jgs.dist.batches.source import HybridSampler
from jgs.dist.communicators.comm import AXIS
from jgs.dist.rows.exchange import FeatureExchange
from jgs.dist.rows.owners import route
from jgs.models import GAT, GCN, GraphSAGE, read_inputs
from jgs.sampling import (
    Ladies,
    Links,
    Loader,
    Neighbors,
    Seal,
    Shadow,
    Subgraph,
    Walk,
    sample_neighbors,
)
from jgs.sampling.loading.items import Asked, seeds_of
from jgs.sampling.matrix import MatrixSampler
from jgs.train.evaluation import layer as evaluation
from jgs.train.loop.step import init_state, make_optimizer, make_train_step

KEY = jax.random.key(0)


def lowered(program, *arguments):
    """The texts of a jitted function for both platforms."""
    traced = program.trace(*arguments)
    for platform in ("cuda", "tpu"):
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        assert "callback" not in text
        assert "jgs_" not in text  # the names of kernels have it
        yield text


@pytest.fixture(scope="module")
def graph(make_graph):
    return make_graph(60, 500)


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
def test_the_loaders_thread_traces_for_this_host_alone(host_only, graph):
    seen = []

    class Noting(MatrixSampler):
        def layer(self, A, frontier, k):
            seen.append(kernels.host_only())
            return A[:, frontier].individual_sample(k)

    with kernels.this_host_only(host_only):
        loader = Loader(graph, np.arange(40), 8, Noting((3,)), key=KEY, prefetch=2)
        seen.clear()  # the capacity is planned for this host alone
        assert len(list(loader)) == 5
    assert set(seen) == {True}  # nothing but the thread runs what it traces


N, SIZE, WIDTH, RANKS = 60, 8, 6, 4
KEY_DATA = np.array([0, 7], np.uint32)
COLLECTIVES = ("all_reduce", "all_to_all", "all_gather", "reduce_scatter", "collective_permute")
GRAPH = jgs.Graph.from_edges(*np.random.default_rng(0).integers(0, N, (2, 500)), N)


class Lowered(Mesh):
    """A mesh whose programs are lowered for a platform, and not run."""

    def counting(self, compiled):
        return compiled


def collectives(program, *arguments):
    """The number of collectives of each kind, equal on both platforms."""
    found = []
    for text in lowered(program, *arguments):
        every = re.findall(r"stablehlo\.(\w+)", text)
        found.append({k: n for k, n in Counter(every).items() if k in COLLECTIVES})
        # XLA:GPU has all of these, and no others are there.
        assert not [
            k for k in every if k.startswith(("all_", "collective")) and k not in found[-1]
        ]
    assert found[0] == found[1]
    return found[0]


def test_ranks_draw_and_exchange_rows():
    comm = Lowered()
    own = [np.arange(i * SIZE, (i + 1) * SIZE, dtype=np.int32) for i in range(RANKS)]
    sampler = HybridSampler(comm, GRAPH, SIZE, (3, 2))
    seeds = comm.own(own)
    draw = sampler._program(sampler.capacities.capacity)
    assert collectives(draw, comm.same(KEY_DATA), sampler.graph, (), seeds) == {}
    offsets = np.arange(RANKS + 1) * N // RANKS
    rows = [[np.ones((n, WIDTH), np.float32)] for n in np.diff(offsets)]
    exchange = FeatureExchange(Mesh(), offsets, rows, SIZE)
    exchange.comm = exchange.tables[0].comm = comm
    exchange.resize(SIZE)
    place = exchange.tables[0].owners
    nodes = comm.own([np.arange(20, dtype=np.int32)] * RANKS)
    lost = comm.own([np.zeros((), bool)] * RANKS)
    asked = ((exchange.store,), nodes, lost, (place.offsets,), place.first)
    assert collectives(exchange._fetch, *asked) == {"all_to_all": 2}


def step_of(comm):
    """A training step on a mesh, and what it takes: shapes alone."""
    graphdef, params = nnx.split(GraphSAGE(WIDTH, 8, 3, 2, rngs=nnx.Rngs(0)))
    optimizer = make_optimizer(0.01)
    batch = jgs.sampling.sample_neighbors(jax.random.key(0), GRAPH, np.arange(SIZE), (3, 2))
    state = init_state(params, optimizer)
    x = np.ones((batch.nodes.shape[0], WIDTH), np.float32)

    def each(tree):
        return jax.tree.map(lambda a: jax.ShapeDtypeStruct((RANKS, *a.shape), a.dtype), tree)

    given = (state, KEY_DATA, each(batch), each(x), np.zeros(N, np.int32))
    return make_train_step(graphdef, optimizer, comm), (*given, each(np.float32(0)))


def test_the_step():
    step, given = step_of(Lowered())
    assert collectives(step, *given) == {"all_reduce": 1}
    # On GPUs that are not there.
    h100 = AbstractDevice("NVIDIA H100", 1, "cuda")
    abstract = object.__new__(Lowered)
    Lowered.__init__(abstract)
    auto = (AxisType.Auto,)  # as real meshes have it: those of JAX 0.12 would be explicit
    abstract._mesh = AbstractMesh((RANKS,), (AXIS,), auto, abstract_device=h100)
    abstract.platform = "gpu"
    step, given = step_of(abstract)
    with kernels.this_host_only():  # as in the command: what is drawn is drawn by kernels
        assert collectives(step, *given) == {"all_reduce": 1}


def test_stages_and_evaluation():
    """On one device: no collectives."""
    src, dst = (np.asarray(a)[:SIZE] for a in GRAPH.edge_index())
    items = {"src": src, "dst": dst}
    stage, sampler = Links(num_negatives=2), Neighbors((3, 2))

    def draw(key_data, graph, items):
        seeds, items = seeds_of((stage,), graph, Asked(items, items, key_data))
        return sampler.sample(key_data, graph, (), seeds, None), items

    with jax.enable_x64(True):
        given = (jnp.asarray(KEY_DATA), stage.prepare(GRAPH), items)
        assert collectives(jax.jit(draw), *given) == {}
    batch = jgs.sampling.sample_neighbors(jax.random.key(0), GRAPH, np.arange(SIZE), (3,))
    block = batch.blocks[0]
    table = jnp.ones((block.source_capacity, WIDTH))
    for reduce in ("mean", "max"):
        state = evaluation.nothing((SIZE, WIDTH), reduce)
        program = jax.jit(partial(evaluation.combine.__wrapped__, reduce=reduce))
        assert collectives(program, state, block, table) == {}
    layer = GAT(WIDTH, 8, 3, 1, heads=2, rngs=nnx.Rngs(0)).layers[0]
    graphdef, params = nnx.split(layer)
    kind = jnp.zeros(SIZE, jnp.int32)

    def attention(params, x, block, table):
        state = evaluation.begin.__wrapped__(graphdef, params, x, table[:SIZE], kind)
        return evaluation.attend.__wrapped__(graphdef, params, state, block, table)

    stage = evaluation.stages(GAT(WIDTH, 8, 3, 1, heads=2, rngs=nnx.Rngs(0)), WIDTH)[0]
    messages = jnp.ones((block.source_capacity, stage.message_width))
    assert collectives(jax.jit(attention), params, table[:SIZE], block, messages) == {}


def test_the_loaders_step(graph):
    sampler = Neighbors((3, 2), relabel_inputs=False)
    loader = Loader(graph, np.arange(40), 8, sampler, key=KEY, super_batch=2, prefetch=0)
    (schedule,) = loader.source.schedules
    key_data, seeds = schedule.batches(0)
    capacity = loader.capacity

    def draw(key_data, graph, seeds):
        return loader.source._draw(key_data, graph, (), seeds, capacity)

    assert len(list(lowered(jax.jit(draw), key_data[:2], graph, seeds[:2]))) == 2
