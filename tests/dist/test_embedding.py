"""`ShardedEmbedding` against a whole table on the host, on a mesh of 1 to 4."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jgs
from jgs import InputError, kernels
from jgs.dist.communicators.comm import Alone
from jgs.dist.communicators.mesh import Mesh
from jgs.dist.rows import embedding
from jgs.dist.rows.embedding import ShardedEmbedding, Table
from jgs.models import GraphSAGE
from jgs.sampling import Loader, sample_neighbors

N, F = 50, 6
OFFSETS = {1: [0, 50], 2: [0, 29, 50], 3: [0, 10, 10, 50], 4: [0, 1, 20, 37, 50]}
KEY = jax.random.key(7)
OPTIMIZERS = {"adam": optax.adam(0.1), "adagrad": optax.adagrad(0.1, 0.0, 1e-10)}


def make(size, optimizer="adam", capacity=40, **options):
    comm = Mesh(jax.devices()[:size]) if size > 1 else Alone()
    optimizer = OPTIMIZERS[optimizer]
    return ShardedEmbedding(
        comm, OFFSETS[size], F, KEY, optimizer, capacity=capacity, **options
    )


def batches(step, size):
    """Nodes (with repeats, shared ones and padding) and gradients of their rows for four ranks,
    dealt to `size` ranks: on two ranks, for instance, each has two of the four."""
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
    """The same table by `jax.grad` through a gather from all its rows, and by float64 NumPy."""

    def __init__(self, rows, optimizer):
        self.rows, self.optimizer = rows.astype(np.float64), optimizer
        self.count = np.zeros(N, int)
        self.first, self.second = np.zeros((N, F)), np.zeros((N, F))

    def step(self, nodes, gradient):
        ids, weight = jnp.asarray(np.concatenate(nodes)), np.concatenate(gradient)
        ids = jnp.where(ids < 0, N, ids)

        def loss(rows):
            return jnp.sum(rows.at[ids].get(mode="fill", fill_value=0) * weight)

        g = np.asarray(jax.grad(loss)(jnp.asarray(self.rows, jnp.float32)), np.float64)
        touched = np.isin(np.arange(N), ids)
        self.count += touched
        first, second = self.first, self.second
        if self.optimizer == "adam":
            first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g * g
            count = np.maximum(self.count, 1)[:, None]
            scale = np.sqrt(second / (1 - 0.999**count)) + 1e-8
            update = 0.1 * first / (1 - 0.9**count) / scale
        else:
            second = second + g * g
            update = 0.1 * g / np.sqrt(second + 1e-10)
        where = touched[:, None]
        self.first, self.second = (
            np.where(where, first, self.first),
            np.where(where, second, self.second),
        )
        self.rows = np.where(where, self.rows - update, self.rows)


@pytest.mark.parametrize("use_kernels", [False, True])
@pytest.mark.parametrize(
    ("size", "optimizer"), [(1, "adam"), (2, "adagrad"), (3, "adam"), (4, "adagrad")]
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


@pytest.mark.parametrize(("optimizer", "late"), [("adam", False), ("adagrad", True)])
def test_the_number_of_ranks_changes_nothing(optimizer, late):
    tables = [make(size, optimizer, late=late) for size in (1, 2, 3, 4)]
    for table in tables[1:]:
        np.testing.assert_array_equal(whole(table).rows, whole(tables[0]).rows)
    for t in range(20):
        for table in tables:
            step(table, *batches(t, table.comm.size))
    for table in tables[1:]:
        close(whole(table), whole(tables[0]))


def test_a_row_depends_on_key_and_node_alone(monkeypatch):
    rows = whole(make(3)).rows
    for v in (0, 9, 49):
        alone = jax.random.normal(jax.random.fold_in(KEY, v), (F,)) * F**-0.5
        np.testing.assert_allclose(rows[v], alone, rtol=1e-6)
    ones = make(2, init=jax.nn.initializers.ones)
    assert np.all(whole(ones).rows == 1)
    monkeypatch.setattr(embedding, "_INIT_ROWS", 7)
    np.testing.assert_array_equal(whole(make(3)).rows, rows)


@pytest.mark.parametrize("size", [1, 2])
def test_only_touched_rows_change_and_with_all_their_state(size):
    table = make(size)
    step(table, *batches(0, size))
    before = whole(table)
    nodes, gradient = batches(1, size)
    step(table, nodes, [0 * g for g in gradient])  # touched, although by a gradient of zeros
    after = whole(table)
    touched = np.isin(np.arange(N), np.concatenate(nodes))
    for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(a[~touched], b[~touched])
    old, new = before.opt_state[0].count, after.opt_state[0].count
    np.testing.assert_array_equal(new, old + touched)
    assert np.any(before.rows[touched] != after.rows[touched])  # momentum still moves the rows


@pytest.mark.parametrize("size", [2, 4])
def test_what_exceeds_the_capacity_goes_in_further_rounds(size):
    roomy, tiny = make(size), make(size, capacity=3)
    counters = roomy.comm.counters
    for t in range(3):
        nodes, gradient = batches(t, size)
        before, extra = counters.rounds, tiny.extra_rounds
        rounds = tiny.comm.counters.rounds
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
    assert roomy.extra_rounds == 0 < tiny.extra_rounds
    close(whole(tiny), whole(roomy))


def test_the_bytes_of_a_step_are_those_of_its_capacity():
    table = make(2, capacity=10)
    step(table, *batches(3, 2))
    rounds = 1 + table.extra_rounds // 3
    assert table.comm.counters.bytes == rounds * 4 * (11 + 2 * 10 * F)


def test_a_late_update_is_seen_one_pull_later():
    table, initial = make(1, late=True), whole(make(1)).rows
    nodes, ones = np.arange(10, dtype=np.int32), np.ones((10, F), np.float32)
    for want_changed in (False, False, True):
        (rows,) = step(table, [nodes], [ones])
        assert np.any(rows != initial[:10]) == want_changed
    assert whole(table).opt_state[0].count[0] == 3  # the state includes every push


@pytest.mark.parametrize(("before", "after", "late"), [(1, 3, False), (4, 2, True)])
def test_a_state_continues_on_another_number_of_ranks(before, after, late):
    saved, unbroken = make(before, late=late), make(after, late=late)
    for t in range(3):
        step(saved, *batches(t, before))
        step(unbroken, *batches(t, after))
    resumed = make(after, init=jax.nn.initializers.zeros, late=late)
    resumed.load_state(whole(saved))
    close(whole(resumed), whole(unbroken))
    step(resumed, *batches(3, after))
    step(unbroken, *batches(3, after))
    close(whole(resumed), whole(unbroken))
    same = make(before, late=late)
    same.load_state(whole(saved))
    step(same, *batches(4, before))
    step(saved, *batches(4, before))
    jax.tree.map(np.testing.assert_array_equal, whole(same), whole(saved))


def test_mesh_programs_have_two_collectives_and_one():
    table = make(4)
    nodes = table.comm.own([jnp.asarray(n) for n in batches(0, 4)[0]])
    rows, token = table.pull(nodes)
    split, owners = table._table, table._owners
    pull = split._fetch.lower(split.rows, nodes, owners.offsets, owners.first)
    push = table._apply.lower(split.rows, split.slots, token, rows, table._unit)
    for lowered, rounds in ((pull, 2), (push, 1)):
        text = lowered.compile().as_text()
        assert text.count(" all-to-all(") == rounds
        assert not any(f" {other}(" in text for other in ("all-reduce", "all-gather"))


def test_on_one_rank_a_pull_costs_its_rows_not_the_table():
    num_nodes, nodes = 1 << 14, jnp.arange(8, dtype=jnp.int32)
    table = ShardedEmbedding(Alone(), [0, num_nodes], 2, KEY, OPTIMIZERS["adam"])
    split, owners = table._table, table._owners
    pull = split._fetch.lower(split.rows, nodes, owners.offsets, owners.first)
    memory = pull.compile().memory_analysis()
    assert memory.temp_size_in_bytes + memory.output_size_in_bytes < num_nodes


def test_bad_input_is_refused():
    table = make(1)
    _, token = table.pull(jnp.arange(3, dtype=jnp.int32))
    with pytest.raises(InputError, match="gradient"):
        table.push(token, jnp.zeros((2, F)))
    with pytest.raises(InputError, match="nodes"):
        table.pull(jnp.zeros((3, 1), jnp.int32))
    with pytest.raises(InputError, match="capacity"):
        make(1, capacity=0)
    with pytest.raises(InputError, match="width"):
        ShardedEmbedding(Alone(), [0, N], 0, KEY, optax.adam(1), capacity=1)
    with pytest.raises(InputError, match="offsets"):
        ShardedEmbedding(Alone(), [0, 9, N], F, KEY, optax.adam(1), capacity=1)
    with pytest.raises(InputError, match="offsets"):
        ShardedEmbedding(Mesh(jax.devices()[:2]), [0, N, 20], F, KEY, optax.adam(1))
    with pytest.raises(InputError, match="key"):
        ShardedEmbedding(Alone(), [0, N], F, 3, optax.adam(1), capacity=1)
    with pytest.raises(InputError, match="same optimizer"):
        table.load_state(whole(make(1, "adagrad")))
    state = whole(table)
    with pytest.raises(InputError, match="50 rows"):
        table.load_state(jax.tree.map(lambda a: a[:-1], state))
    with pytest.raises(InputError, match="50 rows"):
        table.load_state(Table(state.rows.astype(np.float64), state.opt_state))
    # The table is unharmed.
    step(table, [np.arange(3, dtype=np.int32)], [np.ones((3, F), np.float32)])


def test_sage_on_cora_without_features_trains(data_folder):
    """Far above chance: the rows learn which nodes are neighbours."""
    data = jgs.data.load("cora", data_folder)
    comm, num_nodes = Alone(), data.graph.num_nodes
    graphdef, params = nnx.split(
        GraphSAGE(32, 32, data.num_classes, 2, dropout=0.5, rngs=nnx.Rngs(0))
    )
    small = jax.nn.initializers.normal(0.01)
    table = ShardedEmbedding(comm, [0, num_nodes], 32, KEY, optax.adam(0.05), init=small)
    optimizer = optax.adam(0.01)
    opt_state, labels = optimizer.init(params), jnp.asarray(data.labels)

    @jax.jit
    def train_step(params, opt_state, batch, x, key):
        def loss_of(params, x):
            logits = nnx.merge(graphdef, params)(batch, x, key=key)
            targets = labels.at[batch.seeds].get(mode="fill", fill_value=0)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
            return jnp.sum(jnp.where(batch.seed_mask, losses, 0)) / jnp.sum(batch.seed_mask)

        gradients, grad_x = jax.grad(loss_of, (0, 1))(params, x)
        updates, opt_state = optimizer.update(gradients, opt_state)
        return optax.apply_updates(params, updates), opt_state, grad_x

    with Loader(data.graph, data.train_idx, 70, (10, 10), key=jax.random.key(0)) as loader:
        for t in range(40):
            for batch in loader:
                x, token = table.pull(batch.nodes)
                params, opt_state, grad_x = train_step(
                    params, opt_state, batch, x, jax.random.fold_in(KEY, t)
                )
                table.push(token, grad_x)
    seeds = jnp.asarray(data.test_idx, jnp.int32)
    batch = sample_neighbors(jax.random.key(1), data.graph, seeds, (20, 20))
    logits = nnx.merge(graphdef, params)(batch, table.pull(batch.nodes)[0])
    accuracy = float(jnp.mean(jnp.argmax(logits, -1) == labels[seeds]))
    print("ACC", accuracy)
    # The largest class has 0.32 of the test nodes. Rows that stay noise give 0.25.
    assert accuracy > 0.5, accuracy
