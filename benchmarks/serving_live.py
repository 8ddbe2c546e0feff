"""How long `jgs serve` takes to answer while its graph grows, and whether answers repeat.

    python -m benchmarks.serving_live [--seconds S] [--clients C] [--edges E] [--nodes N]
                                      [--merge-at SHARE]

Trains GraphSAGE for one epoch on a generated graph, exports it with `--live`, and starts `jgs
serve`. `C` clients ask for one node each, again as soon as they have an answer, while another
one appends `E` edges a second, 100 at a time. Prints p50 and p99 of the answers and of the
appends, and the server's memory from tenth to tenth of the time. Then `jgs replay` computes all
answers again in a process of its own; with `--merge-at` those since the last merge.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.machine import describe

AT_ONCE = 100  # edges of one request


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--edges", type=int, default=5000, help="that are appended a second")
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--merge-at", default="0", help="as of jgs serve")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        exported(folder, arguments.nodes)
        flags = ["--artifact", f"{folder}/model", "--log", f"{folder}/graph", "--port", "0"]
        own = ["--record", f"{folder}/answers", "--merge-at", arguments.merge_at]
        argv = [sys.executable, "-m", "jgs.serve", *flags, *own]
        server = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        try:
            port = int(json.loads(server.stdout.readline())["address"].rpartition(":")[2])
            asyncio.run(load(port, server.pid, arguments))
        finally:
            server.terminate()
            print(f"the server ended with status {server.wait()}")
            print("folder:", *sorted(os.listdir(f"{folder}/graph")))
        began = time.perf_counter()
        replay = ["--answers", f"{folder}/answers", *flags[:4]]
        done = run("jgs.replay", *replay, check=False)
        took = time.perf_counter() - began
        print(f"replay, {took:.0f} s: {done.stdout.strip()} {done.stderr.splitlines()[-1:]}")
    print(json.dumps(describe() | {"load_after": os.getloadavg()}), file=sys.stderr)


def run(module: str, *argv: str, check: bool = True) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", module, *argv]
    return subprocess.run(command, check=check, capture_output=True, text=True)


def exported(folder: str, nodes: int) -> None:
    data = f"num_nodes={nodes} num_edges={10 * nodes} num_features=64 num_classes=8"
    flags = "--fanouts 10 10 --hidden 64 --epochs 1 --batch-size 1000 --no-progress"
    flags += f" --run-dir {folder}/run"
    run("jgs.train", "--data-options", *data.split(), *flags.split())
    own = ("--run-dir", f"{folder}/run", "--out", f"{folder}/model")
    run("jgs.export", *own, "--with-graph", "--live")


async def load(port: int, pid: int, arguments: argparse.Namespace) -> None:
    end = time.perf_counter() + arguments.seconds
    answers: list[float] = []
    appends: list[float] = []

    async def ask(number: int) -> None:
        rng, connection = np.random.default_rng(number), await Connection.open(port)
        while time.perf_counter() < end:
            body = {"nodes": [int(rng.integers(arguments.nodes))]}
            answers.append(await connection.post("/predict", body))

    async def append() -> None:
        rng, connection = np.random.default_rng(1 << 20), await Connection.open(port)
        due = time.perf_counter()
        while max(due, time.perf_counter()) < end:
            src, dst = rng.integers(0, arguments.nodes, (2, AT_ONCE)).tolist()
            appends.append(await connection.post("/append", {"src": src, "dst": dst}))
            due += AT_ONCE / arguments.edges
            await asyncio.sleep(max(0, due - time.perf_counter()))

    async def watch() -> None:
        for _ in range(11):
            memory.append(resident(pid))
            await asyncio.sleep(arguments.seconds / 10)

    memory: list[int] = []
    await asyncio.gather(watch(), append(), *map(ask, range(arguments.clients)))
    print("| requests | number | a second | p50, ms | p99, ms | longest, ms |")
    print("|---|---|---|---|---|---|")
    for name, took in (("/predict, one node", answers), (f"/append, {AT_ONCE}", appends)):
        p50, p99 = np.percentile(took, [50, 99])
        number = f"{len(took):,} | {len(took) / arguments.seconds:,.0f}"
        print(f"| {name} | {number} | {p50:.1f} | {p99:.1f} | {max(took):.0f} |")
    print(f"MiB: {' '.join(map(str, memory))}")


class Connection:
    """A connection that is kept, over which JSON is posted."""

    @classmethod
    async def open(cls, port: int) -> Connection:
        made = cls()
        made.reader, made.writer = await asyncio.open_connection("127.0.0.1", port)
        return made

    async def post(self, path: str, body: dict) -> float:
        """Milliseconds until the answer has come, which must be one of status 200."""
        text = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(text)}\r\n\r\n"
        began = time.perf_counter()
        self.writer.write(head.encode() + text)
        lines = (await self.reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        size = next(int(n.split(b":")[1]) for n in lines if n.startswith(b"content-length"))
        answer = await self.reader.readexactly(size)
        took = 1e3 * (time.perf_counter() - began)
        assert b" 200 " in lines[0], answer
        return took


def resident(pid: int) -> int:
    """MiB of a process in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() >> 20


if __name__ == "__main__":
    main()
