"""What contexts see and trees of two hops do not: facts that are several keys away.

    python -m benchmarks.context_quality [--rows 4000] [--seeds 3] [--epochs 30]

Two databases whose rows hold random numbers. `far`: a row names a row of the next table, and
so on for five tables; the label is the sign of a number four keys away. `pair`: a row leads
along two ways of three keys each to two numbers; the label says which one is larger. No two
rows share a row that they lead to, so nothing can be learned by heart. GraphSAGE with
relations draws two hops; `relgt` reads contexts of 32 rows, which go as far as the keys. Prints
the AUC of each on the test, its mean and deviation over the seeds, and the seconds of a run.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from benchmarks.__main__ import command_line, say

_WIDTH = 4
_CHAINS = {
    "far": ("abcde",),
    "pair": ("abcd", "aefg"),
}
_HOPS = {"far": 4, "pair": 3}
_COMMON = {"hidden": 32, "lr": 5e-3, "batch_size": 256, "dropout": 0.0, "metric": "auc"}


def main() -> int:
    parser = command_line("context_quality", __doc__)
    parser.add_argument("--rows", type=int, default=4000, help="of each table")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=30)
    given = parser.parse_args()
    print("| task | model | test AUC | seconds |")
    print("|---" * 4 + "|")
    with tempfile.TemporaryDirectory(prefix="jgs-quality-") as name:
        for task in _CHAINS:
            folder = Path(name) / task
            make(task, given.rows).save(folder / "data")
            two = {"model": "rsage", "fanouts": ("*=10",) * 2}
            far = {"model": "relgt", "sampler": "context", "fanouts": ("*=4",) * _HOPS[task]}
            far |= {"options": {"context_size": 32}}
            for model in (two, far):
                runs = [_run(folder, model, seed, given.epochs) for seed in range(given.seeds)]
                scores, seconds = zip(*runs, strict=True)
                spread = stdev(scores) if len(scores) > 1 else 0.0
                label = f"{model['model']}, {len(model['fanouts'])} hops"
                print(
                    f"| {task} | {label} | {mean(scores):.3f} ± {spread:.3f} "
                    f"| {mean(seconds):.0f} |",
                    flush=True,
                )
    return 0


def make(task: str, rows: int) -> Any:
    """The database of a task, as a data set of nodes."""
    import jgs

    rng, chains = np.random.default_rng(0), _CHAINS[task]
    tables = sorted(set("".join(chains)))
    values = {t: rng.normal(size=(rows, _WIDTH)).astype(np.float32) for t in tables}
    keys, ends = {}, []
    for chain in chains:
        here = np.arange(rows)
        for one, after in pairwise(chain):
            named = rng.permutation(rows)  # the row that each row of `one` names
            keys[after, f"{one}_{after}", one] = named, np.arange(rows)
            here = named[here]
        ends.append(values[chain[-1]][here, 0])
    label = ends[0] > (ends[1] if len(ends) > 1 else 0)
    graph = jgs.Graph.from_relations(dict.fromkeys(tables, rows), keys, both_ways=True)
    order, parts = rng.permutation(rows), (int(0.7 * rows), int(0.8 * rows))
    splits = dict(zip(("train", "val", "test"), np.split(order, parts), strict=True))
    labels = np.full(graph.num_nodes, -1, np.int32)
    first = graph.schema.nodes("a").start  # type: ignore[union-attr]
    labels[first : first + rows] = label
    splits = {name: own + first for name, own in splits.items()}
    return jgs.data.Dataset.from_arrays(graph, values, labels, splits, name=task)


def _run(folder: Path, model: dict[str, Any], seed: int, epochs: int) -> tuple[float, float]:
    import jgs

    begun = time.perf_counter()
    shutil.rmtree(folder / "run", ignore_errors=True)
    config = jgs.train.Config(
        dataset=str(folder / "data"),
        run_dir=str(folder / "run"),
        epochs=epochs,
        seed=seed,
        **{**_COMMON, **model},
    )
    jgs.train.run(config)
    score = json.loads((folder / "run" / "result.json").read_text())["test_accuracy"]
    say(f"{folder.name}, {model['model']}, seed {seed}: {score:.4f}")
    return score, time.perf_counter() - begun


if __name__ == "__main__":
    raise SystemExit(main())
