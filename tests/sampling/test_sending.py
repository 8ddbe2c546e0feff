"""A loader beside devices other than the host's, which is device 0 of this process."""

import threading
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from jax.sharding import NamedSharding, PartitionSpec
from refusals import refused

import jgs
from jgs import kernels, ops
from jgs.devices import host_device
from jgs.graph import QuantizedFeatures, TypedFeatures
from jgs.graph.foreign import drawn_edges as of_batch
from jgs.graph.row_tables.table import as_table
from jgs.sampling import (
    ByEpoch,
    HotRows,
    Ladies,
    Links,
    Loader,
    Neighbors,
    Saint,
    Thanos,
    sample_neighbors,
)
from jgs.sampling.loading.sending import Ahead, Destination

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
usual = partial(Loader, GRAPH, SEEDS, SIZE, Neighbors((4, 3)), key=KEY)


def same(a, b):
    a, b = jax.tree.leaves(a), jax.tree.leaves(b)
    alike = (x.dtype == y.dtype and np.array_equal(x, y) for x, y in zip(a, b, strict=False))
    return len(a) == len(b) and all(alike)


def over(devices):
    mesh = jax.sharding.Mesh(np.array(devices), ("data",))
    return NamedSharding(mesh, PartitionSpec("data"))


def shares(tree, device):
    """What each of the devices has of it, on the host."""
    tree = jax.tree.map(np.asarray, tree)
    if not isinstance(device, NamedSharding):
        return [tree]
    return [jax.tree.map(lambda a, i=i: a[i], tree) for i in range(device.mesh.size)]


def rows_of(batch):
    """Rows that a step would read, made on the host."""
    assert batch.nodes.devices() == {HOST}
    return jnp.take(ROWS, batch.nodes, axis=0, mode="fill", fill_value=0)


with jax.default_device(HOST):
    ROWS = jnp.asarray(np.random.default_rng(1).normal(size=(N, 7)), jnp.float32)


def test_batches_lie_where_asked_with_the_bits_of_the_host():
    timed = make_graph(edge_time=np.random.default_rng(2).integers(0, 2**40, 4000))
    items = {"nodes": SEEDS, "time": np.full(300, 2**40)}
    for graph, seeds, sampler, epochs in (
        (GRAPH, SEEDS, Ladies((30,)), 1),
        (GRAPH, SEEDS, ByEpoch({0: (2, 2), 1: (3, 3)}), 2),
        (timed, items, Neighbors((4, 3), edges=("id", "time", "elapsed")), 1),
    ):
        make = partial(Loader, graph, seeds, SIZE, sampler, key=KEY, read=rows_of)
        on_host, there = make(device=HOST), make(device=OTHERS[0])
        for _ in range(epochs):
            expected, sent = list(on_host), list(there)
            assert same(expected, sent), sampler
            assert all(leaf.devices() == {OTHERS[0]} for leaf in jax.tree.leaves(sent))
    assert same(make(device=OTHERS[0], prefetch=0).peek(), expected[0])


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
    assert same(found, whole)
    with make(device=HOST, prefetch=2) as ahead:
        assert same([(batch, ahead.draw_next())[0] for batch in ahead], whole)
    thanos = Loader(GRAPH, SEEDS, SIZE, Thanos((3,)), key=KEY, device=OTHERS[0])
    next(iter(thanos))
    drawn = thanos.source.seconds["sampling"]
    thanos.draw_next()
    assert thanos.source.seconds["sampling"] == drawn


