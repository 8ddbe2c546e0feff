"""`mesh_loader`: what one program of several devices draws, reads and counts."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.sparse
from jax.sharding import AbstractDevice, AbstractMesh, AxisType
from small_ranks import ranks_of

import jgs
from jgs import InputError
from jgs.dist import ShardedEmbedding, mesh_loader
from jgs.dist.communicators.comm import AXIS
from jgs.graph import QuantizedFeatures, SparseFeatures, TypedFeatures
from jgs.models import Placed
from jgs.ops import gather
from jgs.sampling import Loader
from jgs.settings import exact_integers

N, WIDTH, BATCH, KEY = 90, 6, 24, jax.random.key(3)
RNG = np.random.default_rng(0)
GRAPH = jgs.Graph.from_edges(*RNG.integers(0, N, (2, 700)), N)
ROWS = RNG.standard_normal((N, WIDTH)).astype(np.float32)
SEEDS = np.arange(0, N, 2)  # two steps in an epoch


def loader_of(comm, features=ROWS, graph=GRAPH, sampler=(3, 2), **options):
    return mesh_loader(comm, graph, features, SEEDS, BATCH, sampler, key=KEY, **options)


def noting(comm, loader, width=WIDTH):
    """A step that notes the nodes and the rows of all ranks, and its first state; and how often
    it was traced."""
    size, traced = loader.source._sampler.capacities.worst.sources[-1], []

    def step(state, batch, x):
        traced.append(batch)
        at, nodes, rows = state
        found = x.rows() if isinstance(x, Placed) else x
        room = size - batch.nodes.size
        own = jnp.pad(batch.nodes, (0, room), constant_values=N)
        x = jnp.pad(found, ((0, room), (0, 0)))
        nodes = nodes.at[at].set(comm.all_gather(own))
        return at + 1, nodes, rows.at[at].set(comm.all_gather(x))

    shape = len(loader), comm.size, size
    state = np.int32(0), np.zeros(shape, np.int32), np.zeros((*shape, width), np.float32)
    return step, comm.same(state), traced


def sent(size, sampler=(3, 2)):
    """The nodes of an epoch's steps, for each of so many devices, as a loader draws them."""
    mesh = jax.make_mesh((size,), ("data",))
    device = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    loader = Loader(GRAPH, SEEDS, BATCH, sampler, key=KEY, device=device)
    return [np.asarray(batch.nodes) for batch in loader]


def check_steps(nodes, expected, rows, features):
    """Padding aside, which depends on the capacity."""
    every = np.vstack([features, np.zeros((1, features.shape[1]), np.float32)])
    for found, wanted in zip(nodes, expected, strict=True):
        for own, theirs in zip(found, wanted, strict=True):
            assert own[own < N].tolist() == theirs[theirs < N].tolist()
    np.testing.assert_array_equal(rows, every[nodes])


@pytest.mark.parametrize("sampler", [(3, 2), jgs.sampling.Shadow((2,))])
def test_batches_and_rows_are_those_that_are_sent(sampler):
    comm = ranks_of(4)
    loader = loader_of(comm, sampler=sampler, cache="none")
    step, state, traced = noting(comm, loader)
    rounds = comm.counters.rounds
    _, nodes, rows = loader.source.run(list(loader), step, state)
    check_steps(np.asarray(nodes), sent(4, sampler), np.asarray(rows), ROWS)
    # The two rounds of rows, and those of the step.
    assert comm.counters.rounds - rounds == (2 + 2) * len(loader) == loader.counts["rounds"]
    assert loader.epoch == 1
    host = Loader(GRAPH, SEEDS, BATCH, sampler, key=KEY)
    same = host.state_dict() | {"epoch": 1} == loader.state_dict()
    assert same == (sampler == (3, 2))  # others draw another batch on each device
    before = len(traced)
    for _ in range(2):
        loader.source.run(list(loader), step, noting(comm, loader)[1])
    assert len(traced) == before  # nothing is compiled again


def test_steps_that_do_not_fit_are_made_again():
    """By all, although it is one rank's batch or request that is too large."""
    comm = ranks_of(4)
    loader = loader_of(comm, cache="none")
    source = loader.source
    small = source._sampler.capacities.at(0)
    small = small._replace(sources=tuple(10 for _ in small.sources))
    source._sampler.capacities = source._sampler.capacities._replace(capacity=small)
    source._exchange.resize(1)
    source.most = 1  # the second step is in a call of its own
    step, state, _ = noting(comm, loader)
    _, nodes, rows = source.run(list(loader), step, state)
    check_steps(np.asarray(nodes), sent(4), np.asarray(rows), ROWS)
    assert loader.redraws >= 2
    assert source.extra_steps > loader.redraws  # rooms for requests were too small, too
    assert source._exchange.capacity > 1


