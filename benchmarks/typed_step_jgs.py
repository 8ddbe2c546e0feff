"""One process of the typed training benchmark: jgs's loader, the input rows, and the step.

The loader samples in this thread (`prefetch=0`), so that the parts add up to the iteration.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import jgs
from benchmarks import worker
from jgs.models import HGT, RGCN, RSAGE
from jgs.ops import gather
from jgs.sampling import Loader, Neighbors
from jgs.train.loop.step import init_state, make_optimizer, make_train_step

MODELS = {"rgcn": RGCN, "rsage": RSAGE, "hgt": HGT}


def measure(task: dict, setting: dict) -> dict:
    graph = jgs.Graph.open(setting["graph"], verify=False)
    features, labels = (
        jax.device_put(worker.array(task["features"], name), may_alias=True)
        for name in ("features", "labels")
    )
    options = {"heads": setting["heads"]} if setting["model"] == "hgt" else {}
    model = MODELS[setting["model"]](
        in_features=(features.shape[1],),
        hidden_features=setting["hidden"],
        out_features=setting["classes"],
        num_layers=len(setting["typed_fanouts"]),
        schema=graph.schema,
        rngs=nnx.Rngs(0),
        **options,
    )
    graphdef, params = nnx.split(model)
    optimizer = make_optimizer(setting["lr"])
    state, step = init_state(params, optimizer), make_train_step(graphdef, optimizer)
    read = jax.jit(lambda features, nodes: gather(features, nodes))
    parts = {"sampling": [], "features": [], "computing": []}
    key = jax.random.key(1)
    loader = Loader(
        graph,
        worker.batches(setting).ravel(),
        setting["batch"],
        Neighbors(tuple({"*": k} for k in setting["typed_fanouts"]), edges=("type",)),
        key=jax.random.key(0),
        shuffle=False,
        prefetch=0,
    )
    for timed in (False, True):  # one epoch to warm up, one measured
        batches = iter(loader)
        for _ in range(len(loader)):
            clock = [time.perf_counter()]
            batch = next(batches)
            clock.append(time.perf_counter())
            x = jax.block_until_ready(read(features, batch.nodes))
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
