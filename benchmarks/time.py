"""Measures sampling under cutoffs beside GraphBolt and TGL.

    python -m benchmarks.time [--quick] [--only sampling tgl] [--cache FOLDER]

The graph is that of `time_graph.py`. `sampling` gives each seed a random cutoff, or one after
all edges, and then jgs's draw has as much work as its untimed draw. GraphBolt is
`temporal_sample_neighbors`. `tgl` has cutoffs in order, the only ones that TGL's C++ sampler
takes, with one thread and with two. The contenders take turns, each in a process of its own
with the same threads, seeds and cutoffs. Prints Markdown. Every edge that was drawn is looked
up: that it is of its row and before its cutoff; and the first hops of jgs and GraphBolt must
have as many edges as the cutoffs allow. Times are medians, and ratios are of
them: over that of jgs's uniform draws with as many threads, and of TGL's latest ones over that
of jgs's latest. The processes are `time_jgs.py`, `time_graphbolt.py` and `time_tgl.py`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import mean, median

import numpy as np

from benchmarks import graph, inputs, peers, time_graph, worker
from benchmarks.__main__ import Failed, Runner, parsed, parser_of, say
from benchmarks.contenders import Benchmark, Contender


def _drawn(order: str, *fanouts: int) -> dict:
    name = f"1,024 seeds {fanouts}, cutoffs {order}"
    return {"name": name, "batch": 1024, "fanouts": fanouts, "order": order}


RANDOM = (_drawn("random", 10, 10), _drawn("random", 5, 10, 15))
AFTER = (_drawn("after", 10, 10), _drawn("after", 5, 10, 15))
IN_ORDER = (_drawn("in order", 10, 10),)


def _jgs(way: str, *settings: dict, threads: int | None = None) -> Contender:
    name = f"jgs, {way.replace('_', '-')}" + (f", {threads} thread" if threads == 1 else "")
    names = tuple(setting["name"] for setting in settings) or None
    return Contender(name, "time_jgs", task={"way": way}, settings=names, threads=threads)


def _tgl(way: str, threads: int) -> Contender:
    name = f"TGL, {way}" + (f", {threads} thread" if threads == 1 else "")
    return Contender(name, "time_tgl", True, {"way": way}, threads=threads)


BENCHMARKS = (
    Benchmark(
        "sampling",
        (
            _jgs("uniform"),
            _jgs("untimed"),
            _jgs("latest"),
            _jgs("window", *RANDOM),
            _jgs("half_life", *RANDOM),
            Contender("GraphBolt", "time_graphbolt", True),
        ),
        (*RANDOM, *AFTER),
    ),
    Benchmark(
        "tgl",
        tuple(
            contender
            for threads in (1, 2)
            for contender in (
                _jgs("uniform", threads=threads),
                _jgs("latest", threads=threads),
                _tgl("uniform", threads),
                _tgl("latest", threads),
                _tgl("tgat", threads),
            )
        ),
        IN_ORDER,
    ),
)
Runs = dict[tuple[str, str], list[dict]]


def main() -> None:
    keys = [benchmark.key for benchmark in BENCHMARKS]
    parser = parser_of("time", __doc__, keys)
    parser.add_argument("--tuned", action="store_true", help="all allocators keep their memory")
    parser.add_argument("--source", default=peers.TGL_SOURCE, help="of TGL, what git clones")
    arguments = parsed(parser)
    cache, size = arguments.cache.resolve(), graph.QUICK if arguments.quick else graph.FULL
    cache.mkdir(parents=True, exist_ok=True)
    folder, interpreters = time_graph.cached(cache, size), {False: Path(sys.executable)}
    common = {
        "graph": str(folder),
        "seeds": str(inputs.seeds(cache, size)),
        "threads": arguments.threads,
    }
    if not arguments.no_peers:
        interpreters[True] = peers.python(cache)
    if not arguments.no_peers and "tgl" in arguments.only:
        common["source"] = str(peers.tgl(cache, arguments.source))
    runner, failed = Runner(interpreters, common, arguments.iterations), False
    for benchmark in (each for each in BENCHMARKS if each.key in arguments.only):
        runs: Runs = {}
        for number in range(arguments.rounds):
            for contender in benchmark.contenders:
                if contender.peer not in interpreters:
                    continue
                say(f"{benchmark.key}, round {number + 1}: {contender.name}")
                try:
                    found = runner.run(contender, benchmark.settings, arguments.tuned)
                except Failed as error:
                    failed = True
                    say(str(error))
                    continue
                for result in found:
                    runs.setdefault((result["name"], contender.name), []).append(result)
        if arguments.json:
            path = arguments.json.with_suffix(f".{benchmark.key}.json")
            path.write_text(json.dumps([[*key, of] for key, of in runs.items()], indent=1))
        print("\n".join([*table(benchmark, runs), ""]), flush=True)
        asked = {"iterations": arguments.iterations, "seeds": common["seeds"]}
        expected = {
            setting["name"]: first_hop(str(folder), setting | asked)
            for setting in benchmark.settings
        }
        wrong = unlawful(runs, expected)
        for line in wrong:
            say(f"WRONG: {line}")
        failed = failed or bool(wrong)
    sys.exit(failed)


def first_hop(folder: str, setting: dict) -> float:
    """The mean number of edges that a batch's seeds draw."""
    before = time_graph.eligible(folder, worker.batches(setting), time_graph.cutoffs(setting))
    return float(np.minimum(before, setting["fanouts"][0]).sum(axis=1).mean())


