"""The table of samplers that `test_protocol.py` tests, and how it draws from one of them."""

import dataclasses
from functools import cache

import jax
import numpy as np
import programs
import pytest

from jgs import Graph, InputError, Schema, kernels
from jgs.sampling import (
    ASGCN,
    GCNBS,
    PASS,
    VRGCN,
    Context,
    FastGCN,
    Frontier,
    HetGNN,
    Labor,
    Ladies,
    Neighbors,
    PinSage,
    Saint,
    Seal,
    Shadow,
    Subgraph,
    Thanos,
    worst_case,
)
from jgs.sampling.contexts import ByVisits
from jgs.sampling.seeds import Seeds

N, E, B, SLOTS = 300, 4000, 12, 16
KEY = jax.random.key(3)
# For each of three batches, ascending positions of edges. The last batch excludes none.
HOLES = np.full((3, E // 3 + 2), E)
for _i, _count in enumerate((E // 3, E // 5)):
    HOLES[_i, :_count] = np.sort(np.random.default_rng(_i).permutation(E)[:_count])
SEEDS = np.random.default_rng(1).permutation(N)[:B].astype(np.int32)
# For each sampler: settings to test, and other settings that draw differently.
CASES = {
    "neighbors": [
        (Neighbors((3, 2), edge_ids=True), Neighbors((3, 3))),
        (Neighbors((3, -1), weighted=True, edge_ids=True), Neighbors((3, -1))),
        (Neighbors((4, 2), replace=True, edge_ids=True), Neighbors((4, 2))),
        (Neighbors(({"*": 2}, {"up": 3}), edges=("id", "type")), Neighbors(({"*": 2}, 3))),
    ],
    "labor": [
        (Labor((3, 2), period=4, edge_ids=True, edge_weights=True), Labor((3, 2))),
        (Labor((3, 2), importance=1, edge_ids=True), Labor((3, 2), importance=2)),
        (Labor(({"*": 2}, {"up": 3}), edge_ids=True), Labor(({"*": 2}, {"up": 2}))),
    ],
    "subgraph": [(Subgraph(40, edge_ids=True), Subgraph(41))],
    "fastgcn": [(FastGCN((60,), edge_ids=True), FastGCN((50,)))],
    "vrgcn": [(VRGCN((3, 2), widths=(4, 3), edge_ids=True), VRGCN((3, 3), widths=(4, 3)))],
    # One layer: LADIES has two, with the same code, and tests of training use two layers.
    "gcnbs": [(GCNBS((3,)), GCNBS((3,), eta=1))],
    "thanos": [(Thanos((3,)), Thanos((3,), gamma=1))],
    "pass": [(PASS((3,), width=4, edge_ids=True), PASS((4,), width=4))],
    "asgcn": [(ASGCN((20,), edge_ids=True), ASGCN((19,)))],
    "pinsage": [(PinSage((3, 2), 10, 4, counts=True), PinSage((3, 2), 10, 3))],
    "hetgnn": [(HetGNN(((2, 1),), 10, 4), HetGNN(((2, 1),), 10, 4, 0.4))],
    "frontier": [(Frontier(20, 60, edge_ids=True), Frontier(20, 60, degree_cap=3))],
    "seal": [(Seal((3, 2), edge_ids=True), Seal((3, 3)))],
    "ladies": [
        (Ladies((20, 20), edge_ids=True), Ladies((20, 20), normalize=False)),
        (Ladies((20,), by_type=True, edge_ids=True), Ladies(({"b": 20},))),
    ],
    "saint": [
        (Saint("edge", 20, edge_ids=True), Saint("edge", 21)),
        (Saint("walk", 15, length=2, edge_ids=True), Saint("walk", 15, length=3)),
    ],
    "context": [
        (Context(9, (3, 2), edge_ids=True), Context(8, (3, 2))),
        (Context(9, ByVisits(12, 4, 0.2), edge_ids=True), Context(9, ByVisits(12, 3, 0.2))),
    ],
    "shadow": [(Shadow((3, 2), edge_ids=True), Shadow((3, 2), disjoint=True))],
}
EVERY = [case for cases in CASES.values() for case in cases]
# One case of each sampler, for what is alike in all that have the same base class.
OTHERS = "fastgcn", "gcnbs", "thanos", "asgcn", "hetgnn", "frontier"
OWN = [cases[0] for name, cases in CASES.items() if name not in OTHERS]
# What they draw depends on how floats are rounded, so that their programs are a user's.
ROUNDED = [CASES[name][1][0] for name in ("neighbors", "labor", "ladies")]


def second(pairs):
    """The places of those that are not the first case of their sampler."""
    first = [cases[0] for cases in CASES.values()]
    return [i for i, pair in enumerate(pairs) if pair not in first]


def alike(pairs):
    """The places of samplers that share what is asked, the draws of `MatrixSampler`, with those
    of Ladies and Thanos."""
    names = ("pass", "vrgcn", "gcnbs", "asgcn", "fastgcn")
    kinds = tuple({type(CASES[name][0][0]) for name in names})
    return [i for i, (sampler, _) in enumerate(pairs) if isinstance(sampler, kinds)]


RELATIONS = ("a in a", "b to a", "a to b", "b in b", "b up b")


def typed(made):
    """The graph `made` with two node types, five relations by the edges' ends, and features."""
    schema = Schema((("a", N // 3), ("b", N - N // 3)), [one.split() for one in RELATIONS])
    (src, dst), weight = made.edge_index(), np.asarray(made.edge_weight)
    kind = 2 * (dst >= N // 3) + (src >= N // 3)
    kind += (kind == 3) & (weight > np.median(weight))
    order = np.lexsort((kind, dst))
    arrays = made.indptr, src[order], weight[order]
    graph = Graph(*arrays, edge_type=kind[order].astype(np.int16), schema=schema)
    features = np.random.default_rng(4).normal(size=(N, 5)).astype(np.float32)
    return graph.with_node_columns(features=features)


@cache
def program_of(sampler):
    """The sampler's jitted `sample`, and a list of the capacities for which it was traced."""
    traces = []

    def sample(key, graph, state, seeds, capacity):
        traces.append(capacity)
        return sampler.sample(key, graph, state, seeds, capacity)

    return jax.jit(sample, static_argnums=4, compiler_options=options_of(sampler)), traces


def options_of(sampler):
    return programs.OPTIMISED if sampler in ROUNDED else None


_kept = {}


def state_of(sampler, graph):
    if sampler not in _kept:
        _kept[sampler] = sampler.init(graph), worst_case(graph, SLOTS, sampler)
    return _kept[sampler][0]


def room_of(sampler, graph):
    state_of(sampler, graph)
    return _kept[sampler][1]


def assert_contract(one, other, graph, seeds, *room):
    """What samplers and walkers share: values with a name, a state, and refusals."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(one, dataclasses.fields(one)[0].name, None)
    assert hash(one) == hash(dataclasses.replace(one))
    assert one == dataclasses.replace(one) != other
    assert repr(one) != repr(other)
    state = one.init(graph)
    jax.tree.map(np.asarray, state)  # it is a pytree of arrays
    for wrong in (None, graph.indptr):
        with pytest.raises(InputError):
            one.init(wrong)
    for takes, name in ((one.takes_excluded, "excluded"), (one.takes_time, "time")):
        if not takes:  # what it does not know is refused, not ignored
            given = Seeds(seeds, **{name: np.arange(len(seeds))})
            with pytest.raises(InputError, match=f"{type(one).__name__} must .* {name}"):
                one.sample(KEY, graph, state, given, *room)


def assert_lowers(program, *operands):
    """On other platforms the program has no callback and no kernel of this host."""
    with kernels.this_host_only(False):
        traced = program.trace(*operands)
        text = traced.lower(lowering_platforms=("cuda", "tpu")).as_text()
    assert "callback" not in text
    assert "jgs_" not in text


def padded(seeds):
    """`seeds` in `SLOTS` slots."""
    return np.r_[seeds, np.full(SLOTS - len(seeds), N)].astype(np.int32)


def seeds_for(sampler, seeds):
    """`seeds`; for a sampler of pairs, each seed with the node of the next number."""
    if not sampler.pairs:
        return seeds
    return np.stack([seeds, np.where(seeds < N, (seeds + 1) % N, N)], axis=-1)


def draw(sampler, graph, seeds, key=KEY, capacity=None, excluded=None):
    """A batch of `seeds` padded to `SLOTS`, so that most tests share one compiled program."""
    program, _ = program_of(sampler)
    slots = Seeds(seeds_for(sampler, padded(seeds)), excluded=excluded)
    state, room = state_of(sampler, graph), capacity or room_of(sampler, graph)
    return jax.device_get(program(key, graph, state, slots, room))


def edges_of(batch):
    """By layer and target: the edge ids of each row; neighbours where edges have no ids."""
    nodes, found = np.asarray(batch.nodes), []
    for block in batch.blocks:
        indptr, rows = np.asarray(block.indptr), {}
        if block.edge_id is None:
            ids = nodes[np.minimum(np.asarray(block.indices), nodes.size - 1)]
        else:
            ids = np.asarray(block.edge_id)
        for t in range(int(block.num_targets)):
            if nodes[t] < batch.num_nodes:
                row = sorted(ids[indptr[t] : indptr[t + 1]].tolist())
                rows.setdefault(int(nodes[t]), []).append(row)
        found.append({node: sorted(drawn) for node, drawn in rows.items()})
    return found
