"""Frontier sampling beside GraphSAINT's Cython sampler `mrw`, with one thread and with two.

    python -m benchmarks.frontier [--quick] [--rounds 3] [--source URL]

The graph is RMAT without its isolated nodes, which GraphSAINT's sampler cannot have. In every
round each sampler runs in processes of its own, with one thread and with two, a subgraph a
thread, with the allocator tuned. Both pop in proportion to degrees capped alike. GraphSAINT's
subgraph has the last frontier too, so jgs pops more often, to reach as many nodes and edges.
Prints what the subgraphs are like, and a Markdown table: milliseconds for a subgraph with its
edges and their ids, and for its nodes alone. The figures are medians over all rounds.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median

import numpy as np

import jgs
from benchmarks import graph, peers
from benchmarks.__main__ import CACHE, command_line, environment, run, say

_THREADS = (1, 2)


def settings(iterations: int) -> list[dict]:
    """The settings, with two sizes of the frontier; `more` has jgs's pops beyond the budget."""
    common = {"budget": 8000, "degree_cap": 30, "iterations": iterations}
    sizes = ((1000, 1000), (3000, 1800))
    return [common | {"name": f"m = {m:,}", "m": m, "more": more} for m, more in sizes]


def connected(cache: Path, size: graph.Size) -> Path:
    """The folder of the unweighted graph without isolated nodes, written when missing."""
    folder = cache / f"{size.name}-connected"
    if not (folder / "manifest.json").is_file():
        whole = jgs.Graph.open(graph.cached(cache, size), verify=False)
        indptr = np.asarray(whole.indptr)
        kept = np.diff(indptr) > 0
        new_id = (np.cumsum(kept) - 1).astype(np.int32)
        ends = np.r_[0, indptr[1:][kept]]
        jgs.Graph(ends, new_id[np.asarray(whole.indices)]).save(folder)
    return folder


def rows(results: dict[tuple[str, int], list[dict]], names: list[str]) -> list[str]:
    """The table's rows; `results[name, threads]` has one entry for each round and setting."""
    lines = []
    for name in names:
        for what in ("whole", "alone"):
            ms = {
                who: median(t for each in every if each["name"] == name for t in each[what])
                for who, every in results.items()
            }
            cells = [f"{ms[who, n]:.2f}" for who in ("GraphSAINT", "jgs") for n in _THREADS]
            cells += [f"{ms['GraphSAINT', n] / ms['jgs', n]:.1f}×" for n in _THREADS]
            cells += [f"{ms['jgs', 1] / ms['jgs', 2]:.2f}×"]
            kind = "with edges" if what == "whole" else "nodes alone"
            lines.append(f"| {name}, {kind} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = command_line("frontier", __doc__)
    parser.add_argument("--quick", action="store_true", help="a smaller graph")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=10, help="timed in each process")
    parser.add_argument("--source", default=peers.GRAPHSAINT_SOURCE, help="what git clones")
    arguments = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    size = graph.QUICK if arguments.quick else graph.FULL
    folder = connected(CACHE, size)
    python, source = peers.graphsaint(CACHE, arguments.source)
    todo = settings(arguments.iterations)
    task = {"graph": str(folder), "source": str(source), "settings": todo}
    results: dict[tuple[str, int], list[dict]] = {}
    for number in range(arguments.rounds):
        for threads in _THREADS:
            for who, interpreter in (("GraphSAINT", python), ("jgs", Path(sys.executable))):
                say(f"round {number + 1}: {who}, threads: {threads}")
                variables = environment(threads, True, who != "jgs")
                of = task | {"threads": threads}
                found = run(interpreter, f"frontier_{who.lower()}", of, variables)
                results.setdefault((who, threads), []).extend(found)
    described = graph.describe(folder)
    print(f"{described['nodes']:,} nodes, {described['edges']:,} edges\n")
    names = [setting["name"] for setting in todo]
    for who in ("GraphSAINT", "jgs"):
        for each in results[who, 1][: len(todo)]:
            sizes = f"{each['nodes']:,.0f} nodes, {each['edges']:,.0f} edges"
            print(f"{who}, {each['name']}: {sizes}")
    heads = [
        f"{who}, {n} thread{'s' * (n > 1)}" for who in ("GraphSAINT", "jgs") for n in _THREADS
    ]
    heads += [f"ratio, {n}" for n in _THREADS] + ["jgs, 2 threads to 1"]
    print(f"\n| ms a subgraph | {' | '.join(heads)} |\n|{'---|' * (len(heads) + 1)}")
    print("\n".join(rows(results, names)))


if __name__ == "__main__":
    main()
