"""Items of a loader, and the stages that make seeds of them."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jgs import Graph, InputError
from jgs.dist.batches.source import HybridSampler
from jgs.dist.communicators.mesh import Mesh
from jgs.sampling import (
    Loader,
    Neighbors,
    Saint,
    Seal,
    Seeds,
    draw_negatives,
    edges_between,
    grain_iterator,
    join_nodes,
    plan_capacity,
)
from jgs.sampling.loading.items import Asked
from jgs.sampling.loading.schedule import Schedule, SeedParts

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


def unchanged(key, graph, made):
    return made


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


def test_a_batch_is_for_what_its_stage_made():
    for batch in loader():
        items, nodes = batch.items, np.asarray(batch.nodes)
        real = np.asarray(items["src"]) != N
        ends = np.concatenate([items["src"], items["dst"], items["fake"].reshape(-1)])
        rows = np.asarray(items["rows"])
        real3 = np.tile(real, 3)
        np.testing.assert_array_equal(nodes[rows[real3]], ends[real3])
        assert (rows[~real3] == len(ends)).all()
        seeds = np.asarray(batch.seeds)
        assert len(np.unique(seeds[seeds < N])) == (seeds < N).sum()
        targets = set(zip(items["src"].tolist(), items["dst"].tolist(), strict=True))
        targets |= {pair[::-1] for pair in targets}
        for block in batch.blocks:
            ids = np.asarray(block.edge_id)[: int(block.num_edges)]
            row = np.searchsorted(np.asarray(GRAPH.indptr), ids, side="right") - 1
            drawn = zip(np.asarray(GRAPH.indices)[ids].tolist(), row.tolist(), strict=True)
            assert not targets & set(drawn)


def test_super_batches_peek_resume_and_grain(same_bits):
    whole = list(loader(super_batch=1))
    one = loader(super_batch=4, prefetch=2)
    same_bits(one.peek(), whole[0])
    for i, batch in enumerate(one):
        same_bits(batch, whole[i])
        if i == 1:
            state = json.loads(json.dumps(one.state_dict()))
    later = loader()
    later.load_state_dict(state)
    for batch, want in zip(later, whole[2:], strict=True):
        same_bits(batch, want)
    pytest.importorskip("grain")
    iterator = grain_iterator(loader(), num_epochs=1)
    next(iterator), next(iterator)
    again = grain_iterator(loader(), num_epochs=1)
    again.set_state(iterator.get_state())
    same_bits(next(again), whole[2])


def test_a_state_belongs_to_its_items_and_stages():
    state = loader().state_dict()
    other = dict(EVENTS, label=EVENTS["label"] + 1)
    more = functools.partial(link_seeds, number=2)
    for changed in (loader(other), loader(before=more), loader(before=[link_seeds, unchanged])):
        with pytest.raises(InputError, match="digest"):
            changed.load_state_dict(state)
    loader(before=[link_seeds]).load_state_dict(state)
    with_key = loader(key=jax.random.key(6))
    with_key.load_state_dict(state)  # the key of the state is used from then on
    np.testing.assert_array_equal(with_key.peek().seeds, loader().peek().seeds)


def test_stages_are_composed_and_what_follows_too():
    def double(key, graph, items):
        return {"nodes": jnp.concatenate([items, items[::-1]])}

    def as_seeds(key, graph, items):
        return items["nodes"]

    made = loader(
        np.arange(20), 5, before=[double, as_seeds], after=[lambda b: b.seeds, np.asarray]
    )
    for seeds in made:
        assert isinstance(seeds, np.ndarray)
        np.testing.assert_array_equal(seeds[:5], seeds[:4:-1])


class Shift:
    """A stage without a `repr`."""

    def __init__(self, by):
        self.by = by

    def __call__(self, key, graph, items):
        return (items + self.by) % graph.num_nodes

    def method(self, key, graph, items):
        return self(key, graph, items)


class Known(Shift):
    def __repr__(self):
        return f"Known({self.by})"


def test_a_stage_is_known_by_what_it_holds():
    """By what a function encloses, and by the object of a method. An object must have a
    `repr`."""

    def enclosing(by):
        def stage(key, graph, items):
            return (items + by) % graph.num_nodes

        return stage

    def default(by):
        def stage(key, graph, items, by=by):
            return (items + by) % graph.num_nodes

        return stage

    forms = (
        enclosing,
        Known,
        lambda by: Known(by).method,
        lambda by: functools.partial(Known(by)),
        lambda by: jax.jit(enclosing(by)),
        lambda by: enclosing(np.r_[np.zeros(5000, int), by, np.zeros(5000, int)][5000]),
        default,
    )
    for form in forms:
        one, equal, other = (loader(np.arange(20), 5, before=form(by)) for by in (1, 1, 2))
        equal.load_state_dict(one.state_dict())
        with pytest.raises(InputError, match=r"digest.*stages"):
            other.load_state_dict(one.state_dict())
    with pytest.raises(InputError, match=r"must have a repr.*Shift"):
        loader(np.arange(20), 5, before=Shift(1))
    with pytest.raises(InputError, match=r"must have a repr.*Shift"):
        loader(np.arange(20), 5, before=Shift(1).method)


def test_no_pairs_have_no_edges_between():
    none = np.zeros(0, np.int32)
    np.testing.assert_array_equal(edges_between(GRAPH, none, none, 3), [500] * 3)


def test_join_nodes_refuses_what_is_no_node():
    for bad in (-1, N + 1, 2**32 + 5):
        nodes, _, _ = join_nodes(GRAPH, np.array([bad, 0, 3]))
        with pytest.raises(InputError, match="seeds"):
            Neighbors((2,)).sample(KEY, GRAPH, (), nodes, None)


def test_after_is_called_for_the_batches_of_the_epoch_alone():
    called = []
    after = lambda batch: called.append(int(batch.seed_mask.sum())) or batch  # noqa: E731
    batches = loader(np.arange(60), 18, before=None, super_batch=3, after=after)
    assert len(list(batches)) == 4
    assert called == [18, 18, 18, 6]


def test_padding_is_known_by_integers_of_any_size():
    for dtype in ("int16", "uint16", "uint32", "int64", "uint64"):
        events = {"src": SRC[:20].astype(dtype), "dst": DST[:20].astype(dtype)}
        *_, last = loader(events, 16)
        assert (np.asarray(last.items["src"]) < N).sum() == 4
        assert (np.asarray(last.items["fake"]) < N).sum() == 4


def test_the_state_of_a_class_that_is_no_sampler():
    """It is found by the object that the user gave."""

    class Own:
        by_node = False

        def init(self, graph):
            raise AssertionError("the state was given")

        def sample(self, key, graph, state, seeds, capacity):
            return Neighbors((3,)).sample(key, graph, (), (seeds + state) % N, capacity)

        def bound(self, shape, batch_size, distinct=False):
            return Neighbors((3,)).bound(shape, batch_size, distinct)

    own, ids = Own(), np.arange(20)
    (batch,) = loader(ids, 20, own, before=None, shuffle=False, states={own: 7})
    np.testing.assert_array_equal(batch.seeds, ids + 7)


def test_items_without_a_stage():
    ids = loader(np.arange(20), 6, before=None)
    assert all(b.items is None for b in ids)  # they are the seeds
    assert len(ids) == 4
    assert len(loader(np.arange(20), 6, before=None, drop_last=True)) == 3
    dropped = np.concatenate(
        [b.seeds for b in loader(np.arange(20), 6, drop_last=True, before=None)]
    )
    assert len(np.unique(dropped)) == 18
    times = np.arange(20) * 5
    for items in (
        Seeds(np.arange(20), times),
        {"nodes": np.arange(20), "time": times, "y": times},
    ):
        for batch in loader(items, 6, before=None):
            real = np.asarray(batch.seeds) < N
            np.testing.assert_array_equal(batch.cutoff[:6][real], batch.seeds[real] * 5)
    pairs = np.stack([SRC, DST], 1)[:10]
    (batch,) = loader(pairs, 10, Seal((2,)), before=None, shuffle=False)
    np.testing.assert_array_equal(batch.seeds, pairs)


def test_two_ranks_leave_out_what_one_does(same_bits):
    """The excluded edges of a rank's batch are those of both shares; its sample of a node is
    that of the whole batch."""
    sampler = Neighbors((3,), edge_ids=True)
    capacity = plan_capacity(GRAPH, 16, sampler, seeds=EVENTS, before=link_seeds)
    parts = SeedParts.whole(EVENTS)
    whole, *halves = (
        Schedule(KEY, parts, 16, N, staged=True, share=share).batches(0)[1]
        for share in ((0, 1), (0, 2), (1, 2))
    )
    first = lambda tree: jax.tree.map(lambda a: a[0], tree)  # noqa: E731
    keys = np.asarray(jax.random.key_data(KEY))
    options = {"before": (link_seeds,), "worst": capacity, "capacity": capacity}
    alone, both = (
        HybridSampler(comm, GRAPH, 16, sampler, **options)
        for comm in (Mesh(jax.devices()[:1]), Mesh(jax.devices()[:2]))
    )
    (one,) = alone._comm.local(alone(keys, alone._comm.own([first(whole)])))
    ranks = both._comm.local(both(keys, both._comm.own([first(half) for half in halves])))

    def rows(batch):
        block, nodes = batch.blocks[0], np.asarray(batch.nodes)
        ptr, ids = np.asarray(block.indptr), np.asarray(block.edge_id)
        return {
            int(nodes[t]): ids[ptr[t] : ptr[t + 1]].tolist()
            for t in range(int(block.num_targets))
            if nodes[t] < N
        }

    assert isinstance(whole, Asked)
    every = rows(one)
    fakes = np.concatenate([np.asarray(rank.items["fake"]) for rank in ranks])
    np.testing.assert_array_equal(fakes, one.items["fake"])
    for rank in ranks:
        own = rows(rank)
        assert own == {node: every[node] for node in own}


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
    "another's nodes": (PLAIN.sorted().with_node_columns(x=np.arange(N)), True),
    "unweighted": (Graph.from_edges(SRC, DST, N, SRC).sorted().unweighted(), True),
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
    with pytest.raises(InputError, match=r"room of edges_between must be .* at least 1; got 0"):
        find(graph, src, dst, room=0)


def test_a_plain_loader_says_that_edges_between_needs_more_room(implemented):
    implemented(False)

    def tight(key, graph, items):
        src, dst = items["src"], items["dst"]
        return Seeds(src[:1], excluded=edges_between(graph, src, dst, room=3))

    with pytest.raises(InputError, match="excluded, give edges_between more room"):
        next(iter(loader(before=tight)))


def test_negatives_belong_to_their_pair():
    src, dst = SRC[:30], DST[:30]
    drawn = np.asarray(draw_negatives(KEY, GRAPH, src, dst, 200))
    assert drawn.min() >= 0
    assert drawn.max() < N
    counts = np.bincount(drawn.reshape(-1), minlength=N)
    expected = drawn.size / N
    assert ((counts - expected) ** 2 / expected).sum() < 110, (counts, expected)  # 59 degrees
    np.testing.assert_array_equal(
        draw_negatives(KEY, GRAPH, src[5:], dst[5:], 9), drawn[5:, :9]
    )
    assert (np.asarray(draw_negatives(KEY, GRAPH, [N, 1], [2, N], 3)) == N).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"before": lambda key, graph, items: None}, "must return Seeds"),
        ({"items": {"src": SRC, "dst": DST[:9]}}, "one row for each item"),
        ({"items": {"src": np.array(["a"])}}, "arrays of numbers"),
        ({"items": {"src": np.zeros(0, int)}}, "at least one item"),
        ({"before": None}, "a stage that makes seeds of items"),
        ({"items": Seeds([1, 2], excluded=[3]), "size": 1}, "named for each batch"),
        ({"before": "links"}, "a function of"),
        ({"before": lambda key, graph, items: items["label"]}, "must return Seeds"),
        ({"sampler": Saint("node", 9)}, "and no stage"),
        (
            {"sampler": Saint("node", 9), "before": None, "items": {"nodes": DST}},
            "node ids alone",
        ),
        ({"before": lambda key, graph, items: (items["src"], items, 1)}, "tuple of 3"),
        ({"items": {"src": ["a", "b"]}}, "arrays of numbers"),
        ({"states": {Neighbors((5,)): ()}}, "states must be by sampler"),
        ({"size": 71}, "batch size"),
    ],
)
def test_bad_items_are_refused_in_one_line(change, words):
    with pytest.raises(InputError, match=words) as error:
        loader(**change)
    assert "\n" not in str(error.value)


def test_a_tuple_of_fanouts_takes_every_option():
    options = {"window": 50, "latest": True, "edges": ("time",)}
    events = {"nodes": DST[:20], "time": np.arange(20) + 80}
    (batch,) = loader(events, 20, (3, 2), before=None, **options)
    sampler = Neighbors((3, 2), window=50, latest=True, edges=("time",))
    (want,) = loader(events, 20, sampler, before=None)
    np.testing.assert_array_equal(batch.nodes, want.nodes)
    np.testing.assert_array_equal(batch.blocks[1].edge_time, want.blocks[1].edge_time)
