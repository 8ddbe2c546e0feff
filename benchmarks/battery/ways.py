"""The ways to draw that the promises are tried with, and what the promises share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from benchmarks.battery.graphs import HALF_LIFE, NOW, Graphs
from benchmarks.battery.library import HERE, Direct, Library, NotOffered, Refused, Where

KEY = (7, 0)


class Size(NamedTuple):
    """How much is tried: equal rows of small graphs, seeds of a batch, keys in a row, numbers
    of threads, whether there are hubs of more than a million edges, and the ways to draw by
    name, if not all."""

    copies: int
    seeds: int
    keys: int
    threads: tuple[int, ...]
    hubs: bool
    ways: tuple[str, ...] = ()


FULL = Size(20_000, 510, 1000, (1, 2, 3, 4, 8), True)
QUICK = Size(3_000, 126, 100, (3,), True)
SMALLEST = Size(600, 24, 40, (1,), False, ("uniform", "before cutoffs", "LABOR"))


@dataclass(frozen=True)
class Outcome:
    """What was seen of a promise, in one way to draw.

    Fields:
      kind: "pass", "fail", "said" or "law". Of a law `judged` of `tests.py` makes "pass" or
        "fail".
      figure: what was counted.
      p: of a law its p-value; None elsewhere.
    """

    kind: str
    figure: str
    p: float | None = None


@dataclass(frozen=True)
class Way:
    """A way to draw for seeds.

    Fields:
      name, graph, method, arguments: what is asked of which graph.
      alone: whether each seed's part can depend on the seed alone. A layer or a subgraph
        belongs to all seeds together.
    """

    name: str
    graph: str
    method: str = "draw"
    arguments: dict[str, Any] = field(default_factory=dict)
    alone: bool = True

    def timed(self) -> bool:
        return self.graph.endswith("timed")


_TYPED = [[2, 1, 3], [1, 1, 1]]
WAYS = (
    Way("uniform", "plain", arguments={"fanouts": [5, 3]}),
    Way("with replacement", "plain", arguments={"fanouts": [5, 3], "replace": True}),
    Way("by weight", "plain", arguments={"fanouts": [5, 3], "law": "weight"}),
    Way(
        "by weight, with replacement",
        "plain",
        arguments={"fanouts": [5, 3], "law": "weight", "replace": True},
    ),
    Way("before cutoffs", "timed", arguments={"fanouts": [5, 3]}),
    Way("one hop before cutoffs", "timed", arguments={"fanouts": [5]}),
    Way("latest", "timed", arguments={"fanouts": [5, 3], "law": "latest"}),
    Way(
        "half-life",
        "timed",
        arguments={"fanouts": [5, 3], "law": "half-life", "half_life": HALF_LIFE},
    ),
    Way("by relation", "typed", arguments={"fanouts": _TYPED}),
    Way("by relation, before cutoffs", "typed and timed", arguments={"fanouts": _TYPED}),
    Way("LABOR", "plain", arguments={"fanouts": [5, 3], "law": "labor"}),
    Way("layers", "plain", "layer", {"size": 100}, alone=False),
    Way("walks", "plain", "walk", {"length": 10}),
    Way("second-order walks", "plain", "walk", {"length": 10, "p": 4.0, "q": 0.25}),
    Way("negatives", "plain", "negatives", {"number": 4}),
    Way("subgraphs", "plain", "subgraph", {"fanouts": [4]}, alone=False),
)


class Trial:
    """A library under trial: its answers to what promises ask."""

    def __init__(self, library: Library | Direct, graphs: Graphs, size: Size):
        self.library, self.graphs, self.size = library, graphs, size

    def ask(self, method: str, graph: str, where: Where = HERE, **arguments: Any) -> Any:
        return self.library.ask(method, self.graphs.of(graph).folder, where, **arguments)

    def seeds(self, way: Way) -> np.ndarray:
        """Distinct nodes that have edges, small and large."""
        saved = self.graphs.of(way.graph)
        some = np.flatnonzero(np.diff(saved.arrays["indptr"]))
        return np.random.default_rng(5).permutation(some)[: self.size.seeds].astype(np.int64)

    def rows(
        self,
        way: Way,
        seeds: np.ndarray | None = None,
        where: Where = HERE,
        key: tuple[int, int] = KEY,
        **more: Any,
    ) -> np.ndarray:
        """int64 `[n, c]`: what the way draws for the seeds: for each drawn edge its hop, itself
        and its cutoff; or a row of the answer."""
        seeds = self.seeds(way) if seeds is None else seeds
        more |= way.arguments
        more["roots" if way.method == "walk" else "seeds"] = seeds
        if way.method == "negatives":
            more["sources"] = more.pop("seeds")
        if way.timed():
            more["cutoffs"] = cutoffs_of(seeds)
        answer = self.ask(way.method, way.graph, where, key=key, **more)
        if way.method != "draw":
            return np.asarray(answer, np.int64).reshape(len(answer), -1)
        return np.concatenate([hop_rows(i, hop) for i, hop in enumerate(answer)])


def cutoffs_of(seeds: np.ndarray) -> np.ndarray:
    """Cutoffs in the second half of the times, which belong to the nodes."""
    return NOW // 2 + seeds * 13 % (NOW // 2)


def hop_rows(hop: int, edges: np.ndarray) -> np.ndarray:
    edges = np.asarray(edges, np.int64).reshape(len(edges), -1)
    return np.concatenate([np.full((len(edges), 1), hop), edges], axis=1)


def share_apart(a: np.ndarray, b: np.ndarray) -> float:
    """The share of the rows of `a` and `b`, `[n, c]` each, that the other one lacks."""
    if a.size == 0 and b.size == 0:
        return 0.0
    if a.shape[1] != b.shape[1]:
        return 1.0
    _, number = np.unique(np.concatenate([a, b]), axis=0, return_inverse=True)
    number = number.reshape(-1)
    counts = [
        np.bincount(part, minlength=number.max() + 1) for part in np.split(number, [len(a)])
    ]
    return float(abs(counts[0] - counts[1]).sum() / (len(a) + len(b)))


def each_way(
    trial: Trial, compare: Callable[[Way], float | str], ways: Any = WAYS
) -> dict[str, Outcome]:
    """For each way that the library offers what `compare` finds wrong: a share of rows that are
    apart, or a word."""

    def outcome(way: Way) -> Outcome:
        wrong = compare(way)
        if not wrong:
            return Outcome("pass", "0 apart" if wrong == 0 else "")
        return Outcome("fail", wrong if isinstance(wrong, str) else f"{wrong:.1%} apart")

    return offered(trial, ways, outcome)


def offered(trial: Trial, ways: Any, outcome: Callable[[Way], Outcome]) -> dict[str, Outcome]:
    """The outcomes of those ways that the library offers."""
    found = {}
    for way in ways:
        if trial.size.ways and way.name not in trial.size.ways:
            continue
        try:
            found[way.name] = outcome(way)
        except NotOffered:
            continue
        except Refused as error:
            found[way.name] = Outcome("fail", f"refused: {error}")
    return found


def counted(bad: int, of: int, what: str) -> Outcome:
    """A pass where there is nothing bad among many."""
    if of == 0:
        return Outcome("fail", "nothing was drawn")
    return Outcome("fail" if bad else "pass", f"{bad:,} of {of:,} {what}")
