"""Training on sampled subgraphs beside training by neighbour sampling.

    python -m benchmarks.subgraph_training --folder /tmp/subgraphs [--only facebook depth]

Each part is a process of its own, and curves have one for each seed. It prints Markdown tables
and leaves its figures in the folder. The parts are:

- `facebook`, `planted` and `synthetic`: validation F1 by seconds of training, as in
  gcn-ipdps19's Figure 2, and F1 of the test nodes, over the seeds. `planted` has several labels
  a node (`benchmarks.planted_labels`). With one label a node, micro-F1 is accuracy.
- `simple`: the F1 of predictions without a graph network on `facebook` and `planted`.
- `depth`: seconds an epoch, and rows that the innermost layer makes for a seed, by layers.
- `deeper`: the F1 of the frontier by layers.
- `pool`: what the training thread waits for.
- `picture`: draws the curves that the folder has.

`--quick` runs `planted`, `simple`, `depth`, `deeper` and `picture` on small graphs, with one
seed and at most two layers and epochs.

Runs are those of `python -m jgs.train` with the flags below. `pool` has 2 threads. All other
parts have one thread, and their seconds are the CPU time of the process without evaluation and
compiling: what a clock shows where nothing else runs. The estimate of the normalisation, which
is made once before training, is left out too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import subgraph_tables as tables
from benchmarks.__main__ import command_line, say
from benchmarks.planted_labels import planted, write
from benchmarks.subgraph_tables import METHODS

SHOWN = 12  # points below the best F1 that the picture shows
FRONTIER = "--sampler frontier --norm-error 0"
WALK = "--sampler saint --draw walk --budget 3000 --norm-error 0.15"
DEPTHS = (1, 2, 3, 4, 5, 6)


class Curves(NamedTuple):
    """A data set's curves: the flags of all runs, and the flags of each method. `FOLDER` stands
    for the folder of the figures."""

    flags: str
    own: dict[str, str]


CURVES = {
    "facebook": Curves(
        "--dataset facebook --model sage --hidden 128 --dropout 0.5 --lr 6e-3",
        {
            "neighbour sampling": "--epochs 8",
            "frontier": "--epochs 16",
            "random walk": "--epochs 10",
        },
    ),
    "planted": Curves(
        "--dataset FOLDER/planted --model sage --hidden 128 --dropout 0.3 --lr 1e-2 "
        "--norm layer --batch-size 250",
        {
            "neighbour sampling": "--epochs 20",
            "frontier": "--epochs 20 --budget 6000 --frontier-size 500",
            "random walk": "--epochs 15 --budget 2500",
        },
    ),
    "synthetic": Curves(
        "--dataset synthetic --model sage --hidden 128 --dropout 0.2 --lr 6e-3 --norm layer",
        {
            "neighbour sampling": "--epochs 12",
            "frontier": "--epochs 12 --budget 16000 --frontier-size 2000 --batch-size 500",
            "random walk": "--epochs 8 --budget 6000 --batch-size 500",
        },
    ),
}
LABELLED = ("facebook", "planted")  # of the parts `simple` and `deeper`
NODES = {False: 10_000, True: 2_000}  # of the planted graph, as `--quick` is
# Appended in `--quick`, so that these count and not the same flags above.
QUICK = {
    "neighbour sampling": " --epochs 2 --hidden 16 --batch-size 200",
    "frontier": " --epochs 2 --hidden 16 --batch-size 200 --frontier-size 100 --budget 500",
    "random walk": " --epochs 2 --hidden 16 --batch-size 200 --budget 500",
}
# All layers do the same work: features are as wide as the hidden rows.
DEPTH = (
    "--dataset synthetic --data-options num_features=128 --model sage --hidden 128 --epochs 1 "
    "--norm layer --lr 1e-3"
)
POOL = {
    "synthetic, frontier": f"--dataset synthetic --hidden 256 --layers 3 {FRONTIER}",
    "synthetic, random walk": f"--dataset synthetic --hidden 256 --layers 3 {WALK}",
    "facebook, frontier": f"--dataset facebook --hidden 128 --layers 3 {FRONTIER}",
}


def sampler(method: str, layers: int) -> str:
    """The flags of a method."""
    if method == "neighbour sampling":
        return f"--sampler neighbors --fanouts {' '.join(['10'] * layers)}"
    return f"{FRONTIER if method == 'frontier' else WALK} --layers {layers}"


def flags_of(name: str, method: str, layers: int, args: argparse.Namespace) -> str:
    """The flags of a run of a data set's curves."""
    found = f"--root {args.root} --prefetch 0 {CURVES[name].flags} {sampler(method, layers)} "
    found += CURVES[name].own[method]
    found += QUICK[method] if args.quick else ""
    return found.replace("FOLDER", str(args.folder))


