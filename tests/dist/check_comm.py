"""Run by every rank (see ranks.py): what a communicator of any kind must do."""

import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from ranks import barrier, connect_here

from jgs.dist.communicators.collect import FailedElsewhere
from jgs.dist.communicators.comm import OWN, SAME, Emulated, all_gather_rows
from jgs.dist.communicators.launch import agree
from jgs.dist.rows.exchange import FeatureExchange
from jgs.errors import InputError
from jgs.graph.row_tables.sparse import SparseFeatures

comm = connect_here()
size, mine = comm.size, range(comm.rank, comm.rank + comm.num_local)
assert size == int(sys.argv[1]) > 1, size


def own(function, dtype):
    """The `OWN` value of `function(rank)`; int64 is not cut to int32."""
    with jax.enable_x64(True):
        return comm.own([np.asarray(function(r)).astype(dtype) for r in mine])


def equal(got, want, dtype):
    assert got.dtype == dtype, (got.dtype, dtype)
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want).astype(dtype))


def collectives(x):
    return comm.all_to_all(x), comm.all_reduce(x, "max"), comm.all_gather(x), comm.index()


run = comm.program(collectives, (OWN,), (OWN, SAME, SAME, OWN))
for dtype in ("int32", "int64", "uint8", "float32", "float16", jnp.bfloat16, "bool"):
    dtype = jnp.dtype(dtype)

    def value(rank, dtype=dtype):  # [size, 3]: values tell rank and receiver apart
        numbers = np.arange(3 * size).reshape(size, 3) + 3 * size * rank
        if np.dtype(dtype).kind == "b":
            return numbers % 2 == rank % 2
        return numbers.astype(np.int64) + (2**40 if dtype == np.int64 else 0)

    exchanged, highest, gathered, index = run(own(value, dtype))
    for rank, rows, number in zip(mine, comm.local(exchanged), comm.local(index), strict=True):
        equal(rows, [value(r)[rank] for r in range(size)], dtype)
        equal(number, rank, np.int32)
    equal(highest, np.max([value(r) for r in range(size)], axis=0), dtype)
    equal(gathered, [value(r) for r in range(size)], dtype)

# Sums have the same bits on every rank; sums of 16-bit floats do too.
random = [np.random.default_rng(r).standard_normal((1000,)) for r in range(size)]
for dtype, tolerance in (("float32", 1e-5), ("float16", 1e-2), (jnp.bfloat16, 1e-1)):
    add = comm.program(comm.all_reduce, (OWN,), SAME)
    total = add(own(lambda r: random[r], dtype))
    assert total.dtype == dtype
    want = np.sum([x.astype(dtype).astype(np.float64) for x in random], axis=0)
    np.testing.assert_allclose(np.asarray(total, np.float64), want, atol=tolerance)
    bits = np.asarray(total).view(np.uint8).view(np.uint32)
    everywhere = all_gather_rows(comm, [bits] * comm.num_local)
    assert (everywhere == bits).all()

equal(
    all_gather_rows(comm, [np.array([2**40 + r]) for r in mine]),
    2**40 + np.arange(size)[:, None],
    np.int64,
)

# Counters are known from the shapes: a call adds to them, compiling does not.
barrier(comm)
before = comm.counters.rounds, comm.counters.bytes
count = comm.program(
    lambda x, y: (comm.all_to_all(x), comm.all_reduce(y), comm.all_gather(y)),
    (OWN, SAME),
    (OWN, SAME, SAME),
    donate=(0,),
)
for _ in range(3):
    given = own(lambda r: np.full((size, 5), r), np.float32)
    rows, total, _ = count(given, comm.same(np.ones(7, np.float32)))
    for got in comm.local(rows):
        equal(got, np.repeat(np.arange(size), 5).reshape(size, 5), np.float32)
    equal(total, np.full(7, size), np.float32)
rounds, sent = comm.counters.rounds - before[0], comm.counters.bytes - before[1]
assert rounds == 9, rounds
each = (size - 1) * 5 * 4 + 2 * 28 * (size - 1) // size + 28 * (size - 1)
assert sent == 3 * each, (sent, 3 * each)

# The counters also count calls of a second program of the same function.
before = comm.counters.rounds
for _ in range(2):
    comm.program(collectives, (OWN,), (OWN, SAME, SAME, OWN))(own(value, dtype))
