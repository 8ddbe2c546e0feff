"""Measures jgs beside DGL and GraphBolt on this machine and prints the table.

    python -m benchmarks [--quick] [--only sampling labor step] [--threads 2]

The graph, the features and the peers' environment (4.5 GB) are made once, in the cache folder.
Every contender runs in a process of its own, with the same threads, seeds and order. It runs
once as installed and once with the allocator tuned (`contenders.TUNED`). The contenders take
turns, `--rounds` times. Nothing else should run on the machine meanwhile. The Markdown goes to
standard output, the progress to standard error, and everything measured to `--json`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import graph, inputs, machine, peers, random_reads, table
from benchmarks.contenders import (
    BENCHMARKS,
    BLOCK,
    NUM_CLASSES,
    NUM_FEATURES,
    TUNED,
    Benchmark,
    Contender,
)

_REPOSITORY = Path(__file__).parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jgs/benchmarks"
_LIMIT = 1200  # seconds a process may take
# Settings of the user that would change what "as installed" means.
_NOT_PASSED_ON = {"LD_PRELOAD", "GLIBC_TUNABLES", "XLA_FLAGS"}


def main() -> int:
    keys = [benchmark.key for benchmark in BENCHMARKS]
    arguments = parsed(parser_of("", __doc__, keys))
    cache, size = arguments.cache.resolve(), graph.QUICK if arguments.quick else graph.FULL
    cache.mkdir(parents=True, exist_ok=True)
    chosen = [b for b in BENCHMARKS if b.key in arguments.only]
    began = time.perf_counter()
    say("the graph ...")
    folder = graph.cached(cache, size)
    results = {
        "machine": machine.describe(),
        "graph": graph.describe(folder),
        "threads": arguments.threads,
        "quick": arguments.quick,
        "block": None,
        "peers": "not asked for",
        "random_reads": [],
        "runs": [],
        "failures": [],
    }
    interpreters = {False: Path(sys.executable)}
    if not arguments.no_peers:
        say("the peers' environment ...")
        try:
            interpreters[True] = peers.python(cache)
            results["peers"] = "DGL 2.1.0 with GraphBolt, torch 2.2.1"
        except peers.Missing as error:
            results["peers"] = f"could not be installed: {error}"
            say(results["peers"])
    common = {
        "graph": str(folder),
        "seeds": str(inputs.seeds(cache, size)),
        "block": str(cache / f"{size.name}-block.npz"),
        "threads": arguments.threads,
    }
    if {"learned", "step"} & set(arguments.only):
        common["features"] = str(inputs.features(cache, size, NUM_FEATURES, NUM_CLASSES))
    if "walks" in arguments.only:
        common["edge_types"] = str(inputs.edge_types(cache, size))
    runner = Runner(interpreters, common, arguments.iterations)
    if {"aggregation", "attention"} & set(arguments.only):
        (results["block"],) = runner.run(Contender("jgs", "block_jgs"), [BLOCK], False)

    for number in range(arguments.rounds):
        if reads := random_reads.measure(folder, cache, arguments.threads):
            results["random_reads"].append(reads)
        for benchmark, contender, tuned in _turns(chosen, runner):
            what = {"benchmark": benchmark.key, "contender": contender.name, "tuned": tuned}
            variant = "tuned" if tuned else "as installed"
            turn = f"round {number + 1}/{arguments.rounds}"
            seconds = time.perf_counter() - began
            say(f"{seconds:5.0f} s  {turn}  {benchmark.key}: {contender.name}, {variant}")
            try:
                for result in runner.run(contender, benchmark.settings, tuned):
                    results["runs"].append(what | {"round": number} | result)
            except Failed as error:
                results["failures"].append(what | {"round": number, "error": str(error)})
                say(str(error))
    results["seconds"] = round(time.perf_counter() - began, 1)
    arguments.json = arguments.json or cache / "results.json"
    arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    print(table.render(results), flush=True)
    say(f"everything measured is in {arguments.json}")
    return 1 if results["failures"] else 0


def command_line(name: str, about: str | None) -> argparse.ArgumentParser:
    """A parser of `python -m benchmarks.<name>`, which shows `about` line by line."""
    prog = "python -m benchmarks" + (f".{name}" if name else "")
    form = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(prog=prog, description=about, formatter_class=form)


def parser_of(name: str, about: str | None, keys: Sequence[str]) -> argparse.ArgumentParser:
    """The flags that benchmarks of contenders share; `keys` name what `--only` chooses from."""
    parser = command_line(name, about)
    add = parser.add_argument
    add("--quick", action="store_true", help="a smaller graph, one round, few iterations")
    add("--only", nargs="+", choices=keys, default=list(keys), help="some of the benchmarks")
    add("--threads", type=int, default=2, help="of every contender (default: 2)")
    add("--rounds", type=int, help="how often all take their turn (default: 3, quick: 1)")
    add("--iterations", type=int, help="timed in each process (default: 20, quick: 4)")
    add("--no-peers", action="store_true", help="jgs alone")
    add("--cache", type=Path, default=CACHE, help="(default: %(default)s)")
    add("--json", type=Path, help="where to write what was measured")
    return parser


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The arguments of a parser of `parser_of`."""
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (1 if arguments.quick else 3)
    arguments.iterations = arguments.iterations or (4 if arguments.quick else 20)
    return arguments


