"""Draws through facts that are nodes, beside the sampler of Kumo Engine 1.0.0.

    python -m benchmarks.kumo [--rows 2e6] [--threads 1 2] [--rounds 3] [--cache FOLDER]

A shop of users, items and sales; a sale has a key, a time and two foreign keys. 1,000 users a
batch have moments of their own. Both sides draw two hops of 10: `latest` takes the latest sales
before the moment, `uniform` draws among them (Kumo Engine among all). `SamplerEngine` gives ids
as Arrow tables, jgs a batch, whose second hop draws for the seeds again. The sides take turns,
each in a process of its own. Prints a Markdown table: the fastest of all batches, the processor
time of a batch, the edges of all.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.__main__ import CACHE, command_line, environment

SEEDS, BATCHES, FANOUTS = 1000, 40, (10, 10)
TABLES = ("users", "items", "sales")
WAYS = {"latest": "temporal_most_recent", "uniform": "uniform"}
_YEAR = 31_536_000


def main() -> int:
    parser = command_line("kumo", __doc__)
    add = parser.add_argument
    add("--rows", type=float, default=2e6)
    add("--threads", type=int, nargs="+", default=[1, 2])
    add("--rounds", type=int, default=3)
    add("--cache", type=Path, default=CACHE, help="of Kumo Engine's environment")
    add("--side", nargs=2, help="a side and a folder: its run there, as JSON")
    given = parser.parse_args()
    if given.side:
        ways = SIDES[given.side[0]](Path(given.side[1]), given.threads[0])
        print(json.dumps({way: _timed(sample) for way, sample in ways.items()}), flush=True)
        return 0
    from benchmarks import peers

    pythons = {"jgs": sys.executable, "kumo": str(peers.kumo_python(given.cache.resolve()))}
    sides = " | ".join(f"{side}, ms | processor, ms | edges" for side in ("jgs", "Kumo Engine"))
    print(f"| draw | threads | {sides} | ratio |\n" + "|---" * 9 + "|")
    with tempfile.TemporaryDirectory(prefix="jgs-kumo-") as folder:
        make(Path(folder), int(given.rows))
        for threads in given.threads:
            runs: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
            for _ in range(given.rounds):
                for side, found in runs.items():
                    command = [pythons[side], "-m", "benchmarks.kumo", "--side", side, folder]
                    command += ["--threads", str(threads)]
                    variables = environment(threads, False, side == "kumo")
                    made: Any = {"cwd": Path(__file__).parents[1], "env": variables}
                    found.append(json.loads(subprocess.check_output(command, **made)))
            for way in WAYS:
                cells = [way, str(threads)]
                for found in runs.values():
                    best, busy, edges = zip(*(run[way] for run in found), strict=True)
                    cells += [f"{min(best):.2f}", f"{median(busy):.2f}", f"{edges[0]:,}"]
                ratio = float(cells[5]) / float(cells[2])
                print("|", " | ".join([*cells, f"{ratio:.1f}"]), "|", flush=True)
    return 0


def make(folder: Path, rows: int) -> None:
    """Four years as Parquet tables, with `manifest.yaml`, and seeds of the last year."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import yaml

    rng, users, items = np.random.default_rng(0), rows // 10, rows // 40
    sales, begin = rows - users - items, 1_500_000_000
    made = {
        name: {"id": np.arange(n)}
        for name, n in zip(TABLES, (users, items, sales), strict=True)
    }
    made["sales"]["user"] = (users * rng.random(sales) ** 2).astype(int)  # some buy much
    made["sales"]["item"] = rng.integers(0, items, sales)
    made["sales"]["at"] = np.sort(rng.integers(0, 4 * _YEAR, sales) + begin).astype("M8[s]")
    for name, columns in made.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    said: dict[str, Any] = {name: {"pkey": "id"} for name in TABLES}
    said["sales"] |= {"time_col": "at", "fkeys": {"user": "users", "item": "items"}}
    (folder / "manifest.yaml").write_text(yaml.safe_dump({"tables": said}))
    shape, last = (BATCHES, SEEDS), begin + 3 * _YEAR
    seeds = rng.integers(0, users, shape), rng.integers(last, last + _YEAR, shape)
    np.save(folder / "seeds.npy", np.stack(seeds, axis=1))


