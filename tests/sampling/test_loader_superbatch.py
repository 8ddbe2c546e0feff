"""A loader that samples several batches in a call yields the same batches as one at a time."""

import time

import numpy as np
import pytest
from cases import cases
from refusals import refused
from test_loader import KEY, SEEDS, make

from jgs import kernels
from jgs.sampling import ByEpoch, Capacity, Ladies, Loader, Thanos, choose_super_batch
from jgs.sampling.capacity import bytes_of, default_super_batch


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
        refused(said, choose_super_batch, graph, SEEDS, 16, **({"sampler": (3, 2)} | wrong))


def test_the_fastest_size_is_measured(graph):
    assert choose_super_batch(graph, SEEDS, 16, (3, 2), key=KEY) in (1, 2, 4)
