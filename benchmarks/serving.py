"""How long an exported model takes to answer: p50 and p99 of single requests, on one core.

    python -m benchmarks.serving [--data FOLDER] [--run-dir RUN] [--seconds S]

Trains GraphSAGE on `facebook` with the settings of `benchmarks.accuracy`, or takes the run in
RUN, exports it with its graph, and asks it in a process that has one core. Prints Markdown and
one line of what the machine did meanwhile. Nodes are drawn at random; a new node has 20 words
and edges from 15 nodes. `direct` is `jgs export --direct`. HTTP is `examples/serve.py` on the
same core, asked by one client, and by 32 at once, on the others.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.accuracy import COMMON, FLAGS
from benchmarks.machine import describe

SERVE = Path(__file__).parents[1] / "examples" / "serve.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="../shared/data", help="folder of facebook.npz")
    parser.add_argument("--run-dir", help="a run of jgs train, in place of a new one")
    parser.add_argument("--seconds", type=float, default=5, help="for each line of the table")
    parser.add_argument("--measure", metavar="MODEL", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure, arguments.seconds)
        return
    with tempfile.TemporaryDirectory() as folder:
        run = arguments.run_dir or f"{folder}/run"
        if not arguments.run_dir:
            flags = f"--dataset facebook --root {arguments.data} {COMMON} {FLAGS['facebook']}"
            command("jgs.train", *flags.split(), "--run-dir", run, "--no-progress")
        print("| program | request | p50, ms | p99, ms | requests |")
        print("|---|---|---|---|---|")
        for name, more in (("same bits", ()), ("direct", ("--direct",))):
            asked = ("--run-dir", run, "--with-graph", "--fanouts", "10", "10", *more)
            command("jgs.export", *asked, "--out", f"{folder}/{name}")
            own = ("--measure", f"{folder}/{name}", "--seconds", str(arguments.seconds))
            lines = command("benchmarks.serving", *own, core=True).splitlines()
            for line in lines[:-1]:
                print(f"| {name} {line}", flush=True)
            print(f"{name}: {lines[-1]}", file=sys.stderr)
        http(f"{folder}/same bits", arguments.seconds)
        print(json.dumps(describe() | {"load_after": os.getloadavg()}), file=sys.stderr)


def command(module: str, *argv: str, core: bool = False) -> str:
    pinned = [sys.executable, "-m", module, *argv]
    return subprocess.run(
        pinned,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=one_core if core else None,
    ).stdout


def one_core() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def measure(folder: str, seconds: float) -> None:
    """Prints a line of the table for each kind of request, then the memory."""
    import jgs

    jgs.keep_freed_memory()
    model = jgs.load_exported(folder)
    rng, num, width = np.random.default_rng(0), model.num_nodes, model.spec.num_features

    def new(both_ways: bool) -> jgs.export.NewNodes:
        row, others = np.zeros((1, width), np.float32), rng.integers(0, num, 15)
        row[0, rng.choice(width, min(20, width), replace=False)] = 1
        ends = [others, np.full(15, num)]
        if both_ways:
            ends = [np.concatenate(ends), np.concatenate(ends[::-1])]
        return jgs.export.NewNodes(row, *ends, raw=True)

    for kind, request in {
        "one node": lambda: {"nodes": rng.integers(0, num, 1)},
        "one new node": lambda: {"new": new(False)},
        "one new node, edges both ways": lambda: {"new": new(True)},
        "8 nodes": lambda: {"nodes": rng.choice(num, 8, replace=False)},
        "64 nodes": lambda: {"nodes": rng.choice(num, 64, replace=False)},
    }.items():
        line(kind, timed(lambda request=request: model.predict(**request()), seconds))
    first = resident()
    timed(lambda: model.predict(new=new(False)), seconds)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{first} MiB, and {resident()} MiB after as long again; {most} MiB at most")


def timed(call: Callable[[], object], seconds: float) -> list[float]:
    """Milliseconds of each call, after some that do not count."""
    for _ in range(20):
        call()
    took, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        call()
        took.append(1e3 * (time.perf_counter() - began))
    return took


def line(kind: str, took: list[float]) -> None:
    p50, p99 = np.percentile(took, [50, 99])
    print(f"| {kind} | {p50:.2f} | {p99:.2f} | {len(took):,} |", flush=True)


def resident() -> int:
    """MiB of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() >> 20


@contextmanager
def server(folder: str):
    """The address of `examples/serve.py` on one core."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = [sys.executable, str(SERVE), folder, str(port)]
    process = subprocess.Popen(own, preexec_fn=one_core)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def http(folder: str, seconds: float) -> None:
    import httpx

    with server(folder) as address:
        with httpx.Client(base_url=address) as client:
            for _ in range(600):
                try:
                    num = client.get("/").json()["num_nodes"]
                    break
                except httpx.TransportError:
                    time.sleep(0.1)
            rng = np.random.default_rng(0)

            def ask(own: httpx.Client, node: int) -> None:
                own.post("/predict", json={"nodes": [node]}).raise_for_status()

            took = timed(lambda: ask(client, int(rng.integers(num))), seconds)
            print("| HTTP ", end="")
            line("one node, 1 client", took)

        def one(number: int) -> list[float]:
            rng = np.random.default_rng(number)
            with httpx.Client(base_url=address, timeout=60) as own:
                return timed(lambda: ask(own, int(rng.integers(num))), seconds)

        with ThreadPoolExecutor(32) as pool:
            every = [took for each in pool.map(one, range(32)) for took in each]
        print("| HTTP ", end="")
        line("one node, each of 32 clients", every)


if __name__ == "__main__":
    main()
