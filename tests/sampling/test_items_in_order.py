"""The order in which a loader goes through items: by time, or all with one key."""

from functools import partial

import numpy as np
import pytest
from refusals import refused
from test_items import DST, GRAPH, KEY, SRC, N

from jgs import InputError
from jgs.sampling import Loader, Neighbors
from jgs.sampling.loading.schedule import Epochs, Schedule, SeedParts


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
