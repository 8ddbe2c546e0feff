"""`DiskRows`: the bits of `gather`, the reads of Belady's rule, and files that fail."""

import dataclasses
import gc
import os
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from cases import cases, rarely
from jax.sharding import NamedSharding, PartitionSpec
from refusals import refused
from test_loader import threads

import jgs
from jgs import kernels
from jgs.files.row_file import DiskError
from jgs.graph import SparseFeatures, TypedFeatures
from jgs.sampling import ByEpoch, DiskRows, Ladies, Loader, Neighbors, Saint
from jgs.sampling.loading.disk_table import MOST_STEPS, PlainPool, row_pool

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


def packing(file, block):
    """The options of rows that are packed in blocks; 0: they are not."""
    return {"scratch": file.parent, "block": block} if block else {}


def reading(features):
    return lambda batch: jgs.ops.gather(features, batch.nodes)


in_memory = reading(jnp.asarray(TABLE))


@pytest.fixture(scope="module")
def whole():
    """An epoch of batches and their rows."""
    return list(loader(in_memory))


def in_files(folder, features):
    """Sparse features of which the entries lie in files."""
    folder.mkdir(exist_ok=True)
    mapped = {}
    for name in ("indices", "values"):
        np.save(folder / f"{name}.npy", getattr(features, name))
        mapped[name] = jgs.graph.as_device(np.load(folder / f"{name}.npy", mmap_mode="r"))
    return dataclasses.replace(features, **mapped)


def sparse(num_rows, width):
    """Sparse features. Some rows have none, and some have several blocks of entries."""
    counts = RNG.integers(0, 90, num_rows) * RNG.integers(0, 2, num_rows)
    rows = np.repeat(np.arange(num_rows), counts)
    columns = np.concatenate([RNG.permutation(width)[:count] for count in counts])
    values = RNG.random(rows.size, np.float32)
    matrix = scipy.sparse.csr_array((values, (rows, columns)), (num_rows, width))
    return SparseFeatures.from_scipy(matrix)


@cases(
    "is_sparse, memory, block, sampler, kernel",
    (False, 0, 0, Neighbors((4, 3)), True),
    (False, 0.02, 3, Neighbors((4, 3)), True),
    (False, 0.2, 0, Ladies((50,)), True),
    (False, 0.2, 1, Saint("node", 60), True),
    (False, 1, 64, Neighbors((4, 3)), True),
    (True, 0, 3, Neighbors((4,)), True),
    (True, 2, 3, Neighbors((4,)), True),
    (True, 0.1, 3, Neighbors((4,)), False),
)
def test_bits_are_those_in_memory(
    file, is_sparse, memory, block, sampler, kernel, implemented, same_bits
):
    """With none, some and all of the rows in memory, packed and read where they lie."""
    implemented(kernel)
    features, mapped, num_rows, size = jnp.asarray(TABLE), file, N, TABLE.nbytes
    if is_sparse:
        features = sparse(N, 120)
        mapped = in_files(file.parent, features)
        num_rows, size = features.values.size // 32 * 2, features.values.nbytes * 2
    disk = DiskRows(mapped, int(memory * size), window=5, **packing(file, block))
    first, second = loader(disk, sampler), loader(reading(features), sampler)
    compiled = []
    for _ in range(2):  # the second epoch begins with rows of the first
        same_bits(list(first), list(second))
        compiled.append(disk._then._cache_size())
    assert first.redraws == second.redraws
    assert compiled[0] == compiled[1] or first.redraws
    assert disk.capacity == pytest.approx(min(memory, 1) * num_rows, abs=2)
    assert disk.nbytes >= disk.capacity * size // num_rows
    assert first.counts["disk_rows"] == disk.counts["disk_rows"]
    if memory >= 1:
        assert disk.counts["disk_rows"] <= num_rows


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "float64"])
def test_dtypes(tmp_path, dtype):
    table = (TABLE * 100).astype(jnp.dtype(dtype))
    bits = table.view(np.uint16) if dtype == "bfloat16" else table
    paths = [tmp_path / "a.npy", str(tmp_path / "b.npy")]
    for path, part in zip(paths, (bits[:200], bits[200:]), strict=True):
        np.save(path, part)
    scale = np.linspace(0.5, 2, F).astype(np.float32) if dtype == "int8" else None
    named = jnp.bfloat16 if dtype == "bfloat16" else None
    disk = DiskRows(paths, 50 * table[:1].nbytes, dtype=named, scale=scale)
    assert disk.capacity == 50
    wanted = np.concatenate([table, np.zeros((1, F), table.dtype)]).astype(np.float32)
    for batch, x in loader(disk):
        assert x.dtype == np.float32
        rows = wanted[np.asarray(batch.nodes)]
        np.testing.assert_array_equal(x, rows if scale is None else rows * scale)


