"""Items of a loader, and the stages that make seeds of them."""

import dataclasses
import functools
import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import cases
from refusals import refused
from rows_law import assert_as_often

from jgs import Graph, InputError
from jgs.sampling import (
    Loader,
    Neighbors,
    Saint,
    Seal,
    Seeds,
    draw_negatives,
    edges_between,
    join_nodes,
)
from jgs.sampling.loading.schedule import Epochs, Schedule, SeedParts

N, KEY = 60, jax.random.key(5)
RNG = np.random.default_rng(2)
SRC, DST = RNG.integers(0, N, (2, 500))
GRAPH = Graph.from_edges(SRC, DST, N, edge_time=RNG.integers(0, 99, 500))
EVENTS = {
    "src": SRC[:70].astype(np.int32),
    "dst": DST[:70],  # int64, and becomes int32
    "time": np.arange(70) + 2**40,
    "label": RNG.normal(size=(70, 2)).astype(np.float32),
    "kind": (np.arange(70) % 3).astype(np.uint8),
}


def link_seeds(key, graph, items, number=1):
    """Seeds of the ends and of negatives, without the target edges and their reverses."""
    src, dst = items["src"], items["dst"]
    fake = draw_negatives(key, graph, src, dst, number)
    nodes, _, rows = join_nodes(graph, jnp.concatenate([src, dst, fake.reshape(-1)]))
    both = jnp.concatenate([src, dst]), jnp.concatenate([dst, src])
    excluded = edges_between(graph, *both, room=6 * src.shape[0])
    return Seeds(nodes, excluded=excluded), {**items, "fake": fake, "rows": rows}


def loader(items=EVENTS, size=16, sampler=None, **options):
    options = {"before": link_seeds, "key": KEY, "prefetch": 0} | options
    return Loader(GRAPH, items, size, sampler or Neighbors((3, 2), edge_ids=True), **options)


def test_rows_come_back_whole_and_padded():
    batches = list(loader())
    assert [b.items["src"].shape for b in batches] == [(16,)] * 5
    rows = {name: np.concatenate([b.items[name] for b in batches]) for name in EVENTS}
    real = rows["src"] != N
    assert real.sum() == 70
    order = rows["time"][real] - 2**40  # 64-bit outside x64
    assert sorted(order.tolist()) == list(range(70))
    assert order.tolist() != list(range(70))
    for name, given in EVENTS.items():
        assert rows[name].dtype == (np.int32 if name == "dst" else given.dtype)
        np.testing.assert_array_equal(rows[name][real], given[order])
        assert (rows[name][~real] == (N if given.dtype in (np.int32, np.int64) else 0)).all()


@pytest.mark.parametrize("dtype", ["int16", "int32", "uint64"])
def test_a_batch_is_for_what_its_stage_made(dtype):
    """Whatever integers the nodes are, of which padding has one too many."""
    events = {"src": EVENTS["src"].astype(dtype), "dst": EVENTS["dst"].astype(dtype)}
    for batch in loader(events):
        items, nodes, seeds = batch.items, np.asarray(batch.nodes), np.asarray(batch.seeds)
        ends = np.concatenate([items["src"], items["dst"], items["fake"].reshape(-1)])
        rows, real = np.asarray(items["rows"]), np.tile(np.asarray(items["src"]) != N, 3)
        np.testing.assert_array_equal(nodes[rows[real]], ends[real])
        assert (rows[~real] == len(ends)).all()
        assert len(np.unique(seeds[seeds < N])) == (seeds < N).sum()
        targets = set(zip(items["src"].tolist(), items["dst"].tolist(), strict=True))
        targets |= {pair[::-1] for pair in targets}
        for block in batch.blocks:
            ids = np.asarray(block.edge_id)[: int(block.num_edges)]
            assert not targets & set(map(tuple, GRAPH.edge_index()[:, ids].T.tolist()))


def test_a_state_belongs_to_its_items_and_stages():
    state = loader().state_dict()
    other = dict(EVENTS, label=EVENTS["label"] + 1)
    more = functools.partial(link_seeds, number=2)
    further = [link_seeds, lambda key, graph, made: made]
    for changed in (loader(other), loader(before=more), loader(before=further)):
        refused("digest", changed.load_state_dict, state)
    loader(before=[link_seeds]).load_state_dict(state)
    with_key = loader(key=jax.random.key(6))
    with_key.load_state_dict(state)  # the key of the state is used from then on
    np.testing.assert_array_equal(with_key.peek().seeds, loader().peek().seeds)


