"""The cost model (`benchmarks.plan`) beside what 2 ranks under MPI on this machine do.

    python -m benchmarks.scaling --folder /tmp/scaling

Each rank has one thread. The ranks share memory and have no network, so the model is given an
infinitely fast one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.graph import Size, rmat

SIZE = Size(17, 2_000_000)
FEATURES, CLASSES, SEEDS = 100, 47, 40_000
BATCH, FANOUTS, HIDDEN, CACHE = 1000, (5, 10, 15), 256, 8  # CACHE in MiB
MODES = ("vanilla", "hybrid", "cached")
_THREADS = {"JGS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_XLA = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--only", nargs="+", default=["parts", "plan", *MODES, "table"])
    parser.add_argument("--rank", help="a mode: be one of the ranks")
    args = parser.parse_args()
    if args.rank:
        return one_rank(args.folder, args.rank)
    args.folder.mkdir(parents=True, exist_ok=True)
    for step in args.only:
        {"parts": write, "plan": plan, "table": table}.get(step, run)(args.folder, step)


def write(folder: Path, _: str) -> None:
    import jgs
    from jgs.data import Dataset
    from jgs.graph import as_device
    from jgs.partition.folder import write_parts
    from jgs.partition.nodes import partition_nodes

    graph = jgs.Graph(*rmat(SIZE))
    rng = np.random.default_rng(0)
    nodes = rng.permutation(np.flatnonzero(np.diff(np.asarray(graph.indptr)))).astype(np.int32)
    splits = np.split(nodes[: SEEDS + 2000], [SEEDS, SEEDS + 1000])
    train, val, test = (np.sort(some) for some in splits)
    features = as_device(rng.random((graph.num_nodes, FEATURES), np.float32))
    labels = rng.integers(0, CLASSES, graph.num_nodes, np.int32)
    data = Dataset("rmat", graph, features, labels, CLASSES, train, val, test)
    by_name = {"train_idx": train, "val_idx": val, "test_idx": test}
    assignment = partition_nodes(graph, 2, "metis", seed=0, **by_name)
    manifest = write_parts(folder / "parts", data, assignment, 2, method="metis", seed=0)
    print("edge cut", manifest["edge_cut"], "nodes", [p["nodes"] for p in manifest["parts"]])


def plan(folder: Path, _: str) -> None:
    command = [sys.executable, "-m", "benchmarks.plan", "--partition", str(folder / "parts")]
    command += ["--machines", "2", "--gbits", "1e9", "--latency-us", "0"]
    command += ["--batch-size", str(BATCH), "--hidden", str(HIDDEN)]
    command += ["--fanouts", *map(str, FANOUTS), "--cache-memory", str(CACHE)]
    out = subprocess.run(
        command, env=environment(), check=True, stdout=subprocess.PIPE, text=True
    )
    (folder / "plan.json").write_text(out.stdout)


def run(folder: Path, mode: str) -> None:
    command = ["mpiexec", "-n", "2", sys.executable, "-m", "benchmarks.scaling"]
    command += ["--folder", str(folder), "--rank", mode]
    subprocess.run(command, env=environment(), check=True)


def environment() -> dict[str, str]:
    return os.environ | _THREADS | {"XLA_FLAGS": _XLA}


def one_rank(folder: Path, mode: str) -> None:
    import jax
    from flax import nnx

    from jgs.allocator import keep_freed_memory
    from jgs.dist.communicators.comm import Mpi
    from jgs.train.config import Config
    from jgs.train.loop.model import make_model
    from jgs.train.loop.progress import Meter
    from jgs.train.loop.step import init_state, make_optimizer, make_train_step
    from jgs.train.tasks.task import open_job

    keep_freed_memory()
    comm = Mpi()
    config = Config(
        partition=str(folder / "parts"),
        batch_size=BATCH,
        ranks=2,
        fanouts=FANOUTS,
        hidden=HIDDEN,
        mode="vanilla" if mode == "vanilla" else "hybrid",
        cache="planned" if mode == "cached" else "none",
        cache_memory=CACHE,
        prefetch=0,
    )
    job = open_job(config, comm)
    model = make_model(
        config, job.data.num_features, job.data.num_classes, False, jax.random.key(0)
    )
    job.start(model, jax.random.key(1), None)
    graphdef, params = nnx.split(model)
    optimizer = make_optimizer(config.lr)
    state = job.comm.same(init_state(params, optimizer))
    step = make_train_step(graphdef, optimizer, comm)
    key = jax.random.key_data(jax.random.key(2))
    each: list[dict[str, Any]] = []
    for _ in range(2):  # the first epoch compiles
        last, filled = None, None
        for batch, x in job.batches(Meter()):
            began = time.perf_counter()
            state = step(state, key, batch, x, job.data.labels, np.float32(0))
            jax.block_until_ready(state.step)
            now = {"computing": time.perf_counter() - began, **job.loader.source.seconds}
            counters = [job.loader.source.counters, comm.counters]
            now |= {"rounds": sum(c.rounds for c in counters)}
            now |= {"bytes": sum(c.bytes for c in counters)}
            if last is not None:
                both = ("sampling", "features", "rounds", "bytes")
                each.append(now | {name: now[name] - last[name] for name in both})
            last = now
        filled = len(each) if filled is None else filled
    each = each[len(each) // 2 :]
    result = {name: float(np.median([e[name] for e in each])) for name in each[0]}
    result |= {"steps": len(job.loader), "redraws": job.loader.redraws}
    result |= {"memory": _resident()}
    job.close()
    if comm.rank == 0:
        (folder / f"{mode}.json").write_text(json.dumps(result))
        print(mode, json.dumps(result))


def _resident() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def table(folder: Path, _: str) -> None:
    results = json.loads((folder / "plan.json").read_text())["results"]
    print("| mode | quantity | model | measured | model / measured |\n|---|---|---|---|---|")
    for row in results:
        seen = json.loads((folder / f"{row['mode']}.json").read_text())
        cpu = row["cpu_seconds"]
        pairs = [
            ("rounds a step", row["rounds"], seen["rounds"]),
            ("MB a step", row["bytes"] / 1e6, seen["bytes"] / 1e6),
            ("MiB of memory", row["memory_total"] / 2**20, seen["memory"] / 2**20),
        ]
        pairs += [(f"ms of {part}", cpu[part] * 1e3, seen[part] * 1e3) for part in cpu]
        total = sum(seen[part] for part in cpu)
        pairs.append(("ms a step", sum(cpu.values()) * 1e3, total * 1e3))
        for name, a, b in pairs:
            print(f"| {row['mode']} | {name} | {a:.4g} | {b:.4g} | {a / b:.2f} |")


if __name__ == "__main__":
    if shutil.which("mpiexec") is None:
        sys.exit("mpiexec must be on the PATH: pip install 'jgs[mpi]'")
    main()
