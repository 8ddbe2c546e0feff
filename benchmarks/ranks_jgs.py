"""One rank of the distributed benchmarks: jgs's training on parts, a core to itself.

Nothing is drawn ahead (`prefetch=0`), so that the parts add up to the iteration; under
`keep_memory` the allocator is as `python -m jgs.train` sets it. Task (JSON): `parts`, the
partition's folder; fields of `jgs.train.config.Config` as `config`; `classes`; `unfused`, each
hop drawn and relabelled in calls of their own; `network`, null or latency (seconds) and
bandwidth (bytes a second) to emulate; `epochs` to run after one to warm up, of which the last
is reported; `out`, a folder for the result.
"""

import json
import os
import time
from pathlib import Path

import jax
import numpy as np
from flax import nnx

import jgs
from benchmarks import replay, wire, worker
from benchmarks.replay import Recorded
from jgs.dist.comm import Alone
from jgs.dist.emulate import Emulated
from jgs.dist.launch import connect
from jgs.dist.vanilla import VanillaSampler
from jgs.train.config import Config
from jgs.train.loop import make_model
from jgs.train.progress import Meter
from jgs.train.ranks import RankJob
from jgs.train.step import init_state, make_optimizer, make_train_step


class UnfusedJob(RankJob):
    """Every rank has the whole topology, but draws and relabels hop by hop."""

    def _sampler(self, graphs, schedules):
        fused, graph, config = super()._sampler(graphs, schedules), graphs[0], self.config
        fixed = ([0, graph.num_nodes], graph.num_edges, config.batch_size, config.fanouts)
        return VanillaSampler(Alone(), graph, *fixed, fused._spec.capacity)


def measure(task: dict) -> dict:
    config = Config(partition=task["parts"], prefetch=0, **task["config"])
    comm = connect("mpi")
    if task["network"]:
        comm = Emulated(comm, *task["network"])
    comm = Recorded(comm)
    job = (UnfusedJob if task["unfused"] else RankJob)(config, comm)
    model_key, loader_key, dropout_key = jax.random.split(jax.random.key(0), 3)
    model = make_model(config, job.num_features, task["classes"], job.sparse, model_key)
    job.start(model, loader_key, None)
    graphdef, params = nnx.split(model)
    optimizer = make_optimizer(config.lr)
    state = comm.same(init_state(params, optimizer))
    step = make_train_step(graphdef, optimizer, True, comm)
    key, stop = comm.same(jax.random.key_data(dropout_key)), comm.own([np.float32(0)])
    parts = {"sampling": [], "features": [], "computing": []}
    total, moved, rounds, sent, network, epochs = [], [], [], [], [], []
    clones = (comm, job._background)
    for _ in range(1 + task["epochs"]):
        comm.barrier()
        batches, whole = iter(job.batches(Meter())), time.perf_counter()
        for _ in range(len(job.loader)):
            comm.barrier()
            seconds = job.loader.seconds.copy()
            before = [wire.num_bytes(), *_counts(clones), getattr(comm, "seconds", 0.0)]
            comm.log.clear()
            began = time.perf_counter()
            batch, x = next(batches)
            drawn, in_drawing = time.perf_counter(), len(comm.log)
            state = jax.block_until_ready(step(state, key, batch, x, job.labels, stop))
            ended = time.perf_counter()
            collectives = (
                comm.log[: in_drawing - 2],
                comm.log[in_drawing - 2 : in_drawing],  # the request and the reply
                comm.log[in_drawing:],
            )
            comm.barrier()
            after = [wire.num_bytes(), *_counts(clones), getattr(comm, "seconds", 0.0)]
            for name in seconds:
                parts[name].append(1e3 * (job.loader.seconds[name] - seconds[name]))
            parts["computing"].append(1e3 * (ended - drawn))
            total.append(1e3 * (ended - began))
            changes = (b - a for a, b in zip(before, after, strict=True))
            for changed, change in zip((moved, rounds, sent, network), changes, strict=True):
                changed.append(change)
        next(batches, None)  # ends the epoch
        epochs.append(time.perf_counter() - whole)
    assert np.isfinite(float(state.loss_sum))
    alone = [replay.milliseconds(comm, some) for some in collectives]
    last = slice(-len(job.loader), None)
    gradients = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
    return {
        "rank": comm.rank,
        "ms": total[last],
        "parts": {name: times[last] for name, times in parts.items()},
        "bytes": moved[last],
        "rounds": rounds[last],
        "sent": sent[last],
        "communication": dict(zip(parts, alone, strict=True)),
        "gradient_bytes": len(job.loader) * 2 * gradients * (comm.size - 1) // comm.size,
        "network_ms": [1e3 * s for s in network[last]],
        "epoch_seconds": epochs[1:],
        "steps": len(job.loader),
        "nodes": int((np.asarray(batch.nodes) < job._parts.num_nodes).sum()),
        "edges": sum(int(block.num_edges) for block in batch.blocks),
        "extra_rounds": job._exchange.extra_rounds,
    }


def _counts(clones: tuple) -> tuple[int, int]:
    """Rounds and bytes sent so far, of all clones."""
    counters = [comm.counters for comm in clones]
    return sum(c.rounds for c in counters), sum(c.bytes for c in counters)


def main() -> None:
    task = worker.task()
    # Before JAX's first use: its threads inherit the core.
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(os.environ.get("PMI_RANK", 0)) % len(cores)]})
    if task["keep_memory"]:
        jgs.keep_freed_memory()
    result = measure(task)  # in a file: mpiexec may mix what ranks print
    Path(task["out"], f"{result['rank']}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