def test_stages_are_composed_and_what_follows_too():
    """What follows is called for the batches of the epoch alone."""
    called = []

    def double(key, graph, items):
        return {"nodes": jnp.concatenate([items, items[::-1]])}

    def as_seeds(key, graph, items):
        return items["nodes"]

    options = {"before": [double, as_seeds], "after": [lambda b: b.seeds, called.append]}
    assert list(loader(np.arange(20), 5, super_batch=3, **options)) == [None] * 4
    assert len(called) == 4
    for seeds in called:
        np.testing.assert_array_equal(seeds[:5], seeds[:4:-1])


@dataclasses.dataclass(frozen=True)
class Known:
    by: int

    def __call__(self, key, graph, items):
        return (items + self.by) % N

    def method(self, key, graph, items):
        return self(key, graph, items)


class Unknown(Known):
    __repr__ = object.__repr__


def enclosing(by):
    return lambda key, graph, items: (items + by) % N


@cases(
    "form",
    enclosing,
    Known,
    lambda by: lambda key, graph, items, by=by: (items + by) % N,
    lambda by: Known(by).method,
    lambda by: functools.partial(Known(by)),
    lambda by: jax.jit(enclosing(by)),
    lambda by: enclosing(np.r_[np.zeros(5000, int), by, np.zeros(5000, int)][5000]),
)
def test_a_stage_is_known_by_what_it_holds(form):
    """By what a function encloses, and by the object of a method, which must have a `repr`."""
    one, equal, other = (loader(np.arange(20), 5, before=form(by)) for by in (1, 1, 2))
    equal.load_state_dict(one.state_dict())
    refused("digest*stages", other.load_state_dict, one.state_dict())
    for stage in (Unknown(1), Unknown(1).method):
        refused("must have a repr*Unknown", loader, np.arange(20), 5, before=stage)


def test_join_nodes_refuses_what_is_no_node():
    for bad in (-1, N + 1, 2**32 + 5):
        nodes, _, _ = join_nodes(GRAPH, np.array([bad, 0, 3]))
        refused("seeds", Neighbors((2,)).sample, KEY, GRAPH, (), nodes, None)


def test_the_state_of_a_class_that_is_no_sampler():
    """It is found by the object that the user gave, and `init` is not asked."""

    class Own:
        by_node, init, bound = False, None, Neighbors((3,)).bound

        def sample(self, key, graph, state, seeds, capacity):
            return Neighbors((3,)).sample(key, graph, (), (seeds + state) % N, capacity)

    own, ids = Own(), np.arange(20)
    (batch,) = loader(ids, 20, own, before=None, shuffle=False, states={own: 7})
    np.testing.assert_array_equal(batch.seeds, ids + 7)


def test_items_without_a_stage():
    nodes = np.arange(20)
    ids, fewer = (loader(nodes, 6, before=None, drop_last=drop) for drop in (False, True))
    assert (len(ids), len(fewer)) == (4, 3)
    assert all(b.items is None for b in ids)  # they are the seeds
    assert len(np.unique([b.seeds for b in fewer])) == 18
    times = nodes * 5
    for items in (Seeds(nodes, times), {"nodes": nodes, "time": times, "y": times}):
        for batch in loader(items, 6, before=None):
            real = np.asarray(batch.seeds) < N
            np.testing.assert_array_equal(batch.cutoff[:6][real], batch.seeds[real] * 5)
    pairs = np.stack([SRC, DST], 1)[:10]
    (batch,) = loader(pairs, 10, Seal((2,)), before=None, shuffle=False)
    np.testing.assert_array_equal(batch.seeds, pairs)


PLAIN = Graph.from_edges(SRC, DST, N)
TYPED = {("a", kind, "a"): (SRC[i::2], DST[i::2]) for i, kind in enumerate("xy")}
EVERY_ORDER = {
    "as given": (PLAIN, False),
    "timed": (GRAPH.sorted(), False),
    "typed": (Graph.from_relations({"a": N}, TYPED).sorted(), False),
    "looped": (PLAIN.sorted().with_self_loops(), False),
    "renumbered": (PLAIN.sorted().subgraph(np.arange(N)[::-1]), False),
    "symmetric, timed": (GRAPH.symmetrized(), False),
    "symmetric": (Graph.from_edges(SRC, DST, N, SRC, symmetric=True), True),
    "sorted": (PLAIN.sorted(), True),
}