assert comm.counters.rounds == before + 6, comm.counters.rounds - before

# Arrays without entries, and Python numbers.
for got in comm.local(comm.own([(np.zeros((0, 3)), 0.5)] * len(mine))):
    assert got[0].shape == (0, 3)
    assert float(got[1]) == 0.5
for function, spec in ((comm.own, OWN), (comm.same, SAME)):
    given = function([0.5] * len(mine) if spec == OWN else 0.5)
    assert comm.program(lambda x: 2 * x, (spec,), spec)(given).dtype == jnp.float32

# Pytrees; a rank's own values come back as they were.
tree = comm.own([{"a": np.full((2,), r, np.float32), "b": (np.int32([r]),)} for r in mine])
twice = comm.program(lambda t: jax.tree.map(lambda x: 2 * x, t), (OWN,), OWN)(tree)
for rank, got in zip(mine, comm.local(twice), strict=True):
    assert float(got["a"][1]) == 2 * rank == int(got["b"][0][0])

# An error names the ranks that differ, on every rank alike; rank 0's is what a command prints.
agree(comm, {"lr": "0.1", "parts": "é"})
if comm.num_local == 1:
    said = {"lr": "0.1", "parts": str(comm.rank == 1), **({"x": "1"} if comm.rank else {})}
    kind = FailedElsewhere if comm.rank else InputError
    with pytest.raises(kind, match="True on rank 1") as caught:
        agree(comm, said, "the default")
    text = str(caught.value)
    assert "parts: " in text
    assert "x: the default on rank 0; 1 on rank 1" in text
    assert "lr" not in text

# Two threads, each with its own clone; a program has several collectives.
if comm.concurrent:
    other = comm.clone()

    def rounds_of(c, seed, num):
        def step(x, i):
            x = c.all_to_all(jnp.tanh(x @ jnp.ones((64, 64))) * 0 + x + i)
            return c.all_to_all(x), c.all_reduce(x.sum(1)), c.all_gather(i)

        step = c.program(step, (OWN, OWN), (OWN, SAME, SAME))
        sleep = np.random.default_rng(c.rank)
        x = jnp.arange(size * 64, dtype=jnp.float32).reshape(size, 64) + seed
        for i in range(num):
            rows, _, numbers = step(x, jnp.float32(i))
            if sleep.random() < 0.3:
                time.sleep(sleep.random() * 1e-3)
                equal(rows, x + i, np.float32)
                equal(numbers, np.full(size, i), np.float32)

    background = threading.Thread(target=rounds_of, args=(other, 1000, 300))
    background.start()
    rounds_of(comm, 0, 300)
    background.join()
    assert other.counters.rounds == 1200, other.counters
    other.close()

# Sparse rows: the last rank has no rows, or its rows have no entries.
for num_last, entries in ((0, 6), (3, 6), (3, 0)) if size == 2 else ():
    offsets = np.r_[np.arange(size) * 3, (size - 1) * 3 + num_last]
    matrix = np.zeros((offsets[-1], 5), np.float32)
    matrix.reshape(-1)[:entries] = np.arange(1, 1 + entries)
    parts = [scipy.sparse.csr_matrix(matrix[offsets[r] : offsets[r + 1]]) for r in mine]
    features = [SparseFeatures.from_scipy(part) for part in parts]
    exchange = FeatureExchange(comm, offsets, features, capacity=4)
    nodes = [np.r_[np.arange(3), offsets[-1] - 1, offsets[-1]].astype(np.int32) for _ in mine]
    rows, _ = exchange(comm.own(nodes))
    for got in comm.local(rows):
        equal(got, np.vstack([matrix, np.zeros((1, 5))])[nodes[0]], np.float32)

# An emulated network gives the same values and tells the time it would take.
slow = Emulated(comm.clone(), latency=2e-3, bandwidth=1e6)
reduce = slow.program(slow.all_reduce, (OWN,), SAME)
reduce.lower(own(lambda r: [r, 1], np.float32))
start = time.perf_counter()
for _ in range(5):
    equal(reduce(own(lambda r: [r, 1], np.float32))[1], size, np.float32)
added = 5 * (2e-3 + 2 * 8 * (size - 1) // size / 1e6)
assert abs(slow.seconds - added) < 1e-9
assert time.perf_counter() - start >= added
assert slow.counters.rounds == 5

barrier(comm)
print(f"rank {comm.rank} is content")
comm.close()
