"""Training on sampled subgraphs: accuracy by time, cost by depth, and what the pool hides.

    python -m benchmarks.subgraph_training --folder /tmp/subgraphs [--only facebook depth]

Each part is a process of its own. It prints a Markdown table and leaves its figures in the
folder. The parts are:

- `facebook` and `synthetic`: validation accuracy by seconds of training, as in gcn-ipdps19's
  Figure 2.
- `depth`: seconds an epoch by layers.
- `pool`: what the training thread waits for.
- `picture`: draws the curves that the folder has.

Runs are those of `python -m jgs.train` with the flags below. `pool` has 2 threads. All other
parts have one thread, and their seconds are the CPU time of the process without evaluation and
compiling: what a clock shows where nothing else runs. The estimate of the normalisation, which
is made once before training, is left out too.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

POINTS = 0.25  # how far frontier may lie below neighbour sampling's best accuracy
METHODS = ("neighbour sampling", "frontier", "random walk")
FRONTIER = "--sampler frontier --norm-error 0"
WALK = "--sampler saint --draw walk --budget 3000 --norm-error 0.15"
DEPTHS = (1, 2, 3, 4)


class Curves(NamedTuple):
    """A data set's curves: the flags of all runs, and the flags of each method."""

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
    "synthetic": Curves(
        "--dataset synthetic --model sage --hidden 128 --dropout 0.2 --lr 6e-3 --norm layer",
        {
            "neighbour sampling": "--epochs 12",
            "frontier": "--epochs 12 --budget 16000 --frontier-size 2000 --batch-size 500",
            "random walk": "--epochs 8 --budget 6000 --batch-size 500",
        },
    ),
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


