"""The contract of `jgs.sampling.base`, for every sampler: a sampler that is missing here fails.

A new sampler needs a line in `jgs.tables.SAMPLERS` and one in `every_sampler.CASES`.
"""

import dataclasses
import importlib
import inspect
import pkgutil
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from every_sampler import (
    CASES,
    EVERY,
    HOLES,
    KEY,
    SEEDS,
    SLOTS,
    B,
    E,
    N,
    draw,
    edges_of,
    padded,
    program_of,
    room_of,
    seeds_for,
    state_of,
    typed,
)

from jgs import Graph, InputError, kernels
from jgs.dist.batches.source import HybridSampler
from jgs.dist.communicators.mesh import Mesh
from jgs.sampling import (
    Capacity,
    Feedback,
    Ladies,
    Loader,
    Sampler,
    algorithms,
    plan_capacity,
    worst_case,
)
from jgs.sampling.algorithms.walks.visits import VisitSampler
from jgs.sampling.base import Adaptive, update_of
from jgs.sampling.matrix import MatrixSampler
from jgs.sampling.seeds import Seeds
from jgs.tables import SAMPLERS

KERNELS = kernels.available()
each = pytest.mark.parametrize(("sampler", "other"), EVERY, ids=repr)


@pytest.fixture
def graph(make_graph):
    return typed(make_graph(N, E))


def check_seeds(sampler, batch, given):
    """The batch's seeds are `given`; for a sampler that draws its seeds, those in its nodes."""
    if sampler.draws_seeds:
        given = np.where(np.isin(batch.nodes, given), batch.nodes, N)
    np.testing.assert_array_equal(batch.seeds, given)


def test_every_sampler_is_in_the_tables():
    prefix = f"{algorithms.__name__}."
    names = [m.name for m in pkgutil.walk_packages(algorithms.__path__, prefix)]
    found = set()
    for name in names:
        module = importlib.import_module(name)
        for value in vars(module).values():
            if (
                inspect.isclass(value)
                and hasattr(value, "bound")
                and value.__module__ == module.__name__
            ):
                found.add(value)
    assert found == {*SAMPLERS.values(), VisitSampler}  # the base of PinSage and HetGNN
    assert set(CASES) == set(SAMPLERS)
    for name, cases in CASES.items():
        assert all(type(one) is SAMPLERS[name] for pair in cases for one in pair)


@each
def test_the_parts_of_the_contract(sampler, other, graph):
    assert isinstance(sampler, Sampler)
    assert isinstance(sampler.by_node, bool)
    assert dataclasses.is_dataclass(sampler)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(sampler, dataclasses.fields(sampler)[0].name, None)
    assert hash(sampler) == hash(dataclasses.replace(sampler))
    assert sampler == dataclasses.replace(sampler) != other
    jax.tree.map(np.asarray, sampler.init(graph))  # the state is a pytree of arrays
    if hasattr(sampler, "expected_draws"):
        degree = np.array([0, 1, 5, 1000])
        drawn = sampler.expected_draws(0, degree)
        assert (drawn[1:] > 0).all()
        assert (drawn <= np.maximum(degree, 10)).all()
    with pytest.raises(InputError):
        draw(sampler, graph, SEEDS, capacity=Capacity((1,) * 9, (1,) * 9))
    with pytest.raises(InputError):
        sampler.init(None)
    nodes, state = seeds_for(sampler, SEEDS), state_of(sampler, graph)
    for takes, name in ((sampler.takes_excluded, "excluded"), (sampler.takes_time, "time")):
        if not takes:  # what it does not know is refused, not ignored
            seeds = Seeds(nodes, **{name: SEEDS.astype(int)})
            with pytest.raises(InputError, match=f"{type(sampler).__name__} must .* {name}"):
                sampler.sample(KEY, graph, state, seeds, None)


def check_weighted_neighbors(graph, block, target, neighbor):
    """Checks neighbours that are no edges of the graph. A neighbour can be reached from its
    target and occurs once in its row. The weights are counts, or have the mean 1."""
    count, weight = int(block.num_edges), np.asarray(block.edge_weight)
    matrix = np.eye(N, dtype=bool)
    matrix[np.repeat(np.arange(N), np.asarray(graph.degrees())), np.asarray(graph.indices)] = 1
    reached = np.linalg.matrix_power(matrix.astype(float), 8) > 0
    assert reached[target, neighbor].all()
    assert (target != neighbor).all()
    row = np.repeat(np.arange(block.target_capacity), np.diff(np.asarray(block.indptr)))
    assert len(set(zip(row.tolist(), neighbor.tolist(), strict=True))) == count
    assert (weight[:count] > 0).all()
    assert (weight[count:] == 0).all()
    if (weight != np.round(weight)).any():
        mean = np.bincount(row, weight[:count])[row] / np.bincount(row)[row]
        np.testing.assert_allclose(mean, 1, rtol=1e-5)


