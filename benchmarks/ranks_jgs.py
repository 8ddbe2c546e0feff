"""One rank of the distributed benchmarks: jgs's training on parts, on a core of its own.

Nothing is drawn ahead (`prefetch=0`), so that the parts add up to the iteration. With
`keep_memory` the allocator is set as `python -m jgs.train` sets it. The JSON task has:

- `parts`: the partition's folder.
- `config`: fields of `jgs.train.config.Config`.
- `keep_memory`: see above.
- `unfused`: null for the fused kernel; "two steps" for `benchmarks.two_steps`; "hops" for calls
  of its own for each hop, which still relabel in one kernel.
- `programs`: the folder in which `two_steps.cc` is compiled.
- `in_place`: whether the first layer reads rows where they lie.
- `network`: null, or the latency (seconds) and bandwidth (bytes a second) to emulate.
- `epochs`: how many epochs run after one to warm up. The last one is reported.
- `out`: a folder for the result.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

import jgs
from benchmarks import replay, two_steps, wire, worker
from benchmarks.replay import Recorded
from jgs.data.parts import open_parts
from jgs.dist.batches.ranks import RankParts, rank_loader
from jgs.dist.batches.source import HybridSampler, RankSampler
from jgs.dist.batches.vanilla import VanillaSampler
from jgs.dist.communicators.comm import Alone, Emulated
from jgs.dist.communicators.launch import connect
from jgs.graph import as_device
from jgs.sampling import Neighbors
from jgs.train.config import Config
from jgs.train.loop.model import make_model
from jgs.train.loop.step import init_state, make_optimizer, make_train_step


def measure(task: dict) -> dict:
    config = Config(partition=task["parts"], prefetch=0, **task["config"])
    comm = connect("mpi")
    if task["network"]:
        comm = Emulated(comm, *task["network"])
    comm = Recorded(comm)
    data = open_parts(task["parts"], verify=False)
    labels = comm.same(as_device(data.labels))
    model_key, loader_key, dropout_key = jax.random.split(jax.random.key(0), 3)
    width = data.manifest["features"]["shape"][1]
    model = make_model(config, width, data.num_classes, False, model_key)
    loader = rank_loader(
        comm,
        RankParts(comm, data),
        config.batch_size,
        config.fanouts,
        key=loader_key,
        mode=config.mode,
        cache=config.cache,
        cache_memory=config.cache_memory << 20,
        prefetch=0,
        in_place=task["in_place"],
    )
    source: Any = loader.source
    if task["unfused"]:
        source._sampler = _unfused(task, data.graph, config, source._sampler)
    graphdef, params = nnx.split(model)
    optimizer = make_optimizer(config.lr)
    state = comm.same(init_state(params, optimizer))
    step = make_train_step(graphdef, optimizer, comm)
    key, stop = comm.same(jax.random.key_data(dropout_key)), comm.own([np.float32(0)])
    names = ("sampling", "features", "computing")
    parts: dict[str, list[float]] = {name: [] for name in names}
    total: list[float] = []
    moved, rounds, sent = list[int](), list[int](), list[int]()
    counted = (comm, loader.source)
    from mpi4py import MPI  # after `connect`: it starts MPI

    meet = MPI.COMM_WORLD.Barrier
    for _ in range(1 + task["epochs"]):
        meet()
        batches = iter(loader)
        for _ in range(len(loader)):
            meet()
            seconds = loader.source.seconds.copy()
            before = [wire.num_bytes(), *_counts(counted)]
            comm.log.clear()
            began = time.perf_counter()
            batch, x = next(batches)
            drawn, in_drawing = time.perf_counter(), len(comm.log)
            state = jax.block_until_ready(step(state, key, batch, x, labels, stop))
            ended = time.perf_counter()
            collectives = (
                comm.log[: in_drawing - 2],
                comm.log[in_drawing - 2 : in_drawing],  # the request and the reply
                comm.log[in_drawing:],
            )
            meet()
            after = [wire.num_bytes(), *_counts(counted)]
            for name in seconds:
                parts[name].append(1e3 * (loader.source.seconds[name] - seconds[name]))
            parts["computing"].append(1e3 * (ended - drawn))
            total.append(1e3 * (ended - began))
            changes = (b - a for a, b in zip(before, after, strict=True))
            for changed, change in zip((moved, rounds, sent), changes, strict=True):
                changed.append(change)
        next(batches, None)  # ends the epoch
    assert np.isfinite(float(state.loss_sum))
    alone = [replay.milliseconds(comm, some) for some in collectives]
    last = slice(-len(loader), None)
    gradients = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
    return {
        "rank": comm.rank,
        "ms": total[last],
        "parts": {name: times[last] for name, times in parts.items()},
        "bytes": moved[last],
        "rounds": rounds[last],
        "sent": sent[last],
        "communication": dict(zip(parts, alone, strict=True)),
        "cut": data.manifest["edge_cut"],
        "gradient_bytes": len(loader) * 2 * gradients * (comm.size - 1) // comm.size,
        "nodes": int((np.asarray(batch.nodes) < data.num_nodes).sum()),
        "edges": sum(int(block.num_edges) for block in batch.blocks),
    }


def _unfused(task: dict, graph: jgs.Graph, config: Config, fused: HybridSampler) -> RankSampler:
    """What draws in place of the fused kernel."""
    sampler, capacity = fused._sampler, fused.capacities.capacity
    assert isinstance(sampler, Neighbors)
    if task["unfused"] == "two steps":
        if not two_steps.register(Path(task["programs"])):
            raise SystemExit("two steps need a C++ compiler and jgs's kernels")
        return two_steps.TwoSteps(graph, config.batch_size, sampler, capacity)
    fixed = ([0, graph.num_nodes], graph.num_edges, config.batch_size, sampler)
    return VanillaSampler(Alone(), graph, *fixed, capacity)


def _counts(counted: tuple) -> tuple[int, int]:
    """Rounds and bytes sent so far."""
    counters = [each.counters for each in counted]
    return sum(c.rounds for c in counters), sum(c.bytes for c in counters)


def main() -> None:
    task = worker.task()
    # This comes before JAX's first use, because JAX's threads inherit the core.
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(os.environ.get("PMI_RANK", 0)) % len(cores)]})
    if task["keep_memory"]:
        jgs.keep_freed_memory()
    result = measure(task)  # goes to a file: mpiexec may mix what ranks print
    Path(task["out"], f"{result['rank']}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