def test_typed_features(tmp_path):
    links = {
        ("user", "buys", "item"): RNG.integers(0, (30, 50), (200, 2)).T,
        ("item", "of", "kind"): RNG.integers(0, (50, 5), (60, 2)).T,
        ("item", "bought", "user"): RNG.integers(0, (50, 30), (200, 2)).T,
        ("item", "in", "shop"): RNG.integers(0, (50, 4), (20, 2)).T,
    }
    graph = jgs.Graph.from_relations({"user": 30, "item": 50, "kind": 5, "shop": 4}, links)
    tables = {"user": RNG.random((30, 6), np.float32), "item": RNG.random((50, 3)).astype("f2")}
    mapped = {"kind": in_files(tmp_path, sparse(5, 100))}
    for name, table in tables.items():
        np.save(tmp_path / f"{name}.npy", table)
        mapped[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
    whole = TypedFeatures.from_dict(graph.schema, mapped)
    disk = DiskRows(whole, 300)
    assert disk.shape == (89, 109)
    assert 0 < disk.capacity < 80

    def rows(found, kind):
        """The rows of one kind of nodes, or their places where it has no features."""
        table = found.tables[kind]
        every = found.place if table is None else jgs.ops.gather(table, found.place)
        return np.asarray(every)[np.asarray(found.kind) == kind]

    options = {"key": KEY, "batch_size": 8, "sampler": Neighbors((3, 3))}
    for batch, x in Loader(graph, np.arange(30), read=disk, **options):
        wanted = jgs.ops.gather(whole, batch.nodes)
        np.testing.assert_array_equal(x.kind, wanted.kind)
        for kind in range(4):
            np.testing.assert_array_equal(rows(x, kind), rows(wanted, kind))


def test_sparse_features_of_few_entries_pinned_and_cut(tmp_path, same_bits):
    few = SparseFeatures.from_scipy(scipy.sparse.random(N, 9, 0.004, rng=RNG))
    assert 0 < few.values.size < 32
    none = SparseFeatures.from_scipy(scipy.sparse.csr_array((N, 9)))
    some = sparse(N, 120)
    mapped, size = in_files(tmp_path, some), some.values.nbytes
    for features, read, memory, pinned in (
        (few, in_files(tmp_path / "few", few), 100, []),  # all entries are in memory
        (none, none, 100, []),
        (some, mapped, size, np.arange(50, 100)),
    ):
        disk = DiskRows(read, memory, pinned=pinned)
        before = disk.counts["disk_rows"]
        assert (0 < before < some.values.size // 32) == (features is some)
        same_bits(list(loader(disk)), list(loader(reading(features))))
        assert (disk.counts["disk_rows"] > 0) == (features is some)
    refused("pinned rows must fit", DiskRows, mapped, 1000, pinned=np.arange(N))
    os.truncate(tmp_path / "values.npy", 1000)
    with pytest.raises(DiskError, match=r"values\.npy must stay readable"):
        list(loader(DiskRows(mapped, 0)))


@pytest.mark.skipif(len(jax.devices()) < 3, reason="there are no other devices")
def test_sent_to_devices(file, same_bits):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[1:3]), ("data",))
    for device in (jax.devices()[1], NamedSharding(mesh, PartitionSpec("data"))):
        reads = DiskRows(file, 90 * ROW), in_memory
        loaders = [loader(read, device=device, super_batch=2) for read in reads]
        assert [each.super_batch for each in loaders] == [2, 2]
        same_bits(*map(list, loaders))


