"""`python -m jgs.data build`: its seconds and memory, beside what the disk and a sort take.

    python -m benchmarks.build [--edges 1e9] [--nodes 5e7] [--memory 2048] [--folder /tmp]
                               [--symmetric] [--json FILE]

Makes shards of skewed random edges, int32 `[n, 2]`, in a new folder below `--folder`, and takes
them out of the page cache. The command runs in a process of its own, whose private memory is
read from Linux's `/proc` ten times a second. The result is compared with the shards by its
number of edges and a sum of hashes.

The disk's speed is that of large reads and writes with O_DIRECT. The sort in memory is that of
`Graph.from_edges`, on as many of the edges as `--part`, and scaled to all. The ratio is the
command's seconds by the sum of: reading the shards, writing the result, and the sort.
Everything is removed at the end. The disk needs about 20 bytes an edge.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.__main__ import command_line, say

CHUNK, BLOCK = 1 << 22, 1 << 24
_REPOSITORY = Path(__file__).parents[1]


def main() -> int:
    given = _arguments()
    with tempfile.TemporaryDirectory(prefix="jgs-build-", dir=given.folder) as name:
        result = measure(Path(name), given)
    print(
        "| edges | nodes | seconds | million edges/s | private GB | read GB/s | write GB/s "
        "| sort, s | reading + writing + sort, s | ratio |\n" + "|---" * 10 + "|"
    )
    print(
        f"| {result['edges']:,} | {result['nodes']:,} | {result['seconds']:.1f} "
        f"| {result['edges'] / result['seconds'] / 1e6:.1f} | {result['private'] / 1e9:.2f} "
        f"| {result['read'] / 1e9:.2f} | {result['write'] / 1e9:.2f} | {result['sort']:.1f} "
        f"| {result['least']:.1f} | {result['ratio']:.2f} |",
        flush=True,
    )
    if given.json is not None:
        given.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def _arguments() -> argparse.Namespace:
    parser = command_line("build", __doc__)
    add = parser.add_argument
    add("--edges", type=_count, default=1_000_000_000)
    add("--nodes", type=_count, default=50_000_000)
    add("--shards", type=_count, default=16)
    add("--memory", type=_count, default=2048, help="MiB, of the command")
    add("--part", type=_count, default=200_000_000, help="edges that are sorted in memory")
    add("--folder", type=Path, default=Path(tempfile.gettempdir()))
    add("--symmetric", action="store_true")
    add("--json", type=Path, help="where to write what was measured")
    return parser.parse_args()


def _count(text: str) -> int:
    return int(float(text))


def measure(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """What `main` prints, with sizes in bytes and speeds in bytes a second."""
    begun = time.perf_counter()
    shards, wanted = make(folder, given.edges, given.nodes, given.shards)
    say(f"{time.perf_counter() - begun:5.0f} s  the shards are made")
    out = folder / "graph"
    flags = ["--nodes", given.nodes, "--memory", given.memory]
    flags += ["--symmetric"] if given.symmetric else []
    seconds, private, built = watched([*shards, "--out", out, *flags])
    say(f"{time.perf_counter() - begun:5.0f} s  the graph is built, in {seconds:.1f} s")
    assert given.symmetric or built["edges"] == given.edges
    assert given.symmetric or hash_of_graph(out) == wanted, "other edges"
    written = sum(file.stat().st_size for file in out.iterdir())
    read_bytes = sum(shard.stat().st_size for shard in shards)
    part = min(given.part // (1 + given.symmetric), given.edges)
    sort = sort_in_memory(shards, part, given.nodes, given.symmetric) * given.edges / part
    for shard in shards:
        shard.unlink()
    write, read = disk(folder / "disk", min(4 << 30, max(1 << 28, read_bytes)))
    least = read_bytes / read + written / write + sort
    return {
        "edges": given.edges,
        "nodes": given.nodes,
        "symmetric": given.symmetric,
        "memory": given.memory << 20,
        "seconds": seconds,
        "private": private,
        "read_bytes": read_bytes,
        "written_bytes": written,
        "read": read,
        "write": write,
        "sort": sort,
        "sorted_part": part,
        "least": least,
        "ratio": seconds / least,
    }


# -- the shards --------------------------------------------------------------------------------


def make(folder: Path, edges: int, nodes: int, shards: int) -> tuple[list[Path], int]:
    """Writes the shards, and takes them out of the page cache; also the hash of their edges."""
    ends = np.linspace(0, edges, shards + 1).astype(np.int64)
    paths, total = [], 0
    for number in range(shards):
        path = folder / f"edges{number:03}.npy"
        count = int(ends[number + 1] - ends[number])
        with open(path, "wb") as file:
            fields = {"descr": "<i4", "fortran_order": False, "shape": (count, 2)}
            np.lib.format.write_array_header_1_0(file, fields)
            for first in range(0, count, CHUNK):
                pairs = drawn(nodes, min(CHUNK, count - first), [number, first])
                total += hash_of(pairs.view(np.uint64)[:, 0])
                file.write(pairs.data)
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        paths.append(path)
    return paths, total % 2**64


def drawn(nodes: int, count: int, seed: list[int]) -> np.ndarray:
    """int32 `[count, 2]`: edges whose targets are skewed, but not all at one end of the ids."""
    random = np.random.default_rng(seed)
    pairs = np.empty((count, 2), np.int32)
    pairs[:, 0] = random.integers(0, nodes, count, np.int32)
    skewed = (nodes * random.random(count, np.float32) ** 2).astype(np.int64)
    pairs[:, 1] = skewed * 1_000_003 % nodes
    return pairs


def hash_of(keys: np.ndarray) -> int:
    """The sum of a hash of 64-bit keys, the target in the upper half."""
    mixed = keys * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    return int(mixed.sum(dtype=np.uint64))


def hash_of_graph(folder: Path) -> int:
    """The hash of the edges of a built graph, a piece at a time."""
    indptr = np.load(folder / "graph.indptr.npy", mmap_mode="r")
    indices = np.load(folder / "graph.indices.npy", mmap_mode="r")
    total, step = 0, 1 << 20
    for first in range(0, indptr.size - 1, step):
        part = np.asarray(indptr[first : first + step + 1])
        rows = np.repeat(np.arange(first, first + part.size - 1), np.diff(part))
        keys = rows.astype(np.uint64) << np.uint64(32)
        total += hash_of(keys | indices[part[0] : part[-1]].astype(np.uint64))
    return total % 2**64


# -- the command, in a process of its own ------------------------------------------------------


def watched(arguments: list[Any]) -> tuple[float, int, dict[str, Any]]:
    """The command's seconds, the largest private memory of its process, and its result."""
    command = [sys.executable, "-m", "jgs.data", "build", *map(str, arguments)]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    begun, private = time.perf_counter(), 0
    with subprocess.Popen(
        command, cwd=_REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        while process.poll() is None:
            private = max(private, _private(process.pid))
            time.sleep(0.1)
        seconds = time.perf_counter() - begun
        assert process.stdout is not None
        said = process.stdout.read()
    if process.returncode:
        raise SystemExit(f"the command failed: exit status {process.returncode}")
    return seconds, private, json.loads(said)


def _private(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # the process has just ended
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_"))


# -- the disk, and the sort in memory ----------------------------------------------------------


def disk(path: Path, size: int) -> tuple[float, float]:
    """Bytes a second of writing a file of `size`, and of reading it, without the page cache."""
    size = size // BLOCK * BLOCK
    with mmap.mmap(-1, BLOCK) as block:  # aligned, as O_DIRECT needs it
        block.write(np.random.default_rng(0).bytes(BLOCK))
        speeds = []
        for flags in (os.O_WRONLY | os.O_CREAT, os.O_RDONLY):
            file = os.open(path, flags | os.O_DIRECT)
            begun = time.perf_counter()
            for _ in range(size // BLOCK):
                if flags & os.O_WRONLY:
                    assert os.write(file, block) == BLOCK
                else:
                    assert os.readv(file, [block]) == BLOCK
            os.fsync(file)
            speeds.append(size / (time.perf_counter() - begun))
            os.close(file)
    path.unlink()
    return speeds[0], speeds[1]


def sort_in_memory(shards: list[Path], part: int, nodes: int, symmetric: bool) -> float:
    """The seconds of the sort of the first edges, in memory already, and of their reverses if
    `symmetric`; the second of two runs."""
    from jgs.graph.grouping import group_values

    src, dst = (
        np.concatenate(each)[:part] for each in zip(*_columns(shards, part), strict=True)
    )
    for _ in range(2):
        begun = time.perf_counter()
        assert group_values(dst, src, nodes) is not None
        seconds = time.perf_counter() - begun
    return seconds


def _columns(shards: list[Path], part: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    have = 0
    for shard in shards:
        if have >= part:
            return
        pairs = np.load(shard, mmap_mode="r")[: part - have]
        have += len(pairs)
        yield np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])


if __name__ == "__main__":
    sys.exit(main())
