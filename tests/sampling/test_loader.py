"""`Loader`: each seed once, sampling ahead, redraws, resuming, and no thread left behind."""

import json
import multiprocessing
import subprocess
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import cases
from forks import quick_python
from refusals import refused
from rows_law import assert_as_often

import jgs
from jgs import InputError
from jgs.sampling import Capacity, Labor, Loader, Walk, sample_neighbors
from jgs.sampling.loading import schedule
from jgs.sampling.loading.schedule import shuffled

KEY = jax.random.key(1)
SEEDS = np.random.default_rng(0).permutation(300)[:100]
CAPACITY = Capacity((80, 200), (100, 250))


def make(graph, super_batch=1, **options) -> Loader:
    good = {"seeds": SEEDS, "batch_size": 16, "sampler": (3, 2), "key": KEY}
    good |= {"capacity": CAPACITY, "super_batch": super_batch}
    return Loader(graph, **(good | options))


def threads() -> int:
    return sum(t.name == "jgs-loader" for t in threading.enumerate())


@pytest.mark.parametrize("prefetch", [0, 4])
def test_every_seed_once_an_epoch(prefetch, graph):
    batches = make(graph, prefetch=prefetch)
    orders = []
    for epoch in range(3):
        assert (batches.epoch, batches.step) == (epoch, 0)
        epoch_batches = list(batches)
        assert len(epoch_batches) == len(batches) == 7
        assert [int(b.seed_mask.sum()) for b in epoch_batches] == [16] * 6 + [4]
        orders.append(np.concatenate([b.seeds for b in epoch_batches]).tolist())
        assert sorted(orders[-1]) == [*sorted(SEEDS.tolist()), *[300] * 12]
        assert orders[-1][100:] == [300] * 12
    assert orders[0] != orders[1] != orders[2]
    kept = np.concatenate([b.seeds for b in make(graph, prefetch=prefetch, shuffle=False)])
    np.testing.assert_array_equal(kept[:100], SEEDS)
    assert threads() == 0


def test_shuffles_are_uniform():
    """Each of 4! orders is equally likely."""
    keys = np.asarray(jax.random.key_data(jax.random.split(KEY, 4800)))
    bits = (schedule._random_bits(key_data, 4, 0) for key_data in keys)
    orders = [tuple(shuffled(None, own, 0)) for own in bits]
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert_as_often(counts, np.ones(24))


def test_a_batch_is_what_its_key_says(graph, same_bits):
    for epoch in range(2):
        batches = make(graph)
        batches.load_state_dict(batches.state_dict() | {"epoch": epoch})
        for step, batch in enumerate(batches):
            key = jax.random.fold_in(jax.random.fold_in(KEY, epoch), 1 + step)
            same_bits(batch, sample_neighbors(key, graph, batch.seeds, (3, 2), CAPACITY))


@cases(
    "stop, begun, later, sampler",
    (6, 1, 1, (3, 2)),
    *((stop, 3, 4, (3, 2)) for stop in (1, 3, 4)),
    *((stop, 3, 2, Labor((3, 2), period=4)) for stop in (2, 5)),
)
def test_a_loop_that_is_left_is_continued(stop, begun, later, sampler, graph, same_bits):
    """By the loader itself and by one that has its state, also within a super-batch."""
    whole, first = make(graph, sampler=sampler), make(graph, begun, sampler=sampler)
    expected = [*whole, *whole]
    for step, _ in enumerate(first, 1):
        if step == stop:
            break
    assert threads() == 0
    state = first.state_dict()
    assert all(isinstance(v, int) for v in state.values())
    other = {"key": jax.random.key(77), "sampler": sampler}  # the state brings its own key
    resumed = make(graph, later, **other)
    resumed.load_state_dict(state)
    assert (resumed.epoch, resumed.step) == (0, stop)
    for loader in (first, resumed):
        same_bits([*loader, *loader], expected[stop:])


@pytest.mark.parametrize("super_batch", [1, 3])  # 3 does not divide the 7 batches
def test_one_trace_over_three_epochs(super_batch, graph):
    traces = []

    @jax.jit
    def consume(batch):
        traces.append(None)
        return sum(jnp.sum(b.num_edges) for b in batch.blocks)

    own = (4, super_batch)  # no other test draws so, and would share the program
    planned = make(graph, super_batch, capacity=None, sampler=own)
    before = planned.source._draw._cache_size()
    for _ in range(3):
        for batch in planned:
            consume(batch)
    assert planned.redraws == 0
    assert len(traces) == 1
    assert planned.source._draw._cache_size() == before + 1


