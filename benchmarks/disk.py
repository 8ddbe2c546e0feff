"""Training with features on disk, beside features in memory and memory-mapped ones.

    python -m benchmarks.disk [--quick] [--folder DIR] [--rounds 3]

GraphSAGE (5, 10, 15) with batches of 1,024 on an RMAT graph of 2**23 nodes with 128 float32
features (4.3 GB; `--quick`: 2**20 nodes). `jgs.sampling.DiskRows` reads past the page cache,
with a tenth and other shares of the rows in memory: `disk` packs the rows of a block of batches
in a scratch file, `random` reads those of each batch where they lie. Each way is a process of
its own. The table has:

- seconds of an epoch, the second one, and how many times longer than in memory;
- rows read from disk a step, over the fewest that any choice of rows reads (Belady's rule with
  all steps known, counted by this program), and over those that a step needs;
- bytes read from the features a step, and how many requests; bytes written to the scratch file,
  which are read from there as well.

`drawn` are seconds of drawing 20 batches of 32 alone, from a graph of which a quarter of the
edges fits the cgroup; `ahead` with `jgs.graph.read_ahead`. (The pages of a batch must fit.
A batch of 1,024 draws from nearly all pages of this file, 1 GB.)

Memory-mapped rows are read in a memory cgroup whose limit is the peak of the run with a tenth
of the rows, as they come and with `MADV_RANDOM`. Without cgroups they are left out. Before, the
program prints what the disk gives: in order, and at random, 32 requests at once.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import graph, inputs, machine
from benchmarks.__main__ import command_line
from benchmarks.cache_bound import optimum

FULL, QUICK = graph.Size(23, 125_829_120), graph.Size(20, 15_728_640)
FEATURES, CLASSES, BATCH = 128, 47, 1024
SHARES = (0.1, 0.02, 0.5, 1.0)
_CGROUPS = Path("/sys/fs/cgroup/memory")
_BASE = 700 << 20  # bytes of a process that draws, without its graph


def main() -> int:
    given = _arguments()
    given.folder.mkdir(parents=True, exist_ok=True)
    size = QUICK if given.quick else FULL
    task = {
        "graph": str(graph.cached(given.folder, size)),
        "features": str(inputs.features(given.folder, size, FEATURES, CLASSES)),
        "seeds": str(inputs.seeds(given.folder, size)),
        "steps": given.steps,
    }
    print(json.dumps(machine.describe()))
    sequential, random = speeds(Path(task["features"]) / "features.npy")
    print(
        f"disk: {sequential / 1e9:.2f} GB/s in order; {random:,.0f} requests of 4 KiB a second"
    )
    found: dict[str, list[dict]] = {}
    for round_number in range(given.rounds):
        first = given.shares[0]
        ways = ["memory", f"disk {first}"]
        if not round_number:
            ways += [f"random {first}"] * given.random
            ways += [f"disk {share}" for share in given.shares[1:]]
        for way in ways:
            found.setdefault(way, []).append(measured(task | {"way": way}))
            print(f"{way}: {found[way][-1]['seconds']}", file=sys.stderr, flush=True)
    limit = found[f"disk {first}"][0]["peak"]
    for way in ("mapped", "mapped random") if given.mapped else ():
        if _CGROUPS.is_dir():
            short = {"way": way, "steps": given.mapped}
            found[way] = [measured(task | short, limit)]
    show(found, task, given)
    edges = (Path(task["graph"]) / "indices.npy").stat().st_size
    for way in ("drawn", "drawn ahead") if given.mapped and _CGROUPS.is_dir() else ():
        result = measured(task | {"way": way, "steps": 20}, _BASE + edges // 4)
        print(f"{way}: {result['seconds']} s")
    if given.folder == Path(tempfile.gettempdir()) / "jgs-disk":
        shutil.rmtree(given.folder)
    return 0


def _arguments() -> argparse.Namespace:
    parser = command_line("disk", __doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="a smaller graph")
    add("--folder", type=Path, default=Path(tempfile.gettempdir()) / "jgs-disk")
    add("--steps", type=int, default=400, help="in an epoch")
    add("--rounds", type=int, default=3, help="of the first two ways")
    add("--shares", type=float, nargs="+", default=SHARES, help="of the rows, in memory")
    add("--random", action=argparse.BooleanOptionalAction, default=True, help="that way too")
    add("--mapped", type=int, default=20, help="steps with memory-mapped rows; 0: none")
    return parser.parse_args()


def measured(task: dict, limit: int = 0) -> dict[str, Any]:
    """The result of `benchmarks.disk_jgs`, in a cgroup of so many bytes if that is not 0."""
    group = _CGROUPS / f"jgs-{os.getpid()}"
    if limit:
        for path in (*Path(task["graph"]).iterdir(), *Path(task["features"]).iterdir()):
            with open(path, "rb") as file:  # else its pages would belong to another group
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(limit))

    command = [sys.executable, "-m", "benchmarks.disk_jgs", json.dumps(task)]
    if limit:
        command = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", *command]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    finally:
        if limit:
            time.sleep(1)
            group.rmdir()
    return json.loads(done.stdout.splitlines()[-1])


def show(found: dict[str, list[dict]], task: dict, given: argparse.Namespace) -> None:
    num_nodes = len(np.load(f"{task['graph']}/indptr.npy", mmap_mode="r")) - 1
    trace = np.load(found["memory"][0]["trace"])
    steps = np.split(trace["nodes"], np.cumsum(trace["sizes"])[:-1])
    epochs = [steps[: given.steps], steps[given.steps :]]
    needed = sum(map(len, epochs[1])) / given.steps
    print(f"{needed:,.0f} rows needed a step; medians, with the least and the most")
    print(
        "| way | s an epoch | over memory | rows read a step | over Belady | of those needed "
        "| MB a step | requests a step | MB written a step | peak GB |\n"
        "|---|---|---|---|---|---|---|---|---|---|"
    )
    memory = statistics.median(each["seconds"][-1] for each in found["memory"])
    for way, results in found.items():
        of_steps = given.mapped if way.startswith("mapped") else given.steps
        all_seconds = [each["seconds"][-1] * given.steps / of_steps for each in results]
        seconds = statistics.median(all_seconds)
        cells = [
            way,
            f"{seconds:.1f} ({min(all_seconds):.1f}-{max(all_seconds):.1f})",
            f"{seconds / memory:.2f}",
        ]
        if results[0]["counts"]:
            counts, share = results[0]["counts"], float(way.split()[-1])
            rows = counts["disk_rows"] / given.steps
            least = optimum(epochs, num_nodes, int(share * num_nodes))
            bound = sum(least[1]) / given.steps
            cells += [
                f"{rows:,.0f}",
                f"{rows / bound:.3f}" if bound else "none",
                f"{rows / needed:.1%}",
                f"{counts['disk_bytes'] / given.steps / 1e6:.0f}",
                f"{counts['disk_requests'] / given.steps:,.0f}",
                f"{counts['scratch_bytes'] / given.steps / 1e6:.0f}",
            ]
        else:
            cells += [""] * 6
        print(f"| {' | '.join([*cells, format(results[0]['peak'] / 1e9, '.2f')])} |")
    for each in found["memory"]:
        Path(each["trace"]).unlink(missing_ok=True)


def speeds(path: Path, seconds: float = 4, threads: int = 32) -> tuple[float, float]:
    """Bytes a second in order, in requests of 1 MiB, four at once; and requests of 4 KiB a
    second at random places, `threads` at once. Both past the page cache."""
    size = path.stat().st_size
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)

    def rate(length: int, at_once: int, places: Any) -> float:
        done, until, lock = [0] * at_once, time.perf_counter() + seconds, threading.Lock()

        def read(which: int) -> None:
            with mmap.mmap(-1, length) as buffer:
                while time.perf_counter() < until:
                    with lock:
                        place = next(places)
                    os.preadv(file, [buffer], place)
                    done[which] += 1

        workers = [threading.Thread(target=read, args=(i,)) for i in range(at_once)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return sum(done) / seconds

    one, page = 1 << 20, 4096
    in_order = (i * one % (size // one * one) for i in range(1 << 40))
    rng = np.random.default_rng(0)
    scattered = (int(i) * page for i in rng.integers(0, size // page, 1 << 22))
    try:
        return rate(one, 4, in_order) * one, rate(page, threads, scattered)
    finally:
        os.close(file)


if __name__ == "__main__":
    sys.exit(main())