@each
def test_a_batch_is_a_part_of_the_graph(sampler, other, graph):
    seeds = np.array([*SEEDS[:4], N, *SEEDS[4:], N], np.int32)  # padding, also in the middle
    seeds = seeds_for(sampler, seeds)
    key = jax.random.key_data(KEY)  # the key as its key_data; the capacity is the bound
    with kernels.this_host_only():
        batch = program_of(sampler)[0](key, graph, state_of(sampler, graph), seeds, None)
    nodes, num_edges = np.asarray(batch.nodes), graph.num_edges
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    assert not batch.overflow
    # A block has one entry or several. The last one is what the block itself needed.
    entries = batch.needed.shape[1] // len(batch.blocks)
    assert batch.needed.shape == (2, entries * len(batch.blocks))
    check_seeds(sampler, batch, seeds)
    seeds = np.asarray(batch.seeds)
    rows = np.arange(seeds.size) if batch.seed_rows is None else np.asarray(batch.seed_rows)
    here = seeds < N
    np.testing.assert_array_equal(batch.seed_mask, here if here.ndim == 1 else here.all(1))
    np.testing.assert_array_equal(nodes[rows[here]], seeds[here])
    capacity = nodes.size
    for block, need in zip(batch.blocks, np.asarray(batch.needed).T[::-entries], strict=True):
        ptr, local = np.asarray(block.indptr), np.asarray(block.indices)
        count = int(block.num_edges)
        num_targets, num_sources = int(block.num_targets), int(block.num_sources)
        assert block.source_capacity == capacity  # room for the previous layer's rows
        capacity = block.target_capacity
        assert ptr.dtype == local.dtype == np.int32
        assert ptr[0] == 0
        assert (np.diff(ptr) >= 0).all()
        assert (ptr[num_targets:] == count).all()
        assert (local[count:] == block.source_capacity).all()
        assert (local[:count] < num_sources).all()
        target = np.repeat(nodes[:num_targets], np.diff(ptr[: num_targets + 1]))
        if block.edge_id is None:
            check_weighted_neighbors(graph, block, target, nodes[local[:count]])
        else:
            ids = np.asarray(block.edge_id)
            assert ids.dtype == np.int64
            assert (ids[count:] == num_edges).all()
            assert (indptr[target] <= ids[:count]).all()
            assert (ids[:count] < indptr[target + 1]).all()
            np.testing.assert_array_equal(nodes[local[:count]], indices[ids[:count]])
        assert count <= need[0] <= block.edge_capacity
        assert need[1] in (num_sources, 0)
    assert (nodes[int(batch.blocks[0].num_sources) :] == N).all()
    # Neither the form of the key nor the capacity changes what is drawn.
    assert edges_of(batch) == edges_of(draw(sampler, graph, SEEDS))


@each
def test_a_function_of_the_key_and_the_set_of_seeds(sampler, other, graph, same_bits):
    one = draw(sampler, graph, SEEDS)
    keys = jax.random.split(jax.random.key(9), 5)
    assert any(edges_of(draw(sampler, graph, SEEDS, k)) != edges_of(one) for k in keys)
    same_bits(draw(sampler, graph, SEEDS, KEY), one)
    order = np.r_[N, np.random.default_rng(0).permutation(SEEDS), N]
    assert edges_of(draw(sampler, graph, order)) == edges_of(one)