@pytest.mark.parametrize("kept", ["float16", "int8", "sparse"])
def test_rows_of_any_form_with_a_cache(kept):
    comm, features = ranks_of(3), jnp.asarray(ROWS, jnp.float16)
    if kept == "int8":
        features = QuantizedFeatures.of(ROWS)
    if kept == "sparse":
        features = SparseFeatures.from_scipy(
            scipy.sparse.csr_array(np.where(ROWS > 0, ROWS, 0))
        )
    loader = loader_of(comm, features, cache="planned", cache_memory=10 * 24)
    step, state, _ = noting(comm, loader)
    _, nodes, rows = loader.source.run(list(loader), step, state)
    every = np.asarray(gather(features, jnp.arange(N)))
    check_steps(np.asarray(nodes), sent(3), np.asarray(rows), every)
    assert loader.source._exchange.store.cached.shape[1] > 0


def of_device(tree, device):
    """The bytes of arrays that lie on a device."""
    shards = [s for leaf in jax.tree.leaves(tree) for s in leaf.addressable_shards]
    return sum(shard.data.nbytes for shard in shards if shard.device == device)


def test_a_device_has_its_share_of_the_rows_and_a_cache():
    comm, row = ranks_of(4), 4 * WIDTH
    stores, _ = loader_of(comm, cache="none").source._exchange.asked
    most = -(-N // 4) * row
    cached, _ = loader_of(comm, cache="trial", cache_memory=8 * row).source._exchange.asked
    for device in jax.devices():
        assert of_device(stores, device) == most
        assert most < of_device(cached, device) <= most + 8 * row + 4 * N


def test_node_types_each_have_a_share():
    schema = jgs.Schema((("a", 30), ("b", 59), ("c", 1)))
    graph = GRAPH._with(schema=schema)
    wide = RNG.standard_normal((59, 9)).astype(np.float32)
    features = TypedFeatures.from_dict(schema, {"a": ROWS[:30], "b": wide})
    comm = ranks_of(4)
    loader = loader_of(comm, features, graph, cache="degree", cache_memory=200)

    def step(state, batch, x):
        """The most that a row differs, on any rank, and how many rows are read."""
        off = [jnp.float32(0)]
        for kind, own in enumerate((ROWS[:30], wide)):
            mine = x.kind == kind
            place = batch.nodes - (0, 30)[kind]
            there = gather(x.tables[kind], jnp.where(mine, x.place, -1))
            wanted = gather(jnp.array(own), jnp.where(mine, place, -1))
            off.append(jnp.max(jnp.abs(there - wanted)))
        off, read = jnp.max(jnp.stack(off)), jnp.sum(x.kind >= 0, dtype=jnp.float32)
        return jnp.maximum(state, comm.all_reduce(jnp.stack([off, read]), "max"))

    state = loader.source.run(list(loader), step, comm.same(np.zeros(2, np.float32)))
    off, read = np.asarray(state)
    assert (off, read > 6) == (0, True)
    stores, _ = loader.source._exchange.asked
    for device in jax.devices():
        assert of_device(stores, device) < (8 * WIDTH + 15 * 9) * 4 + 200 + 4 * N + 60


COUNTS = (("a", 9), ("b", 30), ("c", 50), ("d", 1))  # "a" and "c" have no features
BARE = np.r_[0:9, 39:89]  # their nodes


def learned_of(comm, **options):
    """A loader with learned rows, which are 0 at first and go down by half the gradient."""
    schema, wide = jgs.Schema(COUNTS), RNG.standard_normal((1, 9)).astype(np.float32)
    features = TypedFeatures.from_dict(schema, {"b": ROWS[:30], "d": wide})
    of_rows = np.arange(comm.size + 1) * 59 // comm.size, 4, KEY, optax.sgd(0.5)
    table = ShardedEmbedding(comm, *of_rows, init=lambda key, shape: jnp.zeros(shape))
    typed = GRAPH._with(schema=schema)
    return table, loader_of(comm, features, typed, learned=table, **options)


@pytest.mark.parametrize(("size", "room"), [(1, None), (4, None), (4, 1)])
def test_learned_rows_are_those_of_the_step_before(size, room):
    """With room for one row a request, steps are made again, and change nothing before."""
    comm = ranks_of(size)
    table, loader = learned_of(comm, cache="planned" if room is None else "none")
    source, traced = loader.source, []
    if room is not None:
        source._exchange._every[-1].resize(room)

    def step(state, batch, x):
        """Notes what is read. The gradient of a row is its node's number."""
        at, nodes, rows = state
        traced.append(batch)
        more = nodes.shape[-1] - batch.nodes.size
        own = jnp.pad(batch.nodes, (0, more), constant_values=N)
        nodes = nodes.at[at].set(comm.all_gather(own))
        there = jnp.pad(x.learned, ((0, more), (0, 0)))
        gradient = jnp.broadcast_to(batch.nodes[:, None], x.learned.shape)
        scale = jnp.float32(2)  # so a row goes down by its node's number
        new = at + 1, nodes, rows.at[at].set(comm.all_gather(there))
        return new, gradient.astype(jnp.float32), scale

    shape = 4, size, source._sampler.capacities.worst.sources[-1]
    state = np.int32(0), np.zeros(shape, np.int32), np.zeros((*shape, 4), np.float32)
    state = comm.same(state)
    for _ in range(2):
        state = source.run(list(loader), step, state)
    if room is None:  # rows, their gradients, and what the step gathers
        assert loader.counts["rounds"] == (3 + 2) * 4 * (size > 1)
        assert len(traced) == 1
    assert (source.extra_steps > 0) == (room is not None)
    whole = np.zeros((N + 1, 4), np.float32)  # of all nodes
    for nodes, rows in zip(np.asarray(state[1]), np.asarray(state[2]), strict=True):
        np.testing.assert_array_equal(rows, whole[nodes])
        own = nodes[np.isin(nodes, BARE)]
        np.subtract.at(whole, own, own[:, None])
    found = table.rows()
    assert found.any()
    np.testing.assert_array_equal(found, whole[BARE])
    own = jax.tree.leaves(table.held[0])
    assert of_device(own, jax.devices()[0]) == -(-59 // size) * 4 * 4  # SGD has no state


@pytest.mark.parametrize("learns", [False, True])
def test_the_program_has_few_collectives_and_lowers_for_other_platforms(learns):
    """Two rounds for rows, one more for the gradients of learned ones, and the step's."""
    comm = ranks_of(4)
    loader, own = loader_of(comm, cache="none"), ()
    if learns:
        table, loader = learned_of(comm, cache="none")
        own = table.held
    source = loader.source

    def step(state, batch, x):
        if learns:
            return comm.all_reduce(x.learned.sum()) + state, x.learned, jnp.float32(1)
        return comm.all_reduce(x.rows().sum()) + state

    capacity, limits = source._sampler.capacities.at(0), source._exchange.limits
    keys, asked = source._stacked(list(loader))
    held = source._sampler.graph, source._sampler.state, *source._exchange.asked
    given = (
        comm.same(np.float32(0)),
        own,
        (),
        *held,
        keys,
        asked,
        comm.same(np.zeros(2, np.int32)),
    )
    program = source._program(step, capacity, limits)
    text = program.lower(*given).compile().as_text()
    found = [text.count(f" {name}(") for name in ("all-to-all", "all-reduce", "all-gather")]
    assert found == [2 + learns, 1, 0]
    h100 = AbstractDevice("NVIDIA H100", 1, "cuda")
    comm._mesh = AbstractMesh((4,), (AXIS,), (AxisType.Auto,), abstract_device=h100)
    comm.platform, comm.counting = "gpu", lambda compiled: compiled
    with exact_integers():  # arrays of no device, whose offsets are int64
        given = jax.tree.map(lambda a: jnp.asarray(np.asarray(a)), given)
    traced = source._program(step, capacity, limits).trace(*given)
    for platform in ("cuda", "tpu"):
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        assert "callback" not in text
        assert "jgs_" not in text  # no kernel of the CPU
        found = [text.count(f"stablehlo.{name}") for name in ("all_to_all", "all_reduce")]
        assert found == [2 + learns, 1]


def test_what_a_mesh_cannot_do_is_refused():
    comm = ranks_of(4)
    with pytest.raises(InputError, match="multiple of 4, the number of devices"):
        mesh_loader(comm, GRAPH, ROWS, SEEDS, 22, (3,), key=KEY)
    with pytest.raises(InputError, match="a row for each node of the types without features"):
        loader_of(comm, learned=learned_of(comm)[0])
    with pytest.raises(InputError, match="a sampler that does not learn"):
        loader_of(comm, sampler=jgs.sampling.Thanos((3,)))
