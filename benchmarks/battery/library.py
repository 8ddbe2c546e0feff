"""A library that is asked through its adapter, in a process with its own packages.

An adapter is a class `Adapter` in `benchmarks/battery/adapters/NAME.py`. It imports no jgs
unless it is that of jgs, and has `versions()`, a dict, and what its library offers of the
following. What it lacks, or refuses with `NotOffered`, is "not offered". An adapter is made of
the folder of a graph (`graphs.py`) and `disk`: whether the arrays are read from the disk as
they are needed. A `key` is a pair (seed, step), both below 2**32: a library with a stream of
random numbers begins it anew at step 0 and goes on with it at later steps. Nodes and edges are
int64 arrays. An edge is its position in the graph's `indices`.

- `draw(key, seeds, fanouts, law="uniform", replace=False, cutoffs=None, half_life=0,
  excluded=None, padding=0)`: a list of arrays, one a hop: `[n]` edges, with `cutoffs` `[n, 2]`
  edges and the cutoffs under which they were drawn. `law` is "uniform", "weight", "latest",
  "half-life" or "labor". A hop's fanout is a number, or a list with one for each relation.
  `cutoffs` has one for each seed: only earlier edges may be drawn. `excluded` edges may not be
  drawn. `padding` seeds that stand for none are added where the library has such.
- `walk(key, roots, length, p=1.0, q=1.0)`: `[n, length + 1]` nodes, -1 after the end of a
  walk.
- `negatives(key, sources, number)`: `[n, 2]` pairs (source, target), `number` a source.
- `subgraph(key, seeds, fanouts)`: `[m, 2]` the pairs of nodes that the edges join.
- `layer(key, seeds, size)`: the nodes that a layer-wise sampler draws, each once.
- `epoch(key, seeds, batch, start)`: a list of `draw`'s first hops of a loader's batches from
  step `start` on, for which a loader was stopped there, its state kept, and given to another
  one.
- `ranks(key, seeds, number, mode)`: of each hop of all ranks together `[m, 2]` the pairs of
  nodes that edges join. Their batches are `seeds` together. `mode` is "hybrid", where each
  rank has the whole topology, or "vanilla", where they split it."""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

REPOSITORY = Path(__file__).parents[2]


class NotOffered(Exception):
    """A library has no such thing; the message says more, or nothing."""


class Refused(Exception):
    """The library raised an error, or its process ended; the message is what was said."""


class Where(NamedTuple):
    """In which process a library is asked: with so many threads, the `number`-th of these, for
    a graph in memory or on the disk."""

    threads: int = 2
    number: int = 0
    disk: bool = False


HERE = Where()


class Direct:
    """An adapter in this process, whatever is asked of threads and processes."""

    def __init__(self, adapter: Any):
        self.adapter = adapter
        self.made: dict[Any, Any] = {}

    def ask(self, method: str, folder: Path, where: Where = HERE, **arguments: Any) -> Any:
        """What the adapter's method returns. Raises `NotOffered` and `Refused`."""
        return answered(self.adapter, self.made, (method, str(folder), where.disk, arguments))

    def versions(self) -> dict[str, str]:
        return self.adapter.versions()

    def forget(self) -> None:
        """Lets go of the graphs and of all processes but one."""
        self.made.clear()

    close = forget


class Library:
    """An adapter in processes of its own, each started when it is first asked. `quiet`: what
    they say on standard error is dropped."""

    def __init__(
        self, name: str, command: list[str], variables: dict[str, str], quiet: bool = False
    ):
        self.name, self.command, self.variables = name, command, variables
        self.errors = subprocess.DEVNULL if quiet else None
        self.processes: dict[tuple[int, int], subprocess.Popen[bytes]] = {}

    def start(self, threads: Iterable[int]) -> None:
        """Starts the processes that will be asked: one with each of these numbers of threads,
        and another with that of `HERE`. They import their packages meanwhile."""
        for where in (HERE, HERE._replace(number=1), *map(Where, threads)):
            self._process(where)

    def ask(self, method: str, folder: Path, where: Where = HERE, **arguments: Any) -> Any:
        """As that of `Direct`."""
        process = self._process(where)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump((method, str(folder), where.disk, arguments), process.stdin)
            process.stdin.flush()
            kind, answer = pickle.load(process.stdout)
        except (EOFError, BrokenPipeError):
            self.processes.pop((where.threads, where.number), None)
            raise Refused(f"the process ended with status {process.wait()}") from None
        if kind != "answer":
            raise (NotOffered if kind == "not offered" else Refused)(answer)
        return answer

    def versions(self) -> dict[str, str]:
        return self.ask("versions", Path())

    def forget(self) -> None:
        """As that of `Direct`."""
        for place in [place for place in self.processes if place != HERE[:2]]:
            self._end(self.processes.pop(place))
        if self.processes:
            self.ask("forget", Path())

    def close(self) -> None:
        while self.processes:
            self._end(self.processes.popitem()[1])

    def _process(self, where: Where) -> subprocess.Popen[bytes]:
        place = where[:2]
        if place not in self.processes:
            pools = ("OMP", "MKL", "OPENBLAS", "JGS", "RAYON")
            threads = {f"{pool}_NUM_THREADS": str(where.threads) for pool in pools}
            self.processes[place] = subprocess.Popen(
                [*self.command, "-m", "benchmarks.battery.library", self.name],
                cwd=REPOSITORY,
                env=self.variables | threads,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.errors,
            )
        return self.processes[place]

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()


def answered(adapter: Any, made: dict[Any, Any], question: tuple[Any, ...]) -> Any:
    """What an adapter answers; `made` keeps the graphs that it has opened."""
    method, folder, disk, arguments = question
    if not hasattr(adapter, method):
        raise NotOffered("")
    try:
        if (folder, disk) not in made:
            made[folder, disk] = adapter(Path(folder), disk)
        return getattr(made[folder, disk], method)(**arguments)
    except NotOffered:
        raise
    except Exception as error:
        said = str(error).strip().splitlines() or [""]
        raise Refused(f"{type(error).__name__}: {said[0]}") from error


def serve(name: str, questions: BinaryIO, answers: BinaryIO) -> None:
    """Answers as the adapter `name` until the questions end."""
    adapter = importlib.import_module(f"benchmarks.battery.adapters.{name}").Adapter
    made: dict[Any, Any] = {}
    while True:
        try:
            question = pickle.load(questions)
        except EOFError:
            return
        answer: tuple[str, Any]
        try:
            if question[0] == "versions":
                answer = "answer", {name: str(n) for name, n in adapter.versions().items()}
            elif question[0] == "forget":
                made.clear()
                answer = "answer", None
            else:
                answer = "answer", answered(adapter, made, question)
        except NotOffered as reason:
            answer = "not offered", str(reason)
        except Refused as error:
            answer = "refused", str(error)
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    from benchmarks.battery import library  # whose exceptions are those of adapters

    with os.fdopen(os.dup(1), "wb") as stream:
        os.dup2(2, 1)  # what the library prints is no answer
        library.serve(sys.argv[1], sys.stdin.buffer, stream)
