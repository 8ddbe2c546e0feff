"""One process of the training benchmark: jgs's loader, the first layer's inputs, and the step.

The loader samples in this thread (`prefetch=0`), so that the parts add up to the iteration.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import jgs
from benchmarks import worker
from jgs.models import GraphSAGE, read_inputs
from jgs.sampling import Loader
from jgs.train.loop.step import init_state, make_optimizer, make_train_step


def measure(task: dict, setting: dict) -> dict:
    graph = jgs.Graph.open(task["graph"], verify=False)
    features, labels = (
        jax.device_put(worker.array(task["features"], name), may_alias=True)
        for name in ("features", "labels")
    )
    fanouts, batch_size = tuple(setting["fanouts"]), setting["batch"]
    model = GraphSAGE(
        features.shape[1],
        setting["hidden"],
        setting["classes"],
        len(fanouts),
        dropout=setting["dropout"],
        rngs=nnx.Rngs(0),
    )
    graphdef, params = nnx.split(model)
    optimizer = make_optimizer(setting["lr"])
    state, step = init_state(params, optimizer), make_train_step(graphdef, optimizer)
    read = jax.jit(read_inputs)
    seeds = worker.batches(setting).ravel()
    parts = {"sampling": [], "features": [], "computing": []}
    key = jax.random.key(1)
    loader = Loader(
        graph,
        seeds,
        batch_size,
        fanouts,
        key=jax.random.key(0),
        shuffle=False,
        prefetch=0,
        relabel_inputs=False,
    )
    for timed in (False, True):  # one epoch to warm up, one measured
        batches = iter(loader)
        for _ in range(len(loader)):
            clock = [time.perf_counter()]
            batch = next(batches)
            clock.append(time.perf_counter())
            x = jax.block_until_ready(read(features, batch))
            clock.append(time.perf_counter())
            state = jax.block_until_ready(step(state, key, batch, x, labels))
            clock.append(time.perf_counter())
            if timed:
                for part, seconds in zip(parts.values(), np.diff(clock), strict=True):
                    part.append(1e3 * seconds)
        next(batches, None)  # ends the epoch
    assert jnp.isfinite(state.loss_sum)
    # The batches of a super-batch come at once. Each of them counts as their mean.
    size, whole = loader.super_batch, len(loader) // loader.super_batch * loader.super_batch
    for name, times in parts.items():
        parts[name] = np.reshape(times[:whole], (-1, size)).mean(1).tolist()
    total = np.sum(list(parts.values()), axis=0)
    return {"name": setting["name"], "ms": total.tolist(), "parts": parts}


def main() -> None:
    task = worker.task()
    if task.get("keep_memory"):
        jgs.keep_freed_memory()
    worker.report([measure(task, setting) for setting in task["settings"]])


if __name__ == "__main__":
    main()
