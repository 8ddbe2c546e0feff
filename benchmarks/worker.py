"""What the measured processes share; runs in any environment with NumPy, and imports no jgs.

A task is the JSON argument. It holds what `contenders.py` and `__main__.py` put there, and
always:
  graph: the folder of the graph.
  threads: how many.
  settings: a list, measured in turn. Each setting has a `name`, which its result carries, and
    the `graph` and `seeds` of the task.
The result is the last line on standard output: a JSON list with one entry for each setting.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np


def task() -> dict:
    return json.loads(sys.argv[1])


def report(results: list[dict]) -> None:
    print(json.dumps(results), flush=True)


def main(
    prepare: Callable[[dict], Callable[[dict], dict]],
    set_threads: Callable[[int], None] | None = None,
) -> None:
    """Runs a process whose task has settings: `prepare(task)` returns what measures one."""
    of = task()
    if set_threads is not None:
        set_threads(of["threads"])
    measure = prepare(of)
    report([measure(setting) for setting in of["settings"]])


def milliseconds(call: Callable[[Any], Any], arguments: Iterable[Any]) -> list[float]:
    """The times of `call(a)` for each `a`, after an untimed pass over all of them.

    `call` returns when its work is done.
    """
    arguments = list(arguments)
    for argument in arguments:
        call(argument)
    times = []
    for argument in arguments:
        began = time.perf_counter()
        call(argument)
        times.append(1e3 * (time.perf_counter() - began))
    return times


def measured(
    setting: dict,
    sample: Callable[[Any], Any],
    seeds: Iterable[Any],
    size: Callable[[Any], tuple[int, int]] = lambda found: found,
) -> dict:
    """A setting's result. `size` of what `sample` returns: how many nodes and edges it has."""
    nodes, edges = np.mean([size(sample(batch)) for batch in seeds], axis=0)
    times = milliseconds(sample, seeds)
    return {"name": setting["name"], "ms": times, "nodes": nodes, "edges": edges}


def batches(setting: dict) -> np.ndarray:
    """int32 `[iterations, batch]`: the seeds of each batch.

    They are distinct if there are enough nodes for all batches. With `below` in the setting,
    only nodes below that id are seeds.
    """
    shape = setting["iterations"], setting["batch"]
    seeds = np.load(setting["seeds"], mmap_mode="r")
    if "below" in setting:
        seeds = seeds[seeds < setting["below"]]
    return np.resize(seeds[: shape[0] * shape[1]], shape)


def link_edges(num_edges: int, setting: dict) -> np.ndarray:
    """int64 `[iterations, batch]`: the edges of each batch of links, uniformly drawn."""
    shape = setting["iterations"], setting["batch"]
    return np.random.default_rng(5).integers(0, num_edges, shape)


def links(indptr: Any, indices: Any, setting: dict) -> tuple[np.ndarray, np.ndarray]:
    """The sources and targets int32 `[iterations, batch]` of `link_edges`."""
    indptr, indices = np.asarray(indptr), np.asarray(indices)
    edges = link_edges(indices.size, setting)
    target = np.searchsorted(indptr, edges, side="right") - 1
    return indices[edges], target.astype(np.int32)


def attention_arrays(setting: dict, *sizes: int) -> list[np.ndarray]:
    """float32 logits `[E, H, 1]`, rows `[S, H, D]`, gradient `[T, H, D]`; `sizes`: E, S, T."""
    rng, heads = np.random.default_rng(0), setting["heads"]
    widths = (1, setting["features"], setting["features"])
    shapes = [(size, heads, width) for size, width in zip(sizes, widths, strict=True)]
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


def digest(nodes: np.ndarray, sources: np.ndarray, targets: np.ndarray) -> list[int]:
    """Two numbers that are equal for equal graphs, whatever the order of their nodes and edges.

    The first is made of the ids in `nodes`, the second of the ids at the edges' ends. `sources`
    and `targets` are positions in `nodes`.
    """
    ids = nodes.astype(np.uint64)
    edges = ids[sources] << np.uint64(32) | ids[targets]
    return [int(mixed(values).sum() >> np.uint64(11)) for values in (ids, edges)]


def mixed(values: np.ndarray) -> np.ndarray:
    """A uint64 for each value, as good as random (splitmix64's finalizer)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        values = (values ^ values >> np.uint64(shift)) * np.uint64(factor)
    return values ^ values >> np.uint64(31)


def array(folder: str, name: str) -> np.ndarray:
    """A saved array, memory-mapped. Writing changes only this process's copy."""
    return np.load(Path(folder) / f"{name}.npy", mmap_mode="c")


def peak_bytes() -> int:
    """The most bytes that this process held, with mapped files (VmHWM); 0 if unknown."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(x.split()[1]) << 10 for x in lines if x.startswith("VmHWM")), 0)
