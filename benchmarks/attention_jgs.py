"""One process of the attention benchmark, head by head.

It takes the softmax over each target's edges, then the sum of the sources' rows weighted by it,
and the derivative by the logits and the rows. `task["path"]` is `kernel`
(`jgs.ops.edge_softmax` and `aggregate`) or `segment_sum` (XLA's own operations).
"""

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


def measure(block: dict, num_sources: int, setting: dict, attention) -> dict:
    arrays = worker.attention_arrays(
        setting, len(block["indices"]), num_sources, len(block["degree"])
    )
    logits, x, grad_out = (jnp.asarray(a).reshape(len(a), -1) for a in arrays)

    @jax.jit
    def forward(block, logits, x, grad_out):
        return attention(block, logits, x)

    @jax.jit
    def with_derivative(block, logits, x, grad_out):
        out, pull = jax.vjp(lambda logits, x: attention(block, logits, x), logits, x)
        return out, *pull(grad_out)

    run = with_derivative if setting["derivative"] else forward

    def call(_):
        return jax.block_until_ready(run(block, logits, x, grad_out))

    check = [float(jnp.abs(a).mean()) for a in jax.tree.leaves(call(None))]
    times = worker.milliseconds(call, range(setting["iterations"]))
    return {"name": setting["name"], "ms": times, "check": check}


def main() -> None:
    task = worker.task()
    block, num_sources = aggregate_jgs.load(task["block"])
    attention = PATHS[task["path"]]
    worker.report([measure(block, num_sources, s, attention) for s in task["settings"]])


if __name__ == "__main__":
    main()
