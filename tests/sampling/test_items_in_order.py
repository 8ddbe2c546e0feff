"""The order in which a loader goes through items: by time, or all with one key."""

import jax
import numpy as np
import pytest

from jgs import Graph, InputError
from jgs.sampling import Links, Loader, Neighbors
from jgs.sampling.loading.schedule import Schedule, SeedParts

N, KEY = 60, jax.random.key(5)
RNG = np.random.default_rng(2)
SRC, DST = RNG.integers(0, N, (2, 500))
GRAPH = Graph.from_edges(SRC, DST, N, edge_time=RNG.integers(0, 99, 500))
EVENTS = {"src": SRC[:70], "dst": DST[:70], "time": np.arange(70)}


@pytest.mark.parametrize("within", [1, 7, 1000])
def test_items_in_the_order_of_time(within):
    """None comes before one of an earlier stretch; every epoch shuffles anew; a state goes on
    within an epoch, and is refused by a loader of another order; ranks share the batches."""
    time = RNG.permutation(np.repeat(np.arange(35), 2)) - 9
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
    with pytest.raises(InputError, match="digest must be the loader's"):
        loader(within + 1).load_state_dict(cut.state_dict())
    whole = Schedule(KEY, SeedParts.whole(items), 8, N, by_time=within)
    own = [
        Schedule(KEY, SeedParts.whole(items), 8, N, by_time=within, share=(r, 2))
        for r in (0, 1)
    ]
    every = [schedule.batches(0)[1]["time"] for schedule in own]
    np.testing.assert_array_equal(np.concatenate(every, axis=1), whole.batches(0)[1]["time"])


def test_what_has_no_times_has_no_order_of_time():
    for items in (SRC[:70], {"nodes": SRC[:70]}):
        with pytest.raises(InputError, match="must have a column time"):
            Loader(GRAPH, items, 8, Neighbors((2,)), key=KEY, by_time=3)
    with pytest.raises(InputError, match="by_time must be an int of at least 1"):
        Loader(GRAPH, EVENTS, 8, Neighbors((2,)), key=KEY, before=Links(), by_time=0)


def test_with_one_key_what_is_drawn_for_a_seed_does_not_depend_on_its_batch():
    events = {"nodes": DST[:20], "time": np.arange(20) + 80, "number": np.arange(20)}
    options = {"sampler": Neighbors((2,), edge_ids=True), "shuffle": False, "key": KEY}

    def drawn(size, **more):
        """Of each item the edges that are drawn for it."""
        found = {}
        for batch in Loader(GRAPH, events, size, **options, **more):
            (block,) = batch.blocks
            nodes, cutoff, at = map(np.asarray, (batch.nodes, batch.cutoff, block.indptr))
            edges = np.asarray(block.edge_id)
            for place in range(int(block.num_targets)):
                own = edges[at[place] : at[place + 1]]
                found[nodes[place], cutoff[place]] = sorted(own.tolist())
        return found

    assert drawn(20, one_key=True) == drawn(6, one_key=True)
    assert drawn(20) != drawn(6)
    state = Loader(GRAPH, events, 6, **options).state_dict()
    with pytest.raises(InputError, match="digest must be the loader's"):
        Loader(GRAPH, events, 6, **options, one_key=True).load_state_dict(state)
