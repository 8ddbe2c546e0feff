"""The contract of `jgs.sampling.base`, for every sampler: a sampler that is missing here fails.

A new sampler needs a line in `jgs.tables.SAMPLERS` and one in `every_sampler.CASES`.
"""

import dataclasses
import importlib
import inspect
import pkgutil
from collections import Counter

import jax
import numpy as np
import pytest
from cases import rarely
from every_sampler import (
    CASES,
    EVERY,
    HOLES,
    KEY,
    OWN,
    ROUNDED,
    SEEDS,
    SLOTS,
    B,
    E,
    N,
    alike,
    assert_contract,
    assert_lowers,
    draw,
    edges_of,
    padded,
    program_of,
    room_of,
    second,
    seeds_for,
    state_of,
    typed,
)
from refusals import refused
from test_walk_protocol import CASES as WALKS

from jgs import InputError, kernels
from jgs.dist.batches.source import HybridSampler
from jgs.dist.communicators.mesh import Mesh
from jgs.sampling import ASGCN, Capacity, Feedback, Loader, Sampler, algorithms, worst_case
from jgs.sampling.base import Adaptive, update_of
from jgs.sampling.seeds import Seeds
from jgs.tables import SAMPLERS, WALKERS

KERNELS, ALL = kernels.available(), CASES | WALKS
each = pytest.mark.parametrize(("sampler", "other"), EVERY, ids=repr)
# `test_eligible.py`, `test_labor_by_time.py` and `test_ladies_by_type.py` compare the others.
EXACT = [case for case in EVERY if case[0] not in ROUNDED]
each_rarely = pytest.mark.parametrize(
    ("sampler", "other"), rarely(EVERY, *second(EVERY), *alike(EVERY)), ids=repr
)
each_of_its_own = pytest.mark.parametrize(
    ("sampler", "other"), rarely(OWN, *alike(OWN)), ids=repr
)


@pytest.fixture
def graph(make_graph):
    return typed(make_graph(N, E))


def check_seeds(sampler, batch, given):
    """The batch's seeds are `given`; for a sampler that draws its seeds, those in its nodes."""
    if sampler.draws_seeds:
        given = np.where(np.isin(batch.nodes, given), batch.nodes, N)
    np.testing.assert_array_equal(batch.seeds, given)


def test_every_sampler_and_walker_is_in_the_tables():
    prefix = f"{algorithms.__name__}."
    found = {
        value
        for name in (m.name for m in pkgutil.walk_packages(algorithms.__path__, prefix))
        for value in vars(importlib.import_module(name)).values()
        if inspect.isclass(value) and value.__module__ == name and hasattr(value, "sample")
    }
    bases = {SAMPLERS[name].__base__ for name in ("pinsage", "pass")}  # of two samplers each
    assert found == {*SAMPLERS.values(), *WALKERS.values(), *bases}
    tried = {name: {type(one) for pair in pairs for one in pair} for name, pairs in ALL.items()}
    assert tried == {name: {kind} for name, kind in {**SAMPLERS, **WALKERS}.items()}


@each
def test_the_parts_of_the_contract(sampler, other, graph):
    assert isinstance(sampler, Sampler)
    assert_contract(sampler, other, graph, seeds_for(sampler, SEEDS), None)
    if hasattr(sampler, "expected_draws"):
        degree = np.array([0, 1, 5, 1000])
        drawn = sampler.expected_draws(0, degree)
        assert (drawn[1:] > 0).all()
        assert (drawn <= np.maximum(degree, 10)).all()
    with pytest.raises(InputError):
        draw(sampler, graph, SEEDS, capacity=Capacity((1,) * 9, (1,) * 9))