@pytest.mark.parametrize("name", EVERY_ORDER)
def test_edges_between_are_all_parallel_edges_in_any_order(name):
    """Only rows that are sorted by source alone are searched."""
    graph, known = EVERY_ORDER[name]
    assert graph.sorted_by_source == known
    num = graph.num_edges
    src, dst = np.random.default_rng(3).integers(0, N + 1, (2, 40))
    src[:9], dst[:9], dst[9:12] = SRC[:9], DST[:9], src[9:12]  # edges, and self-loops
    find = jax.jit(edges_between, static_argnames="room")
    found = np.asarray(find(graph, src, dst, room=50))
    pairs = set(zip(src.tolist(), dst.tolist(), strict=True))
    want = [i for i, edge in enumerate(graph.edge_index().T.tolist()) if tuple(edge) in pairs]
    assert found.dtype == np.int64
    assert found.tolist() == want + [num] * (50 - len(want))
    short = find(graph, src, dst, room=len(want) - 1)
    assert np.asarray(short)[0] == -1
    with pytest.raises(InputError, match=r"got -1\. .* give edges_between more room"):
        Neighbors((2,)).sample(KEY, graph, (), Seeds(src, excluded=short), None)
    none = np.zeros(0, np.int32)
    np.testing.assert_array_equal(edges_between(graph, none, none, 3), [num] * 3)
    refused("room of edges_between must be * at least 1; got 0", find, graph, src, dst, room=0)


def test_negatives_belong_to_their_pair():
    src, dst = SRC[:30], DST[:30]
    draw = jax.jit(draw_negatives, static_argnums=4)
    drawn = np.asarray(draw(KEY, GRAPH, src, dst, 200))
    assert_as_often(np.bincount(drawn.reshape(-1), minlength=N), np.ones(N))
    np.testing.assert_array_equal(draw(KEY, GRAPH, src[5:], dst[5:], 9), drawn[5:, :9])
    assert (np.asarray(draw(KEY, GRAPH, np.array([N, 1]), np.array([2, N]), 3)) == N).all()


SAINT = Saint("node", 9)


@cases(
    "change, words",
    ({"before": lambda key, graph, items: None}, "must return Seeds"),
    ({"items": {"src": SRC, "dst": DST[:9]}}, "one row for each item"),
    ({"items": {"src": np.zeros(0, int)}}, "at least one item"),
    ({"before": None}, "a stage that makes seeds of items"),
    ({"items": Seeds([1, 2], excluded=[3]), "size": 1}, "named for each batch"),
    ({"before": "links"}, "a function of"),
    ({"sampler": SAINT}, "and no stage"),
    ({"sampler": SAINT, "before": None, "items": {"nodes": DST}}, "node ids alone"),
    ({"before": lambda key, graph, items: (items["src"], items, 1)}, "tuple of 3"),
    ({"items": {"src": ["a", "b"]}}, "items must be numbers"),
    ({"states": {Neighbors((5,)): ()}}, "states must be by sampler"),
    ({"before": None, "items": SRC[:70], "by_time": 3}, "must have a column time"),
    ({"before": None, "items": {"nodes": SRC[:70]}, "by_time": 3}, "have a column time"),
    ({"by_time": 0}, "by_time must be an int of at least 1"),
)
def test_bad_items_are_refused_in_one_line(change, words):
    refused(words, loader, **change)


def test_a_tuple_of_fanouts_takes_every_option():
    options = {"window": 50, "latest": True, "edges": ("time",)}
    events = {"nodes": DST[:20], "time": np.arange(20) + 80}
    fanouts = loader(events, 20, (3, 2), before=None, **options)
    sampler = loader(events, 20, Neighbors((3, 2), **options), before=None)
    assert fanouts.state_dict() == sampler.state_dict()
    assert fanouts.peek().blocks[0].edge_time is not None