def test_no_thread_is_left(graph, monkeypatch):
    """By an exception in the loop, after `with`, and where drawing fails, which is told."""
    batches = make(graph)

    def loop():
        for _ in batches:
            assert threads() == 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop()
    assert threads() == 0
    assert batches.state_dict()["step"] == 1
    with batches:
        begun = iter(batches)
        next(begun)
        assert threads() == 1
    assert threads() == 0
    monkeypatch.setattr(batches.source, "_draw", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(batches)
    assert threads() == 0


SCRIPT = """
import signal, sys, numpy as np, jax, jgs
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
from jgs.sampling import Loader
rng = np.random.default_rng(0)
graph = jgs.Graph.from_edges(rng.integers(0, 300, 4000), rng.integers(0, 300, 4000), 300)
loader = Loader(graph, np.arange(100), 16, (3, 2), key=jax.random.key(0))
begun = iter(loader)
next(begun)
if "interrupt" in sys.argv:
    signal.raise_signal(signal.SIGINT)
print("end of the script")
"""


@pytest.mark.parametrize("how", ["", "interrupt"])
def test_a_script_that_stops_in_mid_epoch_exits(how):
    script = [quick_python(), "-c", SCRIPT, how]
    done = subprocess.run(script, capture_output=True, text=True, timeout=120)
    if how:
        assert "KeyboardInterrupt" in done.stderr
        assert "Fatal" not in done.stderr
    else:
        assert (done.returncode, done.stdout, done.stderr) == (0, "end of the script\n", "")


@cases(
    "options, says",
    ({"batch_size": 101}, "must be at most 100, the number of seeds; got 101"),
    ({"batch_size": 0}, "batch_size must be an int of at least 1; got 0"),
    ({"seeds": np.array([], int)}, "not empty"),
    ({"seeds": np.array([300])}, "[0, 300); got 300 at position 0"),
    ({"seeds": np.array([1.0])}, "integers"),
    ({"sampler": (0,)}, "fanouts must be"),
    ({"prefetch": -1}, "prefetch must be an int of at least 0"),
    ({"super_batch": 0}, "super_batch must be an int of at least 1"),
    ({"key": 1}, "must be a JAX random key"),
    ({"capacity": (1, 1)}, "the capacity must be"),
)
def test_bad_arguments_are_refused(options, says, graph):
    refused(says, make, graph, **options)


@cases(
    "change, says",
    ({"batch_size": 8}, "the state's batch_size must be the loader's, 16; got 8"),
    ({"num_seeds": 99}, "num_seeds"),
    ({"step": 8}, "the state's step must be at most 7; got 8"),
    ({"epoch": -1}, "the state's epoch must be an int of at least 0; got -1"),
    ({"epoch": 2**32}, "epoch must be at most"),
    ({"key_0": -1}, "key_0 must be an int"),
    ({"digest": None}, "digest must be an int"),
    ({"more": 1}, "must have the entries"),
)
def test_states_of_another_loader_are_refused(change, says, graph):
    batches = make(graph)
    refused(says, batches.load_state_dict, batches.state_dict() | change)


def test_states_of_other_batches_are_refused(graph):
    state = json.loads(json.dumps(make(graph).state_dict()))
    assert make(graph, relabel_inputs=False).state_dict() == state  # an option of the output
    for change in ({"seeds": SEEDS[::-1]}, {"sampler": (2, 2)}, {"replace": True}):
        load = make(graph, **change).load_state_dict
        refused("the state's digest must be the loader's", load, state)


def test_repeated_seeds(make_graph):
    """The hub of a star ten times: each repetition draws again, and there is room for all."""
    star = jgs.Graph.from_edges(np.arange(1, 1000), np.zeros(999, int), 1000)
    few, every = (Loader(star, [0] * 10, 10, (k,), key=KEY) for k in (20, -1))
    roomless = Loader(star, [0] * 10, 10, (-1,), key=KEY, capacity=Capacity((10,), (10,)))
    for loader, edges in ((few, 200), (every, 9990), (roomless, 9990)):
        (batch,) = loader
        assert int(batch.blocks[0].num_edges) == edges
    assert roomless.redraws > 0 == few.redraws


def test_numpy_integers_are_integers(graph):
    options = {"prefetch": np.int64(1), "batch_size": np.int64(16), "super_batch": np.int64(2)}
    batches = make(graph, sampler=np.array([3, 2]), **options)
    assert batches.super_batch == 2
    assert json.dumps(batches.state_dict())
    assert len(list(batches)) == 7


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_loop_ends_when_the_loader_moves_to_another_epoch(graph, prefetch):
    with make(graph, prefetch=prefetch) as mine, make(graph) as other:
        other.load_state_dict(other.state_dict() | {"epoch": 7, "step": 2})
        state = other.state_dict()
        with pytest.raises(RuntimeError, match="moved inside its loop"):  # noqa: PT012
            for step, _ in enumerate(mine):
                if step == 1:
                    mine.load_state_dict(state)  # the same step of another epoch
        assert mine.state_dict() == state


@pytest.mark.filterwarnings("ignore:.*fork", "ignore:.*use of fork")
def test_a_process_forked_after_jax_has_run_is_refused(graph):
    """It hung: XLA's threads are not in it."""
    batches = make(graph, prefetch=0)
    ours, theirs = multiprocessing.Pipe()

    def draw():
        for draws in (
            lambda: list(batches),
            batches.peek,
            lambda: make(graph),
            lambda: sample_neighbors(KEY, graph, SEEDS[:4], (2,)),
            lambda: Walk(2).sample(KEY, graph, (), SEEDS[:4]),
        ):
            with pytest.raises(InputError) as error:
                draws()
            theirs.send(str(error.value))

    child = multiprocessing.get_context("fork").Process(target=draw)
    child.start()
    try:
        for _ in range(5):
            assert ours.poll(20), "it hangs, or draws"
            assert "must not be forked from one that has used JAX" in (said := ours.recv())
            assert 'multiprocessing.get_context("spawn"), or draw in a thread' in said
    finally:
        child.kill()
        child.join()
    assert len(list(batches)) == 7