def check_weighted_neighbors(graph, block, target, neighbor):
    """Neighbours that are no edges: reached, once in a row, by counts or weights of mean 1."""
    count, weight = int(block.num_edges), np.asarray(block.edge_weight)
    matrix = np.eye(N, dtype=bool)
    matrix[tuple(graph.edge_index()[::-1])] = 1
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
    batch, seeds = draw(sampler, graph, seeds), seeds_for(sampler, padded(seeds))
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    assert not batch.overflow
    # A block has one entry or several. The last one is what the block itself needed.
    entries = batch.needed.shape[1] // len(batch.blocks)
    assert batch.needed.shape == (2, entries * len(batch.blocks))
    check_seeds(sampler, batch, seeds)
    nodes, seeds = batch.nodes, batch.seeds
    rows = np.arange(seeds.size) if batch.seed_rows is None else np.asarray(batch.seed_rows)
    here = seeds < N
    np.testing.assert_array_equal(batch.seed_mask, here if here.ndim == 1 else here.all(1))
    np.testing.assert_array_equal(nodes[rows[here]], seeds[here])
    capacity = nodes.size
    for block, need in zip(batch.blocks, batch.needed.T[::-entries], strict=True):
        ptr, local, count = block.indptr, block.indices, int(block.num_edges)
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
            ids = block.edge_id
            assert ids.dtype == np.int64
            assert (ids[count:] == E).all()
            assert (indptr[target] <= ids[:count]).all()
            assert (ids[:count] < indptr[target + 1]).all()
            np.testing.assert_array_equal(nodes[local[:count]], indices[ids[:count]])
        assert count <= need[0] <= block.edge_capacity
        assert need[1] in (num_sources, 0)
    assert (nodes[int(batch.blocks[0].num_sources) :] == N).all()


@each
def test_a_function_of_the_key_and_the_set_of_seeds(sampler, other, graph, same_bits):
    """The program is traced once for all keys and seeds."""
    one, traces = draw(sampler, graph, SEEDS), program_of(sampler)[1]
    before = len(traces)
    keys = jax.random.split(jax.random.key(9), 5)
    assert any(edges_of(draw(sampler, graph, SEEDS, k)) != edges_of(one) for k in keys)
    same_bits(draw(sampler, graph, SEEDS, KEY), one)
    order = np.r_[N, np.random.default_rng(0).permutation(SEEDS), N]
    assert edges_of(draw(sampler, graph, order)) == edges_of(one)
    assert len(traces) == before


@each_rarely
def test_repeated_seeds(sampler, other, graph):
    """A capacity has room for one seed in all slots, too."""
    batch = draw(sampler, graph, np.r_[SEEDS[:5], SEEDS[:2], SEEDS[:1]])
    assert not draw(sampler, graph, np.repeat(SEEDS[0], SLOTS)).overflow
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


@each_of_its_own
def test_a_program_lowers_everywhere(sampler, other, graph):
    seeds = Seeds(seeds_for(sampler, padded(())))
    state, room = state_of(sampler, graph), room_of(sampler, graph)
    assert_lowers(program_of(sampler)[0], KEY, graph, state, seeds, room)


@each_rarely
def test_overflow(sampler, other, graph):
    """What a batch needed is enough for it, and one less is not."""
    batch, least = draw(sampler, graph, SEEDS), 0 if sampler.draws_seeds else SLOTS
    needed = batch.needed
    sources = np.maximum.accumulate(np.maximum(needed[1], least))

    def drawn(edges, sources):
        room = Capacity(tuple(edges.tolist()), tuple(sources.tolist()))
        return draw(sampler, graph, SEEDS, capacity=room)

    last = needed.shape[1] - 1
    places = [(1, last)]
    if (sampler, other) in OWN:
        assert edges_of(drawn(needed[0], sources)) == edges_of(batch)
    if sampler in (CASES[name][0][0] for name in ("neighbors", "gcnbs", "shadow")):
        places = [(field, entry) for field in (0, 1) for entry in range(last + 1)]
    for field, entry in places:
        tight = np.stack([needed[0], sources])
        tight[field, entry] = needed[field, entry] - 1
        if field and tight[field, entry] < least:
            continue  # a capacity always has room for the seeds
        tight[1, :entry] = np.minimum(tight[1, :entry], tight[1, entry] if field else E)
        short = drawn(*tight)
        assert short.overflow
        assert (short.nodes == N).all()
        assert not any(int(b.num_edges) + int(b.num_targets) for b in short.blocks)
        assert not short.seed_mask.any()
        assert np.isnan(short.of_seeds(np.ones((short.seeds.size, 3)))).all()
        assert (short.needed <= needed).all()  # counted up to the overflow
        for block in short.blocks:
            assert block.overflow
            assert not block.indptr.any()
            assert (block.indices == block.source_capacity).all()
            assert block.edge_id is None or (block.edge_id == E).all()
            assert block.edge_weight is None or not block.edge_weight.any()


