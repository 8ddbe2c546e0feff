"""Promises of sameness: a sample is a function of the key and of what was asked alone."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from benchmarks.battery.graphs import renumbering
from benchmarks.battery.library import HERE, NotOffered, Refused, Where
from benchmarks.battery.tests import alike
from benchmarks.battery.ways import (
    KEY,
    WAYS,
    Outcome,
    Trial,
    Way,
    each_way,
    hop_rows,
    share_apart,
)

_ALONE = tuple(way for way in WAYS if way.alone)
_OTHER = Where(number=1)


def the_same_twice(trial: Trial) -> dict[str, Outcome]:
    """Five times more."""

    def compare(way: Way) -> float:
        first = trial.rows(way)
        return max(share_apart(first, trial.rows(way)) for _ in range(5))

    return each_way(trial, compare)


def another_key(trial: Trial) -> dict[str, Outcome]:
    """Draws that no key changes are repeated in every batch and epoch."""

    def compare(way: Way) -> str:
        same = share_apart(trial.rows(way), trial.rows(way, key=(8, 0))) == 0
        return "another key, the same" if same else ""

    return each_way(trial, compare, [way for way in WAYS if way.name != "latest"])


def in_another_process(trial: Trial) -> dict[str, Outcome]:
    return each_way(
        trial, lambda way: share_apart(trial.rows(way), trial.rows(way, where=_OTHER))
    )


def with_other_threads(trial: Trial) -> dict[str, Outcome]:
    def compare(way: Way) -> float:
        first = trial.rows(way)
        wheres = [Where(threads) for threads in trial.size.threads]
        return max(share_apart(first, trial.rows(way, where=where)) for where in wheres)

    return each_way(trial, compare)


def in_other_batches(trial: Trial) -> dict[str, Outcome]:
    """Two and three batches of the same seeds have together what one batch has."""

    def compare(way: Way) -> float:
        seeds, whole = trial.seeds(way), np.unique(trial.rows(way), axis=0)

        def parts(number: int) -> np.ndarray:
            some = [trial.rows(way, part) for part in np.array_split(seeds, number)]
            return np.unique(np.concatenate(some), axis=0)

        return max(share_apart(whole, parts(number)) for number in (2, 3))

    return each_way(trial, compare, _ALONE)


def in_another_order(trial: Trial) -> dict[str, Outcome]:
    def compare(way: Way) -> float:
        return share_apart(trial.rows(way), trial.rows(way, trial.seeds(way)[::-1].copy()))

    return each_way(trial, compare)


def with_padding(trial: Trial) -> dict[str, Outcome]:
    ways = [way for way in WAYS if way.method == "draw"]
    return each_way(
        trial, lambda way: share_apart(trial.rows(way), trial.rows(way, padding=9)), ways
    )


def from_the_disk(trial: Trial) -> dict[str, Outcome]:
    disk = HERE._replace(disk=True)
    return each_way(
        trial, lambda way: share_apart(trial.rows(way), trial.rows(way, where=disk))
    )


def after_a_resume(trial: Trial) -> dict[str, Outcome]:
    def epoch(start: int) -> Any:
        seeds = trial.seeds(WAYS[0])
        batch = len(seeds) // 4
        return trial.ask("epoch", "plain", key=KEY, seeds=seeds, batch=batch, start=start)

    def compare(way: Way) -> float:
        whole, resumed = epoch(0)[2:], epoch(2)
        if len(whole) != len(resumed):
            return 1.0
        pairs = zip(whole, resumed, strict=True)
        return max(share_apart(hop_rows(0, a), hop_rows(0, b)) for a, b in pairs)

    return each_way(trial, compare, WAYS[:1])


def on_other_ranks(trial: Trial) -> dict[str, Outcome]:
    """Batches of 1, 2 and 3 ranks, which have the whole topology or split it."""
    seeds = trial.seeds(WAYS[0])[:30]

    def drawn(number: int, mode: str) -> np.ndarray:
        asked: Any = {"key": KEY, "seeds": seeds, "number": number, "mode": mode}
        answer = trial.ask("ranks", "plain", **asked)
        return np.concatenate([hop_rows(i, hop) for i, hop in enumerate(answer)])

    def compare(way: Way) -> float:
        alone = drawn(1, "hybrid")
        others = itertools.product((2, 3), ("hybrid", "vanilla"))
        return max(share_apart(alone, drawn(*other)) for other in others)

    return each_way(trial, compare, WAYS[:1])


def renumbered(trial: Trial) -> dict[str, Outcome]:
    """Which neighbours of a hub are drawn has the same law under other ids of the nodes."""
    saved, other = trial.graphs.of("plain"), trial.graphs.of("renumbered")
    new = renumbering(saved.num_nodes)
    hub = int(np.argmax(np.diff(saved.arrays["indptr"])))
    found = {}
    for name in ("uniform", "by weight", "by weight, with replacement"):
        way = next(way for way in WAYS if way.name == name)
        options = way.arguments | {"fanouts": [10]}
        table = np.zeros((2, saved.num_nodes))
        try:
            for step in range(max(trial.size.keys // 5, 40)):
                for row, graph in enumerate((saved, other)):
                    seed = np.array([hub if row == 0 else new[hub]])
                    asked: Any = {"key": (100 + row + 1009 * step, 0), "seeds": seed, **options}
                    edges = trial.ask("draw", graph.folder.name, **asked)[0]
                    sources = graph.sources(edges)
                    np.add.at(table[row], sources if row == 0 else np.argsort(new)[sources], 1)
        except NotOffered:
            continue
        except Refused as error:
            found[name] = Outcome("fail", f"refused: {error}")
            continue
        found[name] = alike(table)
    return found


PROMISES = {
    "the same twice": the_same_twice,
    "another key, another draw": another_key,
    "the same in another process": in_another_process,
    "the same with other numbers of threads": with_other_threads,
    "the same in batches of other sizes": in_other_batches,
    "the same in another order": in_another_order,
    "the same with padding": with_padding,
    "the same from the disk": from_the_disk,
    "the same after a resume": after_a_resume,
    "the same on other numbers of ranks": on_other_ranks,
    "the same law for renumbered nodes": renumbered,
}
