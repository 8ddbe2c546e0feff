"""jgs on several ranks: beside DistDGL, FastSample's Figure 6, and DistDGL's Figure 10.

    python -m benchmarks.distributed [--quick] [--rounds N] [--only figure6 figure10]

`distdgl`: two hosts of one core each (`network.py`) train GraphSAGE (100-256-256-47, dropout
0.5, Adam) on 2 parts of the RMAT graph of 8 million directed edges, with 2 x 1000 seeds an
iteration and fanouts (5, 10, 15). Beside them DGL runs in one process of two threads, with all
2000 seeds.
`figure6`: vanilla mode, hybrid mode that samples in two steps by way of COO (`two_steps.py`),
and hybrid mode with the fused kernel; also hybrid mode with a call for each hop, which still
relabels in one kernel. They run on 2 and 4 ranks of this machine, plain and under an emulated
network of 25 Gbit/s and 50 microseconds.
`figure10`: vanilla and hybrid mode over partitions of different cuts, on as many ranks. The
graph has 131,072 nodes in 64 planted communities, with 20 neighbours each on average, 18 of
them within the community; RMAT's cuts hardly differ.
`cache`: what is sent under each policy and budget.
All contenders take turns, `--rounds` times. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import distributed_inputs as given
from benchmarks import distributed_runs as start
from benchmarks import distributed_table as table
from benchmarks import inputs, machine, network, peers
from benchmarks.__main__ import CACHE, command_line, say
from benchmarks.distributed_contenders import KEYS, PLANNED_MIB, Contender, contenders


def main() -> int:
    arguments = _arguments()
    results: dict[str, Any] = {
        "machine": machine.describe(),
        "setting": arguments.setting._asdict(),
        "communities": arguments.communities._asdict(),
        "planned_mib": PLANNED_MIB,
        "hosts": "not asked for",
        "runs": [],
        "failures": [],
    }
    began = time.perf_counter()
    with ExitStack() as stack:
        hosts, python = [], None
        if "distdgl" in arguments.only:
            try:
                hosts = stack.enter_context(network.two_hosts())
                results["hosts"] = "two network namespaces"
            except network.NotPermitted as error:
                results["hosts"] = f"no network namespaces ({error}): ranks share this machine"
                say(results["hosts"])
            python = _peers(arguments)
        jobs = _Jobs(arguments, hosts, python)
        for number in range(arguments.rounds):
            for contender in contenders(arguments.only, arguments.ranks, arguments.quick):
                what = contender.described() | {"round": number}
                turn = f"round {number + 1}/{arguments.rounds}"
                say(f"{time.perf_counter() - began:5.0f} s  {turn}  {contender.title()}")
                try:
                    if (ranks := jobs.run(contender)) is not None:
                        results["runs"].append(what | {"ranks": ranks})
                except (start.Failed, subprocess.CalledProcessError) as error:
                    results["failures"].append(what | {"error": str(error)})
                    say(str(error))
    results["seconds"] = round(time.perf_counter() - began, 1)
    arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    print(table.render(results), flush=True)
    say(f"everything measured is in {arguments.json}")
    return 1 if results["failures"] else 0


def _arguments() -> argparse.Namespace:
    parser = command_line("distributed", __doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="smaller graphs, fewer contenders, one round")
    add("--only", nargs="+", choices=KEYS, default=KEYS, help="some of the benchmarks")
    add("--ranks", type=int, nargs="+", help="of the figures (default: 2 4, quick: 2)")
    add("--rounds", type=int, help="how often all take their turn (default: 3, quick: 1)")
    add("--no-peers", action="store_true", help="jgs alone")
    add("--cache", type=Path, default=CACHE, help="(default: %(default)s)")
    add("--json", type=Path, help="where to write (default: distributed.json in the cache)")
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (1 if arguments.quick else 3)
    arguments.ranks = arguments.ranks or ([2] if arguments.quick else [2, 4])
    arguments.setting = given.QUICK if arguments.quick else given.FULL
    arguments.communities = given.FEW_COMMUNITIES if arguments.quick else given.COMMUNITIES
    arguments.cache = arguments.cache.resolve()
    arguments.cache.mkdir(parents=True, exist_ok=True)
    arguments.json = arguments.json or arguments.cache / "distributed.json"
    return arguments


def _peers(arguments: argparse.Namespace) -> Path | None:
    if arguments.no_peers:
        return None
    say("the peers' environment ...")
    try:
        return peers.python(arguments.cache)
    except peers.Missing as error:
        say(f"the peers could not be installed: {error}")
        return None


class _Jobs:
    """Runs contenders on inputs that are made when they are first needed."""

    def __init__(self, arguments: argparse.Namespace, hosts: list, python: Path | None):
        self._cache, self._setting = arguments.cache, arguments.setting
        self._communities = arguments.communities
        self._hosts, self._python = hosts, python

    def run(self, contender: Contender) -> list[dict] | None:
        """The results of a contender's ranks; None if it cannot run here. Raises `Failed`."""
        if contender.peer and self._python is None:
            return None
        if contender.peer == "distdgl":
            return self._distdgl(contender.tuned) if self._hosts else None
        if contender.peer == "dgl":
            return self._dgl(contender.tuned)
        task = contender.task | {"parts": str(self._parts(contender))}
        task["programs"] = str(self._cache)
        config = {"batch_size": self._setting.batch, "dropout": 0.5, "lr": 3e-3, "hidden": 256}
        task["config"] = config | {"fanouts": [5, 10, 15]} | contender.task["config"]
        hosts = self._hosts if contender.benchmark == "distdgl" else []
        return start.ranks_jgs(hosts, contender.num_ranks, task, contender.tuned)

    def _parts(self, contender: Contender) -> Path:
        if contender.benchmark == "figure10":
            of = (self._communities, contender.task["method"], contender.num_ranks)
            return given.parts_of_communities(self._cache, *of)
        return given.parts_jgs(self._cache, self._setting, contender.num_ranks)

    def _training(self) -> dict:
        steps = self._setting.num_train // (2 * self._setting.batch)
        training = {"fanouts": [5, 10, 15], "dropout": 0.5, "lr": 3e-3, "iterations": steps}
        return training | {"batch": self._setting.batch}

    def _distdgl(self, tuned: bool) -> list[dict]:
        assert self._python is not None
        parts = given.parts_dgl(self._cache, self._setting, 2, self._python)
        task = self._training() | {"parts": str(parts), "threads": 1, "warmup": 5}
        task["widths"] = [256, 256, given.NUM_CLASSES]
        return start.distdgl(self._python, self._hosts, task, tuned)

    def _dgl(self, tuned: bool) -> list[dict]:
        assert self._python is not None
        training = self._training()
        training["batch"] *= 2
        seeds = inputs.seeds(self._cache, self._setting.size)
        training |= {"name": "alone", "hidden": 256, "classes": given.NUM_CLASSES}
        task = {
            "graph": str(self._cache / self._setting.size.name),
            "features": str(given.features(self._cache, self._setting)),
            "threads": 2,
            "settings": [training | {"seeds": str(seeds)}],
        }
        return start.alone(self._python, "step_dgl", task, tuned)


if __name__ == "__main__":
    sys.exit(main())
