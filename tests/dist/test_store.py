"""`TensorStore`: reads, writes and sums against NumPy and one rank; its checkpoint."""

import numpy as np
from refusals import refused
from small_ranks import ranks_of

from jgs.dist import Alone, TensorStore
from jgs.train.loop import checkpoint

N, E = 40, 90
OFFSETS = {1: [0, N], 3: [0, 9, 9, N]}
EDGES = {1: [0, E], 3: [0, 30, 30, E]}


def make(size, capacity):
    offsets, edges = OFFSETS[size], EDGES[size]
    store = TensorStore(ranks_of(size), offsets, edge_offsets=edges, capacity=capacity)
    store.create("memory", (3, 2))
    store.create("count", dtype="int32", of="edges")
    return store


def calls(num, seed):
    """Ids of six batches, with repeated ones and padding, and rows for both tensors."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(-1, num + 2, 6 * 12).astype(np.int32)
    shape = (ids.size, 3, 2) if num == N else (ids.size,)
    rows = rng.standard_normal(shape).astype(np.float32)
    return ids, rows if num == N else (100 * rows).astype(np.int32)


def split(store, array):
    """The batches of all ranks together as `OWN`: equal parts, in the order of ranks."""
    return store.comm.own(np.split(array, store.comm.size))


def joined(store, value):
    return np.concatenate([np.asarray(part) for part in store.comm.local(value)])


def used(size, capacity):
    store = make(size, capacity)
    want = {"memory": np.zeros((N, 3, 2), np.float32), "count": np.zeros(E, np.int32)}
    for step in range(2):
        for name, whole in want.items():
            tensor, before = store[name], store.comm.counters.rounds
            ids, rows = calls(len(whole), step)
            real = (ids >= 0) & (ids < len(whole))
            change = [tensor.write, tensor.add][step % 2]
            change(split(store, ids), split(store, rows))
            if step % 2:
                np.add.at(whole, ids[real], rows[real])
            else:
                # Of repeated ids the last row stays.
                for i, row in zip(ids[real], rows[real], strict=True):
                    whole[i] = row
            got = joined(store, tensor.read(split(store, ids)))
            assert got.dtype == whole.dtype
            np.testing.assert_allclose(got[real], whole[ids[real]], rtol=1e-5, atol=1e-6)
            assert not got[~real].any()
            if size > 1 and tensor.extra_rounds == 0:
                # Two rounds each for the change and the read.
                assert store.comm.counters.rounds - before == 4
    return store, want


def test_ranks_equal_numpy_and_one_rank_and_continue_from_a_checkpoint(tmp_path):
    one, want = used(1, None)
    state = one.arrays()
    for name, whole in want.items():
        np.testing.assert_allclose(state[name], whole, rtol=1e-5, atol=1e-6)
    for capacity in (50, 5):
        three, _ = used(3, capacity)
        assert (three["memory"].extra_rounds > 0) == (capacity == 5)
        for name, array in three.arrays().items():
            np.testing.assert_array_equal(array, state[name])  # equal in every bit
    assert [own.shape for own in three["memory"].local()] == [(9, 3, 2), (0, 3, 2), (31, 3, 2)]
    checkpoint.save(tmp_path / "saved", 0, 3, {"store": three.arrays()}, {}, 1)
    arrays, _ = checkpoint.restore(tmp_path / "saved", {"store": make(1, None).arrays()})
    fresh = make(1, None)
    fresh.load_state(arrays["store"])
    for step, name in enumerate(want):
        ids, rows = calls(len(want[name]), 7 + step)
        for store in (one, fresh):
            store[name].add(ids, rows)
        np.testing.assert_array_equal(fresh[name].read(ids), one[name].read(ids))


def test_bad_input_is_refused():
    store, ids, rows = make(1, None), np.zeros(2, np.int32), np.zeros((N, 3, 2), np.float32)
    for rule, wrong in (
        ("name", lambda: store.create("memory")),
        ("dtype", lambda: store.create("other", dtype="float64")),
        ("edge_offsets", lambda: TensorStore(Alone(), [0, N]).create("edge", of="edges")),
        ("[40, 2]", lambda: store.create("other", (2,), rows=[np.zeros((N, 3))])),
        ("rows must be", lambda: store["memory"].write(ids, rows)),
        ("int32", lambda: store["memory"].read(ids * 0.5)),
        ("tensors", lambda: store.load_state({"memory": rows})),
    ):
        refused(rule, wrong)