@each
def test_the_loader_knows_a_sampler_by_its_repr(sampler, other, graph):
    option = next(f.name for f in dataclasses.fields(sampler) if not f.repr)
    returned = dataclasses.replace(sampler, **{option: not getattr(sampler, option)})
    assert repr(returned) == repr(sampler)  # an option of the output draws nothing else

    def loader(sampler):
        room = worst_case(graph, 5, sampler, distinct=True)
        return Loader(graph, seeds_for(sampler, SEEDS), 5, sampler, key=KEY, capacity=room)

    state = loader(sampler).state_dict()
    loader(returned).load_state_dict(state)
    refused("digest", loader(other).load_state_dict, state)


@each_of_its_own
def test_a_loader_redraws(sampler, other, graph):
    """What does not fit is drawn again, by its key, in a larger program."""
    seeds, tight = seeds_for(sampler, SEEDS), draw(sampler, graph, SEEDS).needed // 2
    sources = np.maximum.accumulate(np.maximum(tight[1], 0 if sampler.draws_seeds else 10))
    room = Capacity(tuple(np.maximum(tight[0], 1).tolist()), tuple(sources.tolist()))
    options = {"key": KEY, "capacity": room, "prefetch": 0, "age": None, "super_batch": 1}
    loader = Loader(graph, seeds, 10, sampler, **options)
    batches = [jax.device_get(batch) for batch in loader]
    assert len(batches) == 2
    assert loader.redraws > 0
    keys, _ = loader.source.schedules[0].batches(0)
    for batch, key in zip(batches, keys, strict=True):
        own = seeds if sampler.draws_seeds else batch.seeds
        own = own[:, 0] if sampler.pairs else own
        assert edges_of(batch) == edges_of(draw(sampler, graph, own, key))


