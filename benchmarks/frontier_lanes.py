"""What wider vectors gain in the Dashboard: gcn-ipdps19's Figure 4B, on this machine.

    python -m benchmarks.frontier_lanes [--full] [--rounds 5]

The paper's sampler (Zeng et al., IPDPS 2019, Algorithms 3 and 4) tests the entries of its
Dashboard and resets those of a popped node by vectors of 8 (AVX). Here each width is a process
of its own (`JGS_MAX_ISA`), one thread; the widths take turns. A CPU without AVX-512 has AVX2's
figures in its column. Milliseconds for the nodes of a
subgraph, medians, and how many times faster each is than without AVX.
"""

from __future__ import annotations

import json
import os
import sys
from statistics import median

from benchmarks import frontier, graph
from benchmarks.__main__ import CACHE, command_line

ISAS = ("none", "AVX2", "AVX-512")


def main() -> None:
    parser = command_line("frontier_lanes", __doc__)
    parser.add_argument("--full", action="store_true", help="the larger graph")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = frontier.connected(CACHE, graph.FULL if arguments.full else graph.QUICK)
    todo = frontier.settings(iterations=10)
    task = json.dumps({"graph": str(folder), "settings": todo, "threads": 1})
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(arguments.rounds):
        for isa in range(len(ISAS)):
            os.environ["JGS_MAX_ISA"] = str(isa)
            command = [sys.executable, "-m", "benchmarks.frontier_jgs", task]
            for found in frontier.run(command, 1, False):
                times.setdefault((found["name"], isa), []).extend(found["alone"])
    print(f"| a subgraph's nodes, ms | {' | '.join(ISAS)} | gain |\n|---|---|---|---|---|")
    for name in (setting["name"] for setting in todo):
        found = [median(times[name, isa]) for isa in range(len(ISAS))]
        gains = ", ".join(f"{found[0] / ms:.2f}" for ms in found[1:])
        print(f"| {name} | {' | '.join(f'{ms:.2f}' for ms in found)} | {gains} |")


if __name__ == "__main__":
    main()