@each
def test_repeated_seeds(sampler, other, graph):
    batch = draw(sampler, graph, np.r_[SEEDS[:5], SEEDS[:2], SEEDS[:1]])
    assert not batch.overflow
    once = edges_of(draw(sampler, graph, SEEDS[:5]))
    if sampler.draws_seeds:  # the seeds are a set
        assert edges_of(batch) == once
        return
    for rows, alone in zip(edges_of(batch), once, strict=True):
        for node, drawn in rows.items():  # all repetitions draw alike
            assert set(map(tuple, drawn)) == set(map(tuple, alone[node]))
    if batch.groups is None:
        assert [len(edges_of(batch)[-1][int(s)]) for s in SEEDS[:5]] == [3, 2, 1, 1, 1]
    else:
        sizes = np.diff(batch.groups)
        np.testing.assert_array_equal(sizes[5:8], sizes[[0, 1, 0]])
    few = seeds_for(sampler, SEEDS[:3])
    planned = plan_capacity(graph, SLOTS, sampler, seeds=few, distinct=False)
    assert planned.sources[0] >= SLOTS
    many = draw(sampler, graph, np.repeat(SEEDS[0], SLOTS), capacity=planned)
    assert not many.overflow or np.asarray(many.needed).max() > 0


@each
def test_jit_traces_once_and_lowers_everywhere(sampler, other, graph):
    program, traces = program_of(sampler)
    for i in range(4):
        draw(sampler, graph, (SEEDS + i) % N, jax.random.key(i))
    assert traces.count(room_of(sampler, graph)) == 1
    none = seeds_for(sampler, padded(()))
    arguments = (KEY, graph, state_of(sampler, graph), none, room_of(sampler, graph))
    text = program.trace(*arguments).lower(lowering_platforms=("cuda", "tpu")).as_text()
    assert "callback" not in text
    assert "jgs_" not in text  # the program has no kernel of this host


@each
def test_overflow(sampler, other, graph):
    """Each entry of a capacity overflows in turn. LADIES tries all entries for the matrix
    programs, which share this code; the others try the first entry and the last."""
    needed, worst = np.asarray(draw(sampler, graph, SEEDS).needed), room_of(sampler, graph)
    last = len(worst.edges) - 1
    places = [(field, entry) for field in (0, 1) for entry in range(last + 1)]
    if isinstance(sampler, MatrixSampler) and not isinstance(sampler, Ladies):
        places = [(0, 0), (1, last)]
    for field, entry in places:
        sizes = [list(worst.edges), list(worst.sources)]
        sizes[field][entry] = int(needed[field, entry]) - 1
        if field and sizes[field][entry] < SLOTS and not sampler.draws_seeds:
            continue  # a capacity always has room for the seeds
        if field:
            sizes[1][:entry] = [min(s, sizes[1][entry]) for s in sizes[1][:entry]]
        batch = draw(sampler, graph, SEEDS, capacity=Capacity(*map(tuple, sizes)))
        assert batch.overflow
        assert (np.asarray(batch.nodes) == N).all()
        assert not any(int(b.num_edges) + int(b.num_targets) for b in batch.blocks)
        assert np.isnan(batch.of_seeds(jnp.ones((batch.seeds.size, 3)))).all()
        assert (np.asarray(batch.needed) <= needed).all()  # counted up to the overflow


@each
def test_the_loader_redraws_and_knows_a_sampler_by_its_repr(sampler, other, graph):
    assert repr(sampler) != repr(other)
    option = next(f.name for f in dataclasses.fields(sampler) if not f.repr)
    returned = dataclasses.replace(sampler, **{option: not getattr(sampler, option)})
    assert repr(returned) == repr(sampler)  # an option of the output draws nothing else
    batch_size, worst = 5, worst_case(graph, 5, sampler, distinct=True)

    def loader(sampler, capacity=worst):  # a sampler that learns starts with its first state
        options = {"key": KEY, "capacity": capacity, "prefetch": 0, "age": None}
        return Loader(graph, seeds_for(sampler, SEEDS), batch_size, sampler, **options)

    begun, whole = loader(sampler), []
    state = begun.state_dict()
    loader(returned).load_state_dict(state)
    with pytest.raises(InputError, match="digest"):
        loader(other).load_state_dict(state)
    with kernels.this_host_only():
        for batch in begun:
            whole.append(batch)
            state = begun.state_dict() if len(whole) == 1 else state
    assert len(whole) == 3
    needed = 3 * np.max([b.needed for b in whole[1:]], axis=0) // 4  # one enlargement fits
    sources = np.maximum.accumulate(np.maximum(needed[1], batch_size))
    tight = Capacity(tuple(np.maximum(needed[0], 1).tolist()), tuple(sources.tolist()))
    resumed = loader(sampler, tight)
    resumed.load_state_dict(state)
    with kernels.this_host_only():
        assert [edges_of(b) for b in resumed] == [edges_of(b) for b in whole[1:]]
    assert resumed.redraws > 0 == begun.redraws


