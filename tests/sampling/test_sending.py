"""What a loader does beside other devices than the host's, which is device 0 of the four of
this process. On a machine with a GPU that is the other device."""

import re
import threading
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from jax.sharding import NamedSharding, PartitionSpec

import jgs
from jgs import kernels, ops
from jgs.devices import host_device
from jgs.errors import InputError
from jgs.graph import TypedFeatures
from jgs.kernels import call
from jgs.sampling import (
    ByEpoch,
    HotRows,
    Labor,
    Ladies,
    Links,
    Loader,
    Neighbors,
    Saint,
    Thanos,
    sample_neighbors,
)
from jgs.sampling.loading.ahead import Ahead
from jgs.sampling.loading.sending import Destination

KEY = jax.random.key(3)
HOST = host_device()
OTHERS = [d for d in jax.devices() if d != HOST]
several = pytest.mark.skipif(len(OTHERS) < 3, reason="there are no three other devices")
N, SIZE = 400, 24


def make_graph(**columns):
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, N, (2, 4000))
    return jgs.Graph.from_edges(src, dst, N, **columns)


GRAPH, SEEDS = make_graph(), np.arange(300)


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def same(a, b):
    return len(leaves(a)) == len(leaves(b)) and all(
        x.dtype == y.dtype and np.array_equal(x, y)
        for x, y in zip(leaves(a), leaves(b), strict=True)
    )


def over(devices):
    mesh = jax.sharding.Mesh(np.array(devices), ("data",))
    return NamedSharding(mesh, PartitionSpec("data"))


def rows_of(batch):
    """Rows that a step would read, made on the host."""
    assert batch.nodes.devices() == {HOST}
    return jnp.take(ROWS, batch.nodes, axis=0, mode="fill", fill_value=0)


with jax.default_device(HOST):
    ROWS = jnp.asarray(np.random.default_rng(1).normal(size=(N, 7)), jnp.float32)


def test_batches_lie_where_asked_with_the_bits_of_the_host():
    timed = make_graph(edge_time=np.random.default_rng(2).integers(0, 2**40, 4000))
    items = {"nodes": SEEDS, "time": np.full(300, 2**40)}
    cases = [
        (GRAPH, SEEDS, Neighbors((4, 3), edge_ids=True)),
        (GRAPH, SEEDS, Labor((4, 3))),
        (GRAPH, SEEDS, Ladies((30, 30))),
        (GRAPH, SEEDS, ByEpoch({0: (2, 2), 1: (3, 3)})),
        (timed, items, Neighbors((4, 3), edges=("time", "elapsed"))),
    ]
    for graph, seeds, sampler in cases:
        make = partial(Loader, graph, seeds, SIZE, sampler, key=KEY, read=rows_of)
        on_host, there = make(device=HOST), make(device=OTHERS[0])
        for _ in range(2):
            for (batch, x), (sent, sent_x) in zip(on_host, there, strict=True):
                assert same((batch, x), (sent, sent_x)), sampler
                every = jax.tree.leaves((sent, sent_x))
                assert all(leaf.devices() == {OTHERS[0]} for leaf in every)
        one = make(device=OTHERS[0], prefetch=0)
        assert same(one.peek(), next(iter(make(device=HOST))))


def test_the_next_batch_may_be_drawn_within_the_step():
    make = partial(Loader, GRAPH, SEEDS, SIZE, (3, 2), key=KEY, prefetch=0, super_batch=1)
    whole, loader, found = list(make(device=HOST)), make(device=OTHERS[0]), []
    for batch in loader:
        found.append(batch)
        before = loader.source.seconds["sampling"]
        loader.draw_next()
        assert (loader.source.seconds["sampling"] > before) == (loader.step < len(loader))
        assert 0 < loader.drawn_early <= loader.waited
        loader.draw_next()
        if loader.step == 5:
            break
    for batch in loader:
        found.append(batch)
        if loader.step % 2:
            loader.draw_next()
    assert len(found) == len(whole)
    assert all(map(same, found, whole))
    with make(device=HOST, prefetch=2) as ahead:
        for batch, want in zip(ahead, whole, strict=True):
            ahead.draw_next()
            assert same(batch, want)
    thanos = Loader(GRAPH, SEEDS, SIZE, Thanos((3, 2)), key=KEY, device=OTHERS[0])
    for _ in thanos:
        drawn = thanos.source.seconds["sampling"]
        thanos.draw_next()
        assert thanos.source.seconds["sampling"] == drawn
        break