def _turns(
    benchmarks: list[Benchmark], runner: Runner
) -> Iterator[tuple[Benchmark, Contender, bool]]:
    for benchmark in benchmarks:
        for tuned in (False, True):
            for contender in benchmark.contenders:
                if contender.peer in runner.interpreters:
                    yield benchmark, contender, tuned


class Failed(RuntimeError):
    """A contender's process failed; the message says why."""


class Runner:
    """Runs contenders, each in a process of its own."""

    def __init__(self, interpreters: dict[bool, Path], common: dict, iterations: int):
        self.interpreters, self.common, self.iterations = interpreters, common, iterations

    def run(self, contender: Contender, settings: Sequence[dict], tuned: bool) -> list[dict]:
        """The contender's result for each of its settings; raises `Failed`."""
        iterations, names = self.iterations, contender.settings
        fewer = max(2, iterations // 4)
        base = {name: self.common[name] for name in ("graph", "seeds")}
        todo = [
            base | {"iterations": fewer if setting.get("slow") else iterations} | setting
            for setting in settings
            if names is None or setting["name"] in names
        ]
        threads = contender.threads or self.common["threads"]
        task = self.common | dict(contender.task) | {"threads": threads, "settings": todo}
        interpreter = self.interpreters[contender.peer]
        variables = environment(threads, tuned, contender.peer)
        return run(interpreter, contender.module, task, variables, _LIMIT)


def run(
    interpreter: Path | str,
    module: str,
    task: dict,
    variables: Mapping[str, str],
    limit: float | None = None,
) -> list[dict]:
    """What a process of the module `benchmarks.<module>` reports; raises `Failed`."""
    try:
        done = subprocess.run(
            [interpreter, "-m", f"benchmarks.{module}", json.dumps(task)],
            cwd=_REPOSITORY,
            env=variables,
            capture_output=True,
            text=True,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"took more than {limit} s") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["nothing"]
        raise Failed(f"exit status {done.returncode}: {said[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def environment(threads: int, tuned: bool, peer: bool = False) -> dict[str, str]:
    """The variables of a contender's process; a peer's process does not see our packages."""
    left_out = _NOT_PASSED_ON | ({"PYTHONPATH"} if peer else set())
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in left_out and not name.startswith("MALLOC_")
    }
    pools = ("OMP", "MKL", "OPENBLAS", "JGS")
    environment |= {f"{name}_NUM_THREADS": str(threads) for name in pools}
    environment |= {"NPROC": str(threads)}  # XLA's own pool
    environment |= {"JAX_PLATFORMS": "cpu", "DGLBACKEND": "pytorch", "JAX_ENABLE_X64": "0"}
    return environment | ({"GLIBC_TUNABLES": TUNED} if tuned else {})


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
