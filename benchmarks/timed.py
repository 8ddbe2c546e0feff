"""Measures draws under cutoffs beside GraphBolt, and beside jgs's own draws without.

    python -m benchmarks.timed [--quick] [--cache FOLDER] [--rounds 3] [--threads 2]

The graph is that of `graph.py`, with random times (`timed_graph.py`); each seed has a random
cutoff. GraphBolt does not join equal nodes with equal cutoffs, and draws for each again. The
contenders take turns, each in a process of its own with the same threads, seeds and cutoffs.
Prints Markdown. Ratios are of the medians: the contender's time over that of jgs's uniform
draw.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import mean

from benchmarks import graph, inputs, peers, timed_graph, typed
from benchmarks.__main__ import CACHE, say
from benchmarks.contenders import Contender
from benchmarks.timed_jgs import WAYS

SETTINGS = tuple(
    {"name": f"1024 seeds, {fanouts}", "batch": 1024, "fanouts": fanouts}
    for fanouts in ((10, 10), (5, 10, 15))
)
CONTENDERS = (
    *(Contender(f"jgs, {way}", "timed_jgs", task={"way": way}) for way in ("uniform", *WAYS)),
    Contender("GraphBolt", "timed_graphbolt", True),
)


def main() -> None:
    arguments = _arguments()
    cache, size = arguments.cache.resolve(), graph.QUICK if arguments.quick else graph.FULL
    cache.mkdir(parents=True, exist_ok=True)
    of_graph = {
        "graph": str(graph.cached(cache, size)),
        "times": str(timed_graph.cached(cache, size)),
        "seeds": str(inputs.seeds(cache, size)),
        "iterations": arguments.iterations,
    }
    interpreters = {False: Path(sys.executable)}
    if not arguments.no_peers:
        interpreters[True] = peers.python(cache)
    each = dict.fromkeys(contender.name for contender in CONTENDERS)
    for setting in SETTINGS:
        runs: dict[str, list[dict]] = {name: [] for name in each}
        for _ in range(arguments.rounds):
            for contender in {one.name: one for one in CONTENDERS}.values():
                if contender.peer not in interpreters:
                    continue
                say(f"{setting['name']}: {contender.name}")
                task = {"threads": arguments.threads, "settings": [setting | of_graph]}
                task |= dict(contender.task)
                result = typed.run(interpreters[contender.peer], contender, task, arguments)
                if result is not None:
                    runs[contender.name].append(result)
        print("\n".join(table(setting["name"], runs)), flush=True)


def table(setting: str, runs: dict[str, list[dict]]) -> list[str]:
    """The Markdown of a setting: for each contender its results."""
    lines = [f"| {setting} | ms | times jgs | nodes / edges |", "|---" * 4 + "|"]
    first = next(iter(runs.values()))
    for name, results in runs.items():
        if results:
            ms = typed.median_of(results)
            nodes, edges = (mean(one[key] for one in results) for key in ("nodes", "edges"))
            ratio = f"{ms / typed.median_of(first):.2f}" if first else ""
            lines.append(f"| {name} | {ms:.2f} | {ratio} | {nodes:,.0f} / {edges:,.0f} |")
    return lines


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.timed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="a smaller graph, one round, few iterations")
    add("--tuned", action="store_true", help="all allocators keep their memory")
    add("--busy", action="store_true", help="the machine has other work: OpenMP waits asleep")
    add("--threads", type=int, default=2, help="of every contender (default: 2)")
    add("--rounds", type=int, help="how often all take their turn (default: 3, quick: 1)")
    add("--iterations", type=int, help="timed in each process (default: 20, quick: 4)")
    add("--no-peers", action="store_true", help="jgs alone")
    add("--cache", type=Path, default=CACHE, help="(default: %(default)s)")
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (1 if arguments.quick else 3)
    arguments.iterations = arguments.iterations or (4 if arguments.quick else 20)
    return arguments


if __name__ == "__main__":
    main()
