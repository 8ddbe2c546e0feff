"""Measures sampling and training on a typed graph beside DGL and GraphBolt.

    python -m benchmarks.typed [--quick] [--only sampling step] [--cache FOLDER] [--rounds 3]

The graph is that of `typed_graph.py`, with 4 and with 40 relations. A typed draw takes the same
number of edges of each relation for each node; the untyped draw beside it takes about as many
edges in all. A training iteration is sampling by relation, reading the features, forward,
backward and Adam. The contenders take turns, each in a process of its own with the same
threads and seeds, with the allocator as installed or, with `--tuned`, tuned. Prints Markdown.
Ratios are of the medians: the contender's time over that of jgs in the same row.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median

from benchmarks import graph, inputs, peers, typed_graph
from benchmarks.__main__ import Failed, Runner, parsed, parser_of, say
from benchmarks.contenders import Contender

_TOLERANCE = 0.02  # how far the edges of typed draws may differ
NUM_FEATURES, NUM_CLASSES = 128, 47


def _drawn(relations: int, typed: tuple[int, ...], untyped: tuple[int, ...]) -> dict:
    """A setting of sampling: fanouts of each relation, and those of the draw without types."""
    name = f"{relations} relations, 1024 seeds, {typed} of each"
    return {
        "name": name,
        "relations": relations,
        "batch": 1024,
        "typed_fanouts": typed,
        "untyped_fanouts": untyped,
    }


def _step(model: str, hidden: int) -> dict:
    return {
        "name": f"{model}, 128-{hidden}-{NUM_CLASSES}, B=1024, (5, 5) of each of 4 relations",
        "model": model,
        "relations": 4,
        "batch": 1024,
        "typed_fanouts": (5, 5),
        "hidden": hidden,
        "heads": 4,
        "classes": NUM_CLASSES,
        "lr": 3e-3,
    }


SETTINGS = {
    "sampling": (
        _drawn(4, (5, 5), (20, 20)),
        _drawn(4, (4, 3, 2), (16, 12, 8)),
        _drawn(40, (1, 1), (40, 33)),
    ),
    "step": (_step("rgcn", 64), _step("rgcn", 128), _step("rsage", 64), _step("hgt", 64)),
}
_HOMOGENEOUS = tuple(s["name"] for s in SETTINGS["step"] if s["model"] != "rsage")
_HETERO = tuple(s["name"] for s in SETTINGS["step"] if s["model"] != "hgt")
CONTENDERS = {
    "sampling": (
        Contender("jgs, typed", "sampling_jgs", task={"way": "typed"}),
        Contender("jgs, untyped", "sampling_jgs", task={"way": "untyped"}),
        Contender("DGL, hetero", "typed_dgl", True, {"way": "hetero"}),
        Contender("DGL, hetero, fused", "typed_dgl", True, {"way": "hetero, fused"}),
        Contender("DGL, homogeneous", "typed_dgl", True, {"way": "homogeneous"}),
        Contender("GraphBolt", "typed_graphbolt", True, {"way": "hetero"}),
        Contender("GraphBolt, not split", "typed_graphbolt", True, {"way": "fused"}),
    ),
    "step": (
        Contender("jgs", "step_jgs"),
        Contender("jgs, as jgs.train runs", "step_jgs", task={"keep_memory": True}),
        Contender("DGL, hetero", "typed_step_dgl", True, {"way": "hetero"}, _HETERO),
        Contender(
            "DGL, hetero, fused", "typed_step_dgl", True, {"way": "hetero, fused"}, _HETERO
        ),
        Contender(
            "DGL, homogeneous", "typed_step_dgl", True, {"way": "homogeneous"}, _HOMOGENEOUS
        ),
    ),
}


def main() -> None:
    parser = parser_of("typed", __doc__, list(SETTINGS))
    add = parser.add_argument
    add("--tuned", action="store_true", help="all allocators keep their memory")
    add("--busy", action="store_true", help="the machine has other work: OpenMP waits asleep")
    arguments = parsed(parser)
    cache, size = arguments.cache.resolve(), graph.QUICK if arguments.quick else graph.FULL
    cache.mkdir(parents=True, exist_ok=True)
    graph.cached(cache, size)
    interpreters = {False: Path(sys.executable)}
    if not arguments.no_peers:
        interpreters[True] = peers.python(cache)
    common = {"threads": arguments.threads, "seeds": str(inputs.seeds(cache, size))}
    if "step" in arguments.only:
        folder = inputs.features(cache, size, NUM_FEATURES, NUM_CLASSES, "features-128")
        common["features"] = str(folder)
    if arguments.busy:
        os.environ["OMP_WAIT_POLICY"] = "passive"
    for key in arguments.only:
        runs: dict[tuple[str, str], list[dict]] = {}
        for contender, setting in _turns(key, arguments):
            if contender.peer not in interpreters:
                continue
            say(f"{key}: {setting['name']}: {contender.name}")
            folder = str(typed_graph.cached(cache, size, setting["relations"]))
            runner = Runner(interpreters, common | {"graph": folder}, arguments.iterations)
            try:
                (result,) = runner.run(contender, [setting], arguments.tuned)
            except Failed as error:
                say(f"{contender.name}: {error}")
                continue
            runs.setdefault((setting["name"], contender.name), []).append(result)
        print("\n".join(table(key, runs)), flush=True)
        if arguments.json:
            path = arguments.json.with_suffix(f".{key}.json")
            path.write_text(json.dumps([[*k, v] for k, v in runs.items()], indent=1) + "\n")


def _turns(key: str, arguments: argparse.Namespace) -> Iterator[tuple[Contender, dict]]:
    """All contenders of all settings, as often as there are rounds."""
    for setting in SETTINGS[key]:
        for _ in range(arguments.rounds):
            for contender in CONTENDERS[key]:
                if contender.settings is None or setting["name"] in contender.settings:
                    yield contender, setting


def table(key: str, runs: dict[tuple[str, str], list[dict]]) -> list[str]:
    """The Markdown of a benchmark. `runs` has the results of each setting and contender."""
    last = "source nodes / edges" if key == "sampling" else "sampling + features + computing"
    lines = [f"| {key} | | ms | times jgs | ns an edge | {last} |", "|---" * 6 + "|"]
    if key == "step":
        lines = [f"| {key} | | ms | times jgs | {last} |", "|---" * 5 + "|"]
    first = CONTENDERS[key][0].name
    for (setting, contender), results in runs.items():
        ms = median_of(results)
        own = runs.get((setting, first))
        ratio = f"{ms / median_of(own):.2f}" if own else ""
        cells = [setting, contender, f"{ms:.1f}", ratio]
        if key == "sampling":
            nodes, edges = (mean(one[name] for one in results) for name in ("nodes", "edges"))
            cells.append(f"{1e6 * ms / edges:.1f}")
            cells.append(f"{nodes:,.0f} / {edges:,.0f}{_unlike(setting, edges, runs)}")
        else:
            parts = [
                median(ms for one in results for ms in one["parts"][part])
                for part in results[0]["parts"]
            ]
            cells.append(" + ".join(f"{part:.1f}" for part in parts))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def median_of(results: list[dict]) -> float:
    return median(ms for one in results for ms in one["ms"])


def _unlike(setting: str, edges: float, runs: dict) -> str:
    """Says so where a typed draw has not the edges that most of the typed draws have."""
    typed = [
        mean(one["edges"] for one in results)
        for (name, contender), results in runs.items()
        if name == setting and contender != "jgs, untyped"
    ]
    far = abs(edges / median(typed) - 1) > _TOLERANCE if typed else False
    return f" ({edges / median(typed) - 1:+.0%} edges)" if far else ""


if __name__ == "__main__":
    main()
