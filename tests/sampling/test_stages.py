"""Schedules of samplers: `ByEpoch`, `OnPlateau`, and a `Loader` that follows one."""

import dataclasses
import json
from typing import ClassVar

import jax
import numpy as np
import pytest

from jgs import InputError
from jgs.graph import Graph
from jgs.sampling import VRGCN, ByEpoch, Feedback, Ladies, Loader, Neighbors, OnPlateau

KEY, SEEDS, B = jax.random.key(3), np.arange(40), 10
FEW, MANY = Neighbors((2, 2)), Neighbors((4, 3))


@pytest.fixture(scope="module")
def graph():
    src, dst = np.random.default_rng(0).integers(0, 100, (2, 900))
    return Graph.from_edges(src, dst, 100)


def epoch_of(loader):
    return [[np.asarray(leaf) for leaf in jax.tree.leaves(batch)] for batch in loader]


def same(one, other):
    assert len(one) == len(other)
    for mine, theirs in zip(one, other, strict=True):
        jax.tree.map(np.testing.assert_array_equal, mine, theirs)


@dataclasses.dataclass(frozen=True)
class Counted(Neighbors):
    """A sampler that counts its traces."""

    traces: ClassVar[list] = []

    def sample(self, *arguments):
        self.traces.append(self.fanouts)
        return super().sample(*arguments)

    def sample_separately(self, *arguments):
        self.traces.append(self.fanouts)
        return super().sample_separately(*arguments)


def test_an_epoch_is_what_a_loader_of_its_sampler_draws(graph):
    """This also holds for a loader resumed from a state. Each sampler is compiled once."""
    few, many = Counted((2, 2)), Counted((4, 3))
    schedule = ByEpoch({0: few, 1: many, 3: few})
    staged = Loader(graph, SEEDS, B, schedule, key=KEY)
    alone = {sampler: Loader(graph, SEEDS, B, sampler, key=KEY) for sampler in (few, many)}
    for epoch, sampler in enumerate((few, many, many, few)):
        if epoch == 2:
            batches = iter(staged)
            next(batches)
            state = json.loads(json.dumps(staged.state_dict()))
            batches.close()
            Counted.traces.clear()
            again = Loader(graph, SEEDS, B, schedule, key=jax.random.key(0))
            traced = len(Counted.traces)
            again.load_state_dict(state)
            rest = epoch_of(again)
            assert len(rest) == 3
            staged.load_state_dict(state)
            same(epoch_of(staged), rest)
            Counted.traces.clear()
            continue
        alone[sampler].load_state_dict(
            alone[sampler].state_dict() | {"epoch": epoch, "step": 0}
        )
        expected = epoch_of(alone[sampler])
        Counted.traces.clear()
        same(epoch_of(staged), expected)
        assert staged.capacity == alone[sampler].capacity
    assert traced > 0
    assert not Counted.traces  # epoch 3 uses the programs of epoch 0
    with pytest.raises(InputError, match="digest"):
        alone[few].load_state_dict(staged.state_dict())
    samples = Loader(graph, SEEDS, B, ByEpoch({0: Ladies((8,)), 1: Ladies((20,))}), key=KEY)
    sizes = [len({batch.blocks[0].edge_capacity for batch in samples}) for _ in range(2)]
    assert sizes == [1, 1]


def test_a_plateau_is_a_function_of_the_losses(graph):
    schedule = OnPlateau([(2, 2), (4, 3), (5, 5)], fraction=0.1, epochs=2)
    losses = [1.0, 0.8, 0.79, 0.78, 0.9, 0.85, 0.82, 0.1, 0.1, 0.1]
    stages = [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]  # the stage of each epoch
    loader = Loader(graph, SEEDS, B, schedule, key=KEY, prefetch=0)
    for epoch, (loss, stage) in enumerate(zip(losses, stages, strict=True)):
        if epoch % 3 == 2:  # a resumed loader decides the same
            other = Loader(graph, SEEDS, B, schedule, key=jax.random.key(9), prefetch=0)
            other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
            loader = other
        fanout = (2, 4, 5)[stage]
        most = max(int(np.diff(batch.blocks[-1].indptr).max()) for batch in loader)
        assert most == fanout, epoch
        if epoch == 1:
            with pytest.raises(InputError, match="report"):
                next(iter(loader))
        loader.report(loss)
        with pytest.raises(InputError, match="once"):
            loader.report(loss)
    state = loader.state_dict()
    with pytest.raises(InputError, match="losses"):
        loader.load_state_dict({k: v for k, v in state.items() if k != "stalled"})


def test_an_adaptive_samplers_state_goes_on(graph):
    stages = {0: VRGCN((2, 2), widths=(3, 3)), 1: VRGCN((4, 4), widths=(3, 3))}
    loader = Loader(graph, SEEDS, B, ByEpoch(stages), key=KEY)
    states = []
    for _ in range(2):
        for batch in loader:
            rows = tuple(
                np.ones((block.source_capacity, 3), np.float32) for block in batch.blocks
            )
            targets = tuple(np.zeros((b.target_capacity, 3), np.float32) for b in batch.blocks)
            loader.update(batch, Feedback(rows, targets))
        states.append([np.array(leaf) for leaf in jax.tree.leaves(loader.sampler_state)])
    one, other = states
    assert any(history.any() for history in one)
    for before, after in zip(one, other, strict=True):
        assert (after[before == 1] == 1).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda graph: ByEpoch({1: (2, 2)}),
        lambda graph: ByEpoch({}),
        lambda graph: ByEpoch([(0, (2, 2)), (0, (3, 3))]),
        lambda graph: ByEpoch({0: (0, 2)}),
        lambda graph: OnPlateau([]),
        lambda graph: OnPlateau([(2, 2)], fraction=1.0),
        lambda graph: OnPlateau([(2, 2)], epochs=0),
        lambda graph: Loader(graph, SEEDS, B, ByEpoch({0: (2, 2)}), key=KEY, replace=True),
        lambda graph: Loader(
            graph,
            SEEDS,
            B,
            ByEpoch({0: FEW, 1: MANY}),
            key=KEY,
            capacity=Loader(graph, SEEDS, B, FEW, key=KEY).capacity,
        ),
        lambda graph: Loader(
            graph, SEEDS, B, ByEpoch({0: FEW, 1: VRGCN((2, 2), widths=(3, 3))}), key=KEY
        ),
    ],
)
def test_what_is_refused(graph, make):
    with pytest.raises(InputError):
        make(graph)