def test_rows_of_types_are_sent_without_their_tables():
    rng, counts = np.random.default_rng(4), {"author": 150, "paper": 200, "venue": 50}
    ends = rng.integers(0, 150, 900), rng.integers(0, 200, 900)
    at = np.arange(200), rng.integers(0, 50, 200)
    edges = {("author", "writes", "paper"): ends, ("paper", "at", "venue"): at}
    graph = jgs.Graph.from_relations(counts, edges, both_ways=True)
    tables = {
        "author": rng.normal(size=(150, 3)).astype(np.float16),
        "paper": scipy.sparse.random(200, 9, 0.3, "csr", np.float32, rng),
    }
    features = TypedFeatures.from_dict(graph.schema, tables)
    width, size = graph.schema.number("venue"), 6

    def read(batch):
        return ops.gather(features, batch.nodes)

    make = partial(Loader, graph, np.arange(360), size, (2, 2), key=KEY, read=read)
    divided = [OTHERS[0], *([over(OTHERS[:2])] if len(OTHERS) > 1 else [])]
    for device in divided:
        devices, shapes = [device], set()
        if isinstance(device, NamedSharding):
            devices = list(device.mesh.devices)
        for loader in (make(device=device), make(device=device, prefetch=0)):
            for batch, rows in loader:
                for i in range(len(devices)):
                    own, x = batch, rows
                    if len(devices) > 1:
                        own, x = jax.tree.map(lambda a, i=i: np.asarray(a)[i], (batch, rows))
                    assert x.tables[width] is None
                    shapes |= {tuple(t.shape for t in x.tables if t is not None)}
                    want = features.rows(np.asarray(own.nodes))
                    np.testing.assert_array_equal(x.kind, want.kind)
                    for number, table in enumerate(features.tables):
                        mine = np.asarray(x.kind) == number
                        if table is None:
                            np.testing.assert_array_equal(x.place[mine], want.place[mine])
                            continue
                        found = np.asarray(x.tables[number])[np.asarray(x.place)[mine]]
                        real = ops.gather(table, np.asarray(want.place)[mine])
                        np.testing.assert_array_equal(found, real)
        assert len(shapes) < 12  # steps are compiled for few shapes
        assert all(rows < 150 for of_batch in shapes for rows, _ in of_batch)


def test_the_kernel_draws_them():
    if not kernels.available():
        pytest.skip("no kernels")
    traced, before = [], call.call

    def noted(target, *args, **kwargs):
        traced.append(target)
        return before(target, *args, **kwargs)

    from jgs.sampling.edges import hops_kernel

    hops_kernel.call = noted
    try:
        with kernels.this_host_only():  # the plain form is then not traced at all
            loader = Loader(GRAPH, SEEDS, SIZE, Neighbors((5, 2)), key=KEY, device=OTHERS[0])
            batches = list(loader)
    finally:
        hops_kernel.call = before
    assert len(batches) == 13
    assert "jgs_sample_neighbors" in traced


def test_nothing_is_compiled_after_the_first_epoch_and_memory_is_bounded():
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, *_, **__: compiled.append(name) if "backend_compile" in name else None
    )
    device = OTHERS[-1]
    loader = Loader(
        GRAPH, SEEDS, SIZE, Neighbors((4, 3)), key=KEY, read=rows_of, device=device, prefetch=3
    )
    for _ in loader:
        pass
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(next(iter(loader))))
    compiled.clear()

    def there():
        sizes = [a.nbytes for a in jax.live_arrays() if a.devices() == {device}]
        assert max(sizes) < GRAPH.indices.nbytes  # no copy of the graph
        return sum(sizes)

    most = 0
    for batch in loader:
        time.sleep(0.02)  # as a slow step
        most = max(most, there())
        del batch
    assert not compiled, compiled
    # Three wait, one is on its way, one is in the loop; each also as the piece that was sent.
    assert most <= 2 * (3 + 2) * size, (most, size)


