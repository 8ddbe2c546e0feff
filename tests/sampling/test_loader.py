"""`Loader`: each seed once, several batches a call, redraws, resuming, no thread left."""

import json
import multiprocessing
import subprocess
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import cases
from forks import quick_python
from refusals import refused
from rows_law import assert_as_often

import jgs
from jgs import Graph, InputError, kernels
from jgs.sampling import (
    ByEpoch,
    Capacity,
    Labor,
    Ladies,
    Loader,
    Thanos,
    Walk,
    choose_super_batch,
    plan_capacity,
    sample_neighbors,
    worst_case,
)
from jgs.sampling.capacity import bytes_of, default_super_batch
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


@cases(
    "super_batch, prefetch, options",
    (2, 0, {}),
    (3, 1, {"return_edge_ids": True, "weighted": True, "shuffle": False}),
    (7, 3, {"return_edge_weights": True, "relabel_inputs": False}),
    (50, 0, {}),
)
def test_the_batches_are_the_same(super_batch, prefetch, options, graph, same_bits):
    single, several = (make(graph, n, prefetch=prefetch, **options) for n in (1, super_batch))
    assert (single.super_batch, several.super_batch) == (1, min(super_batch, 7))
    for _ in range(2):
        steps = []
        for a, b in zip(single, several, strict=True):
            same_bits(a, b)
            steps.append(several.step)
            assert several.state_dict() == single.state_dict()
        assert steps == list(range(1, 8))


@pytest.mark.parametrize("prefetch", [0, 2])
def test_only_the_batch_that_overflowed_is_redrawn(prefetch, graph, same_bits, neighbors_of):
    """With the same key."""
    roomy = list(make(graph, 1))
    most = max(int(batch.blocks[0].num_sources) for batch in roomy)
    small = {"capacity": Capacity((80, 200), (100, most - 1)), "prefetch": prefetch}
    single, several = make(graph, 1, **small), make(graph, 4, **small)
    batches = list(several)
    same_bits(list(single), batches)
    for batch, whole in zip(batches, roomy, strict=True):
        assert not batch.overflow
        assert neighbors_of(batch) == neighbors_of(whole)
    assert 1 <= several.redraws == single.redraws < 7


@pytest.mark.parametrize("number", [3, 11])
def test_batches_without_a_kernel_for_several(number, graph, same_bits):
    """Drawn one after the other in a program, and by a loop; each has the bits of its own."""
    asked = graph, np.arange(300)[: 16 * number], 16, Ladies((9, 9))
    single = Loader(*asked, key=KEY, super_batch=1)
    several = Loader(*asked, key=KEY, capacity=single.capacity, super_batch=number)
    assert several.super_batch == number
    same_bits(list(single), list(several))
    assert Loader(*asked, key=KEY).super_batch <= 4


def test_the_fastest_size_within_the_memory_is_chosen(graph, monkeypatch, caplog):
    took, now = {1: 8.0, 2: 5.0, 4: 4.1, 7: 4.0}, [0.0]
    monkeypatch.setattr("jgs.sampling.choices.time.perf_counter", lambda: now[0])

    def rehearse(self, steps):
        now[0] += took[self.super_batch] * steps
        return iter([()] * steps)

    monkeypatch.setattr(Loader, "rehearse", rehearse)
    asked = (graph, SEEDS, 16, (3, 2))
    size = bytes_of(Loader(*asked, key=KEY).capacity)
    caplog.set_level("INFO", "jgs")
    for memory, chosen in ((100 * size, 4), (3 * size, 2), (size, 1), (0, 1)):
        sizes = (1, 2, 4, 7, 50)  # there are 7 batches
        assert choose_super_batch(*asked, memory=memory, sizes=sizes) == chosen
    assert "4 batches a call: each takes 8000.00 ms with 1, 5000.00 ms with 2" in caplog.text
    assert choose_super_batch(graph, SEEDS, 16, Thanos((3, 2))) == 1
    for wrong, said in (
        ({"memory": -1}, "memory must be an int of at least 0"),
        ({"sizes": ("4",)}, "a size must be an int of at least 1"),
        ({"super_batch": 2}, "must be chosen for one sampler, and not be given"),
        ({"sampler": ByEpoch({0: (3, 2), 1: (2, 2)})}, "must be chosen for one sampler"),
    ):
        refused(said, choose_super_batch, graph, SEEDS, 16, **({"sampler": (3, 2)} | wrong))


