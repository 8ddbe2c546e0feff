"""Wrong `Seeds`: one line before a program runs, an error or an empty batch within it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import rarely
from refusals import refusal, refused

from jgs import Graph, Schema, kernels
from jgs.sampling import (
    GCNBS,
    VRGCN,
    Capacity,
    Labor,
    Ladies,
    Neighbors,
    Node2Vec,
    PinSage,
    Saint,
    Shadow,
    Subgraph,
    Walk,
)
from jgs.sampling.seeds import Seeds

RUNTIME_ERRORS = (ValueError, jax.errors.JaxRuntimeError)
KEY, N, E = jax.random.key(0), 4, 5
NODES = np.array([0, 2], np.int32)
SOURCE, TARGET, TIME = [1, 2, 0, 3, 3], [0, 0, 2, 2, 2], [1, 4, 0, 0, 9]
PLAIN = Graph.from_edges(SOURCE, TARGET, N)
TIMED = Graph.from_edges(SOURCE, TARGET, N, np.ones(E, np.float32), edge_time=TIME)
RELATIONS = (("n", "a", "n"), ("n", "b", "n"))
TYPED = Graph(
    TIMED.indptr,
    TIMED.indices,
    edge_type=np.array([0, 1, 0, 0, 1], np.int16),
    edge_time=TIMED.edge_time,
    schema=Schema((("n", N),), RELATIONS),
)


@pytest.mark.parametrize(
    ("graph", "fields", "says"),
    [
        (PLAIN, {"excluded": [3, 1]}, "repetition, then 5 for padding; got 1 after one"),
        (PLAIN, {"excluded": [5, 3]}, "got 3 after one that is not less"),
        (PLAIN, {"excluded": [-1, 3]}, "must be positions below 5 that ascend"),
        (PLAIN, {"excluded": [3, 6]}, "got 6. Use numpy.unique"),
        (PLAIN, {"excluded": [2**40]}, "got 1099511627776"),
        (PLAIN, {"excluded": [0.5]}, "excluded of seeds must be an array of integers"),
        (PLAIN, {"excluded": [[3]]}, "must have the shape [1]; got [1, 1]"),
        (PLAIN, {"time": [1, 2]}, "need a graph whose edges have times"),
        (TIMED, {"time": [1.0, 2.0]}, "time of seeds must be an array of integers"),
        (TIMED, {"time": np.zeros(2, "m8[s]")}, "an array of integers; got timedelta64[s][2]"),
        (TIMED, {"time": [1]}, "time of these seeds must have the shape [2]; got [1]"),
        (TIMED, {"time": [[1, 2]]}, "must have the shape [2]; got [1, 2]"),
        (TYPED, {"time": [1, 2]}, "one of several relations"),
    ],
)  # fmt: skip
def test_wrong_seeds_are_refused_in_one_line(graph, fields, says):
    for sampler in (Neighbors((2,)), Labor((2,)), Walk(2, latest=1)):
        with refusal(says):
            seeds = Seeds(NODES, **{n: np.array(v) for n, v in fields.items()})
            sampler.sample(KEY, graph, sampler.init(graph), seeds, None)


def test_each_batch_excludes_edges_of_its_own():
    """A super-batch needs one array for each batch, and each must ascend."""
    keys, nodes = jax.random.split(KEY, 2), np.stack([NODES, NODES])
    for excluded, says in (([1, 3], "shape [2, 2]; got [2]"), ([[1, 3], [3, 1]], "got 1")):
        seeds = Seeds(nodes, excluded=excluded)
        refused(says, Neighbors((2,)).sample, keys, PLAIN, (), seeds, None)


@pytest.mark.parametrize("options", [{"window": 3}, {"latest": True}])
def test_windows_need_cutoffs(options):
    """Without times they mean nothing, whoever draws: one batch, several, or a rank's hop."""
    neighbors = Neighbors((2,), **options)
    key_data, room = jax.random.key_data(KEY), Capacity((4,), (6,))
    calls = [
        lambda: neighbors.sample(KEY, TIMED, (), NODES, None),
        lambda: neighbors.sample_separately(key_data[None], TIMED, (), NODES[None], room),
        lambda: neighbors.draw_hop(key_data, TIMED, jnp.asarray(NODES), 0, 4),
    ]
    if "window" in options:
        calls.append(lambda: Labor((2,), window=3).sample(KEY, TIMED, (), NODES, None))
        decayed = Neighbors((2,), half_life=5)
        calls.append(lambda: decayed.sample(KEY, TIMED, decayed.init(TIMED), NODES, None))
        walk, causal, second = Walk(2, window=3), Walk(2, causal=True), Node2Vec(2, window=3)
        for one in (walk, causal, second, Node2Vec(2, causal=True)):
            calls.append(lambda w=one: w.sample(KEY, TIMED, w.init(TIMED), NODES))
    for call in calls:
        refused("counted from the cutoffs of the seeds", call)


INSIDE = [  # and whether a kernel draws
    (Neighbors((2, 2)), True),
    (Labor((2,), importance=1), True),
    (PinSage((2,), 3, 2), True),
    (Shadow((2,)), True),
    (Walk(2), True),
    (Subgraph(1), False),
    (Saint("node", 2), False),
    (Ladies((2,), normalize=False, compact=True), False),
    (GCNBS((2,)), False),
    (VRGCN((2,), widths=(3,)), False),
]


@pytest.mark.parametrize(("sampler", "of_kernel"), rarely(INSIDE, 1, 2, 3, 4, 6, 8), ids=repr)
def test_wrong_exclusions_inside_jit(sampler, of_kernel, implemented):
    """A kernel fails with the rule; what cannot fail returns an empty batch that needed -1."""
    state = sampler.init(PLAIN)

    def sample(excluded):
        return sampler.sample(KEY, PLAIN, state, Seeds(NODES, excluded=excluded), None)

    for available in {False, of_kernel and kernels.available()}:
        implemented(available)
        program = jax.jit(sample)
        for wrong in ([3, 1, 5], [2, 2, 5], [-1, 2, 5], [0, 6, 6]):
            if available:
                rule = "excluded edges must be positions below 5 that ascend"
                with pytest.raises(RUNTIME_ERRORS, match=rule):
                    jax.block_until_ready(program(np.array(wrong)))
                continue
            found = program(np.array(wrong))
            if isinstance(sampler, Walk):
                assert (np.asarray(found.lengths) == -1).all()
            else:
                assert found.overflow
                assert (np.asarray(found.needed) == -1).all()
                assert not any(int(block.num_edges) for block in found.blocks)
        found = jax.block_until_ready(program(np.array([1, 3, 5])))
        assert isinstance(sampler, Walk) or not found.overflow


def test_seeds_are_copied():
    nodes = np.array([1, 2], np.int32)
    seeds = Seeds(nodes)
    nodes[:] = 3
    np.testing.assert_array_equal(seeds.nodes, [1, 2])


def test_nothing_is_excluded_where_there_are_no_edges(implemented):
    graph = Graph.from_edges([], [], 3)
    for sampler in (PinSage((2,), 5, 2), Neighbors((2,))):
        for kernel in (True, False):
            implemented(kernel and kernels.available())
            seeds = Seeds([0, 1], excluded=[0, 0, 0])
            batch = sampler.sample(KEY, graph, sampler.init(graph), seeds, None)
            assert int(batch.blocks[0].num_edges) == 0
            assert not batch.overflow