@each
def test_two_ranks_draw_what_one_does(sampler, other, graph):
    comm, key_data = Mesh(jax.devices()[:2]), np.asarray(jax.random.key_data(KEY))
    half, excluded = HybridSampler(comm, graph, B // 2, sampler), None
    seeds = given = seeds_for(sampler, SEEDS.reshape(2, B // 2))
    if sampler.takes_excluded:  # edges that are excluded from the global batch
        excluded = HOLES[0]
        given = [Seeds(own, excluded=excluded) for own in seeds]
    with kernels.this_host_only():
        batches = comm.local(half(key_data, comm.own(list(given))))
    for batch, own in zip(batches, seeds, strict=True):
        check_seeds(sampler, batch, own)
    if sampler.by_node:
        room = room_of(sampler, graph)
        whole = edges_of(draw(sampler, graph, SEEDS, KEY, room, excluded))
        for batch in batches:
            for rows, every in zip(edges_of(batch), whole, strict=True):
                for node, drawn in rows.items():  # a node may have a row in many groups
                    assert Counter(map(tuple, drawn)) <= Counter(map(tuple, every[node]))
                    assert batch.groups is not None or drawn == every[node]
    else:  # each rank draws with its own key
        alone = HybridSampler(Mesh(jax.devices()[:1]), graph, B // 2, sampler)
        first = alone._comm.own([given[0]])
        with kernels.this_host_only():
            (same,) = alone._comm.local(alone(key_data, first))
        assert edges_of(same) != edges_of(batches[0])


@each
def test_plain_and_kernel_are_equal(sampler, other, graph, same_bits, implemented):
    """Also one batch, `vmap` and super-batches, with 4, 2 and 1 threads, each compiled once. If
    the sampler can, each batch excludes edges of its own, and the last one none."""
    keys, nodes = jax.random.split(KEY, 3), np.stack([SEEDS, SEEDS[::-1], np.roll(SEEDS, 3)])
    nodes[1, 4:] = N
    excluded = HOLES if sampler.takes_excluded else None
    seeds = Seeds(seeds_for(sampler, nodes), excluded=excluded)
    inputs = (keys, graph, state_of(sampler, graph), seeds)
    capacity = worst_case(graph, B, sampler)

    def one(keys, graph, state, seeds):
        return sampler.sample(keys[0], graph, state, seeds.batch(0), capacity)

    def mapped(keys, graph, state, seeds):
        return jax.vmap(lambda k, s: sampler.sample(k, graph, state, s, capacity))(keys, seeds)

    def separate(keys, graph, state, seeds):
        key_data = jax.random.key_data(keys)
        return sampler.sample_separately(key_data, graph, state, seeds, capacity)

    implemented(False)
    plain = jax.device_get(jax.jit(mapped)(*inputs))
    first, _, last = [jax.tree.map(lambda a, i=i: a[i], plain) for i in range(3)]
    if sampler.takes_excluded:
        assert edges_of(last) == edges_of(draw(sampler, graph, nodes[2], keys[2]))
        assert edges_of(first) != edges_of(draw(sampler, graph, nodes[0], keys[0]))
        for block in plain.blocks:
            for i, holes in enumerate(HOLES if block.edge_id is not None else ()):
                drawn = block.edge_id[i, : block.num_edges[i]]
                assert not np.isin(drawn, holes).any()
    if not isinstance(sampler, MatrixSampler):
        same_bits(jax.jit(one)(*inputs), first)
    with kernels.this_host_only():
        implemented(KERNELS, 4)
        same_bits(jax.jit(one)(*inputs), first)
        implemented(KERNELS, 1)
        for i, batch in enumerate(jax.jit(separate)(*inputs)):  # each batch in its own arrays
            same_bits(batch, jax.tree.map(lambda a, i=i: a[i], plain))
        if type(sampler).sample_separately is not Sampler.sample_separately:
            implemented(KERNELS, 2)
            same_bits(jax.jit(mapped)(*inputs), plain)


TIMED = [case for case in EVERY if case[0].takes_time and not case[0].by_relation]


@pytest.mark.parametrize(("sampler", "other"), TIMED, ids=repr)
def test_cutoffs(sampler, other, make_graph, same_bits, implemented):
    """Every edge is before its target's cutoff, at every hop, also among equal times. What a
    node of a by-node sampler draws depends on its cutoff alone: a batch of all cutoffs has the
    rows of batches of one. Plain and kernel are equal, with 4, 2 and 1 threads."""
    made = make_graph(N, E)
    indptr = np.asarray(made.indptr)
    # Every two edges of a row have the same time.
    time = (np.arange(E) - np.repeat(indptr[:-1], np.diff(indptr))) // 2 - 3
    timed = Graph(made.indptr, made.indices, made.edge_weight, edge_time=time)
    keys, cutoffs = jax.random.split(KEY, 2), np.resize([-2, 0, 3, 40], (3, B))
    cutoffs[2] = 3
    at = np.array([0, 1, 0])  # the third batch has the first one's key, seeds and holes
    seeds = Seeds(np.stack([SEEDS, SEEDS[0].repeat(B), SEEDS]), cutoffs, HOLES[at])
    capacity = worst_case(timed, 4 * B, sampler)

    def separate(keys, graph, seeds):
        return sampler.sample_separately(keys, graph, (), seeds, capacity)

    inputs = jax.random.key_data(keys)[at], timed, seeds
    implemented(False)
    plain = jax.device_get(jax.jit(separate)(*inputs))
    with kernels.this_host_only():
        for threads in (1, 2, 4) if KERNELS else ():
            implemented(True, threads)
            same_bits(jax.jit(separate)(*inputs), plain)
    found = []
    for batch, own, holes in zip(plain, cutoffs, HOLES[at], strict=True):
        assert not batch.overflow
        np.testing.assert_array_equal(batch.cutoff[:B], own)
        rows = {}
        for layer, block in enumerate(batch.blocks):
            for t in range(int(block.num_targets)):
                row = slice(block.indptr[t], block.indptr[t + 1])
                ids = block.edge_id[row]
                assert (time[ids] < batch.cutoff[t]).all()
                assert not np.isin(ids, holes).any()
                assert (batch.cutoff[block.indices[row]] == batch.cutoff[t]).all()
                of = layer, int(batch.nodes[t]), int(batch.cutoff[t])
                assert rows.setdefault(of, ids.tolist()) == ids.tolist()
        found.append(rows)
    assert {c for _, _, c in found[0]} == {c for _, _, c in found[1]} == {-2, 0, 3, 40}
    common = found[0].keys() & found[2].keys()
    assert len(common) > B // 4
    if sampler.by_node:
        assert all(found[0][of] == found[2][of] for of in common)


LEARNS = [case for case in EVERY if isinstance(case[0], Adaptive)]


@pytest.mark.parametrize(("sampler", "other"), LEARNS, ids=repr)
def test_update(sampler, other, graph, same_bits, implemented):
    """`update` is pure, is compiled once for all steps, and changes later batches."""
    begin, traces = sampler.init(graph), []
    before = jax.tree.map(np.array, begin)
    batch = draw(sampler, graph, SEEDS)
    rows = jax.random.normal(KEY, (N, 4)) + 1
    widths = getattr(sampler, "widths", (4,) * len(batch.blocks))
    messages = [
        rows.at[batch.source_nodes(i), :width].get(mode="fill", fill_value=0)
        for i, width in enumerate(widths)
    ]
    of = zip(batch.blocks, widths, strict=True)
    gradients = tuple(jnp.ones((b.target_capacity, width)) for b, width in of)
    feedback, found = Feedback(tuple(messages), gradients), []
    for available in {False, KERNELS}:
        implemented(available)

        @jax.jit
        def update(state, batch, feedback, graph):
            traces.append(None)
            return update_of(sampler)(state, batch, feedback, graph)

        state = begin
        for _ in range(3):
            state = update(state, batch, feedback, graph)
        found.append(state)
    assert len(traces) == len(found)
    same_bits(begin, before)
    for mine, theirs in zip(*map(jax.tree.leaves, (found[0], found[-1])), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)  # rounding of sums
    for mine, first in zip(*map(jax.tree.leaves, (state, before)), strict=True):
        assert np.isfinite(mine).all()
        assert (mine.shape, mine.dtype) == (first.shape, first.dtype)
    assert any(
        (np.asarray(a) != b).any()
        for a, b in zip(*map(jax.tree.leaves, (state, before)), strict=True)
    )
