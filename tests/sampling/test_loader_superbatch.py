"""A loader that samples several batches in a call yields the same batches as one at a time."""

import time

import jax
import numpy as np
import pytest

from jgs import InputError, kernels
from jgs.sampling import ByEpoch, Capacity, Ladies, Loader, Thanos, choose_super_batch
from jgs.sampling.capacity import bytes_of, default_super_batch

KEY = jax.random.key(1)
SEEDS = np.random.default_rng(0).permutation(300)[:100]
CAPACITY = Capacity((80, 200), (100, 250))


@pytest.fixture
def graph(make_graph):
    return make_graph(300, 4000)


def make(graph, super_batch, **options) -> Loader:
    defaults = {"key": KEY, "capacity": CAPACITY}
    return Loader(graph, SEEDS, 16, (3, 2), super_batch=super_batch, **(defaults | options))


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("super_batch", [2, 3, 7, 50])
def test_the_batches_are_the_same(super_batch, prefetch, graph, same_bits):
    single, several = make(graph, 1), make(graph, super_batch, prefetch=prefetch)
    assert (single.super_batch, several.super_batch) == (1, min(super_batch, 7))
    for _ in range(2):
        steps = []
        for a, b in zip(single, several, strict=True):
            same_bits(a, b)
            steps.append(several.step)
            assert several.state_dict() == single.state_dict()
        assert steps == list(range(1, 8))


@pytest.mark.parametrize("stop", [1, 3, 4, 6])
def test_resuming_within_a_super_batch(stop, graph, same_bits):
    expected = list(make(graph, 1))
    begun = make(graph, 3)
    batches = iter(begun)
    for _ in range(stop):
        next(batches)
    batches.close()
    resumed = make(graph, 4, key=jax.random.key(77))
    resumed.load_state_dict(begun.state_dict())
    rest = [*begun, *resumed]
    assert len(rest) == 2 * (7 - stop)
    for a, b in zip(rest, 2 * expected[stop:], strict=True):
        same_bits(a, b)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_only_the_batch_that_overflowed_is_redrawn(prefetch, graph, same_bits):
    roomy = list(make(graph, 1))
    most = max(int(batch.blocks[0].num_sources) for batch in roomy)
    small = {"capacity": Capacity((80, 200), (100, most - 1)), "prefetch": prefetch}
    single, several = make(graph, 1, **small), make(graph, 4, **small)
    for a, b in zip(single, several, strict=True):
        same_bits(a, b)
        assert not b.overflow
    assert 1 <= several.redraws == single.redraws < 7


@pytest.mark.parametrize(("prefetch", "waiting"), [(1, 3), (2, 3), (3, 3), (4, 6)])
def test_whole_super_batches_wait(prefetch, waiting, graph, monkeypatch):
    batches = make(graph, 3, prefetch=prefetch)
    drawn, real = [], batches.source._draw
    monkeypatch.setattr(
        batches.source, "_draw", lambda *args: (drawn.append(None), real(*args))[1]
    )
    for step, _ in enumerate(batches):
        time.sleep(0.05)
        assert 3 * len(drawn) <= 3 * (step // 3 + 1) + waiting


def test_options_reach_every_batch(graph, same_bits):
    options = {"return_edge_ids": True, "return_edge_weights": True, "relabel_inputs": False}
    options |= {"weighted": True, "shuffle": False}
    for a, b in zip(make(graph, 1, **options), make(graph, 3, **options), strict=True):
        same_bits(a, b)


def test_repeated_seeds_have_room(graph):
    """Every seed of a batch is the same hub: far more edges than distinct seeds have."""
    hub = int(np.argmax(np.diff(np.asarray(graph.indptr))))
    degree = int(np.diff(np.asarray(graph.indptr))[hub])
    batches = list(Loader(graph, [hub] * 40, 10, (-1,), key=KEY, super_batch=3))
    assert [int(b.blocks[0].num_edges) for b in batches] == [10 * degree] * 4


@pytest.mark.parametrize("super_batch", [0, -1, 2.5, True])
def test_bad_sizes_are_refused(super_batch, graph):
    with pytest.raises(InputError, match="super_batch must be an int of at least 1"):
        make(graph, super_batch)


@pytest.mark.parametrize(
    ("threads", "edges", "chosen"),
    [
        (1, 1000, 8),
        (2, 1000, 8),
        (16, 1000, 64),
        (2, 400_000, 6),
        (2, 10**6, 2),
        (2, 10**7, 1),
        (16, 10**7, 1),
    ],
)
def test_small_batches_are_put_together(threads, edges, chosen, monkeypatch):
    monkeypatch.setattr(kernels, "NUM_THREADS", threads)
    assert default_super_batch(Capacity((edges,), (edges // 4,))) == chosen


@pytest.mark.parametrize("number", [3, 11])
def test_batches_without_a_kernel_for_several(number, graph, same_bits):
    """Drawn one after the other in a program, and by a loop; each has the bits of its own."""
    options = {"capacity": None}
    seeds = np.arange(300)[: 16 * number]
    single = Loader(graph, seeds, 16, Ladies((9, 9)), key=KEY, super_batch=1)
    options = {"capacity": single.capacity, "super_batch": number}
    several = Loader(graph, seeds, 16, Ladies((9, 9)), key=KEY, **options)
    assert several.super_batch == number
    for a, b in zip(single, several, strict=True):
        same_bits(a, b)
    assert Loader(graph, seeds, 16, Ladies((9, 9)), key=KEY).super_batch <= 4


def test_the_fastest_size_within_the_memory_is_chosen(graph, monkeypatch, caplog):
    took, now = {1: 8.0, 2: 5.0, 4: 4.1, 7: 4.0}, [0.0]
    monkeypatch.setattr("jgs.sampling.loading.super_batch.time.perf_counter", lambda: now[0])

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
        with pytest.raises(InputError, match=said):
            choose_super_batch(graph, SEEDS, 16, **{"sampler": (3, 2), **wrong})


def test_the_fastest_size_is_measured(graph):
    assert choose_super_batch(graph, SEEDS, 16, (3, 2), key=KEY) in (1, 2, 4)


def test_the_choice_is_told(graph, monkeypatch):
    monkeypatch.setattr(kernels, "NUM_THREADS", 2)
    assert make(graph, None).super_batch == 7  # a call samples the whole epoch
    assert make(graph, np.int64(2)).super_batch == 2
