"""What training reaches with every sampler: test accuracy at the best validation epoch.

    python -m benchmarks.quality [--root ../shared/data] [--runs 3] [--only cora-full cora]

Every run does what `python -m jgs.train` does with the flags of `TASKS`, in this process, with
`--seed` 0, 1 and so on. Prints a Markdown table: the mean and standard deviation of the runs,
and the accuracy that they must reach. That is a published accuracy, or 1.5 points less than
neighbour sampling on the same data. Progress goes to standard error. A new sampler needs a line
in each task that it is for.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from typing import NamedTuple

from jgs.allocator import keep_freed_memory
from jgs.command import configure_jax
from jgs.train.config import Config
from jgs.train.flags import parse
from jgs.train.loop import training as loop

POINTS = 1.5  # how far a sampler may lie below neighbour sampling
BESIDE = "neighbors"


class Task(NamedTuple):
    """Data, and the samplers that are compared on it.

    Fields:
      flags: the flags of all runs.
      samplers: each sampler's own flags, which come last. The key is the name for `--sampler`,
        and a comma and more words where several entries have that name.
      bars: the published accuracies in % that some of the samplers must reach.
    """

    flags: str
    samplers: dict[str, str]
    bars: dict[str, float]


FANOUTS = "--fanouts 10 10"
SAINT = "--norm-error 0.15 --draw"
BY_NODE = {
    "neighbors": FANOUTS,
    "labor": FANOUTS,
    "vrgcn": "--fanouts 2 2",
    "gcnbs": FANOUTS,
    "thanos": FANOUTS,
    "pass": FANOUTS,
}
TASKS = {
    # Trained as the authors of FastGCN and LADIES train: GCN, hidden layers without dropout.
    "cora-full": Task(
        "--dataset cora --data-options split=full --epochs 50 --batch-size 256 --lr 1e-2 "
        "--weight-decay 5e-4 --hidden 128",
        {
            "neighbors": f"--model sage --dropout 0.5 {FANOUTS}",
            "fastgcn": "--model gcn --dropout 0 --sizes 400 400 --epochs 60",
            "ladies": "--model gcn --dropout 0 --sizes 512 512",
            "asgcn": "--model gcn --dropout 0 --sizes 512 512",
        },
        {"fastgcn": 85.0, "ladies": 85.0, "asgcn": 86.0},
    ),
    "cora": Task(
        "--dataset cora --epochs 50 --batch-size 64 --lr 5e-3 --weight-decay 5e-4 --hidden 64 "
        "--model sage --dropout 0.5",
        {
            **BY_NODE,
            "subgraph": "--extra-nodes 2000",
        },
        {},
    ),
    "facebook": Task(
        "--dataset facebook --epochs 4 --batch-size 1000 --lr 1e-2 --hidden 64 --model sage "
        "--dropout 0.2",
        {
            **BY_NODE,
            "subgraph": "--extra-nodes 5000",
        },
        {},
    ),
    # Samplers of subgraphs, beside neighbour sampling with the README's settings.
    "facebook-256": Task(
        "--dataset facebook --epochs 10 --batch-size 1000 --lr 6e-3 --hidden 256 --model sage "
        "--dropout 0.5",
        {
            "neighbors": FANOUTS,
            "saint, node": f"{SAINT} node --epochs 20",
            "saint, edge": f"{SAINT} edge --budget 4000",
            "saint, walk": f"{SAINT} walk --budget 3000",
            "shadow": f"{FANOUTS} --layers 2 --epochs 4",
            "shadow, ppr": "--scope-size 20 --layers 2 --epochs 4",
        },
        {},
    ),
}


def accuracy(root: str, task: Task, sampler: str, more: str = "", seed: int = 0) -> float:
    """Test accuracy of one run in %; `more` flags come after the task's and the sampler's."""
    name, own = sampler.split(",")[0], task.samplers[sampler]
    flags = f"--root {root} {task.flags} --sampler {name} {own} {more}"
    with tempfile.TemporaryDirectory() as folder:
        given = parse([*flags.split(), "--seed", str(seed), "--run-dir", folder])
        return 100 * loop.run(Config(**given, progress=False))["test_accuracy"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--root", default="../shared/data", help="folder of the .npz archives")
    add("--runs", type=int, default=3, help="of each line: seeds 0 to N-1")
    add("--only", nargs="+", choices=TASKS, default=list(TASKS), metavar="TASK")
    add("--sampler", nargs="+", help="some of the samplers (neighbors is run beside them)")
    arguments = parser.parse_args()
    keep_freed_memory()
    configure_jax()
    print("| data | sampler | test accuracy, % | each run | at least |")
    print("|---|---|---|---|---|")
    for name in arguments.only:
        task, beside = TASKS[name], 0.0
        for sampler in task.samplers:
            if arguments.sampler and sampler not in (BESIDE, *arguments.sampler):
                continue
            seeds = range(arguments.runs)
            found = [accuracy(arguments.root, task, sampler, seed=seed) for seed in seeds]
            mean = statistics.mean(found)
            spread = f" ± {statistics.stdev(found):.2f}" if len(found) > 1 else ""
            beside = mean if sampler == BESIDE else beside
            bar = task.bars.get(sampler, beside - POINTS)
            held = "" if sampler == BESIDE else f"{bar:.2f}{'' if mean >= bar else ' (below)'}"
            each = ", ".join(f"{a:.1f}" for a in sorted(found))
            print(f"| {name} | {sampler} | {mean:.2f}{spread} | {each} | {held} |", flush=True)


if __name__ == "__main__":
    main()