def curves(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """For each depth and method, seconds of training and accuracy after each epoch."""
    from benchmarks.subgraph_runs import epochs, middle

    found: dict[str, Any] = {}
    for layers in args.layers:
        for method in METHODS:
            flags = f"--root {args.root} --prefetch 0 {CURVES[name].flags}"
            flags += f" {sampler(method, layers)} {CURVES[name].own[method]}"
            total, points, taken = 0.0, [], []
            for epoch in epochs(flags):
                total += epoch.seconds
                points.append((round(total, 3), round(epoch.accuracy, 3)))
                taken += epoch.steps
            say(f"{name}, {layers} layers, {method}: {points}")
            found[f"{layers} {method}"] = {"points": points, "step": middle(taken)._asdict()}
    return found


def curves_table(found: dict[str, Any]) -> list[str]:
    """A row for each depth and method: when its curve reaches the target accuracy."""
    heads = (
        "layers | method | best, % | after s | at neighbour sampling's - 0.25 after s | times"
    )
    lines = [f"| {heads} | ms a step | rows | seeds |", "|" + "---|" * 9]
    target, beside = 0.0, math.nan
    for key, run in found.items():
        layers, method = key.split(" ", 1)
        after, best = max(run["points"], key=lambda point: point[1])
        if method == METHODS[0]:
            target = best - POINTS
        reached = next((s for s, value in run["points"] if value >= target), math.nan)
        if method == METHODS[0]:
            beside = reached
        step = run["step"]
        lines.append(
            f"| {layers} | {method} | {best:.2f} | {after:.1f} | "
            + ("never | " if math.isnan(reached) else f"{reached:.1f} | ")
            + ("" if math.isnan(beside / reached) else f"{beside / reached:.1f}")
            + f" | {1e3 * (step['waited'] + step['computed']):.0f} | {step['rows']:,.0f} "
            f"| {step['seeds']:,.0f} |"
        )
    return lines


def depth(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Seconds an epoch of each method and depth. All are trained in turn, a step at a time."""
    from benchmarks.subgraph_runs import begun, middle, steps

    flags = f"--root {args.root} --prefetch 0 {DEPTH}"
    found: dict[str, Any] = {}
    for method in METHODS[:2]:
        with ExitStack() as stack:
            runs = [
                stack.enter_context(begun(f"{flags} {sampler(method, layers)}"))
                for layers in DEPTHS
            ]
            for _ in range(2):  # the first epoch compiles
                taken = zip(*(steps(*run, time.process_time) for run in runs), strict=True)
                each = [list(some) for some in zip(*taken, strict=True)]
        typical = [middle(some) for some in each]
        found[method] = [
            len(some) * (step.waited + step.computed)
            for some, step in zip(each, typical, strict=True)
        ]
        say(f"{method}: {found[method]}")
    return found


def depth_table(found: dict[str, list[float]]) -> list[str]:
    lines = [f"| seconds an epoch | {' | '.join(f'{n} layers' for n in DEPTHS)} | R² |"]
    lines.append("|" + "---|" * (len(DEPTHS) + 2))
    for method, seconds in found.items():
        cells = " | ".join(f"{s:.2f}" for s in seconds)
        lines.append(
            f"| {method} | {cells} | {statistics.correlation(DEPTHS, seconds) ** 2:.4f} |"
        )
    return lines


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


def pool_table(found: dict[str, dict[str, float]]) -> list[str]:
    lines = ["| run | sampling alone, ms | step alone, ms | waits with the pool |"]
    lines.append("|---|---|---|---|")
    for what, run in found.items():
        alone = f"{1e3 * run['sampling']:.1f} | {1e3 * run['computing']:.0f}"
        lines.append(f"| {what} | {alone} | {100 * run['waited']:.2f} % |")
    return lines


def picture(folder: Path, path: Path) -> None:
    """The curves of the deepest models, a panel for each data set."""
    from matplotlib.figure import Figure  # an optional dependency, and a slow import

    there = [name for name in CURVES if (folder / f"{name}.json").exists()]
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    panels = figure.subplots(1, len(there), squeeze=False)[0]
    for axes, name in zip(panels, there, strict=True):
        found = json.loads((folder / f"{name}.json").read_text())
        layers = max(int(key.split()[0]) for key in found)
        for method in METHODS:
            x, y = zip(*found[f"{layers} {method}"]["points"], strict=True)
            axes.plot(x, y, marker="o", markersize=3, label=method)
        axes.set(xlabel="seconds of training", title=f"{name}, {layers} layers", xscale="log")
        axes.set_xticks([3, 10, 30, 100], ["3", "10", "30", "100"])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    panels[0].set(ylabel="validation accuracy, %")
    panels[-1].legend()
    figure.savefig(path, dpi=100)


PARTS = {
    "facebook": (curves, curves_table, 1),
    "synthetic": (curves, curves_table, 1),
    "depth": (depth, depth_table, 1),
    "pool": (pool, pool_table, 2),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.subgraph_training",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--folder", type=Path, required=True, help="of the figures, one file a part")
    add("--root", default="../shared/data", help="folder of the .npz archives")
    add("--only", nargs="+", choices=[*PARTS, "picture"], default=[*PARTS, "picture"])
    add("--layers", nargs="+", type=int, default=[1, 2, 3], help="of the curves")
    add(
        "--picture",
        type=Path,
        default=Path("docs/images/subgraphs.png"),
        help="where it is drawn",
    )
    add("--part", choices=PARTS, help="be the process of a part")
    args = parser.parse_args()
    if args.part:
        return measure(args)
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.only:
        if name == "picture":
            picture(args.folder, args.picture)
            continue
        _, table, threads = PARTS[name]
        command = [sys.executable, "-m", "benchmarks.subgraph_training", *sys.argv[1:]]
        subprocess.run([*command, "--part", name], env=_environment(threads), check=True)
        found = json.loads((args.folder / f"{name}.json").read_text())
        print(f"\n{name}\n\n" + "\n".join(table(found)), flush=True)


def measure(args: argparse.Namespace) -> None:
    """Does the work of one part, in its process."""
    from jgs.allocator import keep_freed_memory
    from jgs.command import configure_jax

    keep_freed_memory()
    configure_jax()
    found = PARTS[args.part][0](args.part, args)
    (args.folder / f"{args.part}.json").write_text(json.dumps(found, indent=1) + "\n")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _environment(threads: int) -> dict[str, str]:
    """Variables that give the kernels and XLA's pool this many threads."""
    names = ("JGS_NUM_THREADS", "OMP_NUM_THREADS", "NPROC")
    found = os.environ | dict.fromkeys(names, str(threads))
    if threads == 1:
        found["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    return found


if __name__ == "__main__":
    main()
