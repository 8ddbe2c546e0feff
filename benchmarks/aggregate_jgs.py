"""One process of the aggregation benchmark: `jgs.ops.aggregate`, or XLA's own operations.

`task["path"]` is `kernel` (jgs), `segment_sum`, or `table`: `x[neighbours].mean(1)` over a
table padded to the largest degree, where each row is divided by its own degree.
"""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import jgs
from benchmarks import worker


def kernel(block: dict, x: jax.Array) -> jax.Array:
    return jgs.ops.aggregate(block["jgs"], x, "mean")


def table(block: dict, x: jax.Array) -> jax.Array:
    rows = x.at[block["neighbors"]].get(mode="fill", fill_value=0)
    return rows.sum(1) / block["degree"]


def segment_sum(block: dict, x: jax.Array) -> jax.Array:
    num_targets = block["degree"].shape[0]
    total = jax.ops.segment_sum(x[block["indices"]], block["target"], num_targets)
    return total / block["degree"]


PATHS = {"kernel": kernel, "table": table, "segment_sum": segment_sum}


def load(path: str) -> tuple[dict, int]:
    """The arrays that the paths read, on the device, and the number of sources."""
    with np.load(path) as saved:
        indptr, indices = saved["indptr"], saved["indices"]
        num_sources = int(saved["num_sources"])
    degree = np.diff(indptr)
    target = np.repeat(np.arange(degree.size, dtype=np.int32), degree)
    neighbors = np.full((degree.size, degree.max()), num_sources, np.int32)
    neighbors[target, np.arange(indices.size) - indptr[target]] = indices
    counts = (np.int32(n) for n in (degree.size, num_sources, indices.size))
    block = {
        "jgs": jgs.Block(indptr, indices, *counts),
        "indices": indices,
        "target": target,
        "neighbors": neighbors,
        "degree": np.maximum(degree, 1).astype(np.float32)[:, None],
    }
    return jax.device_put(block), num_sources


def measure(mean: Callable, block: dict, num_sources: int, setting: dict) -> dict:
    rng = np.random.default_rng(0)
    shapes = ((num_sources, setting["features"]), (len(block["degree"]), setting["features"]))
    arrays = [jnp.asarray(rng.standard_normal(s, np.float32)) for s in shapes]
    return timed(setting, mean, block, arrays)


def timed(setting: dict, function: Callable, block: dict, arrays: Sequence[jax.Array]) -> dict:
    """A setting's result, of `function(block, ...)` of all arrays but the last, which is the
    gradient of what it returns."""

    @jax.jit
    def forward(block, grad_out, *given):
        return function(block, *given)

    @jax.jit
    def with_derivative(block, grad_out, *given):
        out, pull = jax.vjp(partial(function, block), *given)
        return out, *pull(grad_out)

    run = with_derivative if setting["derivative"] else forward
    *given, grad_out = arrays

    def call(_):
        return jax.block_until_ready(run(block, grad_out, *given))

    check = [float(jnp.abs(a).mean()) for a in jax.tree.leaves(call(None))]
    times = worker.milliseconds(call, range(setting["iterations"]))
    return {"name": setting["name"], "ms": times, "check": check}


if __name__ == "__main__":
    worker.main(lambda task: partial(measure, PATHS[task["path"]], *load(task["block"])))
