"""Schedules of samplers: `ByEpoch`, `OnPlateau`, and a `Loader` that follows one."""

import json

import jax
import numpy as np
import pytest
from refusals import refused

from jgs import InputError
from jgs.sampling import VRGCN, ByEpoch, Feedback, Ladies, Loader, Neighbors, OnPlateau

KEY, SEEDS, B = jax.random.key(3), np.arange(40), 10


def test_an_epoch_is_what_a_loader_of_its_sampler_draws(graph, same_bits):
    """This also holds for a loader resumed from a state. Each sampler is compiled once."""
    few, many = Neighbors((2, 2)), Neighbors((4, 3))
    schedule = ByEpoch({0: few, 1: many, 3: few})
    staged = Loader(graph, SEEDS, B, schedule, key=KEY)
    alone = {sampler: Loader(graph, SEEDS, B, sampler, key=KEY) for sampler in (few, many)}
    programs = {}
    for epoch, sampler in enumerate((few, many, many, few)):
        own = alone[sampler]
        own.load_state_dict(own.state_dict() | {"epoch": epoch, "step": 0})
        expected = list(own)
        if epoch == 2:
            batches = iter(staged)
            next(batches)
            state = json.loads(json.dumps(staged.state_dict()))
            batches.close()
            again = Loader(graph, SEEDS, B, schedule, key=jax.random.key(0))
            again.load_state_dict(state)
            same_bits(list(again), expected[1:])
        same_bits(list(staged), expected[1:] if epoch == 2 else expected)
        assert staged.capacity == own.capacity
        source = staged.source._of(epoch)
        now = source, source._draw._cache_size()
        assert programs.setdefault(sampler, now) == now  # later epochs use those of before
    refused("digest", alone[few].load_state_dict, staged.state_dict())
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
        refused("once", loader.report, loss)
    state = loader.state_dict()
    with pytest.raises(InputError, match="losses"):
        loader.load_state_dict({k: v for k, v in state.items() if k != "stalled"})


def test_an_adaptive_samplers_state_goes_on(graph):
    stages = {0: VRGCN((2,), widths=(3,)), 1: VRGCN((4,), widths=(3,))}
    loader = Loader(graph, SEEDS, B, ByEpoch(stages), key=KEY)
    states = []
    for _ in range(2):
        for batch in loader:
            (block,) = batch.blocks
            rows = np.ones((block.source_capacity, 3), np.float32)
            slopes = np.zeros((block.target_capacity, 3), np.float32)
            loader.update(batch, Feedback((rows,), (slopes,)))
        states.append(jax.device_get(jax.tree.leaves(loader.sampler_state)))
    one, other = states
    assert any(history.any() for history in one)
    for before, after in zip(one, other, strict=True):
        assert (after[before == 1] == 1).all()


def test_what_is_refused(graph):
    few, many = (2, 2), (4, 3)
    capacity = Loader(graph, SEEDS, B, few, key=KEY).capacity

    def loader(stages, **options):
        return Loader(graph, SEEDS, B, ByEpoch(stages), key=KEY, **options)

    for make in (
        lambda: ByEpoch({1: few}),
        lambda: ByEpoch({}),
        lambda: ByEpoch([(0, few), (0, many)]),
        lambda: ByEpoch({0: (0, 2)}),
        lambda: ByEpoch(None),
        lambda: ByEpoch([few]),
        lambda: OnPlateau(None),
        lambda: OnPlateau([few], fraction="0.1"),
        lambda: OnPlateau([]),
        lambda: OnPlateau([few], fraction=1.0),
        lambda: OnPlateau([few], epochs=0),
        lambda: loader({0: few}, replace=True),
        lambda: loader({0: few, 1: many}, capacity=capacity),
        lambda: loader({0: few, 1: VRGCN((2, 2), widths=(3, 3))}),
    ):
        with pytest.raises(InputError):
            make()
