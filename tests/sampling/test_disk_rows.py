"""`DiskRows`: a loader yields the bits of `gather`, whatever is in memory; what it reads is
what Belady's rule reads; where a file fails, the loop ends with a line, and goes on later."""

import dataclasses
import gc
import os
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from jax.sharding import NamedSharding, PartitionSpec

import jgs
from jgs.errors import InputError
from jgs.files.row_file import DiskError
from jgs.graph import SparseFeatures, TypedFeatures
from jgs.models.inputs import Placed
from jgs.sampling import (
    ByEpoch,
    DiskRows,
    Labor,
    Ladies,
    Loader,
    Neighbors,
    Saint,
    Thanos,
)

KEY, N, F = jax.random.key(1), 500, 24
RNG = np.random.default_rng(0)
GRAPH = jgs.Graph.from_edges(*RNG.integers(0, N, (2, 3000)), N)
SEEDS, B = np.arange(300), 32
TABLE = RNG.random((N, F), np.float32)
ROW = F * 4


@pytest.fixture
def file(tmp_path):
    np.save(tmp_path / "x.npy", TABLE)
    return tmp_path / "x.npy"


def loader(read, sampler=None, **options):
    return Loader(GRAPH, SEEDS, B, sampler or Neighbors((4, 3)), key=KEY, read=read, **options)


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def same(a, b):
    a, b = leaves(a), leaves(b)
    return len(a) == len(b) and all(map(np.array_equal, a, b))


def packing(file, block):
    """The options of rows that are packed in blocks; 0: they are not."""
    return {"scratch": file.parent, "block": block} if block else {}


def in_memory(batch):
    return jgs.ops.gather(jnp.asarray(TABLE), batch.nodes)


@pytest.mark.parametrize("scratch", [0, 1, 3, 64])
@pytest.mark.parametrize("rows", [0, 7, 100, N, 10 * N])
def test_bits_are_those_in_memory(file, rows, scratch, implemented):
    implemented(True)
    disk = DiskRows(file, rows * ROW, window=5, **packing(file, scratch))
    assert disk.shape == (N, F)
    assert disk.capacity == min(rows, N)
    first, second = loader(disk), loader(in_memory)
    for _ in range(2):  # the second epoch begins with rows of the first
        for mine, theirs in zip(first, second, strict=True):
            assert same(mine, theirs)
    assert first.redraws == second.redraws
    assert disk.nbytes >= min(rows, N) * ROW
    assert first.counts["disk_rows"] == disk.counts["disk_rows"]
    if rows >= N:
        assert disk.counts["disk_rows"] <= N


def test_plain_is_the_same(file, implemented):
    implemented(False)
    for mine, theirs in zip(loader(DiskRows(file, 90 * ROW)), loader(in_memory), strict=True):
        assert same(mine, theirs)


@pytest.mark.parametrize(
    "sampler", [Labor((3, 3)), Ladies((50, 30)), Saint("node", 60)], ids=repr
)
def test_every_kind_of_sampler(file, sampler):
    both = loader(DiskRows(file, 80 * ROW), sampler), loader(in_memory, sampler)
    for mine, theirs in zip(*both, strict=True):
        assert same(mine, theirs)


def test_a_sampler_that_learns_draws_no_batch_early(file):
    every = []
    for read in (DiskRows(file, 80 * ROW), in_memory):
        mine = loader(read, Thanos((4,)))
        for batch, x in mine:
            block = batch.blocks[0]
            rows = jnp.ones((block.source_capacity, 2)) * batch.nodes[:, None]
            slopes = jnp.ones((block.target_capacity, 2))
            mine.update(batch, jgs.sampling.base.Feedback((rows,), (slopes,)))
            every.append((batch, x))
        every.append(mine.sampler_state)
    every = every[: len(every) // 2], every[len(every) // 2 :]
    assert same(*every)


def test_a_schedule_of_samplers(file):
    plan = ByEpoch({0: (2, 2), 1: (3, 3)})
    both = loader(DiskRows(file, 80 * ROW), plan), loader(in_memory, plan)
    for _ in range(2):
        for mine, theirs in zip(*both, strict=True):
            assert same(mine, theirs)


def test_left_continued_and_looked_at(file):
    disk = DiskRows(file, 80 * ROW)
    whole, mine = list(loader(in_memory)), loader(disk)
    for i, pair in enumerate(mine):
        assert same(pair, whole[i])
        if i == 3:
            break
    assert same(mine.peek(), whole[4])
    assert mine.step == 4
    state = mine.state_dict()
    assert same(list(mine), whole[4:])
    other = loader(disk, prefetch=0)  # the rows that are in memory now serve it too
    other.load_state_dict(state)
    assert same(list(other), whole[4:])
    assert [b.nodes.shape for b in mine.rehearse(2)] == [whole[0][0].nodes.shape] * 2


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "float64", "int32"])
def test_dtypes(tmp_path, dtype):
    table = np.asarray(jnp.asarray(TABLE * 100, dtype)) if dtype != "float64" else TABLE * 1.0
    bits = table.view(np.uint16) if dtype == "bfloat16" else table
    np.save(tmp_path / "a.npy", bits[:200])
    np.save(tmp_path / "b.npy", bits[200:])
    scale = np.linspace(0.5, 2, F).astype(np.float32) if dtype == "int8" else None
    named = jnp.bfloat16 if dtype == "bfloat16" else None
    paths = [tmp_path / "a.npy", str(tmp_path / "b.npy")]
    disk = DiskRows(paths, 50 * table[:1].nbytes, dtype=named, scale=scale)
    assert disk.capacity == 50
    for batch, x in loader(disk):
        wanted = jgs.ops.gather(jgs.graph.as_device(table), batch.nodes)
        assert x.dtype == np.float32
        np.testing.assert_array_equal(x, wanted if scale is None else wanted * scale)


