"""Contexts beside trees of two hops, where two hops tell much: on papers, ratings and a shop.

    python -m benchmarks.context_tasks [--seeds 5] [--only acm-180] [--root FOLDER]

`acm-180` and `acm-2411` ask for the classes of papers of `acm.npz`, with so many labels; a seed
makes a random split, with 1,000 papers to validate and 1,000 to test, or 804 each. `ratings`
asks of the films of ml-100k (in the wheel of RecBole) whether the mean rating of the next 28
days is at least 3.5, for films that get 3 ratings in them. `shop-churn`, `shop-gift` and
`shop-kind` are tasks of `shop_db`. There the seeds make other weights and draws.

`rsage` draws two hops, and `relgt` reads contexts of them. Both take the dropout of `DROPOUTS`
that is best on the validation of seed 0, and the epoch that is best on validation; all else
is the model's default. Prints the metric on the test, its mean and deviation over the seeds,
the same on validation, and the seconds of a run.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import zipfile
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks import typed_quality_data as typed
from benchmarks.__main__ import CACHE, command_line, say

DROPOUTS = 0.2, 0.5, 0.7
MODELS: dict[str, dict[str, Any]] = {
    "rsage": {"model": "rsage", "fanouts": ("*=10", "*=10")},
    "relgt": {"model": "relgt", "sampler": "context", "fanouts": ("*=10", "*=6")}
    | {"options": {"context_size": 48}},
}
TIMED = {"rsage": {"fanouts": ("*=30", "*=5")}, "relgt": {"fanouts": ("*=30", "*=1")}}
TIMED["relgt"]["options"] = {"context_size": 64}  # type: ignore[assignment]
_MONTH = 28
_VAL, _TEST = "1998-02-25", "1998-03-25"
_LIKED = """
    SELECT r.film, t.timestamp, avg(r.rating) >= 3.5 AS liked
    FROM timestamps t JOIN ratings r ON r.at > t.timestamp
        AND r.at <= t.timestamp + INTERVAL '{timedelta}'
    GROUP BY ALL HAVING count(*) >= 3
