"""What models that see time reach on events, beside TGL's TGAT and the same model without time.

    python -m benchmarks.time_quality [--only messages ratings] [--seeds 5] [--cache FOLDER]

`messages` are those of collegemsg: whom does someone write to next? `ratings` are those of
ml-100k: which film does someone rate next? The measure is the MRR of an event's target among
100 other nodes, the same for all sides, and each event is judged at its own time
(`time_quality_data.py`). Nodes have no features: all sides learn a row for each. Settings are
`SETTINGS`: two layers of 10 neighbours, the latest before the cutoff, batches in the order of
time. The epoch that is best on validation is judged on the test, and training stops after
`patience` epochs that are no better. A seed decides the parameters' first values, dropout and
negatives. The trainings take turns. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks import peers
from benchmarks import time_quality_data as quality
from benchmarks.__main__ import CACHE, say
from benchmarks.typed_quality import cell, trained

_COMMON = {
    "hidden": 64,
    "heads": 2,
    "time_width": 64,
    "time_unit": 3600.0,  # seconds: both sides encode hours
    "fanouts": (10, 10),
    "dropout": 0.1,
    "lr": 1e-3,
    "batch_size": 200,
    "eval_batch": 50,
    "epochs": 15,
    "patience": 3,
}
SETTINGS = {name: _COMMON | {"name": name} for name in ("messages", "ratings")}
# Each side's module, and what is added to its settings.
SIDES = {
    "jgs, TGAT": ("time_quality_jgs", {"model": "tgat"}),
    "TGL, TGAT": ("time_quality_tgat", {"inherited": True}),
    "TGL, TGAT, cutoffs of its own": ("time_quality_tgat", {"inherited": False}),
    "jgs, GraphSAGE under cutoffs": ("time_quality_jgs", {"model": "cutoff"}),
    "jgs, GraphSAGE without time": ("time_quality_jgs", {"model": "untimed"}),
}


def table(runs: dict[tuple[str, str], list[dict]]) -> list[str]:
    """The Markdown of the results by data set and side."""
    lines = ["| events | side | seeds | MRR | best epochs | ms a step |", "|---" * 6 + "|"]
    for (name, side), found in runs.items():
        epochs = ", ".join(str(one["epoch"]) for one in found)
        step = f"{median(one['step_ms'] for one in found):.1f}"
        mrr = cell([one["mrr"] for one in found])
        lines.append(f"| {name} | {side} | {len(found)} | {mrr} | {epochs} | {step} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--root", default="../shared/data", help="folder of collegemsg.npz")
    add("--seeds", type=int, default=5, help="trainings of each side")
    add("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    add("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    add("--judged", type=int, default=1000, help="events of validation and of the test")
    add("--epochs", type=int, help="fewer or more than `SETTINGS` says, for a trial")
    add("--source", default=peers.TGL_SOURCE, help="of TGL, what git clones")
    add("--cache", type=Path, default=CACHE, help="of the peers' environments")
    arguments = parser.parse_args()
    cache, interpreters, source = arguments.cache.resolve(), {False: Path(sys.executable)}, ""
    if any(SIDES[side][0].endswith("_tgat") for side in arguments.sides):
        interpreters[True] = peers.python(cache)
        source = str(peers.tgl(cache, arguments.source))
    runs: dict[tuple[str, str], list[dict]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.only:
            if name == "messages":
                log = quality.messages(Path(arguments.root, "collegemsg.npz"))
            else:
                log = quality.ratings(peers.recbole(cache))
            data = Path(folder, f"{name}.npz")
            quality.write(data, log, arguments.judged)
            given = SETTINGS[name] | {"data": str(data), "source": source}
            given |= {"epochs": arguments.epochs} if arguments.epochs else {}
            for seed in range(arguments.seeds):
                for side in arguments.sides:
                    module, own = SIDES[side]
                    interpreter = interpreters[module.endswith("_tgat")]
                    found = trained(interpreter, module, given | own | {"seed": seed})
                    if found is not None:
                        runs.setdefault((name, side), []).append(found)
                        say(f"{name}, {side}, seed {seed}: {found}")
    print("\n".join(table(runs)))


if __name__ == "__main__":
    main()