@several
def test_a_sharding_divides_each_batch():
    for devices in [OTHERS[:2], OTHERS[:3], OTHERS[:1]]:
        sharding, number = over(devices), len(devices)
        make = partial(Loader, GRAPH, SEEDS, SIZE, key=KEY, read=rows_of)
        whole, parts = make(Neighbors((4, 3))), make(Neighbors((4, 3)), device=sharding)
        for (batch, _), (share, x) in zip(whole, parts, strict=True):
            assert share.seeds.shape == (number, SIZE // number)
            assert x.shape[:2] == share.nodes.shape
            assert np.array_equal(batch.seeds, share.seeds.reshape(-1))
            # Each share is what a batch of its own seeds is, by the same key.
            for leaf in jax.tree.leaves((share, x)):
                assert leaf.sharding.device_set == set(devices)
                pieces = {s.device: s.index[0] for s in leaf.addressable_shards}
                own = [(slice(i, i + 1), slice(None))[number == 1] for i in range(number)]
                assert [pieces[d] for d in devices] == own or number == 1
            assert drawn_edges(batch) == set().union(
                *(drawn_edges(jax.tree.map(lambda a, i=i: a[i], share)) for i in range(number))
            )
            place = np.asarray(share.nodes)
            assert same(x, np.where((place < N)[..., None], np.asarray(ROWS)[place % N], 0))
    # Others draw by a key of their own on each device, always the same one.
    for sampler in (Ladies((30, 30)), Saint("node", 40)):
        make = partial(Loader, GRAPH, SEEDS, SIZE, sampler, key=KEY, device=over(OTHERS[:2]))
        first, again = list(make()), list(make())
        assert same(first, again)
        assert not same(*(jax.tree.map(lambda a, i=i: a[i], first[0].nodes) for i in (0, 1)))


def drawn_edges(batch):
    """The edges of each hop as (hop, target, source) ids."""
    found = set()
    for hop, block in enumerate(batch.blocks):
        rows = np.asarray(batch.source_nodes(hop))
        ends, count = np.asarray(block.indptr), int(block.num_edges)
        target = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
        source = np.asarray(block.indices)[:count]
        found |= {
            (hop, int(rows[t]), int(rows[s])) for t, s in zip(target, source, strict=True)
        }
    return found


def test_hot_rows_lie_on_the_device():
    """The rows are those of the features, whichever lie there; the most read ones do."""
    rng = np.random.default_rng(5)
    features = rng.normal(size=(N, 7)).astype(np.float32)
    for device in (HOST, OTHERS[0], over(OTHERS[:2])):
        if device is not HOST and device is not OTHERS[0] and len(OTHERS) < 2:
            continue
        make = partial(Loader, GRAPH, SEEDS, SIZE, Neighbors((4, 3)), key=KEY, device=device)
        for memory in (0, 50 * 28, N * 28):
            hot = HotRows.planned(features, make(), memory, device)
            assert hot.table.shape == (memory // 28, 7)
            count, shapes = np.zeros(N + 1), set()
            for batch, cold in make(read=hot):
                several = batch.nodes.ndim == 2
                for d in range(batch.nodes.shape[0] if several else 1):
                    nodes = batch.nodes[d] if several else batch.nodes
                    own = jax.tree.map(lambda a, d=d: a[d], cold) if several else cold
                    table = np.asarray(hot.table)
                    x = ops.gather((jnp.asarray(table), jnp.asarray(own.rows)), own.place)
                    ids = np.asarray(nodes)
                    want = np.where((ids < N)[:, None], features[ids % N], 0)
                    assert np.array_equal(x, want)
                    count[ids] += 1
                shapes.add(cold.rows.shape)
            assert len(shapes) == 1, shapes
            held = np.flatnonzero(np.asarray(hot._slot)[:-1] >= 0)
            rest = np.setdiff1d(np.arange(N), held)
            if 0 < held.size < N:
                assert count[held].min() >= count[rest].max()
    refused("hot nodes must be ids in [0, 400)", HotRows, features, [400])
    refused("hot nodes must be distinct", HotRows, features, [4, 4])
    sparse = jgs.SparseFeatures.from_scipy(scipy.sparse.csr_matrix(features))
    for wrong in (features[0], sparse):
        refused("features must be a matrix", HotRows, wrong, [])
    refused(
        "a row for each node",
        HotRows.planned,
        features[:9],
        Loader(GRAPH, SEEDS, 24, (2,), key=KEY),
        99,
    )
    assert HotRows(features, []).table.shape == (0, 7)


@several
def test_stages_and_links_on_several_devices():
    """Excluded edges are those of the whole batch."""
    src, dst = (np.asarray(a) for a in GRAPH.edge_index())
    items = {"src": src[:240], "dst": dst[:240]}
    stage = Links(num_negatives=2)
    make = partial(Loader, GRAPH, items, SIZE, Neighbors((4, 3)), key=KEY, before=stage)
    whole, parts = make(device=HOST), make(device=over(OTHERS[:2]))
    for batch, share in zip(whole, parts, strict=True):
        assert drawn_edges(batch) == set().union(
            *(drawn_edges(jax.tree.map(lambda a, i=i: a[i], share)) for i in (0, 1))
        )


@several
def test_shares_that_overflow_are_drawn_again_in_one_shape():
    tight = jgs.sampling.plan_capacity(GRAPH, 12, Neighbors((4, 3)), trials=1, margin=0.0)
    make = partial(Loader, GRAPH, SEEDS, SIZE, Neighbors((4, 3)), key=KEY, capacity=tight)
    loader = make(device=over(OTHERS[:2]))
    batches = list(loader)
    assert loader.redraws > 0
    assert not any(batch.overflow.any() for batch in batches)


def test_every_size_and_dtype_arrives():
    rng = np.random.default_rng(0)
    kinds = (
        "bool",
        "int8",
        "uint16",
        "float16",
        "int32",
        "uint32",
        "float32",
        "int64",
        "float64",
    )
    shapes = ((), (0,), (5,), (3, 0), (7, 3), (300_007, 3), (1, 900_000))  # some go in parts
    tree = {
        (kind, shape): rng.integers(0, 2, shape).astype(kind)
        if kind == "bool"
        else np.asarray(rng.integers(0, 100, shape), kind)
        for kind in kinds
        for shape in shapes
    }
    there = Destination.of(OTHERS[0]).send([tree])
    assert same(there, tree)
    assert all(array.devices() == {OTHERS[0]} for array in there.values())
    other = jax.tree.map(lambda a: a + a.dtype.type(1), tree)
    if len(OTHERS) > 1:
        both = Destination.of(over(OTHERS[:2])).send([tree, other])
        assert same(both, {name: np.stack([tree[name], other[name]]) for name in tree})


def test_who_waits_for_a_thread_that_is_stopped_is_let_go():
    """At the end of a program the drawing thread may end before the sending one."""
    closed, got = [], []

    def items():
        try:
            yield from range(100)
        finally:
            closed.append(True)

    ahead = Ahead(items(), 2)
    ahead.wait_until_full()
    ahead.stop()
    waiting = threading.Thread(target=lambda: got.extend(ahead), daemon=True)
    waiting.start()
    waiting.join(20)
    assert not waiting.is_alive()
    assert got == [0, 1]
    assert closed


@several
def test_a_position_goes_on_elsewhere():
    make = partial(Loader, GRAPH, SEEDS, SIZE, Neighbors((4, 3)), key=KEY)
    whole = [np.sort(np.asarray(b.seeds).reshape(-1)) for b in make()]
    loader = make(device=over(OTHERS[:2]))
    for _, _ in zip(range(4), loader, strict=False):
        pass
    state = loader.state_dict()
    loader.close()
    rest = make(device=OTHERS[0])
    rest.load_state_dict(state)
    found = [np.sort(np.asarray(b.seeds)) for b in rest]
    assert same(found, whole[state["step"] :])
    other = Loader(GRAPH, SEEDS, SIZE, Ladies((9,)), key=KEY, device=over(OTHERS[:2]))
    mine = Loader(GRAPH, SEEDS, SIZE, Ladies((9,)), key=KEY)
    refused("state's digest must be", mine.load_state_dict, other.state_dict())


def test_an_adaptive_sampler_learns_on_the_host():
    def run(device):
        loader = Loader(GRAPH, SEEDS, SIZE, Thanos((3,)), key=KEY, device=device)
        for batch in loader:
            block = batch.blocks[0]
            rows = jnp.ones((block.source_capacity, 2)) * batch.nodes[:, None]
            slopes = jnp.ones((block.target_capacity, 2))
            loader.update(batch, jgs.sampling.base.Feedback((rows,), (slopes,)))
        return loader.sampler_state

    assert same(run(HOST), run(OTHERS[0]))
    make = partial(Loader, GRAPH, SEEDS, SIZE, Thanos((3,)), key=KEY)
    refused("must have one device", make, device=over(OTHERS[:2]))
    assert len(make(device=over(OTHERS[:2]), age=None)) == 13


def test_a_graph_on_another_device_is_sampled_there_in_plain_jax():
    for graph in (GRAPH, make_graph(edge_time=np.arange(4000) + 2**40)):
        moved = jgs.to_device(graph, OTHERS[0])
        assert same(moved, graph)
        assert moved.indptr.dtype == np.int64
        sample = partial(sample_neighbors, fanouts=(4, 3))
        here = sample(KEY, graph, SEEDS[:SIZE])
        with kernels.this_host_only(False):
            there = jax.jit(sample)(KEY, moved, jnp.asarray(SEEDS[:SIZE]))
        assert there.nodes.devices() == {OTHERS[0]}
        assert same(here, there)


@several
def test_wrong_devices_are_refused():
    make = partial(Loader, GRAPH, SEEDS, SIZE, Neighbors((4, 3)), key=KEY)
    refused("device must be a device of this process", make, device="gpu")
    unsplit = NamedSharding(over(OTHERS[:2]).mesh, PartitionSpec())
    for leaf in (KEY, "text", np.ones(3, np.complex64)):
        wrong = make(read=lambda batch, leaf=leaf: {"a": leaf}, device=OTHERS[0])
        refused("must be arrays of real numbers", lambda wrong=wrong: next(iter(wrong)))
    refused("a sharding of a leading axis", make, device=unsplit)
    odd = partial(Loader, GRAPH, SEEDS, 25, Neighbors((4, 3)), key=KEY)
    refused("a multiple of 2, the number of devices; got 25", odd, device=over(OTHERS[:2]))


def refused(rule, function, *args, **kwargs):
    with pytest.raises(InputError, match=re.escape(rule)):
        function(*args, **kwargs)
