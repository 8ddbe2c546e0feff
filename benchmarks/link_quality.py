"""What `--task links` reaches beside DGL, on the same splits, and the time of its steps.

    python -m benchmarks.link_quality [--only usair ns] [--seeds 5] [--cache FOLDER]

jgs makes each seed's split and its negatives. Then both train the same model on it: two layers
of GraphSAGE with the mean, and the dot product, by cross-entropy with one uniform negative for
each link. Settings are in `DATA` and `COMMON`; all others are the command's defaults. Where
nodes have no features, both learn a row of width 64 for each node, and DGL trains twice: with
the first rows of torch's `Embedding`, and with those of jgs (`scaled`). The epoch with the best
validation is judged on the test, with all neighbours, by jgs's metrics for both. The trainings
take turns. Prints two Markdown tables: the metrics, and the time of steps and epochs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from benchmarks import peers
from benchmarks.__main__ import CACHE, environment, run, say
from benchmarks.typed_quality import cell
from jgs.allocator import keep_freed_memory
from jgs.command import configure_jax
from jgs.graph import SparseFeatures
from jgs.train.config import Config
from jgs.train.evaluation.link_metrics import LINK_METRICS, JudgedLinks
from jgs.train.loop import training as loop
from jgs.train.tasks.link_job import LinkJob
from jgs.train.tasks.links import Links

THREADS = 2
COMMON: dict[str, Any] = {"fanouts": (10, 10), "hidden": 64, "dropout": 0.0, "lr": 5e-3}
COMMON |= {"decoder": "dot", "num_negatives": 1}  # as DGL's side has them


class Data(NamedTuple):
    """How a data set is trained and judged.

    Fields:
      metrics: the names of `LINK_METRICS`; validation is by the first.
      settings: those of the command.
      learned: the width of learned rows.
      seeds: at most so many splits.
    """

    metrics: tuple[str, ...]
    settings: dict[str, Any]
    learned: int = 64
    seeds: int = 5


DATA = {
    "facebook": Data(("auc", "hits"), {"batch_size": 4096, "epochs": 3}, 0, 3),
    "usair": Data(("auc",), {"batch_size": 256, "epochs": 50}),
    "ns": Data(("auc",), {"batch_size": 256, "epochs": 50}),
    "acm": Data(("mrr",), {"batch_size": 1000, "epochs": 10, "relation": "paper_author"}),
}


class Trained(NamedTuple):
    """The test's metrics of one training, and the seconds of its epochs but the first, by
    part."""

    metrics: dict[str, float]
    seconds: dict[str, list[float]]
    num_steps: int


class RecordedJob(LinkJob):
    """A `LinkJob` that keeps the last scores, which after a run are the test's."""

    def scores(
        self, params: Any, split: str, features: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        self.last = super().scores(params, split, features)
        return self.last


def measured(made: JudgedLinks, scores: tuple[np.ndarray, np.ndarray], metric: str) -> float:
    measure = LINK_METRICS[metric].measure
    assert measure is not None
    return measure(*scores, made.mask, Links.metric_k)


def of_jgs(job: RecordedJob, data: Data) -> Trained:
    result = loop.run(job.config, lambda config: job)
    lines = Path(result["run_dir"], "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines][1:]  # programs are compiled in the first
    parts = ("sampling", "features", "computing")
    seconds = {part: [row[f"{part}_seconds"] for row in rows] for part in parts}
    test = job.judged["test"]
    found = {metric: measured(test, job.last, metric) for metric in data.metrics}
    assert found[data.metrics[0]] == result["test_accuracy"]
    return Trained(found, seconds, len(job.loader))


def of_dgl(python: Path, job: RecordedJob, data: Data, folder: Path, scaled: bool) -> Trained:
    config = job.config
    setting = {name: getattr(config, name) for name in ("batch_size", "epochs", "lr", "seed")}
    setting |= {name: getattr(config, name) for name in ("fanouts", "hidden")}
    setting |= {"name": config.dataset, "learned": data.learned, "scaled": scaled}
    setting |= {"folder": str(folder)}
    task = {"threads": THREADS, "settings": [setting]}
    # Threads that wait for others' work in a loop starve those on a machine in use.
    variables = environment(THREADS, False, peer=True) | {"OMP_WAIT_POLICY": "passive"}
    (found,) = run(python, "link_quality_dgl", task, variables)
    parts = found["parts"]
    num_steps = -(-len(job.targets.train["src"]) // config.batch_size)
    seconds = {part: each[1:] for part, each in parts.items()}
    return Trained(
        best_epoch(job, data, dict(np.load(folder / "scores.npz"))), seconds, num_steps
    )


def best_epoch(job: RecordedJob, data: Data, scores: dict[str, np.ndarray]) -> dict[str, float]:
    """The test's metrics in the epoch that is best on validation, of DGL's scores."""

    def of(epoch: int, split: str, metric: str) -> float:
        both = scores[f"{epoch}_{split}_"], scores[f"{epoch}_{split}_other_"]
        return measured(job.judged[split], both, metric)

    found = [of(epoch, "val", data.metrics[0]) for epoch in range(job.config.epochs)]
    best = int(np.argmax(found))
    return {metric: of(best, "test", metric) for metric in data.metrics}


def write_split(job: RecordedJob, folder: Path) -> None:
    """Writes what DGL reads: the messages, the links of training, what the other splits are
    judged by, the features, and where the ids of each type of nodes begin."""
    (messages,), features = job.targets.messages, job.data.features[0]
    src, dst = messages.edge_index()
    arrays = {"src": src, "dst": dst}
    arrays |= {f"train_{end}": job.targets.train[end] for end in ("src", "dst")}
    for split, made in job.judged.items():
        names = ("src", "dst", "other_src", "other_dst")
        arrays |= {f"{split}_{name}": getattr(made, name) for name in names}
    if isinstance(features, SparseFeatures):
        rows = (features.values, features.indices, features.indptr)
        matrix = scipy.sparse.csr_array(tuple(map(np.asarray, rows)), shape=features.shape)
    else:
        matrix = scipy.sparse.csr_array(np.asarray(features))
    scipy.sparse.save_npz(folder / "features.npz", matrix)
    schema = messages.schema
    whole = (0, messages.num_nodes)
    arrays["bounds"] = np.asarray(whole if schema is None else schema.offsets, np.int64)
    np.savez(folder / "split.npz", **arrays)


def quality(trained: dict[tuple[str, str], list[Trained]]) -> list[str]:
    sides = list(dict.fromkeys(side for _, side in trained))
    lines = [
        f"| data | metric | seeds | {' | '.join(sides)} |",
        "|---" * (3 + len(sides)) + "|",
    ]
    for data in dict.fromkeys(name for name, _ in trained):
        runs = {side: trained.get((data, side), []) for side in sides}
        for metric in DATA[data].metrics:
            name = LINK_METRICS[metric].name.format(k=Links.metric_k)
            cells = [
                cell([run.metrics[metric] for run in each]) if each else ""
                for each in runs.values()
            ]
            lines.append(f"| {data} | {name} | {len(runs['jgs'])} | {' | '.join(cells)} |")
    return lines


def times(trained: dict[tuple[str, str], list[Trained]]) -> list[str]:
    lines = ["| data | | epoch, s | step, ms | sampling + features + computing, ms |"]
    lines.append("|---|---|---|---|---|")
    for (data, side), runs in trained.items():
        steps = runs[0].num_steps
        parts = {
            part: [seconds for run in runs for seconds in run.seconds[part]]
            for part in runs[0].seconds
        }
        epochs = [sum(each) for each in zip(*parts.values(), strict=True)]
        if epochs:
            said = " + ".join(f"{1e3 * median(each) / steps:.1f}" for each in parts.values())
            epoch = median(epochs)
            step = f"{1e3 * epoch / steps:.1f}"
            lines.append(f"| {data} | {side} | {epoch:.2f} | {step} | {said} |")
    return lines


def turn(
    name: str, seed: int, root: str, python: Path | None, epochs: int | None = None
) -> Iterator[tuple[str, Trained]]:
    """Trains on one split by jgs and, given its interpreter, by DGL: each side and its result.
    `epochs` replaces the number in `DATA`."""
    data = DATA[name]
    given = COMMON | data.settings | {"dataset": name, "root": root, "seed": seed}
    given |= {"learned": data.learned, "metric": data.metrics[0], "progress": False}
    given |= {"epochs": epochs} if epochs else {}
    with tempfile.TemporaryDirectory() as folder:
        config = Config(task="links", run_dir=str(Path(folder) / "run"), **given)
        job = RecordedJob(config, config.made("task"))
        yield "jgs", of_jgs(job, data)
        if python is None:
            return
        write_split(job, Path(folder))
        yield "DGL", of_dgl(python, job, data, Path(folder), scaled=False)
        if data.learned:
            found = of_dgl(python, job, data, Path(folder), scaled=True)
            yield "DGL, rows as in jgs", found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--root", default="../shared/data", help="folder of the .npz archives")
    add("--seeds", type=int, default=5, help="at most so many splits of each data set")
    add("--only", nargs="+", choices=DATA, default=list(DATA), metavar="DATA")
    add("--epochs", type=int, help="fewer or more than `DATA` says, for a trial")
    add("--no-peers", action="store_true", help="jgs alone")
    add("--cache", type=Path, default=CACHE, help="of the peers' environment")
    arguments = parser.parse_args()
    keep_freed_memory()
    configure_jax()
    python = None if arguments.no_peers else peers.python(arguments.cache.resolve())
    trained: dict[tuple[str, str], list[Trained]] = {}
    for name in arguments.only:
        for seed in range(min(arguments.seeds, DATA[name].seeds)):
            for side, one in turn(name, seed, arguments.root, python, arguments.epochs):
                trained.setdefault((name, side), []).append(one)
                say(f"{name}, seed {seed}, {side}: {one}")
    print("\n".join([*quality(trained), "", *times(trained)]))


if __name__ == "__main__":
    main()
