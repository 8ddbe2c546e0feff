"""`ShardedEmbedding` against a whole table on the host, and the kernels of its rows."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import cases
from refusals import refused
from small_ranks import OFFSETS, ranks_of

from jgs import kernels
from jgs.dist.communicators.comm import Alone
from jgs.dist.rows import embedding
from jgs.dist.rows.embedding import ShardedEmbedding, Table
from jgs.dist.rows.split import add_equal, put_rows

N, F = 50, 6
KEY = jax.random.key(7)
OPTIMIZERS = {"adam": optax.adam(0.1), "adagrad": optax.adagrad(0.1, 0.0, 1e-10)}


def make(size, optimizer="adam", capacity=40, **options):
    comm, optimizer = ranks_of(size), OPTIMIZERS[optimizer]
    return ShardedEmbedding(
        comm, OFFSETS[size], F, KEY, optimizer, capacity=capacity, **options
    )


def batches(step, size):
    """Nodes (repeated, shared, padding) and gradients for four ranks, dealt to `size` ranks."""
    rng = np.random.default_rng(step)
    nodes = rng.integers(0, N // 2, (4, 12)).astype(np.int32) + np.int32(step % 25)
    nodes[:, [3, 9]] = [N, -1]
    nodes[3] = N  # all padding
    gradient = rng.standard_normal((4, 12, F)).astype(np.float32)
    if size == 3:  # the fourth batch, which is padding, joins the first
        nodes = [np.r_[nodes[0], nodes[3]], *(np.r_[n, n * 0 + N] for n in nodes[1:3])]
        gradient = [np.r_[g, g] for g in gradient[:3]]
        return nodes, gradient
    return nodes.reshape(size, -1), gradient.reshape(size, -1, F)


def step(table, nodes, gradient):
    rows, token = table.pull(table.comm.own([jnp.asarray(n) for n in nodes]))
    table.push(token, table.comm.own([jnp.asarray(g) for g in gradient]))
    return [np.asarray(r) for r in table.comm.local(rows)]


def whole(table):
    return jax.tree.map(lambda *parts: np.concatenate(parts), *table.state())


def close(a, b, rtol=1e-5):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol, rtol), a, b)


class Dense:
    """The same table on the host, in float64."""

    def __init__(self, rows, optimizer):
        self.rows, self.optimizer = rows.astype(np.float64), optimizer
        self.count = np.zeros(N, int)
        self.first, self.second = np.zeros((N, F)), np.zeros((N, F))

    def step(self, nodes, gradient):
        ids, sums = np.concatenate(nodes), np.zeros((N, F))
        real = (ids >= 0) & (ids < N)
        np.add.at(sums, ids[real], np.concatenate(gradient)[real])
        at = np.unique(ids[real])
        g = sums[at]
        self.count[at] += 1
        if self.optimizer == "adam":
            self.first[at] = 0.9 * self.first[at] + 0.1 * g
            self.second[at] = 0.999 * self.second[at] + 0.001 * g * g
            count = self.count[at, None]
            scale = np.sqrt(self.second[at] / (1 - 0.999**count)) + 1e-8
            self.rows[at] -= 0.1 * self.first[at] / (1 - 0.9**count) / scale
        else:
            self.second[at] += g * g
            self.rows[at] -= 0.1 * g / np.sqrt(self.second[at] + 1e-10)


@cases(
    "size, optimizer, use_kernels",
    (1, "adam", True),
    (2, "adagrad", False),
    (3, "adam", True),
    (4, "adagrad", True),
)
def test_steps_are_those_of_a_dense_table(size, optimizer, use_kernels, monkeypatch):
    if use_kernels and not kernels.available():
        pytest.skip("kernels are not in use")
    monkeypatch.setattr(kernels, "available", lambda: use_kernels)
    monkeypatch.setattr(embedding, "_STEP_ROWS", 8)  # rows are stepped in several chunks
    table = make(size, optimizer)
    dense = Dense(whole(table).rows, optimizer)
    for t in range(4):
        nodes, gradient = batches(t, size)
        before = np.vstack([dense.rows, np.zeros((1, F))])
        for rows, ids in zip(step(table, nodes, gradient), nodes, strict=True):
            np.testing.assert_allclose(rows, before[ids], rtol=1e-4, atol=1e-5)
        dense.step(nodes, gradient)
    np.testing.assert_allclose(whole(table).rows, dense.rows, rtol=1e-4, atol=1e-5)
    if optimizer == "adam":
        np.testing.assert_array_equal(whole(table).opt_state[0].count, dense.count)


def test_a_row_depends_on_key_and_node_alone(monkeypatch):
    rows = whole(make(3)).rows
    for v in (0, 9, 49):
        alone = jax.random.normal(jax.random.fold_in(KEY, v), (F,)) * F**-0.5
        np.testing.assert_allclose(rows[v], alone, rtol=1e-6)
    ones = make(2, init=jax.nn.initializers.ones)
    assert np.all(whole(ones).rows == 1)
    monkeypatch.setattr(embedding, "_INIT_ROWS", 7)
    np.testing.assert_array_equal(whole(make(3)).rows, rows)


def test_what_exceeds_the_capacity_goes_in_further_rounds():
    size = 4
    roomy, tiny = make(size), make(size, capacity=3)
    counters = roomy.comm.counters
    for t in range(3):
        nodes, gradient = batches(t, size)
        before, extra = counters.rounds, tiny.extra_rounds
        rounds, sent = tiny.comm.counters.rounds, tiny.comm.counters.bytes
        for a, b in zip(step(roomy, nodes, gradient), step(tiny, nodes, gradient), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        assert counters.rounds == before + 3
        asked = [
            np.sum((ids >= OFFSETS[size][p]) & (ids < OFFSETS[size][p + 1]))
            for r, ids in enumerate(nodes)
            for p in range(size)
            if p != r
        ]
        needed = max(1, -(-max(asked) // 3))
        assert tiny.comm.counters.rounds - rounds == 3 * needed
        assert tiny.extra_rounds - extra == 3 * (needed - 1)
        each = 4 * (size - 1) * (1 + 3 + 2 * 3 * F)  # bytes: ids, rows and gradients
        assert tiny.comm.counters.bytes - sent == needed * each
    assert roomy.extra_rounds == 0 < tiny.extra_rounds
    close(whole(tiny), whole(roomy))


def test_a_late_update_is_seen_one_pull_later():
    table, initial = make(1, late=True), whole(make(1)).rows
    nodes, ones = np.arange(10, dtype=np.int32), np.ones((10, F), np.float32)
    for want_changed in (False, False, True):
        (rows,) = step(table, [nodes], [ones])
        assert np.any(rows != initial[:10]) == want_changed
    assert whole(table).opt_state[0].count[0] == 3  # the state includes every push


def test_a_state_continues_on_another_number_of_ranks():
    """Rows are updated late: the state has the push that waits."""
    saved, unbroken = make(4, late=True), make(1, late=True)
    np.testing.assert_array_equal(whole(saved).rows, whole(unbroken).rows)
    for t in range(3):
        step(saved, *batches(t, 4))
        step(unbroken, *batches(t, 1))
    resumed = make(2, init=jax.nn.initializers.zeros, late=True)
    resumed.load_state(whole(saved))
    close(whole(resumed), whole(unbroken))
    step(resumed, *batches(3, 2))
    step(unbroken, *batches(3, 1))
    close(whole(resumed), whole(unbroken))
    same = make(4, late=True)
    same.load_state(whole(saved))
    step(same, *batches(4, 4))
    step(saved, *batches(4, 4))
    jax.tree.map(np.testing.assert_array_equal, whole(same), whole(saved))


def test_bad_input_is_refused():
    table, adam = make(1), optax.adam(1)
    _, token = table.pull(jnp.arange(3, dtype=jnp.int32))
    state, two = whole(table), ranks_of(2)
    less, wide = jax.tree.map(lambda a: a[:-1], state), state.rows.astype(np.float64)
    for rule, wrong in (
        ("gradient", lambda: table.push(token, jnp.zeros((2, F)))),
        ("nodes", lambda: table.pull(jnp.zeros((3, 1), jnp.int32))),
        ("capacity", lambda: make(1, capacity=0)),
        ("width", lambda: ShardedEmbedding(Alone(), [0, N], 0, KEY, adam, capacity=1)),
        ("offsets", lambda: ShardedEmbedding(Alone(), [0, 9, N], F, KEY, adam, capacity=1)),
        ("offsets", lambda: ShardedEmbedding(Alone(), np.array([0, N], "m8[s]"), F, KEY, adam)),
        ("offsets", lambda: ShardedEmbedding(two, [0, N, 20], F, KEY, adam)),
        ("key", lambda: ShardedEmbedding(Alone(), [0, N], F, 3, adam, capacity=1)),
        ("same optimizer", lambda: table.load_state(whole(make(1, "adagrad")))),
        ("the state must be float32 [50, ", lambda: table.load_state(less)),
        (
            "the state must be float32 [50, ",
            lambda: table.load_state(Table(wide, state.opt_state)),
        ),
    ):
        refused(rule, wrong)
    # The table is unharmed.
    step(table, [np.arange(3, dtype=np.int32)], [np.ones((3, F), np.float32)])


each_form = pytest.mark.parametrize("with_kernels", sorted({False, kernels.available()}))


@each_form
def test_rows_of_one_row_are_added_in_their_order(with_kernels, implemented):
    implemented(with_kernels)
    rng = np.random.default_rng(0)
    add = jax.jit(add_equal, static_argnums=3)
    num_slots = 300
    # The old contents of the slots do not matter, even if they look like places.
    for slots in (np.zeros(num_slots), rng.integers(-9, 1000, num_slots), np.arange(num_slots)):
        ids = rng.integers(-1, num_slots, 1000).astype(np.int32)
        ids[rng.random(1000) < 0.2] = 7  # one id has a fifth of the rows
        rows = rng.normal(size=(1000, 19)).astype(np.float32)
        found = add(ids, rows, jnp.asarray(slots, jnp.int32), 64)
        num, touched = int(found.num), np.asarray(found.touched)
        assert touched.shape == (1024,)
        assert found.total.shape == (1024, 19)
        assert found.slots.shape == (num_slots,)
        assert np.all(touched[num:] == -1)
        assert sorted(touched[:num]) == sorted(set(ids.tolist()) - {-1})
        for row, total in zip(touched[:num], np.asarray(found.total), strict=False):
            wanted = np.zeros(19, np.float32)
            for own in rows[ids == row]:
                wanted += own
            np.testing.assert_array_equal(total, wanted)


@each_form
def test_rows_are_written_where_they_belong(with_kernels, implemented):
    implemented(with_kernels)
    rng = np.random.default_rng(1)
    put = jax.jit(put_rows, donate_argnums=0)
    for dtype, shape in ((np.float32, (200, 5)), (np.int32, (200,))):
        table = rng.integers(99, size=shape).astype(dtype)
        ids = rng.permutation(200)[:150].astype(np.int32)
        ids[::10] = -1
        rows = rng.integers(99, size=(150, *shape[1:])).astype(dtype)
        wanted = table.copy()
        wanted[ids[ids >= 0]] = rows[ids >= 0]
        np.testing.assert_array_equal(put(jnp.asarray(table), ids, rows), wanted)


def test_on_one_rank_a_pull_costs_its_rows_not_the_table():
    num_nodes, nodes = 1 << 14, jnp.arange(8, dtype=jnp.int32)
    table = ShardedEmbedding(Alone(), [0, num_nodes], 2, KEY, OPTIMIZERS["adam"])
    owners = table.owners
    pull = table._fetch.lower(table._held, nodes, owners.offsets, owners.first)
    memory = pull.compile().memory_analysis()
    assert memory.temp_size_in_bytes + memory.output_size_in_bytes < num_nodes
