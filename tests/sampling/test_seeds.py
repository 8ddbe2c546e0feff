"""`Seeds` that break the rules: one line before the program runs, or an error or an empty batch
while it runs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jgs import Graph, InputError, Schema, kernels
from jgs.sampling import (
    GCNBS,
    VRGCN,
    Capacity,
    Labor,
    Ladies,
    Neighbors,
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


def drawn(sampler, graph, seeds):
    return sampler.sample(KEY, graph, sampler.init(graph), seeds, None)


@pytest.mark.parametrize("sampler", [Neighbors((2,)), Labor((2,)), Walk(2)], ids=repr)
@pytest.mark.parametrize(
    ("graph", "fields", "says"),
    [
        (PLAIN, {"excluded": [3, 1]}, "repetition, then 5 for padding; got 1 after one"),
        (PLAIN, {"excluded": [2, 2]}, "got 2 after one that is not less"),
        (PLAIN, {"excluded": [5, 3]}, "got 3 after one that is not less"),
        (PLAIN, {"excluded": [-1, 3]}, "must be positions below 5 that ascend"),
        (PLAIN, {"excluded": [3, 6]}, "got 6. Use numpy.unique"),
        (PLAIN, {"excluded": [2**40]}, "got 1099511627776"),
        (PLAIN, {"excluded": [0.5]}, "excluded of seeds must be an array of integers"),
        (PLAIN, {"excluded": [[3]]}, "must have the shape [1]; got [1, 1]"),
        (PLAIN, {"time": [1, 2]}, "need a graph whose edges have times"),
        (TIMED, {"time": [1.0, 2.0]}, "time of seeds must be an array of integers"),
        (TIMED, {"time": [1]}, "time of these seeds must have the shape [2]; got [1]"),
        (TIMED, {"time": [[1, 2]]}, "must have the shape [2]; got [1, 2]"),
        (TYPED, {"time": [1, 2]}, "one of several relations"),
    ],
)  # fmt: skip
def test_wrong_seeds_are_refused_in_one_line(sampler, graph, fields, says):
    if "time" in fields and not sampler.takes_time:
        says = "must have no times" if isinstance(fields["time"][0], int) else "seeds"
    with pytest.raises(InputError) as error:
        drawn(sampler, graph, Seeds(NODES, **{n: np.array(v) for n, v in fields.items()}))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_each_batch_excludes_edges_of_its_own():
    """A super-batch needs one array for each batch, and each must ascend."""
    keys, nodes = jax.random.split(KEY, 2), np.stack([NODES, NODES])
    for excluded, says in (([1, 3], r"shape \[2, 2\]; got \[2\]"), ([[1, 3], [3, 1]], "got 1")):
        with pytest.raises(InputError, match=says):
            Neighbors((2,)).sample(keys, PLAIN, (), Seeds(nodes, excluded=excluded), None)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Neighbors((2,), window=0), "the window must be an int of at least 1; got 0"),
        (lambda: Neighbors((2,), window=1.5), "got 1.5"),
        (lambda: Neighbors((2,), window=np.timedelta64(1, "D")), "got np.timedelta64(1,'D')"),
        (lambda: Neighbors((2,), window=2**63), "the window must be below 2**63"),
        (
            lambda: Neighbors((2,), weighted=True, latest=True),
            "without weights; got latest=True",
        ),
        (lambda: Neighbors((2,), replace=True, latest=True), "without replacement"),
        (lambda: Walk(2, window=0), "the window must be an int of at least 1; got 0"),
        (lambda: Neighbors((3,), latest=2), "latest must be True or False"),
        (lambda: Seeds([1, 2], excluded=5), "must be an array of integers; got one number"),
        (lambda: Seeds([1], time=np.array([2**63 + 5], np.uint64)), "64-bit integers"),
        (lambda: Walk(2, latest=0), "latest must be an int of at least 1; got 0"),
        (
            lambda: Walk(2, weighted=True, latest=1),
            "or from the latest edges; got weighted=True, latest=1",
        ),
    ],
)
def test_wrong_fields_are_refused_in_one_line(make, says):
    with pytest.raises(InputError) as error:
        make()
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("options", [{"window": 3}, {"latest": True}])
def test_windows_need_cutoffs(options):
    """Without times they mean nothing, whoever draws: one batch, several, or a rank's hop."""
    neighbors, walk = Neighbors((2,), **options), Walk(2, **options | {"latest": None})
    key_data, room = jax.random.key_data(KEY), Capacity((4,), (6,))
    calls = [
        lambda: drawn(neighbors, TIMED, NODES),
        lambda: neighbors.sample_separately(key_data[None], TIMED, (), NODES[None], room),
        lambda: neighbors.draw_hop(key_data, TIMED, jnp.asarray(NODES), 0, 4),
    ]
    if "window" in options:
        calls.append(lambda: drawn(walk, TIMED, NODES))
        calls.append(lambda: drawn(Labor((2,), window=3), TIMED, NODES))
    for call in calls:
        with pytest.raises(InputError, match="counted from the cutoffs of the seeds"):
            call()


