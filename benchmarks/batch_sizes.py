"""FastSample's Figure 5: the fused kernel beside two steps, over ten batch sizes.

    python -m benchmarks.batch_sizes [--quick] [--no-peers] [--rounds N]

The graph is one of 2**22 nodes shaped like ogbn-papers100M (`papers_graph.py`), and the fanouts
are 15, 10, 5, the seeds' hop first. Batches have 1,000 to 10,000 seeds. (The paper's own sizes
and fanouts could not be looked up.) The contenders are jgs's fused kernel; the same sample in
two steps by way of COO (`two_steps.py`); DGL's two steps (`sample_neighbors`, then `to_block`,
which leaves the edges in COO); DGL's fused sampler; and GraphBolt. Each has a process of its
own and all threads. They take turns, `--rounds` times. Nothing else should run meanwhile.
`--quick`: a graph of 2**15 nodes, three batch sizes, jgs alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import machine, papers_graph, peers
from benchmarks.__main__ import CACHE, Failed, Runner, command_line, say
from benchmarks.contenders import Contender

FANOUTS = (15, 10, 5)
BATCHES, FEW_BATCHES = range(1000, 11_000, 1000), (100, 200, 400)
FUSED, TWO_STEPS = "jgs, fused", "jgs, two steps"
CONTENDERS = (
    Contender(FUSED, "sampling_jgs"),
    Contender(TWO_STEPS, "two_steps_jgs"),
    Contender(
        "DGL, two steps, int32", "sampling_dgl", True, {"dtype": "int32", "fused": False}
    ),
    Contender("DGL, fused, int64", "sampling_dgl", True, {"dtype": "int64", "fused": True}),
    Contender("GraphBolt", "sampling_graphbolt", True),
)


def main() -> int:
    arguments = _arguments()
    cache = arguments.cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    size = papers_graph.QUICK if arguments.quick else papers_graph.FULL
    began = time.perf_counter()
    say("the graph ...")
    folder = papers_graph.cached(cache, size)
    interpreters = {False: Path(sys.executable)}
    if not (arguments.no_peers or arguments.quick):
        try:
            interpreters[True] = peers.python(cache)
        except peers.Missing as error:
            say(f"the peers could not be installed: {error}")
    common = {
        "graph": str(folder),
        "seeds": str(papers_graph.seeds(cache, size)),
        "programs": str(cache),
    }
    runner = Runner(interpreters, common | {"threads": arguments.threads}, arguments.iterations)
    work = {"fanouts": FANOUTS, "weighted": False, "labor": False}
    sizes = FEW_BATCHES if arguments.quick else BATCHES
    settings = [{"name": str(batch), "batch": batch} | work for batch in sizes]
    results: dict[str, Any] = {
        "machine": machine.describe(),
        "graph": papers_graph.describe(folder),
        "threads": arguments.threads,
        "runs": [],
        "failures": [],
    }
    for number in range(arguments.rounds):
        for contender in CONTENDERS:
            if contender.peer not in interpreters:
                continue
            turn = f"round {number + 1}/{arguments.rounds}"
            say(f"{time.perf_counter() - began:5.0f} s  {turn}  {contender.name}")
            try:
                for result in runner.run(contender, settings, False):
                    results["runs"].append({"contender": contender.name} | result)
            except Failed as error:
                results["failures"].append(f"{contender.name}: {error}")
                say(str(error))
    arguments.json = arguments.json or cache / "batch_sizes.json"
    arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    print(render(results), flush=True)
    return 1 if results["failures"] else 0


def _arguments() -> argparse.Namespace:
    parser = command_line("batch_sizes", __doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="a small graph, three batch sizes, jgs alone")
    add("--threads", type=int, default=2, help="of every contender (default: 2)")
    add("--rounds", type=int, help="how often all take their turn (default: 3, quick: 1)")
    add("--iterations", type=int, default=4, help="timed in each process (default: 4)")
    add("--no-peers", action="store_true", help="jgs alone")
    add("--cache", type=Path, default=CACHE, help="(default: %(default)s)")
    add("--json", type=Path, help="where to write (default: batch_sizes.json in the cache)")
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (1 if arguments.quick else 3)
    return arguments


def render(results: dict) -> str:
    """Markdown of a run's JSON, which has the keys that `main` writes."""
    m, g = results["machine"], results["graph"]
    lines = [
        f"- Machine: {m['cpu']}, {m['cores']} cores, {m['memory_gib']} GiB; load "
        f"{m['load_before']} at the start. {results['threads']} threads each.",
        f"- {g['nodes']:,} nodes, {g['edges']:,} stored edges. Degree: mean {g['mean']:.1f}, "
        f"median {g['median']:.0f}, 90 % {g['90 %']:.0f}, 99 % {g['99 %']:.0f}, largest "
        f"{g['largest']:,}; {g['without_edges']:.2%} of the nodes have no edges.",
        f"- Fanouts {', '.join(map(str, FANOUTS))}. Medians in milliseconds, and over the "
        "fused kernel's.",
        "",
    ]
    found: dict[tuple[str, str], list[float]] = {}
    sizes: dict[str, dict] = {}
    for run in results["runs"]:
        found.setdefault((run["name"], run["contender"]), []).extend(run["ms"])
        if run["contender"] == FUSED:
            sizes[run["name"]] = run
    names = [c.name for c in CONTENDERS if any(c.name == of for _, of in found)]
    lines.append(f"| seeds | {' | '.join(names)} | nodes / edges |")
    lines.append("|---" * (len(names) + 2) + "|")
    ratios: dict[str, list[float]] = {name: [] for name in names}
    for batch in dict.fromkeys(name for name, _ in found):
        cells = [f"{int(batch):,}"]
        base = found.get((batch, FUSED))
        for name in names:
            own = found.get((batch, name))
            text = f"{median(own):.1f}" if own else ""
            if own and base and name != FUSED:
                ratios[name].append(median(own) / median(base))
                text += f", {ratios[name][-1]:.2f}×"
            cells.append(text)
        sample = sizes.get(batch)
        cells.append(f"{sample['nodes']:,.0f} / {sample['edges']:,.0f}" if sample else "")
        lines.append(f"| {' | '.join(cells)} |")
    mean = [f"{np.exp(np.mean(np.log(r))):.2f}×" if r else "" for r in ratios.values()]
    lines.append(f"| geometric mean | {' | '.join(mean)} | |")
    lines += [f"Failed: {text}" for text in results["failures"]]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
