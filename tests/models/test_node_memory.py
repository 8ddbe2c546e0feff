"""`Memory`: its recurrence event by event, what a batch sees, padding, and resume."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from modules import exact, module
from refusals import refused

from jgs.models import Memory

N, D, F = 9, 4, 2
RNG = np.random.default_rng(0)


def memory(**options):
    options = {"edge_width": F, "time_width": 3, "time_unit": 10.0, **options}
    return module(lambda rngs: Memory(N, D, **options, rngs=rngs))


record = nnx.jit(Memory.record)
read = nnx.jit(Memory.read)
gru = nnx.jit(lambda cell, row, message: cell(row, message)[0])


def test_the_recurrence_event_by_event():
    """With ties, events of one node, a self-loop, NaN in padding, times beyond 32 bits."""
    own = memory()
    state, known = own.init(), {v: (np.zeros(D), None) for v in range(N)}
    frequency, phase = np.exp(exact(own.time.log_frequency)), exact(own.time.phase)
    time, before = 1 << 40, {}

    def now(v):
        """The memory of a node with its last event."""
        row, event = known[v]
        if event is None:
            return row
        partner, elapsed, features = event
        phi = np.cos(elapsed / 10 * frequency + phase)
        return np.asarray(gru(own.cell, row, np.concatenate([row, partner, phi, features])))

    for _ in range(4):
        src, dst = RNG.integers(0, N, (2, 7))
        src[5], dst[5] = 2, 2
        times = time + np.sort(RNG.integers(0, 9, 7))
        time += 9
        features = RNG.normal(size=(7, F)).astype(np.float32)
        rows = np.asarray(read(own, state, np.arange(N + 1)))
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
        state = record(own, state, *padded, late, some)
    assert np.asarray(state.pending).sum() > 6


def test_gradients_reach_the_last_event_and_no_further():
    own, features = memory(), np.ones((2, F), np.float32)
    state = own.init()
    for step in range(2):
        ends = np.array([0, 3]), np.array([1, 4])
        state = record(own, state, *ends, np.array([step, step]), features)

    @nnx.jit
    def slopes(own, state):
        def total(own):
            return jnp.sum(own.read(state, np.arange(N)) ** 2)

        def later(rows):
            event = np.array([0]), np.array([3]), np.array([5]), features[:1]
            return jnp.sum(own.record(state._replace(rows=rows), *event).rows[0])

        return nnx.grad(total)(own), jax.grad(later)(state.rows)

    of_module, of_rows = jax.device_get(slopes(own, state))
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(of_module.cell))
    assert not of_rows.any()


def test_an_event_before_the_last_one_is_no_time_after_it():
    """As in a window of `Loader(by_time=W)`, where items are shuffled."""
    own = memory(edge_width=0)

    def after(*times):
        state = own.init()
        for time in times:
            state = record(own, state, *(np.array([n]) for n in (0, 1, time)))
        return np.asarray(read(own, state, np.arange(2)))

    np.testing.assert_array_equal(after(10, 7), after(10, 10))
    assert np.abs(after(10, 13) - after(10, 10)).max() > 1e-3


def test_wrong_features_are_refused():
    own, event = memory(), [np.array([n]) for n in range(3)]
    refused("features of events must be", own.record, own.init(), *event)
    refused("width must be at least 1", Memory, N, 0, rngs=nnx.Rngs(0))


def test_ids_of_no_nodes():
    """They have no memory, and an event with one is no event of its other end."""
    own, features = memory(), np.ones((2, F), np.float32)
    src, time = np.array([1, 1]), np.array([5, 9])

    def after(*dst):
        return record(own, own.init(), src, np.array(dst), time, features)

    one = record(own, own.init(), src[:1], np.array([2]), time[:1], features[:1])
    for padding in (-1, N):
        rows = np.asarray(read(own, after(2, 3), np.array([padding, 1])))
        assert not rows[0].any()
        assert rows[1].any()
        jax.tree.map(np.testing.assert_array_equal, after(2, padding), one)
