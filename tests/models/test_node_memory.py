"""`Memory`: its recurrence event by event, what a batch sees, padding, and resume."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx

from jgs import Graph, InputError
from jgs.models import TGAT, DotDecoder, Memory, PairModel, binary_cross_entropy
from jgs.sampling import Links, Loader, Neighbors

N, D, F = 9, 4, 2
RNG = np.random.default_rng(0)


def memory(**options):
    return Memory(N, D, edge_width=F, time_width=3, time_unit=10.0, rngs=nnx.Rngs(0), **options)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gru(cell, message, row):
    """Flax's GRU cell, in NumPy."""
    inner = message @ np.asarray(cell.dense_i.kernel[...])
    if cell.dense_i.bias is not None:
        inner = inner + np.asarray(cell.dense_i.bias[...])
    outer = row @ np.asarray(cell.dense_h.kernel[...])
    r, z, n = np.split(inner, 3)
    hr, hz, hn = np.split(outer, 3)
    if cell.dense_h.bias is not None:
        bias = np.split(np.asarray(cell.dense_h.bias[...]), 3)
        hr, hz, hn = (a + b for a, b in zip((hr, hz, hn), bias, strict=True))
    reset, update = sigmoid(r + hr), sigmoid(z + hz)
    return (1 - update) * np.tanh(n + reset * hn) + update * row


def test_the_recurrence_event_by_event():
    """Batches of events with ties, several events of a node, a self-loop, and padding, whose
    features are NaN; times beyond 32 bits."""
    module = memory()
    state, known = module.init(), {v: (np.zeros(D), None) for v in range(N)}
    record = nnx.jit(lambda module, *of: module.record(*of))
    frequency = np.exp(np.asarray(module.time.log_frequency[...]))
    phase = np.asarray(module.time.phase[...])
    time, before = 1 << 40, {}

    def now(v):
        """The memory of a node with its last event."""
        row, event = known[v]
        if event is None:
            return row
        partner, elapsed, features = event
        phi = np.cos(elapsed / 10 * frequency + phase)
        return gru(module.cell, np.concatenate([row, partner, phi, features]), row)

    for _ in range(4):
        src, dst = RNG.integers(0, N, (2, 7))
        src[5], dst[5] = 2, 2
        times = time + np.sort(RNG.integers(0, 9, 7))
        time += 9
        features = RNG.normal(size=(7, F)).astype(np.float32)
        rows = np.asarray(module.read(state, np.arange(N + 1)))
        for v in range(N):
            np.testing.assert_allclose(rows[v], now(v), atol=1e-5)
        assert not rows[N].any()
        old = {v: now(v) for v in range(N)}
        changed = {}
        for i in range(7):
            for a, b in ((src[i], dst[i]), (dst[i], src[i])):
                elapsed = times[i] - before[a] if a in before else 0
                changed[a] = (old[a], (old[b], elapsed, features[i]))
        for a in changed:
            ends = [int(times[i]) for i in range(7) if a in (src[i], dst[i])]
            before[a] = ends[-1]
        known |= changed
        padded = [np.append(end, [N, N]) for end in (src, dst)]
        with jax.enable_x64(True):
            late = jnp.asarray(np.append(times, [time, time]))
        some = np.vstack([features, np.full((2, F), np.nan, np.float32)])
        state = record(module, state, *padded, late, some)
    assert np.asarray(state.pending).sum() > 6


def test_gradients_reach_the_last_event_and_no_further():
    module = memory()
    state = module.init()
    for step in range(2):
        state = module.record(
            state, np.array([0, 3]), np.array([1, 4]), np.array([step, step]), np.ones((2, F))
        )

    def total(module, state):
        return jnp.sum(module.read(state, np.arange(N)) ** 2)

    of_module = nnx.grad(total)(module, state)
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(of_module.cell))

    def later(module, rows):
        own = state._replace(rows=rows)
        own = module.record(own, np.array([0]), np.array([3]), np.array([5]), np.ones((1, F)))
        return jnp.sum(own.rows[0])

    assert not np.asarray(jax.grad(later, argnums=1)(module, state.rows)).any()


