"""One process of the training benchmarks: jgs's loader, the first layer's inputs, and the step.

A setting with fanouts of each relation is of the typed benchmark: its model is one of `MODELS`,
and its input rows are gathered. The loader samples in this thread (`prefetch=0`), so that the
parts add up to the iteration.
"""

import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import jgs
from benchmarks import worker
from jgs.models import HGT, RGCN, RSAGE, GraphSAGE, read_inputs
from jgs.ops import gather
from jgs.sampling import Loader, Neighbors
from jgs.train.loop.step import init_state, make_optimizer, make_train_step

MODELS = {"rgcn": RGCN, "rsage": RSAGE, "hgt": HGT}


def untyped(width: int, setting: dict):
    """The model, the sampler and the function that reads a batch's inputs."""
    hidden, classes, fanouts = setting["hidden"], setting["classes"], tuple(setting["fanouts"])
    more = {"dropout": setting["dropout"], "rngs": nnx.Rngs(0)}
    model = GraphSAGE(width, hidden, classes, len(fanouts), **more)
    return model, Neighbors(fanouts, relabel_inputs=False), jax.jit(read_inputs)


def typed(width: int, setting: dict, schema: jgs.Schema):
    """The same for a typed graph."""
    model = MODELS[setting["model"]](
        in_features=(width,),
        hidden_features=setting["hidden"],
        out_features=setting["classes"],
        num_layers=len(setting["typed_fanouts"]),
        schema=schema,
        rngs=nnx.Rngs(0),
        **({"heads": setting["heads"]} if setting["model"] == "hgt" else {}),
    )
    sampler = Neighbors(tuple({"*": k} for k in setting["typed_fanouts"]), edges=("type",))
    rows = jax.jit(lambda features, nodes: gather(features, nodes))
    return model, sampler, lambda features, batch: rows(features, batch.nodes)


def measure(task: dict, setting: dict) -> dict:
    graph = jgs.Graph.open(setting["graph"], verify=False)
    features, labels = (
        jax.device_put(worker.array(task["features"], name), may_alias=True)
        for name in ("features", "labels")
    )
    of = features.shape[1], setting
    made = typed(*of, graph.schema) if "typed_fanouts" in setting else untyped(*of)
    model, sampler, read = made
    graphdef, params = nnx.split(model)
    optimizer = make_optimizer(setting["lr"])
    state, step = init_state(params, optimizer), make_train_step(graphdef, optimizer)
    parts = {"sampling": [], "features": [], "computing": []}
    key = jax.random.key(1)
    loader = Loader(
        graph,
        worker.batches(setting).ravel(),
        setting["batch"],
        sampler,
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


def prepare(task: dict):
    if task.get("keep_memory"):
        jgs.keep_freed_memory()
    return partial(measure, task)


if __name__ == "__main__":
    worker.main(prepare)