def test_pinned_rows_are_read_once(file):
    pinned = np.arange(100, 200)
    disk = DiskRows(file, 120 * ROW, pinned=pinned)
    assert disk.counts["disk_rows"] == 100
    reads = []
    files = disk._there[0].files
    read, files.read = files.read, lambda rows, out: (reads.append(rows), read(rows, out))
    for mine, theirs in zip(loader(disk), loader(in_memory), strict=True):
        assert same(mine, theirs)
    assert not np.isin(np.concatenate(reads), pinned).any()


def test_mapped_features_and_what_is_made_of_them(file):
    mapped = jgs.graph.as_device(np.load(file, mmap_mode="r"))
    disk = DiskRows(
        mapped, 90 * ROW, then=lambda *found: Placed(*found[:2]).inputs(found[2], "mean")
    )
    for (batch, inputs), (_, x) in zip(loader(disk), loader(in_memory), strict=True):
        block = batch.block(0)
        np.testing.assert_array_equal(inputs.own, x[: block.target_capacity])
        np.testing.assert_array_equal(inputs.aggregated, jgs.ops.aggregate(block, x, "mean"))


@pytest.mark.parametrize("with_sparse", [False, True])
def test_typed_features(tmp_path, with_sparse):
    links = {
        ("user", "buys", "item"): RNG.integers(0, (30, 50), (200, 2)).T,
        ("item", "of", "kind"): RNG.integers(0, (50, 5), (60, 2)).T,
        ("item", "bought", "user"): RNG.integers(0, (50, 30), (200, 2)).T,
    }
    graph = jgs.Graph.from_relations({"user": 30, "item": 50, "kind": 5}, links)
    tables = {"user": RNG.random((30, 6), np.float32), "item": RNG.random((50, 3)).astype("f2")}
    mapped = {}
    for name, table in tables.items():
        np.save(tmp_path / f"{name}.npy", table)
        mapped[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
    if with_sparse:
        tables["kind"] = sparse(5, 100)
        mapped["kind"] = in_files(tmp_path, tables["kind"])
    whole = TypedFeatures.from_dict(graph.schema, tables)
    disk = DiskRows(TypedFeatures.from_dict(graph.schema, mapped), 300)
    assert disk.shape == (85, 109 if with_sparse else 9)
    assert 0 < disk.capacity < 80
    options = {"key": KEY, "batch_size": 8, "sampler": Neighbors((3, 3))}
    for batch, x in Loader(graph, np.arange(30), read=disk, **options):
        wanted = jgs.ops.gather(whole, batch.nodes)
        np.testing.assert_array_equal(x.kind, wanted.kind)
        for number in range(3):
            mine = np.flatnonzero(np.asarray(x.kind) == number)
            if whole.tables[number] is None:
                np.testing.assert_array_equal(x.place[mine], wanted.place[mine])
                continue
            rows = [jgs.ops.gather(one.tables[number], one.place[mine]) for one in (x, wanted)]
            np.testing.assert_array_equal(*rows)


def in_files(tmp_path, features):
    """Sparse features of which the entries lie in files."""
    mapped = {}
    for name in ("indices", "values"):
        path = tmp_path / f"{name}{features.shape[0]}.npy"
        np.save(path, getattr(features, name))
        mapped[name] = jgs.graph.as_device(np.load(path, mmap_mode="r"))
    return dataclasses.replace(features, **mapped)


def sparse(num_rows, width):
    """Sparse features. Some rows have none, and some have several blocks of entries."""
    counts = RNG.integers(0, 90, num_rows) * RNG.integers(0, 2, num_rows)
    rows = np.repeat(np.arange(num_rows), counts)
    columns = np.concatenate([RNG.permutation(width)[:count] for count in counts])
    values = RNG.random(rows.size, np.float32)
    return SparseFeatures.from_scipy(
        scipy.sparse.csr_array((values, (rows, columns)), (num_rows, width))
    )


@pytest.mark.parametrize("kernel", [True, False])
def test_sparse_features(tmp_path, kernel, implemented):
    """Rows, and sums over neighbours, with none, some and all of the blocks in memory, packed
    and read where they lie."""
    implemented(kernel)
    whole = sparse(N, 120)
    mapped = in_files(tmp_path, whole)
    size = whole.values.nbytes * 2
    sizes = (0, size // 7, 2 * size) if kernel else (size // 7,)
    theirs = list(loader(lambda batch: jgs.ops.gather(whole, batch.nodes)))
    for memory in sizes:
        for block in (0, 3):
            disk = DiskRows(mapped, memory, window=3, **packing(tmp_path / "x", block))
            assert disk.shape == (N, 120)
            mine = loader(disk)
            assert same(list(mine), theirs)
            assert len(list(mine)) == len(theirs)
            if memory > size:
                assert disk.counts["disk_rows"] <= whole.values.size // 32 * 2
    some = DiskRows(
        mapped, size // 7, then=lambda *found: Placed(*found[:2]).inputs(found[2], "mean")
    )
    for (batch, inputs), (_, x) in zip(loader(some), theirs, strict=True):
        block = batch.block(0)
        assert same(inputs.own, x[: block.target_capacity])
        np.testing.assert_allclose(
            inputs.aggregated, jgs.ops.aggregate(block, x, "mean"), 1e-6, 1e-6
        )


def test_sparse_features_of_few_entries_pinned_and_cut(tmp_path):
    few = SparseFeatures.from_scipy(scipy.sparse.random(N, 9, 0.004, rng=RNG))
    assert 0 < few.values.size < 32
    none = SparseFeatures.from_scipy(scipy.sparse.csr_array((N, 9)))
    for features, read in ((few, in_files(tmp_path, few)), (none, none)):
        disk = DiskRows(read, 100)  # all entries are in memory
        both = loader(disk), loader(lambda batch, f=features: jgs.ops.gather(f, batch.nodes))
        for mine, theirs in zip(*both, strict=True):
            assert same(mine, theirs)
        assert disk.counts["disk_rows"] == 0
    whole = sparse(N, 120)
    mapped = in_files(tmp_path, whole)
    disk = DiskRows(mapped, whole.values.nbytes, pinned=np.arange(50, 100))
    pinned = disk.counts["disk_rows"]
    assert 0 < pinned < whole.values.size // 32
    theirs = list(loader(lambda batch: jgs.ops.gather(whole, batch.nodes)))
    assert same(list(loader(disk)), theirs)
    with pytest.raises(InputError, match="pinned rows must fit"):
        DiskRows(mapped, 1000, pinned=np.arange(N))
    os.truncate(tmp_path / f"values{N}.npy", 1000)
    with pytest.raises(DiskError, match=r"values500\.npy must stay readable"):
        list(loader(DiskRows(mapped, 0)))


@pytest.mark.skipif(len(jax.devices()) < 3, reason="there are no other devices")
def test_sent_to_devices(file):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[1:3]), ("data",))
    for device in (jax.devices()[1], NamedSharding(mesh, PartitionSpec("data"))):
        both = [
            list(loader(read, device=device)) for read in (DiskRows(file, 90 * ROW), in_memory)
        ]
        assert same(*both)