INSIDE = [
    Neighbors((2, 2)),
    Labor((2, 2)),
    Labor((2,), importance=1),
    PinSage((2,), 3, 2),
    Subgraph(1),
    Shadow((2,)),
    Saint("node", 2),
    Walk(2),
    Ladies((2, 2)),
    Ladies((2,), normalize=False, compact=True),
    GCNBS((2,)),
    VRGCN((2,), widths=(3,)),
]


def outcome(program, excluded):
    """What the program returns, and the message of its error or ""."""
    try:
        return jax.block_until_ready(program(excluded)), ""
    except RUNTIME_ERRORS as error:
        return None, str(error)


@pytest.mark.parametrize("sampler", INSIDE, ids=repr)
def test_wrong_exclusions_inside_jit(sampler, implemented):
    """Where values are not known before, a kernel fails with the rule. Whoever cannot fail
    returns an empty batch and -1 for what was needed. The next batch is drawn as ever."""
    state = sampler.init(PLAIN)

    def sample(excluded):
        return sampler.sample(KEY, PLAIN, state, Seeds(NODES, excluded=excluded), None)

    for available in {False, kernels.available()}:
        implemented(available)
        program = jax.jit(sample)
        with jax.enable_x64(True):
            good, *bad = map(
                jnp.asarray, ([1, 3, 5], [3, 1, 5], [2, 2, 5], [-1, 2, 5], [0, 6, 6])
            )
        for wrong in bad:
            found, error = outcome(program, wrong)
            if error:
                assert available
                assert "excluded edges must be positions below 5 that ascend" in error
            elif isinstance(sampler, Walk):
                assert (np.asarray(found.lengths) == -1).all()
            else:
                assert found.overflow
                assert (np.asarray(found.needed) == -1).all()
                assert not any(int(block.num_edges) for block in found.blocks)
        found, error = outcome(program, good)
        assert not error
        assert isinstance(sampler, Walk) or not found.overflow


def test_a_damaged_edge_that_is_excluded_is_found():
    """LABOR's importances are computed of whole rows, holes too."""
    if not kernels.available():
        pytest.skip("the plain form reads no memory of others")
    indices = np.zeros(64, np.int32)
    graph = Graph.from_edges(indices, indices, 3)
    bad = np.asarray(graph.indices).copy()
    bad[10] = -(2**31)
    damaged = object.__new__(Graph)
    vars(damaged).update(vars(graph) | {"indices": jnp.asarray(bad)})
    sampler = Labor((4,), importance=1)
    capacity = Capacity((64,), (3,))
    with pytest.raises(RUNTIME_ERRORS, match="must be valid"):
        sampler.sample(KEY, damaged, (), Seeds([0], excluded=[10, 64]), capacity)


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