def test_rows_of_types_are_sent_without_their_tables():
    rng, counts = np.random.default_rng(4), {"author": 150, "paper": 200, "venue": 50}
    ends = rng.integers(0, 150, 900), rng.integers(0, 200, 900)
    at = np.arange(200), rng.integers(0, 50, 200)
    edges = {("author", "writes", "paper"): ends, ("paper", "at", "venue"): at}
    graph = jgs.Graph.from_relations(counts, edges, both_ways=True)
    tables = {
        "author": QuantizedFeatures.of(rng.normal(size=(150, 3))),
        "paper": scipy.sparse.random(200, 9, 0.3, "csr", np.float32, rng),
    }
    features = TypedFeatures.from_dict(graph.schema, tables)
    numbers = {name: as_table(features.table(name)).numbers() for name in tables}

    def read(batch):
        return ops.gather(features, batch.nodes)

    make = partial(Loader, graph, np.arange(150), 6, (2, 2), key=KEY, read=read)
    for device in (OTHERS[0], over(OTHERS[:2])) if len(OTHERS) > 1 else OTHERS:
        shapes = set()
        for batch, rows in make(device=device, prefetch=0 if device is OTHERS[0] else 2):
            for own, x in shares((batch, rows), device):
                want = read(own)
                assert as_table(x.tables[0]).kind == "int8"  # as it is stored
                np.testing.assert_array_equal(x.kind, want.kind)
                for number, name in enumerate(counts):
                    mine = x.kind == number
                    if name == "venue":
                        assert x.tables[number] is None
                        np.testing.assert_array_equal(x.place[mine], want.place[mine])
                    else:
                        found = as_table(x.tables[number]).numbers(x.place[mine])
                        np.testing.assert_array_equal(found, numbers[name][want.place[mine]])
                shapes.add(tuple(t.shape for t in x.tables if t is not None))
        assert len(shapes) < 12  # steps are compiled for few shapes
        assert all(rows < 150 for of_batch in shapes for rows, _ in of_batch)