def test_a_file_that_gets_shorter_ends_the_loop(file):
    whole, size = list(loader(in_memory)), file.stat().st_size
    disk = DiskRows(file, 60 * ROW, window=1)
    mine = loader(disk, prefetch=0)
    steps = iter(mine)
    assert same(next(steps), whole[0])
    os.truncate(file, size // 2)
    with pytest.raises(DiskError, match=r"x\.npy must stay readable, with all of its rows"):
        list(steps)
    left = mine.step
    np.save(file.with_name("y.npy"), TABLE)
    file.write_bytes(file.with_name("y.npy").read_bytes())  # the same file, whole again
    assert same(list(mine), whole[left:])


def test_reads_are_those_of_the_rule(file):
    """With all batches known: the number of rows that Belady's rule reads, counted anew."""
    capacity = 60
    nodes = [np.asarray(batch.nodes) for batch, _ in loader(in_memory)]
    steps = [set(each[each < N].tolist()) for each in nodes]
    held, reads = set(), 0
    for t, step in enumerate(steps):
        reads += len(step - held)
        after = {
            row: next((s for s in range(t + 1, len(steps)) if row in steps[s]), 99)
            for row in held | step
        }
        held = set(sorted(after, key=after.get)[:capacity])
    disk = DiskRows(file, capacity * ROW)
    assert len(steps) < disk.window
    assert len(list(loader(disk))) == len(steps)
    assert disk.counts["disk_rows"] == reads


def test_what_is_refused(file, tmp_path):
    wrong = (
        (file, 10, {"window": 32}, "window must be at most 31"),
        (file, -1, {}, "memory"),
        (file, 1000, {"pinned": [3, 3]}, "pinned nodes must be distinct"),
        (file, 1000, {"pinned": [N]}, "pinned nodes"),
        (file, ROW, {"pinned": [1, 2]}, "pinned rows must fit"),
        (tmp_path / "absent.npy", 10, {}, "whole .npy file"),
    )
    for path, memory, options, message in wrong:
        with pytest.raises(InputError, match=message):
            DiskRows(path, memory, **options)
    for features in (TABLE, SparseFeatures.from_scipy(scipy.sparse.eye(40))):
        with pytest.raises(InputError, match="must be matrices that lie in files"):
            DiskRows(features, 100)
    np.save(tmp_path / "few.npy", TABLE[:9])
    with pytest.raises(InputError, match="a row for each node of the graph"):
        next(iter(loader(DiskRows(tmp_path / "few.npy", 100))))
    with pytest.raises(InputError, match="list their input nodes"):
        next(iter(loader(DiskRows(file, 100), Neighbors((2, 2), relabel_inputs=False))))
    with pytest.raises(InputError, match="must be a MiniBatch"):
        next(iter(loader(DiskRows(file, 100), after=lambda batch: batch.nodes)))


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("block", [0, 3])
def test_one_loop_at_a_time(file, prefetch, block):
    disk = DiskRows(file, 80 * ROW, **packing(file, block))
    whole = list(loader(in_memory))
    first, second = (loader(disk, prefetch=prefetch) for _ in range(2))
    steps = iter(first)
    next(steps)
    with pytest.raises(InputError, match="must be used by one loop at a time"):
        list(second)
    assert same(next(steps), whole[1])  # the first loop has lost nothing
    assert same(first.peek(), whole[2])  # which ends it
    assert same(list(second), whole)
    assert same(list(first), whole[2:])


def threads():
    gc.collect()
    return sum(thread.name == "jgs-loader" for thread in threading.enumerate())


@pytest.mark.parametrize("sampler", [(4, 3), ByEpoch({0: (2, 2), 1: (3, 3)})], ids=repr)
def test_an_epoch_begins_while_the_last_one_ends(file, sampler):
    none, plan = threads(), sampler if isinstance(sampler, ByEpoch) else Neighbors(sampler)
    disk = DiskRows(file, 80 * ROW, scratch=file.parent, block=4)
    mine, theirs = loader(disk, plan), loader(in_memory, plan)
    start = mine.state_dict()
    whole = [list(theirs) for _ in range(3)]
    for epoch in whole:
        assert same(list(mine), epoch)
        assert threads() > none  # they wait with the next epoch's first block
    other = loader(disk)  # begins another loop: they stop
    assert same(list(other), list(loader(in_memory)))
    mine.load_state_dict(start)
    assert same(list(mine), whole[0])
    steps = iter(mine)
    assert same([next(steps) for _ in range(len(mine))], whole[1])  # and no further
    assert same(list(mine), whole[2])
    assert threads() > none
    mine.close()
    other.close()
    assert threads() == none
    assert same(mine.peek(), next(iter(theirs)))
    list(mine)
    assert threads() > none
    del mine, other, theirs, steps
    assert threads() == none
    assert os.listdir(file.parent) == [file.name]


def test_files_that_are_no_features(tmp_path, monkeypatch):
    wrong = {
        "bool": np.zeros((N, 3), bool),
        "complex": np.zeros((N, 3), complex),
        "text": np.zeros((N, 3), "U2"),
        "swapped": np.zeros((N, 3), ">f4"),
        "bytes": np.zeros((N, 3), "V2"),
        "long": np.zeros((N, 3), np.longdouble),
    }
    for name, table in wrong.items():
        np.save(tmp_path / f"{name}.npy", table)
        with pytest.raises(InputError, match="must be real numbers"):
            DiskRows(tmp_path / f"{name}.npy", 100)
    with pytest.raises(InputError, match="must be files"):
        DiskRows([], 100)
    np.save(tmp_path / "good.npy", TABLE)
    for scale in ("a", [1.0, 2.0]):
        with pytest.raises(InputError, match="scale must be"):
            DiskRows(tmp_path / "good.npy", 100, scale=scale)
    monkeypatch.chdir(tmp_path)
    disk = DiskRows("good.npy", 100, scratch=".")
    monkeypatch.chdir("/")
    assert disk.scratch == tmp_path


def test_no_program_is_compiled_after_the_first_epoch(file):
    disk = DiskRows(file, 60 * ROW)
    mine = loader(disk)
    list(mine)
    before = disk._then._cache_size()
    list(mine)
    assert disk._then._cache_size() == before
