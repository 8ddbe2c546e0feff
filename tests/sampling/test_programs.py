"""Loaders that draw alike share one program; a sampler that can change has its own."""

from dataclasses import InitVar, dataclass, field

import jax
import numpy as np
import pytest

from jgs import Graph
from jgs.sampling import Links, Loader, Neighbors, Seeds

KEY = jax.random.key(0)
GRAPH = Graph.from_edges(*np.random.default_rng(0).integers(0, 40, (2, 200)), 40)


def batch_of(sampler, before=None, items=None):
    items = np.arange(16) if items is None else items
    loader = Loader(GRAPH, items, 8, sampler, key=KEY, prefetch=0, before=before)
    return next(iter(loader))


@pytest.fixture
def traced(monkeypatch):
    """The samplers that were traced, in turn."""
    found, draw = [], Neighbors.sample_separately

    def counted(self, *arguments):
        found.append(self)
        return draw(self, *arguments)

    monkeypatch.setattr(Neighbors, "sample_separately", counted)
    return found


def test_equal_samplers_and_stages_are_traced_once(traced, same_bits):
    edges = dict(zip(("src", "dst"), GRAPH.edge_index(), strict=True))
    for before, items in ((None, None), (Links(num_negatives=2), edges)):
        first, second = (batch_of(Neighbors((2,)), before, items) for _ in range(2))
        same_bits(first, second)
    assert len(traced) == 2
    fanouts = [batch_of(Neighbors((fanout,))).blocks[0].num_edges for fanout in (1, 2, 1)]
    assert fanouts[0] == fanouts[2] < fanouts[1]


@dataclass(frozen=True)
class Moved:
    """A stage whose `__eq__` does not see all that it does."""

    by: float
    more: int = field(default=0, compare=False)
    extra: InitVar[int] = 0

    def __post_init__(self, extra):
        if extra:
            object.__setattr__(self, "added", extra)

    def __call__(self, key, graph, items):
        shift = int(isinstance(self.by, float)) + self.more + getattr(self, "added", 0)
        return Seeds(items["nodes"] + shift)


def test_what_is_equal_by_name_only_is_not_shared():
    nodes = {"nodes": np.arange(8)}
    stages = [Moved(2), Moved(2.0), Moved(2, 5), Moved(2, 0, 7), Moved(2, 0, 9)]
    found = [batch_of(Neighbors((2,)), stage, nodes).seeds.min().item() for stage in stages]
    assert found == [0, 1, 5, 7, 9]


def test_what_can_change_is_traced_anew():
    """A stage, or a sampler, that is changed in place between two loaders."""

    class Shifted:
        by = 0

        def __repr__(self):
            return "Shifted()"

        def __call__(self, key, graph, items):
            return Seeds(items["nodes"] + self.by)

    @dataclass(frozen=True)
    class Fixed:  # frozen, but what it holds is not
        of: Shifted

        def __call__(self, key, graph, items):
            return self.of(key, graph, items)

    shifted, nodes = Shifted(), {"nodes": np.arange(16)}
    for stage in (shifted, Fixed(shifted)):
        shifted.by = 0
        before = batch_of(Neighbors((2,)), stage, nodes)
        shifted.by = 3
        after = batch_of(Neighbors((2,)), stage, nodes)
        np.testing.assert_array_equal(after.seeds, before.seeds + 3)
