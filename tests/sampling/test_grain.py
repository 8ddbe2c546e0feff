"""`grain_iterator` keeps Grain's contract for iterators."""

import itertools
import json
import sys

import grain
import jax
import numpy as np
import pytest
from refusals import refused
from test_loader import threads

from jgs.sampling import Loader, grain_iterator

EPOCHS, STEPS = 3, 4


@pytest.fixture(scope="module")
def make(make_graph):
    graph = make_graph(400, 3000)

    def loader(**options):
        return Loader(graph, np.arange(0, 400, 4), 30, (3, 2), key=jax.random.key(1), **options)

    return loader


@pytest.fixture(scope="module")
def expected(make):
    with make() as loader:
        return [batch.seeds.tolist() for _ in range(EPOCHS) for batch in loader]


def seeds(iterator, count=None):
    return [batch.seeds.tolist() for batch in itertools.islice(iterator, count)]


def test_epoch_after_epoch(make, expected):
    assert len(expected) == EPOCHS * STEPS
    assert isinstance(grain_iterator(make(), EPOCHS), grain.DatasetIterator)
    assert seeds(grain_iterator(make(), 0)) == []
    endless = grain_iterator(make(prefetch=0))
    assert seeds(endless, len(expected) + 1)[:-1] == expected


@pytest.mark.parametrize("position", [0, 3, STEPS, EPOCHS * STEPS])
def test_the_state_leads_on_from_there(make, expected, position):
    """A state is also restored from an epoch's end, through JSON, and in the same iterator."""
    iterator = grain_iterator(make(), EPOCHS)
    before = iterator.get_state()
    seeds(iterator, position)
    state = iterator.get_state()
    assert state.keys() == before.keys()
    other = grain_iterator(make(), EPOCHS)
    other.set_state(json.loads(json.dumps(state)))
    assert seeds(other) == seeds(iterator) == expected[position:]
    iterator.set_state(state)
    assert seeds(iterator) == expected[position:]


def test_prefetch_begins_before_the_first_batch(make, expected):
    loader = make()
    iterator, before = grain_iterator(loader, EPOCHS), threads()
    for _ in range(3):
        iterator.start_prefetch()
    assert threads() == before + 1
    assert seeds(iterator, 5) == expected[:5]
    state = iterator.get_state()
    seeds(iterator, 1)
    iterator.set_state(state)
    iterator.start_prefetch()  # draws ahead from the new position
    loader.finish_epoch()  # now the batches drawn ahead belong to another epoch
    assert seeds(iterator) == expected[2 * STEPS :]
    iterator.start_prefetch()  # nothing is left to draw
    assert threads() == before
    iterator.close()
    iterator.close()
    assert iterator.get_state()["epoch"] == EPOCHS
    for call in (iterator.__next__, iterator.start_prefetch):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_without_grain(make, monkeypatch):
    monkeypatch.setitem(sys.modules, "grain", None)
    refused("pip install 'jgs[grain]'", grain_iterator, make())
    refused("num_epochs", grain_iterator, make(), -1)