def by_jgs(folder: Path, threads: int) -> dict[str, Any]:
    """For each way a function that draws the batch of a step and counts its edges."""
    import jax

    import jgs
    from jgs.sampling import Neighbors, Seeds, plan_capacity

    graph: Any = jgs.data.Database.open(folder).plain().graph
    nodes, moments = np.load(folder / "seeds.npy").transpose(1, 0, 2)
    nodes = (nodes + graph.schema.nodes("users").start).astype(np.int32)
    keys = [jax.random.key(step) for step in range(BATCHES)]
    of: Any = {"seeds": {"node": nodes.ravel(), "time": moments.ravel()}}
    of |= {"before": lambda key, graph, items: (Seeds(items["node"], items["time"]), items)}

    def sample(draw: Any, step: int) -> int:
        batch = draw(keys[step], graph, seeds=Seeds(nodes[step], moments[step]))
        assert not batch.overflow
        return sum(int(block.num_edges) for block in batch.blocks)

    ways = {}
    for way in WAYS:
        sampler = Neighbors(tuple(f"*={k}" for k in FANOUTS), latest=way == "latest")
        state = sampler.init(graph)
        capacity = plan_capacity(graph, SEEDS, sampler, state=state, **of)
        draw = jax.jit(partial(sampler.sample, capacity=capacity))
        ways[way] = partial(sample, partial(draw, state=state))
    return ways


def by_kumo(folder: Path, threads: int) -> dict[str, Any]:
    import diskgraph

    index, ids = folder / "index", {"dtype": "int64", "stype": "ID", "dst_key": "id"}
    if not index.exists():
        time_col = {"name": "at", "dtype": "date", "stype": "timestamp"}
        tables: Any = [{"table_name": name, "pkey": {"name": "id", **ids}} for name in TABLES]
        for table in tables:
            table |= {"source_table_name": table["table_name"], "data_source": "local"}
            table |= {"cols": [], "fkeys": []}
        ends = {"user": "users", "item": "items"}.items()
        keys = [{"name": name, "dst_table": table, **ids} for name, table in ends]
        tables[-1] |= {"fkeys": keys, "time_col": time_col}
        paths = {name: str(folder / f"{name}.parquet") for name in TABLES}
        of = {"name": "shop", "tables": tables}, str(folder), dict.fromkeys(TABLES, "1")
        config = diskgraph.DiskgraphConfigConverter(*of, source_paths=paths).convert()
        diskgraph.ingest(json.dumps(config), str(index))
    engine, batches = (
        diskgraph.SamplerEngine(str(index), 0, threads),
        np.load(folder / "seeds.npy"),
    )

    def sample(way: str, step: int) -> int:
        hops = [
            {"fanout": k, "mode": WAYS[way], "absent_key_policy": "uniform_fallback"}
            for k in FANOUTS
        ]
        plan = json.dumps({"layers": [{"fanouts": {}, "default_fanout": hop} for hop in hops]})
        users, moments = ({"users": each} for each in batches[step])
        parts = engine.sample(users, plan, False, moments, True, diskgraph.TimeUnit.Seconds)
        return sum(part["batch"].num_rows for part in parts if part["type"] == "edge")

    return {way: partial(sample, way) for way in WAYS}


def _timed(sample: Any) -> tuple[float, float, int]:
    """The fastest and the processor's mean milliseconds of a batch, and the edges of all."""
    sample(0)
    seconds, edges, busy = [], 0, time.process_time()
    for step in range(BATCHES):
        begun = time.perf_counter()
        edges += sample(step)
        seconds.append(time.perf_counter() - begun)
    return 1e3 * min(seconds), 1e3 * (time.process_time() - busy) / BATCHES, edges


SIDES = {"jgs": by_jgs, "kumo": by_kumo}


if __name__ == "__main__":
    sys.exit(main())
