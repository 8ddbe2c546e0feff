"""What a step on contexts costs beside GraphSAGE's, by the number of tokens.

    python -m benchmarks.context_costs [--sizes 32 64 128 256] [--batch 128] [--rounds 7]

The database of `benchmarks.contexts`, 1.75 million rows. Models are 64 wide, with two layers:
`RSAGE` on two and on three hops of 8 neighbours of each relation, `RelGT` and `CellTransformer`
on contexts of so many tokens (for cells as many cells), hop by hop with the same fanouts. The
trainings take turns. Prints the milliseconds in which a batch is drawn and a step is computed,
medians, and the memory that XLA plans for the step.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.__main__ import command_line
from benchmarks.contexts import make

MIB = 1 << 20
_WIDTH, _LAYERS = 64, 2


def main() -> int:
    parser = command_line("context_costs", __doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=(32, 64, 128, 256))
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    import jgs

    jgs.keep_freed_memory()  # as the commands do
    with tempfile.TemporaryDirectory(prefix="jgs-costs-") as name:
        make(Path(name) / "shop", 1_600_000)
        data = jgs.data.load(str(Path(name) / "shop"), db_task="churn")
    sides = {f"`RSAGE`, {hops} hops": _sage(data, hops, given.batch) for hops in (2, 3)}
    for kind in ("RelGT", "CellTransformer"):
        for size in given.sizes:
            sides[f"`{kind}`, {size} tokens"] = _context(data, kind, size, given.batch)
    times: dict[str, list[Any]] = {side: [] for side in sides}
    for _ in range(given.rounds):
        for side, (once, _) in sides.items():
            times[side].append(once())
    print("| model | drawing, ms | step, ms | memory of a step, MiB |")
    print("|---" * 4 + "|")
    for side, (_, memory) in sides.items():
        draw, step = (1000 * median(each) for each in zip(*times[side], strict=True))
        print(f"| {side} | {draw:.1f} | {step:.1f} | {memory / MIB:,.0f} |", flush=True)
    return 0


def _sage(data: Any, hops: int, batch: int) -> Any:
    from jgs.models import RSAGE
    from jgs.sampling import Neighbors

    fanouts = ({"*": 8},) * hops
    return _side(data, lambda own: RSAGE(*own[:3], hops, **own[3]), Neighbors(fanouts), batch)


def _context(data: Any, kind: str, size: int, batch: int) -> Any:
    import jgs.models
    from jgs.sampling import Context

    def made(own: Any) -> Any:
        more = {"cells": size} if kind == "CellTransformer" else {}
        return getattr(jgs.models, kind)(*own[:3], _LAYERS, **own[3], **more)

    return _side(data, made, Context(size, ({"*": 8},) * 3), batch)


def _side(data: Any, make_model: Any, sampler: Any, batch_size: int) -> tuple[Any, int]:
    """A function that draws a batch and takes a step and returns the seconds of both; and the
    bytes that XLA plans for the step."""
    import jax
    import jax.numpy as jnp
    import optax
    from flax import nnx

    from jgs.sampling import Loader

    schema, features, table = data.graph.schema, data.features, data.label_table
    own = {"schema": schema, "dropout": 0.0, "rngs": nnx.Rngs(0)}
    model = make_model((features.widths, _WIDTH, 2, own))
    if columns := getattr(model, "edge_columns", ()):
        sampler = type(sampler)(**vars(sampler) | {"edges": columns})
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)

    def loss_of(model: Any, batch: Any, x: Any) -> Any:
        logits = model(batch, x)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch.items["label"])
        return jnp.mean(losses)

    @nnx.jit
    def step(model: Any, optimizer: Any, batch: Any, x: Any) -> None:
        optimizer.update(model, nnx.grad(loss_of)(model, batch, x))

    order = np.random.default_rng(0).permutation(np.flatnonzero(table.split == 0))
    items = {"nodes": table.nodes, "time": table.time, "label": table.labels}
    items = {name: np.asarray(column)[order] for name, column in items.items()}
    options = {"prefetch": 0, "super_batch": 1, "key": jax.random.key(0), "sampler": sampler}
    batches = iter(Loader(data.graph, items, batch_size, age=None, **options))

    def once() -> tuple[float, float]:
        begun = time.perf_counter()
        batch = jax.block_until_ready(next(batches))
        drawn = time.perf_counter()
        step(model, optimizer, batch, batch.gather(features))
        jax.block_until_ready(nnx.state(model))
        return drawn - begun, time.perf_counter() - drawn

    for _ in range(2):
        once()
    batch = next(batches)
    graphdef, state = nnx.split(model)
    planned = jax.jit(
        lambda state, batch, x: jax.grad(lambda s: loss_of(nnx.merge(graphdef, s), batch, x))(
            state
        )
    ).lower(state, batch, batch.gather(features))
    memory = planned.compile().memory_analysis()
    return once, int(memory.temp_size_in_bytes)


if __name__ == "__main__":
    raise SystemExit(main())