def test_a_file_that_gets_shorter_ends_the_loop(file, whole, same_bits):
    content = file.read_bytes()
    disk = DiskRows(file, 60 * ROW, window=1)
    mine = loader(disk, prefetch=0)
    steps = iter(mine)
    same_bits(next(steps), whole[0])
    os.truncate(file, len(content) // 2)
    with pytest.raises(DiskError, match=r"x\.npy must stay readable, with all of its rows"):
        list(steps)
    left = mine.step
    file.write_bytes(content)  # the same file, whole again
    same_bits(list(mine), whole[left:])


@pytest.mark.parametrize("pinned", [range(0), range(100, 200)])
def test_reads_are_those_of_the_rule(file, pinned, whole, same_bits):
    """With all batches known they are Belady's; pinned rows are read once."""
    pinned, capacity = np.array(pinned, np.int32), 60 + len(pinned)
    pool, disk = PlainPool(N, capacity, pinned), DiskRows(file, capacity * ROW, pinned=pinned)
    assert disk.counts["disk_rows"] == pinned.size
    nodes = [np.asarray(batch.nodes) for batch, _ in whole]
    for step, rows in enumerate(nodes):
        pool.see(rows, step)
    same_bits(list(loader(disk)), whole)
    assert len(nodes) < disk.window
    reads = sum(pool.take(rows, step).missing.size for step, rows in enumerate(nodes))
    assert disk.counts["disk_rows"] == pinned.size + reads


@pytest.mark.parametrize(("prefetch", "block"), [(0, 3), (2, 0)])
def test_one_loop_at_a_time_is_left_and_continued(
    file, prefetch, block, whole, same_bits, monkeypatch
):
    monkeypatch.chdir(file.parent)
    disk = DiskRows(file.name, 80 * ROW, **({"scratch": ".", "block": block} if block else {}))
    monkeypatch.chdir("/")
    assert disk.scratch in (None, file.parent)
    first, second = (loader(disk, prefetch=prefetch) for _ in range(2))
    steps = iter(first)
    next(steps)
    refused("must be used by one loop at a time", list, second)
    same_bits(next(steps), whole[1])  # the first loop has lost nothing
    same_bits(first.peek(), whole[2])  # which ends it
    same_bits(list(second), whole)
    for pair in first:
        same_bits(pair, whole[2])
        break
    state = first.state_dict()
    same_bits(list(first), whole[3:])
    second.load_state_dict(state)  # the rows that are in memory now serve it too
    same_bits(list(second), whole[3:])
    assert [b.nodes.shape for b in first.rehearse(2)] == [whole[0][0].nodes.shape] * 2


PLANS = [Neighbors((4, 3)), ByEpoch({0: (2,), 1: (3,)})]


@pytest.mark.parametrize("plan", rarely(PLANS, 0), ids=repr)
def test_an_epoch_begins_while_the_last_one_ends(file, plan, whole, same_bits):
    gc.collect()
    none, disk = threads(), DiskRows(file, 80 * ROW, scratch=file.parent, block=4)
    mine, theirs = loader(disk, plan), loader(in_memory, plan)
    start, epochs = mine.state_dict(), [list(theirs) for _ in range(3)]
    for epoch in epochs:
        same_bits(list(mine), epoch)
        assert threads() > none  # they wait with the next epoch's first block
    other = loader(disk)  # begins another loop: they stop
    same_bits(list(other), whole)
    mine.load_state_dict(start)
    same_bits(list(mine), epochs[0])
    steps = iter(mine)
    same_bits([next(steps) for _ in range(len(mine))], epochs[1])  # and no further
    same_bits(list(mine), epochs[2])
    assert threads() > none
    mine.close()
    other.close()
    assert threads() == none
    same_bits(mine.peek(), next(iter(theirs)))
    list(mine)
    assert threads() > none
    del mine, other, theirs, steps
    gc.collect()
    assert threads() == none
    assert os.listdir(file.parent) == [file.name]


def test_what_is_refused(file, tmp_path):
    few, entries = tmp_path / "few.npy", SparseFeatures.from_scipy(scipy.sparse.eye(40))
    np.save(few, TABLE[:9])
    direct, nodes = Neighbors((2, 2), relabel_inputs=False), lambda batch: batch.nodes
    for make, says in (
        (lambda: DiskRows(file, 10, window=32), "window must be at most 31"),
        (lambda: DiskRows(file, -1), "memory"),
        (lambda: DiskRows(file, 1000, pinned=[3, 3]), "pinned nodes must be distinct"),
        (lambda: DiskRows(file, 1000, pinned=[N]), "pinned nodes"),
        (lambda: DiskRows(file, ROW, pinned=[1, 2]), "pinned rows must fit"),
        (lambda: DiskRows(file, 100, scale="a"), "scale must be"),
        (lambda: DiskRows(file, 100, scale=[1.0, 2.0]), "scale must be"),
        (lambda: DiskRows([], 100), "must be files"),
        (lambda: DiskRows(TABLE, 100), "must be matrices that lie in files"),
        (lambda: DiskRows(entries, 100), "must be matrices that lie in files"),
        (lambda: next(iter(loader(DiskRows(few, 100)))), "a row for each node of the graph"),
        (lambda: next(iter(loader(DiskRows(file, 100), direct))), "list their input nodes"),
        (lambda: next(iter(loader(DiskRows(file, 100), after=nodes))), "must be a MiniBatch"),
    ):
        refused(says, make)
    for dtype in (bool, complex, "U2", ">f4", "V2", np.longdouble):
        np.save(few, np.zeros((N, 3), dtype))
        refused("must be real numbers", DiskRows, few, 100)


needs_kernels = pytest.mark.skipif(not kernels.available(), reason="no compiled kernels")


def run(kind, num_rows, capacity, steps, window, pinned=(), resets=()):
    """What a pool takes step by step; checks that every place has the row it should."""
    pool = kind(num_rows, capacity, np.array(pinned, np.int32))
    seen, held, found = 0, dict(enumerate(pinned)), []
    for step, rows in enumerate(steps):
        while seen < len(steps) and seen <= step + window:
            pool.see(steps[seen], seen)
            seen += 1
        taken = pool.take(rows, step)
        for row, place in zip(rows.tolist(), taken.place.tolist(), strict=True):
            if not 0 <= row < num_rows:
                assert place == -1
            elif place < capacity:
                assert held[place] == row
            else:
                assert taken.missing[place - capacity] == row
        assert (np.diff(taken.missing) > 0).all()
        assert np.unique(taken.target).size == taken.target.size
        assert (taken.target >= len(pinned)).all()
        held |= dict(zip(taken.target.tolist(), taken.missing[taken.source], strict=True))
        found.append(taken)
        if step in resets:
            pool.reset()
            seen = step + 1
    return found


@needs_kernels
@pytest.mark.parametrize("seed", range(20))
def test_kernel_and_plain_agree(seed):
    rng = np.random.default_rng(seed)
    num_rows = int(rng.integers(1, 60))
    capacity, window = int(rng.integers(0, num_rows + 3)), int(rng.integers(0, MOST_STEPS + 1))
    pinned = rng.choice(num_rows, min(seed % 3, capacity, num_rows), replace=False).tolist()
    sizes, ends = rng.integers(0, 30, 80), set(rng.integers(0, 80, 2).tolist())
    steps = [rng.integers(-1, num_rows + 2, size).astype(np.int32) for size in sizes]
    asked = num_rows, capacity, steps, window, pinned, ends
    both = [run(kind, *asked) for kind in (row_pool, PlainPool)]
    for a, b in zip(*both, strict=True):
        for mine, theirs in zip(a, b, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def fewest(steps, capacity):
    """How many rows the best of all choices reads, tried one by one."""
    states = {frozenset(): 0}
    for step in steps:
        rows, after = frozenset(step.tolist()), {}
        for held, reads in states.items():
            total = reads + len(rows - held)
            known = held | rows
            for kept in map(frozenset, combinations(known, min(capacity, len(known)))):
                after[kept] = min(after.get(kept, total), total)
        states = after
    return min(states.values())


@pytest.mark.parametrize("seed", range(12))
def test_no_choice_reads_less(seed):
    """Belady's rule, checked against all choices."""
    rng = np.random.default_rng(seed)
    drawn = [rng.integers(0, 7, rng.integers(1, 5), np.int32) for _ in range(9)]
    steps = [np.unique(rows) for rows in drawn]
    for capacity in (0, 1, 2, 3):
        taken = run(row_pool, 7, capacity, steps, len(steps))
        read = sum(of_step.missing.size for of_step in taken)
        assert read == fewest(steps, capacity)


def test_without_a_window_the_oldest_leaves():
    steps = [np.array([row], np.int32) for row in (0, 1, 0, 2, 0, 1)]
    read = [taken.missing.tolist() for taken in run(row_pool, 10, 2, steps, 0)]
    assert read == [[0], [1], [], [2], [], [1]]


@needs_kernels
def test_memory_is_counted():
    pool = row_pool(1000, 100, np.zeros(0, np.int32))
    assert 8 * 1000 + 12 * 100 <= pool.nbytes <= 8 * 1000 + 12 * 100 + 300