@pytest.mark.parametrize("within", [1, 7, 1000])
def test_items_in_the_order_of_time(within):
    """No item comes before one of an earlier stretch; states go on; ranks share the batches."""
    time = np.random.default_rng(2).permutation(np.repeat(np.arange(35), 2)) - 9
    items = {"nodes": SRC[:70], "time": time, "number": np.arange(70) % 60}

    def loader(within=within):
        return Loader(GRAPH, items, 8, Neighbors((2,)), key=KEY, by_time=within, prefetch=0)

    def number_of(batch):
        return np.asarray(batch.items["time"])[np.asarray(batch.seed_mask)]

    one = loader()
    epochs = [np.concatenate([number_of(batch) for batch in one]) for _ in range(2)]
    stretches = -(-70 // within)
    for seen in epochs:
        for i in range(stretches):
            part = slice(i * within, (i + 1) * within)
            np.testing.assert_array_equal(np.sort(seen[part]), np.sort(time)[part])
    assert (epochs[0].tolist() != epochs[1].tolist()) == (within > 1)
    cut = loader()
    for _ in range(3):
        next(iter(cut))
    again = loader()
    again.load_state_dict(cut.state_dict())
    rest = np.concatenate([number_of(batch) for batch in again])
    np.testing.assert_array_equal(rest, epochs[0][24:])
    refused("digest must be the loader's", loader(within + 1).load_state_dict, cut.state_dict())
    parts = SeedParts.whole(items)
    every, *own = (
        Schedule(KEY, parts, 8, N, Epochs(by_time=within), share=share).batches(0)[1]["time"]
        for share in ((0, 1), (0, 2), (1, 2))
    )
    np.testing.assert_array_equal(np.concatenate(own, axis=1), every)


def hardest_last(items, bits, epoch, steep=1):
    """Nodes of small ids first, and from the second epoch on the other way round."""
    level = np.asarray(items) // 10 * steep
    return np.lexsort((bits, -level if epoch else level))


def test_an_order_of_ones_own():
    """Each epoch has its order, in which equal items are shuffled; a state goes on with it."""
    seeds = np.arange(60)

    def loader(order=hardest_last):
        return Loader(GRAPH, seeds, 8, Neighbors((2,)), key=KEY, shuffle=order, prefetch=0)

    one = loader()
    epochs = [
        np.concatenate([np.asarray(b.seeds)[np.asarray(b.seed_mask)] for b in one])
        for _ in (0, 1, 2)
    ]
    np.testing.assert_array_equal(epochs[0] // 10, np.sort(seeds // 10))
    np.testing.assert_array_equal(epochs[1] // 10, np.sort(seeds // 10)[::-1])
    assert sorted(epochs[2].tolist()) == seeds.tolist() != epochs[0].tolist()
    assert epochs[1].tolist() != epochs[2].tolist()  # shuffled within a level
    cut, again = loader(), loader()
    next(iter(cut))
    again.load_state_dict(cut.state_dict())
    rest = np.concatenate([np.asarray(b.seeds)[np.asarray(b.seed_mask)] for b in again])
    np.testing.assert_array_equal(rest, epochs[0][8:])
    other = loader(partial(hardest_last, steep=2))
    refused("digest must be the loader's", other.load_state_dict, cut.state_dict())
    wrong = loader(lambda items, bits, epoch: np.zeros(60, int))
    with pytest.raises(InputError, match="each of the 60 positions once"):
        next(iter(wrong))
    refused(
        "without an order of its own",
        Loader,
        GRAPH,
        seeds,
        8,
        Neighbors((2,)),
        key=KEY,
        shuffle=hardest_last,
        by_time=2,
    )


def test_with_one_key_what_is_drawn_for_a_seed_does_not_depend_on_its_batch(neighbors_of):
    events = {"nodes": np.unique(DST)[:20], "time": np.arange(20) + 80}
    asked = {"sampler": Neighbors((2,)), "shuffle": False, "key": KEY}

    def drawn(size, **more):
        rows = {}
        for batch in Loader(GRAPH, events, size, **asked, **more):
            rows |= neighbors_of(batch)[0]
        return rows

    assert drawn(20, one_key=True) == drawn(5, one_key=True)
    assert drawn(20) != drawn(5)
    state = Loader(GRAPH, events, 5, **asked).state_dict()
    with pytest.raises(InputError, match="digest must be the loader's"):
        Loader(GRAPH, events, 5, **asked, one_key=True).load_state_dict(state)


def test_super_batches_peek_and_resume(same_bits):
    whole, one = list(loader(super_batch=1)), loader(super_batch=4, prefetch=2)
    same_bits(one.peek(), whole[0])
    for i, batch in enumerate(one):
        same_bits(batch, whole[i])
        if i == 1:
            state = json.loads(json.dumps(one.state_dict()))
    later = loader()
    later.load_state_dict(state)
    same_bits(list(later), whole[2:])


def test_a_plain_loader_says_that_edges_between_needs_more_room(implemented):
    implemented(False)

    def tight(key, graph, items):
        src, dst = items["src"], items["dst"]
        return Seeds(src[:1], excluded=edges_between(graph, src, dst, room=3))

    with pytest.raises(InputError, match="excluded, give edges_between more room"):
        next(iter(loader(before=tight)))