def curve(flags: str, seed: int) -> dict[str, Any]:
    """Trains. The result has "points", the seconds of training and the validation F1 in % after
    each epoch; "step", the medians of the steps; and "test", the micro- and
    macro-F1 in % of the test nodes at the best epoch."""
    from benchmarks.subgraph_runs import begun, middle, test_f1, trained

    total, points, taken = 0.0, [], []
    with begun(flags, seed) as run:
        for epoch in trained(*run, time.process_time):
            total += epoch.seconds
            points.append((round(total, 3), round(epoch.accuracy, 3)))
            taken += epoch.steps
        test = test_f1(*run)
    return {"points": points, "step": middle(taken)._asdict(), "test": test}


def curves(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """The curve of each depth and method, with one seed."""
    found: dict[str, Any] = {}
    for layers in args.layers:
        for method in METHODS:
            run = curve(flags_of(name, method, layers, args), args.seed)
            say(f"{name}, seed {args.seed}, {layers} layers, {method}: {run}")
            found[f"{layers} {method}"] = run
    return found


def simple(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """The F1 of simple predictions on each data set."""
    from benchmarks.planted_labels import beside
    from jgs.data import load

    found = {}
    for data in labelled(args):
        path = str(args.folder / data) if data == "planted" else data
        found[data] = beside(load(path, args.root))
        say(f"{data}: {found[data]}")
    return found


def labelled(args: argparse.Namespace) -> tuple[str, ...]:
    return ("planted",) if args.quick else LABELLED


def depths(args: argparse.Namespace) -> tuple[int, ...]:
    return DEPTHS[:2] if args.quick else DEPTHS


def depth(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Of each method and depth "seconds" an epoch, and the "rows" that the innermost layer
    makes for one seed. All are trained in turn, a step at a time."""
    from benchmarks.subgraph_runs import begun, middle, steps

    flags = f"--root {args.root} --prefetch 0 {DEPTH}"
    if args.quick:
        small = f"--data-options num_nodes={NODES[True]} num_edges=20000 "
        flags = flags.replace("--data-options ", small)
    seconds: dict[str, list[float]] = {}
    rows: dict[str, list[float]] = {}
    for method in METHODS[:2]:
        own = QUICK[method] if args.quick else ""
        with ExitStack() as stack:
            runs = [
                stack.enter_context(begun(f"{flags} {sampler(method, layers)}{own}"))
                for layers in depths(args)
            ]
            for _ in range(2):  # the first epoch compiles
                taken = zip(*(steps(*run, time.process_time) for run in runs), strict=True)
                each = [list(some) for some in zip(*taken, strict=True)]
        typical = [middle(some) for some in each]
        seconds[method] = [
            len(some) * (step.waited + step.computed)
            for some, step in zip(each, typical, strict=True)
        ]
        rows[method] = [step.rows / step.seeds for step in typical]
        say(f"{method}: {seconds[method]} s, {rows[method]} rows for a seed")
    return {"seconds": seconds, "rows": rows}


def deeper(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """For each data set the frontier's best validation F1, and the test nodes' F1 then, at each
    depth."""
    found: dict[str, Any] = {}
    for data in labelled(args):
        found[data] = {"validation": [], "test": []}
        for layers in depths(args):
            run = curve(flags_of(data, "frontier", layers, args), 0)
            found[data]["validation"].append(max(value for _, value in run["points"]))
            found[data]["test"].append(run["test"][0])
            say(f"{data}, {layers} layers: {run}")
    return found


def pool(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """For each run, milliseconds a step without a pool, and the share of waiting with one."""
    from benchmarks.subgraph_runs import epochs

    found = {}
    for what, flags in POOL.items():
        own = f"--root {args.root} --model sage {flags}"
        *_, alone = epochs(f"{own} --epochs 2 --prefetch 0", clock=time.perf_counter)
        *_, last = epochs(f"{own} --epochs 3 --prefetch 2", clock=time.perf_counter)
        waited = sum(step.waited for step in last.steps)
        found[what] = {
            # The mean, because some steps draw for others too.
            "sampling": statistics.fmean(step.waited for step in alone.steps),
            "computing": statistics.median(step.computed for step in alone.steps),
            "waited": waited / last.seconds,
        }
        say(f"{what}: {found[what]}")
    return found


def stored(folder: Path, name: str) -> list[dict[str, Any]]:
    """The figures of a part in the folder, for curves those of each seed."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob(f"{name}*.json"))]


def picture(folder: Path, path: Path) -> None:
    """The curves of the deepest models, a panel for each data set: the mean over the seeds, and
    a band of one standard deviation to either side."""
    from matplotlib.figure import Figure  # an optional dependency, and a slow import

    there = {name: found for name in CURVES if (found := stored(folder, name))}
    figure = Figure(figsize=(4 * max(len(there), 2), 3.2), layout="constrained")
    panels = figure.subplots(1, len(there), squeeze=False)[0]
    for axes, (name, seeds) in zip(panels, there.items(), strict=True):
        layers = max(int(key.split()[0]) for key in seeds[0])
        for method in METHODS:
            points = np.array([found[f"{layers} {method}"]["points"] for found in seeds])
            (x, y), spread = (
                points.mean(axis=0).T,
                points[..., 1].std(axis=0, ddof=1 % len(seeds)),
            )
            axes.plot(x, y, marker="o", markersize=3, label=method)
            axes.fill_between(x, y - spread, y + spread, alpha=0.25)
        best = max(y for found in seeds for run in found.values() for _, y in run["points"])
        axes.set_ylim(best - SHOWN, best + 0.5)
        axes.set(xlabel="seconds of training", title=f"{name}, {layers} layers", xscale="log")
        axes.set_xticks([1, 3, 10, 30], ["1", "3", "10", "30"])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    panels[0].set(ylabel="validation micro-F1, %")
    panels[-1].legend()
    figure.savefig(path, dpi=100)


# What measures a part, what prints it, and its threads.
PARTS: dict[str, tuple[Callable[..., Any], Callable[..., list[str]], int]] = {
    "facebook": (curves, tables.curves_table, 1),
    "planted": (curves, tables.curves_table, 1),
    "synthetic": (curves, tables.curves_table, 1),
    "simple": (simple, tables.simple_table, 1),
    "depth": (depth, tables.depth_tables, 1),
    "deeper": (deeper, tables.deeper_table, 1),
    "pool": (pool, tables.pool_table, 2),
}
SMALL = ("planted", "simple", "depth", "deeper", "picture")


def arguments() -> argparse.Namespace:
    parser = command_line("subgraph_training", __doc__)
    add = parser.add_argument
    add("--folder", type=Path, required=True, help="of the figures, one file a part and seed")
    add("--root", default="../shared/data", help="folder of the .npz archives")
    add("--only", nargs="+", choices=[*PARTS, "picture"], help="default: all parts")
    add("--layers", nargs="+", type=int, help="of the curves (default: 3, --quick: 2)")
    add("--seeds", type=int, help="of the curves (default: 5, --quick: 1)")
    add("--picture", type=Path, help="where it is drawn (default: in the folder)")
    add("--quick", action="store_true", help="small graphs; figures go to FOLDER/quick")
    add("--part", choices=PARTS, help="be the process of a part")
    add("--seed", type=int, default=0, help="of that process")
    args = parser.parse_args()
    if args.quick:
        args.folder /= "quick"
    args.only = args.only or (SMALL if args.quick else (*PARTS, "picture"))
    args.layers = args.layers or [2 if args.quick else 3]
    args.seeds = args.seeds or (1 if args.quick else 5)
    args.picture = args.picture or args.folder / "subgraphs.png"
    return args


def main() -> None:
    args = arguments()
    if args.part:
        return measure(args)
    args.folder.mkdir(parents=True, exist_ok=True)
    write(args.folder / "planted", planted(NODES[args.quick]))
    for name in args.only:
        if name == "picture":
            picture(args.folder, args.picture)
            continue
        _, table, threads = PARTS[name]
        for old in args.folder.glob(f"{name}*.json"):
            old.unlink()
        for seed in range(args.seeds if name in CURVES else 1):
            command = [sys.executable, "-m", "benchmarks.subgraph_training", *sys.argv[1:]]
            command += ["--part", name, "--seed", str(seed)]
            subprocess.run(command, env=_environment(threads), check=True)
        found = stored(args.folder, name)
        lines = table(*found)
        if name in CURVES:
            lines += ["", *tables.test_table(*found)]
        print(f"\n{name}\n\n" + "\n".join(lines), flush=True)


def measure(args: argparse.Namespace) -> None:
    """Does the work of one part and seed, in its process."""
    from jgs.allocator import keep_freed_memory
    from jgs.command import configure_jax

    keep_freed_memory()
    configure_jax()
    found = PARTS[args.part][0](args.part, args)
    path = args.folder / f"{args.part}-{args.seed}.json"
    path.write_text(json.dumps(found, indent=1) + "\n")


def _environment(threads: int) -> dict[str, str]:
    """Variables that give the kernels and XLA's pool this many threads."""
    names = ("JGS_NUM_THREADS", "OMP_NUM_THREADS", "NPROC")
    found = os.environ | dict.fromkeys(names, str(threads))
    if threads == 1:
        found["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    return found


if __name__ == "__main__":
    main()
