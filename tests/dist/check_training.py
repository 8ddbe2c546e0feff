"""`check_training.py PARTS OUT MODE-CACHE...`: 12 steps in each mode, by each rank or alone."""

import pickle
import sys
from pathlib import Path

import jax
import numpy as np
from flax import nnx
from mapped import is_mapped
from ranks import barrier, connect_here

from jgs import kernels
from jgs.models import GraphSAGE
from jgs.sampling import Loader
from jgs.train.config import Config
from jgs.train.loop.progress import Meter
from jgs.train.loop.step import init_state, make_optimizer, make_train_step
from jgs.train.tasks.task import open_job

STEPS, SEEDS, FANOUTS = 12, 12, (3, 2)  # ten steps are an epoch


def train(comm, parts: str, mode: str, cache: str):
    """The parameters after `STEPS` steps, and what each node drew in the first of them."""
    of_ranks = {"mode": mode, "cache": cache, "cache_memory": 1, "ranks": comm.size}
    of_run = {"batch_size": SEEDS // comm.size, "fanouts": FANOUTS, "eval_memory": 1}
    job = open_job(Config(partition=parts, **of_ranks, **of_run), comm)
    widths, rngs = (job.data.num_features, 8, job.data.num_classes), nnx.Rngs(jax.random.key(1))
    model = GraphSAGE(*widths, 2, dropout=0.5, rngs=rngs)
    graphdef, params = nnx.split(model)
    optimizer = make_optimizer(0.01)
    step = make_train_step(graphdef, optimizer, comm)
    state = comm.same(init_state(params, optimizer))
    key = comm.same(jax.random.key_data(jax.random.key(2)))
    job.start(model, jax.random.key(3), None)
    drawn, done, rounds = [], 0, []
    zero = comm.own([np.float32(0)] * comm.num_local)
    while done < STEPS:
        for batch, x in job.batches(Meter()):
            if not done:
                used = x.tables[: len(job.data.features[0])]
                outside = [a.shape for a in used if not all(in_file(a, parts))]
                if mode == "vanilla" and comm.size == job.data._parts.num_parts:
                    indices = job.loader.source._sampler._graph.indices
                    # One array for each device; an array smaller than a page is copied.
                    outside += [] if any(in_file(indices, parts)) else [indices.shape]
            if done < 3:
                drawn.append([draws(b) for b in comm.local(batch)])
            before = comm.counters.rounds
            state = step(state, key, batch, x, job.data.labels, zero)
            rounds.append(comm.counters.rounds - before)
            done += 1
            if done == STEPS:
                break
    accuracy = job.metric(jax.tree.map(np.asarray, state.params), "val")
    drawing = rounds_of_a_step(job.loader)
    memory = memory_of(comm, parts)
    job.close()
    leaves = [np.array(leaf) for leaf in jax.tree.leaves(state.params)]
    result = {"params": leaves, "drawn": drawn, "reductions": rounds, "accuracy": accuracy}
    return result | {"rounds": drawing, "outside": outside, "memory": memory}


def in_file(array, folder: str) -> list[bool]:
    """Whether the array begins in a mapped file of `folder`, for each device here."""
    return [is_mapped(shard.data, folder) for shard in array.addressable_shards]


def memory_of(comm, folder: str) -> dict[str, int]:
    """KiB of the folder's files in this process: resident, its share, and changed by it."""
    total, inside = dict.fromkeys(("Rss", "Pss", "Private_Dirty"), 0), False
    barrier(comm)  # by now the other ranks have mapped the files, too
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, *words = line.split()
        inside = folder in line if "-" in name and ":" not in name else inside
        if inside and name.rstrip(":") in total:
            total[name.rstrip(":")] += int(words[0])
    barrier(comm)
    return total


def draws(batch) -> dict:
    """{(hop, node): its neighbours}. The nodes of the features are those of the last hop."""
    nodes, found = np.asarray(batch.nodes), {}
    for hop, block in enumerate(batch.blocks[::-1]):
        indptr, indices = np.asarray(block.indptr), np.asarray(block.indices)
        for t in range(int(block.num_targets)):
            if nodes[t] < batch.num_nodes:
                row = nodes[indices[indptr[t] : indptr[t + 1]]]
                found[hop, int(nodes[t])] = row.tolist()
    return found


def rounds_of_a_step(loader) -> int:
    """The counted rounds of drawing one batch, with none drawn ahead."""
    loader.close()
    loader.finish_epoch()
    source, counts = loader.source, []
    batches = iter(Loader.over(source, prefetch=0))
    for _ in range(2):
        next(batches)
        counts.append(source.counters.rounds - source.extra_rounds)
    batches.close()
    return counts[1] - counts[0]


def main() -> None:
    parts, out, *modes = sys.argv[1:]
    comm = connect_here()
    for each in modes:
        mode, cache = each.split("-")
        with kernels.this_host_only():  # as in the command
            result = train(comm, parts, mode, cache)
        Path(out, f"{each}-{comm.rank}.pickle").write_bytes(pickle.dumps(result))
    barrier(comm)


if __name__ == "__main__":
    main()
