"""How long an exported model of a typed graph with times takes to answer, on one core.

    python -m benchmarks.serving_shop [--seconds S] [--work FOLDER]

The graph has 100,000 users with 32 features, 20,000 items with 16, and 2,000,000 purchases at
moments, both ways. Models have 64 hidden units, and their first parameters, by which no time
depends: the relational GraphSAGE `rsage` with fanouts of 10 and 10 of each
relation, the heterogeneous graph transformer `hgt` with the same, `relgt` on contexts of 64
tokens, and `rsage` for links, with a dot product. Prints Markdown: milliseconds of a request,
and of the processor in it, which other programs do not lengthen.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from flax import nnx

import jgs
from benchmarks.machine import describe
from benchmarks.serving import command
from jgs.data import Dataset, LabelTable
from jgs.dist.communicators.comm import Alone
from jgs.graph import Graph
from jgs.predict import Run
from jgs.train.flags import parse
from jgs.train.loop.folder import configure
from jgs.train.tasks.task import open_job

USERS, ITEMS, SALES, END = 100_000, 20_000, 2_000_000, 10_000_000
COMMON = "--hidden 64 --batch-size 64 --epochs 1 --no-progress"
DRAWN = "--fanouts *=10 *=10"
PAIRS = "--decoder dot --eval-negatives 1"
MODELS = {
    "rsage": f"--model rsage {DRAWN}",
    "hgt": f"--model hgt {DRAWN}",
    "relgt": "--sampler context --context-size 64 --fanouts *=8 *=8 --model relgt --layers 2",
    "links": f"--task links --temporal --relation buys --model rsage {DRAWN} {PAIRS}",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5, help="for each line of the table")
    parser.add_argument("--work", help="folder for the data, runs and artifacts, kept")
    parser.add_argument("--measure", metavar="NAME", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure, Path(arguments.work), arguments.seconds)
        return
    with tempfile.TemporaryDirectory() as folder:
        work = Path(arguments.work or folder)
        print(
            "| model | request | p50, ms | p99, ms | processor p50 | processor p99 | requests |"
        )
        print("|---|---|---|---|---|---|---|")
        for name, flags in MODELS.items():
            if not (work / "data").exists():
                shop(work / "data")
            if not (work / name).exists():
                run = untrained(f"--dataset {work / 'data'} {COMMON} {flags}")
                at = {"at": END} if name == "links" else {}
                jgs.export_run(run, work / name, with_graph=True, **at)
            own = ("--measure", name, "--work", str(work), "--seconds", str(arguments.seconds))
            print(command("benchmarks.serving_shop", *own, core=True), end="", flush=True)
        print(json.dumps(describe() | {"load_after": os.getloadavg()}), file=sys.stderr)


def untrained(flags: str) -> Run:
    """The run of flags of `jgs train` with its first parameters."""
    config = configure(parse(flags.split()))
    job = open_job(config)
    shape = json.loads(json.dumps(job.shape(), default=list))
    model = config.made("task").model(config, shape)
    record = {"best_epoch": 1, "val_accuracy": 0.0, "data": job.data.digests, "shape": shape}
    params = dict.fromkeys(("best", "last"), nnx.state(model))
    return Run(config, model, record, Alone(), params)


def shop(folder: Path) -> None:
    """Writes the data set: the label of a user at a moment is drawn."""
    rng = np.random.default_rng(0)
    item = (rng.pareto(1.5, SALES) * 200).astype(np.int64) % ITEMS
    edges = {("user", "buys", "item"): (rng.integers(0, USERS, SALES), item)}
    times = dict.fromkeys(edges, np.sort(rng.integers(0, END, SALES)))
    counts = {"user": USERS, "item": ITEMS}
    graph = Graph.from_relations(counts, edges, edge_time=times, both_ways=True)
    of = rng.integers(0, USERS, 5000), rng.integers(END // 2, END, 5000)
    table = LabelTable.from_arrays(*of, rng.integers(0, 2, 5000))
    features = {
        "user": rng.standard_normal((USERS, 32)).astype(np.float32),
        "item": rng.standard_normal((ITEMS, 16)).astype(np.float32),
    }
    made = Dataset.from_arrays(graph, features, None, None, label_table=table, name="shop")
    made.save(folder)


def measure(name: str, work: Path, seconds: float) -> None:
    """Prints a line of the table for each kind of request."""
    jgs.keep_freed_memory()
    model, rng = jgs.load_exported(work / name, verify="once"), np.random.default_rng(1)

    def users(num: int) -> np.ndarray:
        return rng.integers(0, USERS, num)

    def pairs(num: int) -> np.ndarray:
        return np.stack([users(num), USERS + rng.integers(0, ITEMS, num)], axis=1)

    requests = {
        f"{num} node{'s' * (num > 1)}": lambda n=num: model.predict(users(n), time=END)
        for num in (1, 8, 64)
    }
    if name == "links":
        requests = {
            "1 pair": lambda: model.score(pairs(1), time=END),
            "8 pairs": lambda: model.score(pairs(8), time=END),
            "best 10 of 20,000": lambda: model.recommend(users(1), 10),
        }
    for kind, request in requests.items():
        for _ in range(20):
            request()
        took, end = [], time.perf_counter() + seconds
        while time.perf_counter() < end:
            began = time.perf_counter(), time.process_time()
            request()
            took.append((time.perf_counter() - began[0], time.process_time() - began[1]))
        of = [1e3 * np.percentile(each, [50, 99]) for each in zip(*took, strict=True)]
        cells = " | ".join(f"{value:.2f}" for each in of for value in each)
        print(f"| {name} | {kind} | {cells} | {len(took):,} |", flush=True)


if __name__ == "__main__":
    main()
