"""Contexts of a database, beside the sampler of relational-transformer.

    python -m benchmarks.contexts [--rows 1.6e6] [--rt PYTHON] [--relgt FILE] [--threads 1 2]
        [--rounds 5] [--ways walks]

Writes a RelBench folder of users, items and events, and a task of users at moments, by a fixed
rule. Two sides take turns, each in a process of its own on as many cores as threads: jgs draws
contexts of 512 rows around users at the task's moments, and gathers the features of all rows;
`rt.rustler` draws contexts of 1,024 cells, which are 512 rows of two cells here. Both do so
without walks, where jgs goes breadth first, and with 10,000 walks of 20 steps a user. `--rt` is
a Python that has `relational-transformer` 1.10.0, `numpy` and `ml_dtypes`; its text embeddings
are zeros of width 16. Of each process the median of the calls after the first counts, by the
clock, and the least time of the processors, which other work disturbs less. `--relgt`
is `utils.py` of RelGT's repository, whose tokenizer draws 300 of all rows within two hops, in
Python; jgs draws 300 rows of two hops then, with widths of 256.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.__main__ import command_line, say

_REPOSITORY = Path(__file__).parents[1]
_ROWS, _CELLS, _CALLS = 512, 1024, 5
_SEEDS = {"hops": 128, "walks": 16, "two": 1024}  # contexts in a call
_WALKS = 10_000, 20
_HERE = Path(__file__)


def main() -> int:
    parser = command_line("contexts", __doc__)
    add = parser.add_argument
    add("--rows", type=float, default=1.6e6, help="events")
    add("--rt", help="a Python that has relational-transformer")
    add("--relgt", help="utils.py of RelGT's repository")
    add("--threads", type=int, nargs="+", default=(1, 2))
    add("--rounds", type=int, default=5)
    add("--ways", nargs="+", default=("hops", "walks", "two"), help="those that are compared")
    add("--side", help="one side's run, as JSON: FOLDER WAY", nargs=2)
    given = parser.parse_args()
    if given.side:
        print(json.dumps(by_jgs(Path(given.side[0]), given.side[1])), flush=True)
        return 0
    with tempfile.TemporaryDirectory(prefix="jgs-contexts-") as name:
        make(Path(name) / "shop", int(given.rows))
        ours, prepared = [sys.executable, "-m", "benchmarks.contexts", "--side"], f"{name}/made"
        rivals = {}
        if given.rt:
            rt = [given.rt, str(_HERE.with_name("contexts_rt.py")), prepared]
            rivals |= {"hops": ("rt", rt), "walks": ("rt", rt)}
        if given.relgt:
            path = str(_HERE.with_name("contexts_relgt.py"))
            rivals["two"] = "RelGT", [sys.executable, path, str(Path(given.relgt).resolve())]
        columns = "jgs, contexts/s | rows each | beside | contexts/s | ratio | of processors"
        print(f"| way | threads | {columns} |")
        print("|---" * 8 + "|")
        for threads in given.threads:
            for way, (rival, theirs) in rivals.items():
                if way not in given.ways:
                    continue
                found: dict[str, list[Any]] = {"jgs": [], rival: []}
                for _ in range(given.rounds):
                    for side, command in (("jgs", ours), (rival, theirs)):
                        run = _run([*command, str(Path(name) / "shop"), way], threads)
                        found[side].append(run)
                        say(f"{way}, {threads} threads, {side}: {run}")
                print(_line(way, threads, found), flush=True)
    return 0


def _line(way: str, threads: int, found: dict[str, list[dict[str, float]]]) -> str:
    rates = {side: median(run["contexts"] for run in runs) for side, runs in found.items()}
    (_, ours), (rival, theirs) = rates.items()
    rows = median(run["rows"] for run in found["jgs"])
    busy = [max(run["busy"] for run in runs) for runs in found.values()]
    return (
        f"| {way} | {threads} | {ours:,.1f} | {rows:.0f} | {rival} | {theirs:,.1f} "
        f"| {ours / theirs:.1f} | {busy[0]:,.1f} / {busy[1]:,.1f} = {busy[0] / busy[1]:.1f} |"
    )


def _run(command: list[str], threads: int) -> dict[str, float]:
    cores = sorted(os.sched_getaffinity(0))[:threads]
    own = {"JAX_PLATFORMS": "cpu", "RAYON_NUM_THREADS": str(threads)}
    done = subprocess.run(
        command,
        cwd=_REPOSITORY,
        env=os.environ | own,
        stdout=subprocess.PIPE,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    return json.loads(done.stdout.splitlines()[-1])


def make(folder: Path, events: int) -> None:
    """Writes a RelBench folder with a task `churn`."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import yaml

    rng, users, items = np.random.default_rng(0), events // 16, events // 32
    start, day = np.datetime64("2022-01-01", "us"), 86400
    at = start + np.sort(rng.integers(0, 730 * day, events)) * 1_000_000
    numbers = lambda n: rng.normal(size=n)  # noqa: E731
    tables = {
        "users": {"user_id": np.arange(users), "age": numbers(users), "income": numbers(users)},
        "items": {"item_id": np.arange(items), "price": numbers(items), "size": numbers(items)},
        "events": {
            **{"event_id": np.arange(events), "time": at},
            "user_id": rng.integers(0, users, events),
            "item_id": rng.zipf(1.3, events) % items,
            "amount": numbers(events),
        },
    }
    for name, columns in tables.items():
        (folder / "db").mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), folder / "db" / f"{name}.parquet")
    task = folder / "tasks" / "churn"
    task.mkdir(parents=True)
    for split, number, first, last in (
        *(("train", 40_000, 30, 600), ("val", 5_000, 630, 631), ("test", 5_000, 690, 691)),
    ):
        moment = start + np.sort(rng.integers(first, last, number)) * day * 1_000_000
        columns = {"timestamp": moment, "user_id": rng.integers(0, users, number)}
        columns["churn"] = rng.integers(0, 2, number)
        pq.write_table(pa.table(columns), task / f"{split}.parquet")
    keys = {"user_id": "users", "item_id": "items"}
    said = {name: {"pkey": f"{name[:-1]}_id", "time_col": None, "fkeys": {}} for name in tables}
    said["events"] |= {"time_col": "time", "fkeys": keys}
    dates = {"val_timestamp": "2023-09-20", "test_timestamp": "2023-11-20"}
    manifest = {"name": "shop", "manifest_version": 1, **dates, "tables": said}
    (folder / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    of = {"kind": "external", "task_type": "binary_classification", "manifest_version": 1}
    of |= {"entity_table": "users", "entity_col": "user_id", "target_col": "churn"}
    manifest = {"name": "churn", "time_col": "timestamp", **of}
    (task / "manifest.yaml").write_text(yaml.safe_dump(manifest))


def by_jgs(folder: Path, way: str) -> dict[str, float]:
    import jax

    import jgs
    from jgs.ops import gather
    from jgs.sampling import Context, Seeds

    jgs.keep_freed_memory()  # as the commands do
    data = jgs.data.load(str(folder), db_task="churn")
    graph, table = data.graph, data.label_table
    assert table is not None
    fanouts = ({"*": 32},) * 6
    sampler = Context(_ROWS, fanouts)
    if way == "two":
        sampler = Context(300, ({"*": 256},) * 2)
    if way == "walks":
        sampler = Context(_ROWS, jgs.sampling.contexts.ByVisits(*_WALKS))

    @jax.jit
    def draw(key: Any, graph: Any, state: Any, features: Any, seeds: Any) -> Any:
        batch = sampler.sample(key, graph, state, seeds)
        x = gather(features, batch.nodes)
        mine = [(x.kind == t) for t in range(len(x.tables))]
        rows = [
            gather(own, jax.numpy.where(some, x.place, -1))
            for own, some in zip(x.tables, mine, strict=True)
            if own is not None
        ]
        return batch, rows

    state, number, times, rows = sampler.init(graph), _SEEDS[way], [], 0.0
    busy = []
    order = np.random.default_rng(1).permutation(np.flatnonzero(np.asarray(table.split) == 0))
    for call in range(_CALLS + 1):
        some = order[call * number : (call + 1) * number]
        seeds = Seeds(np.asarray(table.nodes)[some], np.asarray(table.time)[some])
        begun = time.perf_counter(), time.process_time()
        batch, _ = jax.block_until_ready(
            draw(jax.random.key(call), graph, state, data.features, seeds)
        )
        times.append(time.perf_counter() - begun[0])
        busy.append(time.process_time() - begun[1])
        rows = float(batch.tokens.mask.sum(-1).mean())
    rates = {"contexts": number / median(times[1:]), "busy": number / min(busy[1:])}
    return rates | {"rows": rows}


if __name__ == "__main__":
    raise SystemExit(main())