PLAN_KEY = jax.random.key(100)


def test_plan_capacity_is_tight_and_says_so(make_graph, caplog):
    graph = make_graph(20_000, 400_000)
    with caplog.at_level("INFO", "jgs"):
        capacity = plan_capacity(graph, 256, (5, 5, 5))
    first, second = caplog.messages
    assert first.startswith("capacity planned from 10 batches")
    assert str(capacity.edges) in second
    seeds = np.stack([np.random.default_rng(i).permutation(20_000)[:256] for i in range(5)])
    batch = sample_neighbors(jax.random.split(PLAN_KEY, 5), graph, seeds, (5, 5, 5))
    need = int(batch.blocks[0].num_edges.max())
    assert need <= capacity.edges[2] < 1.25 * need
    assert plan_capacity(graph, 256, (5, 5, 5)) == capacity


def test_bad_plans_are_refused():
    good = {"graph": Graph.from_edges([0, 1], [1, 2], 30), "batch_size": 2, "fanouts": (2, 2)}
    for change in (
        *({"batch_size": size} for size in (-1, 2.5)),
        *({"seeds": seeds} for seeds in ([30], [], [[1], [2, 3]])),
        *({"key": 3}, {"graph": None}, {"trials": 0}, {"margin": -0.5}),
        *({"fanouts": np.array(3)}, {"weighted": True}),
    ):
        with pytest.raises(InputError):
            plan_capacity(**(good | change))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("fanout", [1, 3])
def test_a_sample_far_beyond_its_sources_overflows(fanout):
    """Every chunk of the kernel finds some new nodes, and no chunk finds many."""
    size = 47_000
    src, dst = np.arange(size * fanout) + size, np.repeat(np.arange(size), fanout)
    graph = Graph.from_edges(src, dst, size * (fanout + 1))
    capacity = Capacity((size * fanout,), (size,))
    batch = sample_neighbors(PLAN_KEY, graph, np.arange(size), (fanout,), capacity)
    assert batch.overflow
    assert int(batch.blocks[0].num_edges) == 0


def test_a_loader_measures_only_where_the_bound_is_large(make_graph):
    """A small bound is the capacity, so nothing overflows there."""
    small = Loader(make_graph(60, 700), np.arange(40), 8, (3, 2), key=PLAN_KEY)
    assert small.capacity == worst_case(make_graph(60, 700), 8, (3, 2), distinct=True)
    graph = make_graph(20_000, 400_000)
    large = Loader(graph, np.arange(20_000), 256, (5, 5, 5), key=PLAN_KEY)
    assert large.capacity == plan_capacity(graph, 256, (5, 5, 5))


def test_numpy_integers_are_integers(graph):
    options = {"prefetch": np.int64(1), "batch_size": np.int64(16), "super_batch": np.int64(2)}
    batches = make(graph, sampler=np.array([3, 2]), **options)
    assert batches.super_batch == 2
    assert json.dumps(batches.state_dict())
    assert len(list(batches)) == 7


@cases("super_batch, prefetch, waiting", (1, 2, 2), (3, 1, 3), (3, 3, 3), (3, 4, 6))
def test_whole_super_batches_wait(super_batch, prefetch, waiting, graph, monkeypatch):
    batches = make(graph, super_batch, prefetch=prefetch)
    drawn, real = [], batches.source._draw
    counted = lambda *args: (drawn.append(None), real(*args))[1]  # noqa: E731
    monkeypatch.setattr(batches.source, "_draw", counted)
    for step, _ in enumerate(batches):
        time.sleep(0.03)
        assert super_batch * (len(drawn) - step // super_batch - 1) <= waiting


def test_small_batches_are_put_together(graph, monkeypatch):
    for threads, edges, chosen in (
        *((1, 1000, 8), (2, 1000, 8), (16, 1000, 64)),
        *((2, 400_000, 6), (2, 10**6, 2), (2, 10**7, 1), (16, 10**7, 1)),
    ):
        monkeypatch.setattr(kernels, "NUM_THREADS", threads)
        assert default_super_batch(Capacity((edges,), (edges // 4,))) == chosen
    monkeypatch.setattr(kernels, "NUM_THREADS", 2)
    assert make(graph, None).super_batch == 7  # a call samples the whole epoch


def test_the_fastest_size_is_measured(graph):
    assert choose_super_batch(graph, SEEDS, 16, (3, 2), key=KEY) in (1, 2, 4)