def test_nothing_is_compiled_after_the_first_epoch_and_memory_is_bounded():
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, *_, **__: compiled.append(name) if "backend_compile" in name else None
    )
    device = OTHERS[-1]
    others = jax.live_arrays()  # of other tests of this process; they live on in this list
    known = {id(array) for array in others}
    loader = usual(read=rows_of, device=device, prefetch=3)
    list(loader)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(next(iter(loader))))
    compiled.clear()

    def there():
        new = [a for a in jax.live_arrays() if id(a) not in known]
        sizes = [a.nbytes for a in new if a.devices() == {device}]
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
    make = partial(usual, read=rows_of)
    whole = list(make())
    for devices in [OTHERS[:3], OTHERS[:1]]:
        sharding, number = over(devices), len(devices)
        for (batch, _), both in zip(whole, make(device=sharding), strict=True):
            share, x = both
            assert share.seeds.shape == (number, SIZE // number)
            assert x.shape[:2] == share.nodes.shape
            assert np.array_equal(batch.seeds, share.seeds.reshape(-1))
            for leaf in jax.tree.leaves(both):
                assert leaf.sharding.device_set == set(devices)
                pieces = {s.device: s.index[0] for s in leaf.addressable_shards}
                own = [(slice(i, i + 1), slice(None))[number == 1] for i in range(number)]
                assert [pieces[d] for d in devices] == own
            # Each share is what a batch of its own seeds is, by the same key.
            assert drawn_edges(batch) == drawn_by_all(share, sharding)
            place = np.asarray(share.nodes)
            assert same(x, np.where((place < N)[..., None], np.asarray(ROWS)[place % N], 0))
    # Excluded edges are those of the whole batch.
    src, dst = GRAPH.edge_index()[:, :240]
    options = {"key": KEY, "before": Links(num_negatives=2)}
    make = partial(Loader, GRAPH, {"src": src, "dst": dst}, SIZE, Neighbors((4,)), **options)
    for batch, share in zip(make(), make(device=over(OTHERS[:2])), strict=True):
        assert drawn_edges(batch) == drawn_by_all(share, over(OTHERS[:2]))
    # Shares that overflow are drawn again, in one shape.
    tight = jgs.sampling.plan_capacity(GRAPH, 12, Neighbors((4, 3)), trials=1, margin=0.0)
    loader = usual(device=over(OTHERS[:2]), capacity=tight)
    assert not any(batch.overflow.any() for batch in loader)
    assert loader.redraws > 0
    # Others draw by a key of their own on each device, always the same one.
    for sampler in (Ladies((30,)), Saint("node", 40)):
        make = partial(Loader, GRAPH, SEEDS, SIZE, sampler, key=KEY, device=over(OTHERS[:2]))
        first, again = list(make()), list(make())
        assert same(first, again)
        assert not same(*(own.nodes for own in shares(first[0], over(OTHERS[:2]))))


def drawn_edges(batch):
    """The edges of each hop as (hop, target, source) ids."""
    found = of_batch(batch)
    return set(zip(found.hop.tolist(), found.dst.tolist(), found.src.tolist(), strict=True))


def drawn_by_all(batch, sharding):
    return set().union(*map(drawn_edges, shares(batch, sharding)))


def test_hot_rows_lie_on_the_device():
    """The rows are those of the features, whichever lie there; the most read ones do."""
    features = np.random.default_rng(5).normal(size=(N, 7)).astype(np.float32)
    for device in (HOST, OTHERS[0], *([over(OTHERS[:2])] if len(OTHERS) > 1 else [])):
        make = partial(usual, device=device)
        for memory in (0, 50 * 28, N * 28):
            hot = HotRows.planned(features, make(), memory, device)
            assert hot.table.shape == (memory // 28, 7)
            count, shapes = np.zeros(N + 1), set()
            for batch, cold in make(read=hot):
                shapes.add(cold.rows.shape)
                for own, rows in shares((batch, cold), device):
                    known = np.concatenate([np.asarray(hot.table), rows.rows, np.zeros((1, 7))])
                    want = np.concatenate([features, np.zeros((1, 7))])[own.nodes]
                    assert np.array_equal(known[rows.place], want)
                    count[own.nodes] += 1
            assert len(shapes) == 1, shapes
            held = np.flatnonzero(np.asarray(hot._slot)[:-1] >= 0)
            rest = np.setdiff1d(np.arange(N), held)
            if 0 < held.size < N:
                assert count[held].min() >= count[rest].max()
    refused("hot nodes must be ids in [0, 400)", HotRows, features, [400])
    refused("hot nodes must be distinct", HotRows, features, [4, 4])
    sparse = jgs.SparseFeatures.from_scipy(scipy.sparse.csr_matrix(features))
    for wrong in (features[0], sparse):
        refused("features must be floats or integers [N, F]", HotRows, wrong, [])
    refused("a row for each node", HotRows.planned, features[:9], make(), 99)
    assert HotRows(features, []).table.shape == (0, 7)


def test_every_size_and_dtype_arrives():
    rng = np.random.default_rng(0)
    kinds = ("bool", "int8", "uint16", "float16", "int32", "uint32", "int64", "float64")
    shapes = ((), (0,), (5,), (3, 0), (7, 3), (300_007, 3), (1, 900_000))  # some go in parts
    tree = {
        (kind, shape): rng.integers(0, 2 if kind == "bool" else 100, shape).astype(kind)
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
    whole = [np.sort(np.asarray(b.seeds).reshape(-1)) for b in usual()]
    loader = usual(device=over(OTHERS[:2]))
    for _, _ in zip(range(4), loader, strict=False):
        pass
    state = loader.state_dict()
    loader.close()
    rest = usual(device=OTHERS[0])
    rest.load_state_dict(state)
    found = [np.sort(np.asarray(b.seeds)) for b in rest]
    assert same(found, whole[state["step"] :])
    other = Loader(GRAPH, SEEDS, SIZE, Ladies((9,)), key=KEY, device=over(OTHERS[:2]))
    mine = Loader(GRAPH, SEEDS, SIZE, Ladies((9,)), key=KEY)
    refused("state's digest must be", mine.load_state_dict, other.state_dict())


def test_a_graph_on_another_device_is_sampled_there_in_plain_jax():
    graph = make_graph(edge_time=np.arange(4000) + 2**40)
    moved = jgs.to_device(graph, OTHERS[0])
    assert same(moved, graph)
    assert moved.indptr.dtype == np.int64
    sample = partial(sample_neighbors, fanouts=(4, 3))
    with kernels.this_host_only(False):
        there = jax.jit(sample)(KEY, moved, jnp.asarray(SEEDS[:SIZE]))
    assert there.nodes.devices() == {OTHERS[0]}
    assert same(sample(KEY, graph, SEEDS[:SIZE]), there)


@several
def test_wrong_devices_are_refused():
    refused("device must be a device of this process", usual, device="gpu")
    unsplit = NamedSharding(over(OTHERS[:2]).mesh, PartitionSpec())
    for leaf in (KEY, "text", np.ones(3, np.complex64)):
        wrong = usual(read=lambda batch, leaf=leaf: {"a": leaf}, device=OTHERS[0])
        refused("must be arrays of real numbers", lambda wrong=wrong: next(iter(wrong)))
    refused("a sharding of a leading axis", usual, device=unsplit)
    learning = partial(Loader, GRAPH, SEEDS, SIZE, Thanos((3,)), key=KEY)
    refused("must have one device", learning, device=over(OTHERS[:2]))
    assert len(learning(device=over(OTHERS[:2]), age=None)) == 13
    odd = partial(Loader, GRAPH, SEEDS, 25, Neighbors((4, 3)), key=KEY)
    refused("a multiple of 2, the number of devices; got 25", odd, device=over(OTHERS[:2]))