"""
_PARTS = {
    "users": "user_id AS id, CAST(age AS INTEGER) AS age, gender, occupation",
    "films": "item_id AS id, TRY_CAST(release_year AS INTEGER) AS year, class AS genres",
    "ratings": "user_id AS user, item_id AS film, CAST(rating AS FLOAT) AS rating, "
    "epoch_ms(CAST(timestamp AS BIGINT) * 1000) AS at",
}


def main() -> int:
    parser = command_line("context_tasks", __doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--root", default="data", help="folder of acm.npz and shop_db")
    parser.add_argument("--cache", type=Path, default=CACHE, help="of RecBole's wheel")
    given = parser.parse_args()
    print("| task | model | dropout | test | validation | seconds |\n" + "|---" * 6 + "|")
    with tempfile.TemporaryDirectory(prefix="jgs-tasks-") as name:
        for task in given.only:
            for model in given.models:
                print(_row(Path(name), task, model, given), flush=True)
    return 0


def _row(folder: Path, task: str, model: str, given: Any) -> str:
    data = [TASKS[task](folder, given, seed) for seed in range(given.seeds)]
    first = [_run(folder, data[0], model, 0, dropout) for dropout in DROPOUTS]
    best = int(np.argmax([val for val, *_ in first]))
    found = [first[best]]
    for seed in range(1, given.seeds):
        found.append(_run(folder, data[seed], model, seed, DROPOUTS[best]))
    say(f"{task}, {model}: {first}, {found}")
    vals, tests, seconds = zip(*found, strict=True)
    cells = [
        f"{mean(each):.3f} ± {stdev(each) if len(each) > 1 else 0:.3f}"
        for each in (tests, vals)
    ]
    end = f"{' | '.join(cells)} | {mean(seconds):.0f} |"
    return f"| {task} | `{model}` | {DROPOUTS[best]} | {end}"


def _run(
    folder: Path, data: dict[str, Any], model: str, seed: int, dropout: float
) -> tuple[float, float, float]:
    """The metric on validation and test, and the seconds."""
    import jgs

    begun = time.perf_counter()
    shutil.rmtree(folder / "run", ignore_errors=True)
    own = MODELS[model] | (TIMED[model] if "data_options" in data else {})
    own = data | own | {"dropout": dropout, "seed": seed, "progress": False}
    config = jgs.train.Config(**own, run_dir=str(folder / "run"))
    jgs.train.run(config)
    found = json.loads((folder / "run" / "result.json").read_text())
    return found["val_accuracy"], found["test_accuracy"], time.perf_counter() - begun


def _papers(labels: int, folder: Path, given: Any, seed: int) -> dict[str, Any]:
    import jgs

    path = folder / f"acm-{labels}-{seed}"
    if not path.exists():
        data = typed.read(given.root)
        graph = jgs.Graph.from_relations(data.num_nodes, data.edges, both_ways=True)
        papers = graph.schema.nodes("paper")  # type: ignore[union-attr]
        order, sizes = np.random.default_rng(seed).permutation(len(papers)), (1000, 1000)
        if labels < 1000:  # as many of each class
            few = [order[data.labels[order] == c][: labels // 3] for c in range(3)]
            train = np.concatenate(few)
        else:
            train, sizes = order[:labels], (804, 804)
        others = order[~np.isin(order, train)]
        parts = (train, *np.split(others[: sum(sizes)], sizes[:1]))
        splits = {
            name: np.sort(own) + papers.start
            for name, own in zip(("train", "val", "test"), parts, strict=True)
        }
        every = np.full(graph.num_nodes, -1, np.int32)
        every[papers.start : papers.stop] = data.labels
        features = {"paper": data.features}
        jgs.data.Dataset.from_arrays(graph, features, every, splits, name=path.name).save(path)
    few_labels = {"batch_size": 60, "epochs": 30}
    return {"dataset": str(path)} | (
        few_labels if labels < 1000 else {"batch_size": 200, "epochs": 12}
    )


def _ratings(folder: Path, given: Any, seed: int) -> dict[str, Any]:
    import duckdb
    import pyarrow as pa
    import yaml

    path = folder / "ratings.duckdb"
    if not path.exists():
        with zipfile.ZipFile(peers.recbole(given.cache)) as wheel, duckdb.connect(path) as base:
            for (table, columns), end in zip(
                _PARTS.items(), ("user", "item", "inter"), strict=True
            ):
                name = f"recbole/dataset_example/ml-100k/ml-100k.{end}"
                head, *rows = (r.split("\t") for r in wheel.read(name).decode().splitlines())
                names = [each.partition(":")[0] for each in head]
                part = pa.table(
                    dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
                )
                base.register("part", part)
                base.execute(f"CREATE TABLE {table} AS SELECT {columns} FROM part")
        tables = {"users": {"pkey": "id"}, "films": {"pkey": "id"}}
        keys = {"user": "users", "film": "films"}
        said = {"tables": tables | {"ratings": {"time_col": "at", "fkeys": keys}}}
        said |= {"val_timestamp": _VAL, "test_timestamp": _TEST}
        (folder / "ratings.yaml").write_text(yaml.safe_dump(said))
        (folder / "liked.sql").write_text(_LIKED)
    options = (f"task_sql={folder / 'liked.sql'}", "entity=films", f"horizon={_MONTH} days")
    own = {"metric": "auc", "batch_size": 200, "epochs": 8}
    return {"dataset": str(path), "data_options": options} | own


def _shop(task: str, folder: Path, given: Any, seed: int) -> dict[str, Any]:
    own = {"metric": "auc", "batch_size": 40, "epochs": 15}
    where = str(Path(given.root) / "shop_db")
    return {"dataset": where, "data_options": (f"db_task={task}",)} | own


TASKS = {
    "acm-180": partial(_papers, 180),
    "acm-2411": partial(_papers, 2411),
    "ratings": _ratings,
    "shop-churn": partial(_shop, "user-churn"),
    "shop-gift": partial(_shop, "events-gift"),
    "shop-kind": partial(_shop, "event-kind"),
}

if __name__ == "__main__":
    raise SystemExit(main())