@each_of_its_own
def test_two_ranks_draw_what_one_does(sampler, other, graph):
    """Without the excluded edges. A sampler not by node has a key for each rank."""
    comm, excluded = Mesh(jax.devices()[:2]), HOLES[0] if sampler.takes_excluded else None
    halves = SEEDS.reshape(2, B // 2)
    given = [Seeds(seeds_for(sampler, own), excluded=excluded) for own in halves]
    half = HybridSampler(comm, graph, B // 2, sampler)
    batches = comm.local(half(np.asarray(jax.random.key_data(KEY)), comm.own(given)))
    whole = edges_of(draw(sampler, graph, SEEDS, excluded=excluded))
    for rank, (batch, own) in enumerate(zip(batches, halves, strict=True)):
        check_seeds(sampler, batch, seeds_for(sampler, own))
        if sampler.by_node:
            for rows, every in zip(edges_of(batch), whole, strict=True):
                for node, drawn in rows.items():  # a node may have a row in many groups
                    assert Counter(map(tuple, drawn)) <= Counter(map(tuple, every[node]))
                    assert batch.groups is not None or drawn == every[node]
        else:
            key = jax.random.fold_in(KEY, rank)
            alone = draw(sampler, graph, own, key, excluded=excluded)
            assert edges_of(batch) == edges_of(alone)


def without_weights(batch, found):
    """The batch without its first block's weights, which are added to the list `found`."""
    found.append(batch.blocks[0].edge_weight)
    first = dataclasses.replace(batch.blocks[0], edge_weight=None)
    return dataclasses.replace(batch, blocks=(first, *batch.blocks[1:]))


@pytest.mark.parametrize(("sampler", "other"), rarely(EXACT, *second(EXACT)), ids=repr)
def test_plain_and_kernel_are_equal(sampler, other, graph, same_bits, implemented):
    """Alone, under `vmap` and together; each batch excludes edges of its own, the last none."""
    keys, nodes = jax.random.split(KEY, 3), [SEEDS, SEEDS[:4], np.roll(SEEDS, 3)]
    weights: list = []
    excluded = HOLES if sampler.takes_excluded else None
    seeds = Seeds(np.stack([seeds_for(sampler, padded(n)) for n in nodes]), excluded=excluded)
    inputs = (jax.random.key_data(keys), graph, state_of(sampler, graph), seeds)
    room = room_of(sampler, graph)

    def mapped(keys, graph, state, seeds):
        return jax.vmap(lambda k, s: sampler.sample(k, graph, state, s, room))(keys, seeds)

    def both(keys, graph, state, seeds):
        separate = sampler.sample_separately(keys, graph, state, seeds, room)
        return separate, mapped(keys, graph, state, seeds)

    with kernels.plain():
        together = jax.device_get(jax.jit(mapped)(*inputs))
    plain = [jax.tree.map(lambda a, i=i: a[i], together) for i in range(3)]
    for i, batch in enumerate(plain):
        holes = None if excluded is None else excluded[i]
        alone = draw(sampler, graph, nodes[i], keys[i], excluded=holes)
        if isinstance(sampler, ASGCN):  # its weights are what XLA makes of sums of floats
            alone, batch = (without_weights(one, weights) for one in (alone, batch))
            np.testing.assert_allclose(*weights[-2:], rtol=1e-6)
        same_bits(alone, batch)
    whole = [edges_of(draw(sampler, graph, nodes[i], keys[i])) for i in (0, 2)]
    assert edges_of(plain[2]) == whole[1]
    if sampler.takes_excluded:
        assert edges_of(plain[0]) != whole[0]
        for block in together.blocks:
            for i, holes in enumerate(HOLES if block.edge_id is not None else ()):
                assert not np.isin(block.edge_id[i, : block.num_edges[i]], holes).any()
    if type(sampler).sample_separately is not Sampler.sample_separately:
        implemented(KERNELS, 2)
        same_bits(jax.device_get(jax.jit(both)(*inputs)), (plain, together))


LEARNS = [case for case in EVERY if isinstance(case[0], Adaptive)]


@pytest.mark.parametrize(("sampler", "other"), LEARNS, ids=repr)
def test_update(sampler, other, graph, same_bits):
    """`update` is pure, is compiled once for all steps, and changes later batches."""
    begin, traces = sampler.init(graph), []
    before, batch = jax.device_get(begin), draw(sampler, graph, SEEDS)
    rows = np.random.default_rng(2).normal(1, size=(N + 1, 4)).astype(np.float32)
    rows[N] = 0
    widths = getattr(sampler, "widths", (4,) * len(batch.blocks))
    messages, gradients = [], []
    for i, (block, width) in enumerate(zip(batch.blocks, widths, strict=True)):
        messages.append(rows[np.asarray(batch.source_nodes(i)), :width])
        gradients.append(np.ones((block.target_capacity, width), np.float32))
    feedback, found = Feedback(tuple(messages), tuple(gradients)), []

    def update(state, batch, feedback, graph):
        traces.append(None)
        return update_of(sampler)(state, batch, feedback, graph)

    for available in {False, KERNELS}:
        with kernels.plain(not available):
            program, state = jax.jit(update), begin
            for _ in range(3):
                state = program(state, batch, feedback, graph)
            found.append(jax.device_get(state))
    assert len(traces) == len(found)
    same_bits(jax.device_get(begin), before)
    changed = False
    leaves = map(jax.tree.leaves, (found[0], found[-1], before))
    for mine, theirs, first in zip(*leaves, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)  # rounding of sums
        assert np.isfinite(mine).all()
        assert (mine.shape, mine.dtype) == (first.shape, first.dtype)
        changed |= (mine != first).any()
    assert changed
