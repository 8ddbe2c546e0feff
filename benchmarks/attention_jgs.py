"""One process of the attention benchmark, head by head.

It takes the softmax over each target's edges, then the sum of the sources' rows weighted by it,
and the derivative by the logits and the rows. `task["path"]` is `kernel`
(`jgs.ops.edge_softmax` and `aggregate`) or `segment_sum` (XLA's own operations).
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

import jgs
from benchmarks import aggregate_jgs, worker


def kernel(block: dict, logits: jax.Array, x: jax.Array) -> jax.Array:
    weights = jgs.ops.edge_softmax(block["jgs"], logits)
    return jgs.ops.aggregate(block["jgs"], x, "sum", edge_weight=weights)


def segment_sum(block: dict, logits: jax.Array, x: jax.Array) -> jax.Array:
    target, num_targets = block["target"], block["degree"].shape[0]
    top = jax.lax.stop_gradient(jax.ops.segment_max(logits, target, num_targets))
    values = jnp.exp(logits - top[target])
    weights = values / jax.ops.segment_sum(values, target, num_targets)[target]
    rows = x[block["indices"]].reshape(*weights.shape, -1) * weights[:, :, None]
    return jax.ops.segment_sum(rows.reshape(len(rows), -1), target, num_targets)


PATHS = {"kernel": kernel, "segment_sum": segment_sum}


def measure(attention: Callable, block: dict, num_sources: int, setting: dict) -> dict:
    sizes = len(block["indices"]), num_sources, len(block["degree"])
    arrays = worker.attention_arrays(setting, *sizes)
    flat = [jnp.asarray(a).reshape(len(a), -1) for a in arrays]
    return aggregate_jgs.timed(setting, attention, block, flat)


if __name__ == "__main__":
    worker.main(
        lambda task: partial(measure, PATHS[task["path"]], *aggregate_jgs.load(task["block"]))
    )