def test_a_small_loop_in_order_of_time_resumes_to_the_bit(tmp_path):
    """TGN: TGAT over rows of memory. Cut after any step, with Orbax, and gone on with."""
    src, dst = RNG.integers(0, N, (2, 240))
    time = np.sort(RNG.integers(0, 500, 240))
    graph = Graph.from_edges(src, dst, N, edge_time=time)
    items = {"src": src, "dst": dst, "time": time}

    def start():
        rngs = nnx.Rngs(1)
        own = Memory(N, D, time_width=3, time_unit=50.0, rngs=rngs)
        encoder = TGAT(D, 8, 8, 1, time_width=3, time_unit=50.0, dropout=0.0, rngs=rngs)
        model = nnx.Dict(memory=own, pairs=PairModel(encoder, DotDecoder(), rngs=rngs))
        sampler = Neighbors((3,), latest=True, edges=encoder.edge_columns)
        loader = Loader(
            graph,
            items,
            40,
            sampler,
            before=Links(sides="dst"),
            key=jax.random.key(2),
            by_time=1,
        )
        optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
        return model, optimizer, own.init(), loader

    @nnx.jit
    def step(model, optimizer, state, batch):
        def loss(model):
            x = model.memory.read(state, batch.nodes)
            return binary_cross_entropy(model.pairs(batch, x))

        value, gradients = nnx.value_and_grad(loss)(model)
        optimizer.update(model, gradients)
        events = batch.items
        return value, model.memory.record(state, events["src"], events["dst"], events["time"])

    def run(model, optimizer, state, loader, epochs=2, stop=None):
        losses = []
        while loader.epoch < epochs:
            for batch in loader:
                value, state = step(model, optimizer, state, batch)
                losses.append(float(value))
                if len(losses) == stop:
                    return losses, state
            state = model.memory.init()  # every epoch begins with an empty memory
        return losses, state

    whole = start()
    losses, state = run(*whole)
    assert np.mean(losses[6:]) < np.mean(losses[:6])
    model, optimizer, _, loader = cut = start()
    first, half = run(*cut, stop=4)
    saved = {
        "model": nnx.to_pure_dict(nnx.state(model)),
        "optimizer": nnx.to_pure_dict(nnx.state(optimizer)),
        "memory": half._asdict(),
    }
    with jax.enable_x64(True), ocp.PyTreeCheckpointer() as writer:
        writer.save(tmp_path / "cut", saved)
        found = writer.restore(tmp_path / "cut")
        found = jax.tree.map(jnp.asarray, found)
    model, optimizer, _, again = start()
    for module, name in ((model, "model"), (optimizer, "optimizer")):
        pure = nnx.state(module)
        nnx.replace_by_pure_dict(pure, found[name])
        nnx.update(module, pure)
    again.load_state_dict(loader.state_dict())
    rest, last = run(model, optimizer, type(half)(**found["memory"]), again)
    assert first + rest == losses
    for a, b in zip(jax.tree.leaves(last), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(a, b, strict=True)


def test_an_event_before_the_last_one_is_no_time_after_it():
    """As in a window of `Loader(by_time=W)`, where items are shuffled."""
    module = Memory(N, D, time_width=3, rngs=nnx.Rngs(0))

    def after(*times):
        state = module.init()
        for time in times:
            state = module.record(state, *(np.array([n]) for n in (0, 1, time)))
        return np.asarray(module.read(state, np.arange(2)))

    np.testing.assert_array_equal(after(10, 7), after(10, 10))
    assert np.abs(after(10, 13) - after(10, 10)).max() > 1e-3


def test_wrong_features_are_refused():
    with pytest.raises(InputError, match="features of events must be"):
        memory().record(memory().init(), np.array([0]), np.array([1]), np.array([2]))
    with pytest.raises(InputError, match="width must be at least 1"):
        Memory(N, 0, rngs=nnx.Rngs(0))


def test_ids_of_no_nodes():
    """They have no memory, and an event with one is no event of its other end."""
    module = memory()
    src, dst, time = (jnp.array(a) for a in ([1, 1], [2, 3], [5, 9]))
    features = jnp.ones((2, F))
    state = module.record(module.init(), src, dst, time, features)
    one = module.record(module.init(), src[:1], dst[:1], time[:1], features[:1])
    for padding in (-1, N):
        rows = module.read(state, jnp.array([padding, 1]))
        assert not rows[0].any()
        assert rows[1].any()
        other = module.record(module.init(), src, jnp.array([2, padding]), time, features)
        for mine, wanted in zip(jax.tree.leaves(other), jax.tree.leaves(one), strict=True):
            np.testing.assert_array_equal(mine, wanted)
