"""A database of text keys: from a DuckDB file to a graph that draws, beside DuckDB's own sort.

    python -m benchmarks.database [--rows 5e6] [--rounds 3] [--folder /tmp] [--profile]

Makes five tables of a shop with text keys in a DuckDB file, by a fixed rule. Two sides take
turns, each in a process of its own on two cores: jgs opens the file, makes the graph and draws
a batch; DuckDB, with two threads, reads each table, sorts it by its key and writes it as
Parquet. The memory is the peak of jgs's process above that after its imports, beside the bytes
of the graph, of its rows of features and of its names as text. `--profile` prints where jgs's
time goes instead.
"""

from __future__ import annotations

import cProfile
import json
import os
import pstats
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.__main__ import command_line, say

MIB = 1 << 20
_REPOSITORY = Path(__file__).parents[1]
_KEY = "printf('{0}%016x', hash({1}))"
_DAY = "TIMESTAMP '2020-01-01' + INTERVAL 1 SECOND * (hash(i, '{0}') % 126230400)"
# Each table's share of the rows, its columns, and the tables that its keys name.
TABLES: dict[str, tuple[float, dict[str, str]]] = {
    "shops": (0.01, {"city": "'city ' || i % 40"}),
    "users": (0.1, {"age": "i % 80", "country": "'c' || i % 20", "shop": "shops"}),
    "items": (0.09, {"price": "(i % 997) / 7.0", "shop": "shops"}),
    "orders": (0.3, {"at": _DAY.format("o"), "paid": "(i % 9973) / 11.0", "user": "users"}),
    "lines": (
        0.5,
        {"at": _DAY.format("l"), "count": "i % 7", "item": "items", "order": "orders"},
    ),
}


def main() -> int:
    given = _arguments()
    if given.side:
        print(json.dumps(_SIDES[given.side](given.folder, given.profile)), flush=True)
        return 0
    with tempfile.TemporaryDirectory(prefix="jgs-database-", dir=given.folder) as name:
        folder = Path(name)
        make(folder, int(given.rows))
        say(f"{int(given.rows):,} rows, a file of {_size(folder / 'shop.duckdb') / 1e9:.2f} GB")
        if given.profile:
            _run("jgs", folder, profile=True)
            return 0
        runs: dict[str, list[dict[str, Any]]] = {side: [] for side in _SIDES}
        for _ in range(given.rounds):
            for side, found in runs.items():
                found.append(_run(side, folder))
                say(f"{side}: {found[-1]}")
    ours, theirs = (median(run["seconds"] for run in runs[side]) for side in _SIDES)
    peak, kept = (max(run[name] for run in runs["jgs"]) for name in ("peak", "kept"))
    print("| rows | jgs, s | DuckDB, s | ratio | peak, MiB | graph and rows, MiB | ratio |")
    print("|---" * 7 + "|")
    print(
        f"| {int(given.rows):,} | {ours:.1f} | {theirs:.1f} | {ours / theirs:.2f} "
        f"| {peak / MIB:,.0f} | {kept / MIB:,.0f} | {peak / kept:.2f} |",
        flush=True,
    )
    return 0


def _arguments() -> Any:
    parser = command_line("database", __doc__)
    add = parser.add_argument
    add("--rows", type=float, default=5e6)
    add("--rounds", type=int, default=3)
    add("--folder", type=Path, default=Path(tempfile.gettempdir()))
    add("--profile", action="store_true")
    add("--side", choices=(*_SIDES,), help="one side's run in the folder, as JSON")
    return parser.parse_args()


def make(folder: Path, rows: int) -> None:
    """Writes `shop.duckdb`, and `shop.yaml` beside it, which says the keys."""
    import duckdb
    import yaml

    base, said = duckdb.connect(str(folder / "shop.duckdb")), {}
    counts = {table: max(1, int(share * rows)) for table, (share, _) in TABLES.items()}
    for table, (_, columns) in TABLES.items():
        named = {c: value for c, value in columns.items() if value in TABLES}
        values = [f"{_KEY.format(table[0], f'i * 31 + {len(table)}')} AS id"]
        for name, value in columns.items():
            if name in named:
                row = f"hash(i, '{name}') % {counts[value]} * 31 + {len(value)}"
                value = _KEY.format(value[0], f"CAST({row} AS BIGINT)")
            values.append(f'{value} AS "{name}"')
        base.execute(
            f'CREATE TABLE "{table}" AS SELECT {", ".join(values)} '
            f"FROM range({counts[table]}) r(i)"
        )
        said[table] = {"pkey": "id", "fkeys": named} | (
            {"time_col": "at"} if "at" in columns else {}
        )
    base.close()
    manifest = {"val_timestamp": "2023-06-01", "test_timestamp": "2023-09-01", "tables": said}
    (folder / "shop.yaml").write_text(yaml.safe_dump(manifest))


def by_duckdb(folder: Path, profile: bool) -> dict[str, Any]:
    import duckdb

    begun = time.perf_counter()
    base = duckdb.connect(str(folder / "shop.duckdb"), read_only=True)
    base.execute("SET threads = 2")
    for table in TABLES:
        out = folder / f"{table}.parquet"
        base.execute(f"""COPY (SELECT * FROM "{table}" ORDER BY id) TO '{out}'""")
        out.unlink()
    return {"seconds": time.perf_counter() - begun}


def by_jgs(folder: Path, profile: bool) -> dict[str, Any]:
    import jax
    import numpy as np

    import jgs
    import jgs.data
    from jgs.sampling import Neighbors

    _imported()
    before = _resident()
    watch = cProfile.Profile()
    if profile:
        watch.enable()
    begun = time.perf_counter()
    plain = jgs.data.Database.open(folder / "shop.duckdb").plain()
    graph, made = plain.graph, time.perf_counter() - begun
    nodes = np.asarray(graph.schema.nodes("users"))[:1000]
    sampler, late = (
        Neighbors(({"*": 10},) * 2),
        np.full(nodes.size, np.asarray(graph.edge_time).max()),
    )
    items = {"nodes": nodes, "time": late}
    with jgs.sampling.Loader(
        graph, items, nodes.size, sampler, key=jax.random.key(0)
    ) as loader:
        batch = next(iter(loader))
        drawn = int(sum(block.num_edges for block in batch.blocks))
    seconds, peak = time.perf_counter() - begun, _peak() - before
    if profile:
        watch.disable()
        pstats.Stats(watch, stream=sys.stderr).sort_stats("tottime").print_stats(25)
    leaves = jax.tree.leaves((graph, plain.features))
    kept = sum(array.nbytes for array in leaves) + 18 * graph.num_nodes
    return {
        "seconds": seconds,
        "graph_seconds": made,
        "peak": peak,
        "kept": kept,
        "edges": drawn,
    }


def _imported() -> None:
    import duckdb
    import pyarrow

    assert duckdb
    assert pyarrow


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _size(path: Path) -> int:
    return path.stat().st_size


_SIDES = {"jgs": by_jgs, "duckdb": by_duckdb}


def _run(side: str, folder: Path, profile: bool = False) -> dict[str, Any]:
    """What a side gave, in a process of its own on two cores."""
    command = [sys.executable, "-m", "benchmarks.database", "--side", side]
    command += ["--folder", str(folder)] + ["--profile"] * profile
    cores = sorted(os.sched_getaffinity(0))[:2]
    done = subprocess.run(
        command,
        cwd=_REPOSITORY,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    return json.loads(done.stdout)


if __name__ == "__main__":
    raise SystemExit(main())
