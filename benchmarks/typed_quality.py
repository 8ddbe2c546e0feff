"""What models of typed graphs reach on `acm`, beside DGL's, with the same settings and data.

    python -m benchmarks.typed_quality [--only nodes links] [--seeds 5] [--cache FOLDER]

`nodes` classifies papers by all of their neighbours, and gives macro- and micro-F1 on the test
papers. `links` predicts who wrote a paper, and gives the MRR of held-out links among `OTHERS`
authors, the same for both sides; held-out links and their reverses are no messages. Authors and
subjects have no features, and both sides learn a row of the hidden width for each. DGL trains
twice: with first rows as in its examples, which are small, and with those of jgs. The epoch
that is best on validation is judged on the test. Settings are `SETTINGS`. A seed decides the
parameters' first values, dropout and batches; the split is the same for all seeds. The
trainings take turns. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import mean, median, stdev

import numpy as np

from benchmarks import peers
from benchmarks import typed_quality_data as quality
from benchmarks.__main__ import CACHE, Failed, environment, run, say

THREADS = 2
OTHERS, SPLIT_SEED = 100, 0
_NODES = {
    "part": "nodes",
    "hidden": 64,
    "heads": 4,
    "dropout": 0.5,
    "lr": 5e-3,
    "weight_decay": 5e-4,
    "epochs": 100,
    "patience": 30,
}
_LINKS = {
    "part": "links",
    "hidden": 64,
    "dropout": 0.0,
    "lr": 5e-3,
    "batch_size": 1000,
    "fanouts": (10, 10),
    "epochs": 20,
}
SETTINGS = {
    "nodes": tuple(_NODES | {"name": m, "model": m} for m in ("rgcn", "rsage", "hgt")),
    "links": (
        _LINKS | {"name": "rgcn, DistMult", "model": "rgcn", "decoder": "distmult"},
        _LINKS | {"name": "rsage, dot", "model": "rsage", "decoder": "dot"},
    ),
}
METRICS = {"nodes": {"macro": "macro-F1", "micro": "micro-F1"}, "links": {"mrr": "MRR"}}
# Each side's module, and what is added to its settings.
SIDES = {
    "jgs": ("typed_quality_jgs", {}),
    "DGL": ("typed_quality_dgl", {"scaled": False}),
    "DGL, rows as in jgs": ("typed_quality_dgl", {"scaled": True}),
}


def trained(interpreter: Path, module: str, setting: dict) -> dict | None:
    """What a side reaches with a setting; None, which is said, where its process failed."""
    task = {"threads": THREADS, "settings": [setting]}
    # Threads that wait for others' work in a loop starve those on a machine in use.
    variables = environment(THREADS, False, peer=True) | {"OMP_WAIT_POLICY": "passive"}
    try:
        (found,) = run(interpreter, module, task, variables)
    except Failed as error:
        say(f"{module}: {error}")
        return None
    return found


def table(runs: dict[tuple[str, str, str], list[dict]]) -> list[str]:
    """The Markdown of the results by part, setting and side."""
    lines = ["| acm | model | side | seeds | metric | best epochs | ms a step |"]
    lines.append("|---" * 7 + "|")
    for (part, name, side), found in runs.items():
        said = ", ".join(
            f"{label} {cell([one[metric] for one in found])}"
            for metric, label in METRICS[part].items()
        )
        epochs = ", ".join(str(one["epoch"]) for one in found)
        step = f"{median(one['step_ms'] for one in found):.1f}"
        lines.append(
            f"| {part} | {name} | {side} | {len(found)} | {said} | {epochs} | {step} |"
        )
    return lines


def cell(values: list[float]) -> str:
    spread = f" ± {stdev(values):.4f}" if len(values) > 1 else ""
    return f"{mean(values):.4f}{spread}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--root", default="../shared/data", help="folder of acm.npz")
    add("--seeds", type=int, default=5, help="trainings of each model and side")
    add("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    add("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    add("--epochs", type=int, help="fewer or more than `SETTINGS` says, for a trial")
    add("--cache", type=Path, default=CACHE, help="of the peers' environment")
    arguments = parser.parse_args()
    interpreters = {False: Path(sys.executable)}
    if arguments.sides != ["jgs"]:
        interpreters[True] = peers.python(arguments.cache.resolve())
    root = str(Path(arguments.root).resolve())
    runs: dict[tuple[str, str, str], list[dict]] = {}
    with tempfile.TemporaryDirectory() as folder:
        split = Path(folder, "split.npz")
        np.savez(split, **quality.hold_out(quality.read(root), OTHERS, SPLIT_SEED))
        for part in arguments.only:
            for setting in SETTINGS[part]:
                given = setting | {"root": root, "split": str(split)}
                given |= {"epochs": arguments.epochs} if arguments.epochs else {}
                for seed in range(arguments.seeds):
                    for side in arguments.sides:
                        module, own = SIDES[side]
                        interpreter = interpreters[module.endswith("_dgl")]
                        found = trained(interpreter, module, given | own | {"seed": seed})
                        if found is not None:
                            key = part, setting["name"], side
                            runs.setdefault(key, []).append(found)
                            say(f"{', '.join(key)}, seed {seed}: {found}")
    print("\n".join(table(runs)))


if __name__ == "__main__":
    main()
