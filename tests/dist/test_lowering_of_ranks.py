"""Programs of ranks lower for GPUs and TPUs here, with the collectives that they need."""

import re
from collections import Counter
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import AbstractDevice, AbstractMesh, AxisType

import jgs
from jgs import kernels
from jgs.dist import Mesh
from jgs.dist.batches.source import HybridSampler
from jgs.dist.communicators.comm import AXIS
from jgs.dist.rows.exchange import FeatureExchange
from jgs.models import GAT, GraphSAGE
from jgs.sampling import Links, Neighbors
from jgs.sampling.loading.items import Asked, seeds_of
from jgs.train.evaluation import layer as evaluation
from jgs.train.loop.step import init_state, make_optimizer, make_train_step

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
    for platform in ("cuda", "tpu"):
        text = program.trace(*arguments).lower(lowering_platforms=(platform,)).as_text()
        assert "callback" not in text
        assert "jgs_" not in text  # no kernel of the CPU
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
