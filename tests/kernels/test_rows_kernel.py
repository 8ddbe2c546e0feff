"""The kernels of vanilla mode equal their plain twins and refuse a malformed reply."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import cases
from derivatives import twins
from hypothesis import given, settings
from hypothesis import strategies as st

from jgs import kernels
from jgs.dist.batches.answers import merge_rows, route_rows
from jgs.dist.rows.owners import route
from jgs.sampling.edges.slots import relabel_edges

pytestmark = pytest.mark.skipif(not kernels.available(), reason="kernels are not in use")

N, T, C, ROOM = 40, 30, 7, 64


def both(function, static):
    """The results of the kernel and of the plain twin."""
    return twins(lambda *arrays: function(*arrays, *static))


def examples(size=40):
    return settings(max_examples=size, deadline=None, derandomize=True)


@pytest.mark.parametrize("num_held", [0, N])
def test_route(num_held, same_bits):
    run = both(route_rows, (C,))

    @examples()
    @given(st.integers(0, 2**32 - 1), st.tuples(*[st.integers(0, N)] * 3), st.integers(0, 3))
    def check(seed, cuts, rank):
        rng = np.random.default_rng(seed)
        nodes = rng.integers(-2, N + 3, T).astype(np.int32)
        offsets = np.array([0, *sorted(cuts), N], np.int32)
        same_bits(*run(nodes, offsets, rng.random(num_held) > 0.7, np.int32(rank)))

    check()


@pytest.mark.parametrize("capacity", [1, 19])
def test_route_of_features(capacity, same_bits):
    """Ids outside the graph read nothing there, also where fewer nodes have slots."""
    run = twins(partial(route, capacity=capacity, num_own=N + 1, num_cached=9))

    @examples()
    @given(st.integers(0, 2**32 - 1), st.tuples(*[st.integers(0, N)] * 3), st.integers(0, 2))
    def check(seed, cuts, nth):
        rng = np.random.default_rng(seed)
        nodes = np.r_[-(2**31), 2**31 - 1, rng.integers(-2, N + 4, T)].astype(np.int32)
        offsets = np.array([0, *sorted(cuts), N], np.int32)
        slot = np.where(rng.random(N) < 0.3, rng.integers(0, 9, N), -1).astype(np.int32)
        of = np.int32(rng.integers(4)), np.int32(nth)
        same_bits(*(found := run(nodes, offsets, slot, *of)))
        for _, place in (*found, *run(nodes, offsets, slot[:3], *of)):
            assert place[:2].tolist() == [-1, -1]

    check()


def replies_and_rows(seed, num_ranks=3, num_edges=20):
    """Replies of three ranks, own rows, and a place for each node."""
    rng = np.random.default_rng(seed)
    replies = np.full((num_ranks, 2 + C + num_edges), N, np.int32)
    for reply in replies:
        ends = np.sort(rng.integers(0, num_edges + 1, C))
        reply[2 : 2 + C] = ends
        reply[2 + C :][: ends[-1]] = rng.integers(0, N, ends[-1])
    place = np.where(rng.random(T) < 0.5, rng.integers(0, num_ranks * C, T), -1)
    counts = np.where(place < 0, rng.integers(0, 4, T), 0)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return place.astype(np.int32), indptr, rng.integers(0, N, 100, np.int32), replies


@pytest.mark.parametrize("room", [400, ROOM])  # enough, and too little
def test_merge(room, same_bits):
    run = both(merge_rows, (C, room, N))

    @examples()
    @given(st.integers(0, 2**32 - 1))
    def check(seed):
        place, indptr, indices, replies = replies_and_rows(seed)
        (starts, neighbors), plain = run(place, indptr, indices, replies)
        same_bits((starts, neighbors), tuple(plain))
        rows = []
        for t in range(T):
            if place[t] < 0:
                rows.append(indices[indptr[t] : indptr[t + 1]])
            else:
                reply = replies[place[t] // C]
                ends = [0, *reply[2 : 2 + C]]
                rows.append(reply[2 + C :][ends[place[t] % C] : ends[place[t] % C + 1]])
        expected = np.concatenate(rows)[:room]
        np.testing.assert_array_equal(neighbors[: starts[-1]], expected)

    check()


@cases("column, value", (2, -1), (2 + C - 1, 21), (3, 1 << 30), (2 + C, -5), (2 + C, N))
def test_a_damaged_reply_is_refused(column, value):
    place, indptr, indices, replies = replies_and_rows(1)
    place[:C] = np.arange(C)
    indptr[:] = 0
    replies[0, 2 : 2 + C] = np.arange(1, C + 1)
    jax.block_until_ready(merge_rows(place, indptr, indices, replies, C, ROOM, N))
    replies[0, column] = value
    with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match="a rank's reply must"):
        jax.block_until_ready(merge_rows(place, indptr, indices, replies, C, ROOM, N))


def test_relabel(same_bits):
    run = both(relabel_edges, (ROOM, N))

    @examples(80)
    @given(*(st.integers(*of) for of in ((0, 2**32 - 1), (0, T), (0, 200), (1, N))))
    def check(seed, num_targets, num_edges, num_ids):
        rng = np.random.default_rng(seed)
        targets = rng.integers(0, num_ids, T, dtype=np.int32)
        neighbors = rng.integers(0, num_ids, 200, dtype=np.int32)
        same_bits(*run(targets, np.int32(num_targets), neighbors, np.int32(num_edges)))

    check()


@pytest.mark.parametrize("capacity", [20_000, 9_000])  # enough, and too little
def test_relabel_at_parallel_sizes(capacity, same_bits):
    rng = np.random.default_rng(0)
    targets = rng.permutation(20_000)[:1000].astype(np.int32)
    neighbors = rng.integers(0, 20_000, 60_000, dtype=np.int32)
    run = twins(lambda *arrays: relabel_edges(*arrays, capacity, 20_000), (1, 2, 4))
    *found, plain = run(targets, np.int32(1000), neighbors, np.int32(50_000))
    for kernel in found:
        assert (kernel[1] > capacity) == (capacity == 9_000)
        same_bits(kernel, plain)


def test_relabel_refuses_what_is_no_node():
    for targets, neighbors in ([-1, 5], [2, 3]), ([1, 2], [3, -1]):
        arrays = [jnp.array(a, jnp.int32) for a in (targets, 2, neighbors, 2)]
        with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match="must be node ids"):
            jax.block_until_ready(relabel_edges(*arrays, 8, N))