def unlawful(runs: Runs, first_hop: dict[str, float]) -> list[str]:
    """What breaks the law of cutoffs: edges that are late; and a first hop without all of the
    edges that it may have, where the draw has no window and is not TGL's."""
    lines = []
    for (setting, contender), results in runs.items():
        late = sum(one["late"] for one in results)
        if late:
            lines.append(f"{setting}: {contender}: {late} edges that are not eligible")
        found = {one["hops"][0] for one in results}
        if contender.startswith(("TGL", "jgs, window", "jgs, untimed")):
            continue
        if found != {first_hop[setting]}:
            lines.append(f"{setting}: {contender}: {found}, expected {first_hop[setting]}")
    return lines


def table(benchmark: Benchmark, runs: Runs) -> list[str]:
    """The Markdown of a benchmark of draws."""
    head = "| ms | times jgs | ns an edge | times jgs | source nodes | edges of the hops |"
    lines = [f"| {benchmark.key} | {head}", "|---" * 8 + "|"]
    names = [setting["name"] for setting in benchmark.settings]
    order = sorted(runs.items(), key=lambda run: names.index(run[0][0]))
    for (setting, contender), results in order:
        own = runs.get((setting, _base(benchmark, contender)), [])
        costs = [_costs(results), _costs(own) if own else (np.nan, np.nan)]
        cells = [setting, contender]
        for cost, base, digits in zip(*costs, (2, 1), strict=True):
            cells += [f"{cost:.{digits}f}", f"{cost / base:.2f}"]
        cells.append(f"{mean(one['nodes'] for one in results):,.0f}")
        hops = np.mean([one["hops"] for one in results], axis=0)
        cells.append(" + ".join(f"{edges:,.0f}" for edges in hops))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _base(benchmark: Benchmark, name: str) -> str:
    """The name of the draws of jgs that a contender is compared with."""
    every = {contender.name: contender for contender in benchmark.contenders}
    latest = every[name].module == "time_tgl" and every[name].task["way"] == "latest"
    wanted = "latest" if latest else "uniform"
    return next(
        each.name
        for each in benchmark.contenders
        if each.module == "time_jgs"
        and each.task["way"] == wanted
        and each.threads == every[name].threads
    )


def _costs(results: list[dict]) -> tuple[float, float]:
    """The median milliseconds of a draw, and with it the nanoseconds of an edge."""
    ms = median(ms for one in results for ms in one["ms"])
    return ms, 1e6 * ms / mean(sum(one["hops"]) for one in results)


if __name__ == "__main__":
    main()
