"""Training runs in this process whose steps are timed. They take the flags of `jgs.train`."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks.planted_labels import F1, f1
from jgs.train import exact_inference
from jgs.train.config import Config
from jgs.train.flags import parse
from jgs.train.loop.progress import Meter
from jgs.train.tasks.task import open_job


class Step(NamedTuple):
    """The seconds of waiting for a batch and of the step on it; the number of its seeds, of its
    rows, and of the edges of all layers. Rows are those that the innermost layer reads; but
    where neighbour sampling reads dense features in place, those that this layer makes. On a
    subgraph these are the same."""

    waited: float
    computed: float
    seeds: int
    rows: int
    edges: int


class Epoch(NamedTuple):
    """The steps of an epoch, and the validation accuracy after it in %. With several labels a
    node the accuracy is the micro-F1."""

    steps: list[Step]
    accuracy: float

    @property
    def seconds(self) -> float:
        return sum(step.waited + step.computed for step in self.steps)


@contextmanager
def begun(flags: str, seed: int = 0) -> Iterator[tuple[Any, Any]]:
    """The job and the learner of a run. The run is over when the block ends."""
    config = Config(**parse([*flags.split(), "--seed", str(seed)]), progress=False)
    with tempfile.TemporaryDirectory() as folder:
        job = open_job(config)
        try:
            key = jax.random.key(seed, impl="threefry2x32")
            yield job, job.config.made("task").learner(job, key, Path(folder))
        finally:
            job.close()


def steps(job: Any, learner: Any, clock: Callable[[], float]) -> Iterator[Step]:
    """Runs the rest of the epoch; yields each step."""
    batches = job.batches(Meter())
    while True:
        began = clock()
        found = next(batches, None)
        drawn = clock()
        if found is None:
            return
        batch, x = found
        learner.step(batch, x, False)
        ended = clock()
        yield Step(drawn - began, ended - drawn, *_size(batch))


def _size(batch: Any) -> tuple[int, int, int]:
    nodes, seeds = np.asarray(batch.nodes), np.asarray(batch.seed_mask)
    edges = sum(int(np.sum(np.asarray(block.num_edges))) for block in batch.blocks)
    return int(seeds.sum()), int((nodes < np.asarray(batch.num_nodes)).sum()), edges


def epochs(
    flags: str, seed: int = 0, clock: Callable[[], float] = time.process_time
) -> Iterator[Epoch]:
    """Trains, and evaluates after each epoch."""
    with begun(flags, seed) as run:
        yield from trained(*run, clock)


def trained(job: Any, learner: Any, clock: Callable[[], float]) -> Iterator[Epoch]:
    """The epochs of a run that has begun. The first step compiles, so it counts as the median
    of the other steps of its epoch."""
    for epoch in range(1, job.config.epochs + 1):
        taken = list(steps(job, learner, clock))
        if epoch == 1:
            taken[0] = middle(taken[1:] or taken)
        job.loader.report(learner.loss())
        learner.start_epoch()
        yield Epoch(taken, 100 * learner.evaluate(epoch)["val_accuracy"])


def test_f1(job: Any, learner: Any) -> F1:
    """The F1 of the test nodes with the parameters that were best in validation."""
    data = job.data
    model = job.model(jax.random.key(0, impl="threefry2x32"))
    at = {"comm": job.comm, "offsets": data.offsets}
    nodes = data.split("test")
    (outputs,) = exact_inference(model, data.graphs, data.features, **at)(
        learner.best_params, nodes
    )
    return f1(outputs, np.asarray(data.host_labels[nodes[0]]))


def middle(taken: list[Step]) -> Step:
    """The medians of the steps' fields, but the mean of the waiting, because only one step in
    several waits for a super-batch."""
    step = Step(*(statistics.median(column) for column in zip(*taken, strict=True)))
    return step._replace(waited=statistics.fmean(each.waited for each in taken))
