"""Training steps on a device, with batches drawn on the host or on the device.

    python -m benchmarks.devices                 # where JAX has a GPU or TPU
    python -m benchmarks.devices --device gpu:all --ways fused
    XLA_FLAGS=--xla_force_host_platform_device_count=2 \\
        python -m benchmarks.devices --device cpu:1 --scale 18 --edges 8000000 --slow 40

GraphSAGE, three layers, on an RMAT graph with random features. Prints milliseconds a step,
medians and means of an epoch: `alone` on one batch again and again; in the `loop` over the
loader; and the share of the loop in which it waited for a batch. With `--slow` a step takes so
many milliseconds more, asleep, as a step on a slow device would.

`fused` is an epoch as one program of all devices, each with a batch of 1,024 seeds and a share
of the rows. Other ways have the first device.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from typing import Any

import numpy as np

CLASSES, BATCH = 47, 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--device", default="auto", help="as of jgs train")
    add("--scale", type=int, default=21, help="2**scale nodes")
    add("--edges", type=int, default=62_000_000)
    add("--features", type=int, default=100)
    add("--hidden", type=int, default=256)
    add("--fanouts", type=int, nargs="+", default=(5, 10, 15))
    add("--steps", type=int, default=100)
    add("--hot", type=float, default=0.25, help="the share of rows that lie on the device")
    add("--slow", type=float, default=0.0, help="milliseconds that a step sleeps")
    add("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    given = parser.parse_args()
    import jax  # after the arguments, as it is slow

    from jgs.devices import find_devices, shown

    devices = find_devices(given.device)
    print(f"{shown(devices)}, JAX {jax.__version__}", flush=True)
    bench = Bench(given, devices[0])
    bench.devices = devices
    print("| way | alone | loop | waiting | rows sent |\n|---|---|---|---|---|")
    for way in given.ways:
        WAYS[way](bench)


class Bench:
    """The graph, the model and the step of all ways."""

    devices: Any

    def __init__(self, given: Any, device: Any):
        import jax
        import optax
        from flax import nnx

        import jgs
        from benchmarks.graph import rmat_edges
        from jgs.graph import as_device
        from jgs.models import GraphSAGE
        from jgs.sampling import Neighbors, plan_capacity

        self.given, self.device, size = given, device, 1 << given.scale
        rng = np.random.default_rng(0)
        self.graph = jgs.Graph.from_edges(*rmat_edges(given.scale, given.edges, [0, 0]), size)
        rows = rng.standard_normal((size, given.features), dtype=np.float32)
        self.rows, self.sampler = as_device(rows), Neighbors(tuple(given.fanouts))
        self.seeds = rng.permutation(size)[: given.steps * BATCH].astype(np.int32)
        self.key = jax.random.key(0)
        plan = partial(plan_capacity, seeds=self.seeds, key=self.key)
        self.capacity = plan(self.graph, BATCH, self.sampler)
        layers = len(given.fanouts)
        model = GraphSAGE(given.features, given.hidden, CLASSES, layers, rngs=nnx.Rngs(0))
        self.graphdef, params = nnx.split(model)
        self.optimizer = optax.adam(1e-3)
        state = params, self.optimizer.init(params)
        self.state = jax.device_put(state, device)
        labels = rng.integers(0, CLASSES, size).astype(np.int32)
        self.labels = jax.device_put(labels, device)

    def loader(self, **options: Any) -> Any:
        from jgs.sampling import Loader

        own = {"key": self.key, "capacity": self.capacity, "device": self.device}
        return Loader(self.graph, self.seeds, BATCH, self.sampler, **own | options)

    def step(self, state: Any, batch: Any, x: Any, labels: Any) -> tuple[Any, Any]:
        import jax
        import optax
        from flax import nnx

        from jgs.train.loop.step import node_loss

        def loss_of(params):
            return node_loss(nnx.merge(self.graphdef, params)(batch, x), batch, labels)

        params, opt_state = state
        loss, gradients = jax.value_and_grad(loss_of)(params)
        updates, opt_state = self.optimizer.update(gradients, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), loss

    def measure(self, way: str, loader: Any, x_of: Any, table: Any = ()) -> None:
        """Prints the line of a way. `x_of(batch, read, table)` makes a batch's rows of what the
        loader read, within the step."""
        import jax
        import jax.numpy as jnp

        @partial(jax.jit, donate_argnums=0)
        def run(state, batch, read, table, labels):
            return self.step(state, batch, x_of(batch, read, table), labels)

        def timed(state, item):
            batch, read = item if isinstance(item, tuple) else (item, ())
            state, loss = run(state, batch, read, table, self.labels)
            jax.block_until_ready(loss)
            time.sleep(self.given.slow / 1e3)
            return state, read

        state = jax.tree.map(jnp.copy, self.state)
        items = iter(loader)
        first = next(items)
        alone = []
        for _ in range(8):
            began = time.perf_counter()
            state, read = timed(state, first)
            alone.append(time.perf_counter() - began)
        waited, began, count = loader.waited, time.perf_counter(), 0
        for item in items:
            state, read = timed(state, item)
            count += 1
        loop = time.perf_counter() - began
        waiting, sent = (loader.waited - waited) / loop, jax.tree.leaves(read)
        mib = sum(leaf.nbytes for leaf in sent) / (1 << 20)
        if (programs := run._cache_size()) > 1:
            print(f"{way}: {programs} programs were compiled", file=sys.stderr)
        print(
            f"| {way} | {1e3 * np.median(alone[1:]):.2f} ms | {1e3 * loop / count:.2f} ms | "
            f"{waiting:.1%} | {mib:.1f} MiB |",
            flush=True,
        )


def sent(bench: Bench) -> None:
    import jax

    from jgs.ops import gather

    read = jax.jit(gather)
    loader = bench.loader(read=lambda batch: read(bench.rows, batch.nodes))
    bench.measure("rows read on the host", loader, lambda batch, read, table: read)


def hot(bench: Bench) -> None:
    from jgs.models import Placed
    from jgs.sampling import HotRows

    memory = int(bench.given.hot * bench.rows.nbytes)
    rows = HotRows.planned(bench.rows, bench.loader(), memory, bench.device, 32)
    bench.measure(
        f"the {bench.given.hot:.0%} most read rows on the device",
        bench.loader(read=rows),
        lambda batch, cold, table: Placed((table, cold.rows), cold.place),
        rows.table,
    )


def there(bench: Bench) -> None:
    import jax

    from jgs.ops import gather

    table = jax.device_put(np.asarray(bench.rows), bench.device)
    way = "all rows on the device"
    bench.measure(
        way, bench.loader(), lambda batch, _, table: gather(table, batch.nodes), table
    )


def sampled(bench: Bench) -> None:
    """Drawing on the device too, in plain JAX, in one program with the step."""
    import jax
    import jax.numpy as jnp

    import jgs
    from jgs.ops import gather

    graph = jgs.to_device(bench.graph, bench.device)
    table = jax.device_put(np.asarray(bench.rows), bench.device)

    def draw(key, graph, seeds):
        return bench.sampler.sample(key, graph, (), seeds, bench.capacity)

    @partial(jax.jit, donate_argnums=0)
    def run(state, key, graph, seeds, table, labels):
        batch = draw(key, graph, seeds)
        return bench.step(state, batch, gather(table, batch.nodes), labels)

    seeds = jax.device_put(bench.seeds.reshape(-1, BATCH), bench.device)
    keys = jax.device_put(jax.random.split(bench.key, len(seeds)), bench.device)
    state, times = jax.tree.map(jnp.copy, bench.state), []
    for key, own in zip(keys, seeds, strict=True):
        began = time.perf_counter()
        state, loss = run(state, key, graph, own, table, bench.labels)
        jax.block_until_ready(loss)
        times.append(time.perf_counter() - began)
    alone, drawn = [], jax.jit(draw)
    for key, own in zip(keys[:20], seeds[:20], strict=True):
        began = time.perf_counter()
        jax.block_until_ready(drawn(key, graph, own))
        alone.append(time.perf_counter() - began)
    print(
        f"| drawn on the device, in the step | draw: {1e3 * np.median(alone[1:]):.2f} ms | "
        f"{1e3 * np.median(times[1:]):.2f} ms | | |",
        flush=True,
    )


def fused(bench: Bench) -> None:
    """Steps as one program of all devices, which share the rows."""
    import jax

    from jgs.dist import Mesh, mesh_loader
    from jgs.train.loop.step import TrainState, make_train_step

    comm = Mesh(bench.devices)
    one = make_train_step(bench.graphdef, bench.optimizer, comm, compiled=False)

    def step(state: Any, batch: Any, x: Any, key: Any, labels: Any) -> Any:
        return one(state, key, batch, x, labels)

    of_run = bench.graph, bench.rows, bench.seeds, BATCH * comm.size, bench.sampler
    loader = mesh_loader(comm, *of_run, key=bench.key, cache="trial")
    params, opt_state = jax.tree.map(np.asarray, bench.state)
    zero = np.zeros((), np.float32)
    state = comm.same(TrainState(params, opt_state, np.int32(0), zero, zero, zero))
    given = comm.same((jax.random.key_data(bench.key), np.asarray(bench.labels)))
    rows, _ = loader.source._exchange.asked
    first = bench.devices[0]
    shards = (s.data for leaf in jax.tree.leaves(rows) for s in leaf.addressable_shards)
    mib = sum(s.nbytes for s in shards if first in s.devices()) / (1 << 20)
    for _ in range(3):
        steps, began = list(loader), time.perf_counter()
        state = loader.source.run(steps, step, state, *given)
        jax.block_until_ready(state)
        took = (time.perf_counter() - began) / len(steps)
    again = loader.source.extra_steps
    print(
        f"| one program, {comm.size} devices | {len(steps)} steps | {1e3 * took:.2f} ms | "
        f"{again} made again | {mib:.1f} MiB lie on a device |",
        flush=True,
    )


WAYS = {"sent": sent, "hot": hot, "there": there, "sampled": sampled, "fused": fused}

if __name__ == "__main__":
    main()
