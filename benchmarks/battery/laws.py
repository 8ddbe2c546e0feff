"""Promises of laws: how often each outcome is drawn, and that draws are independent."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from benchmarks.battery.graphs import (
    AGES,
    HALF_LIFE,
    HUB_NUMBERS,
    HUB_WEIGHTS,
    LAYER,
    NEAR,
    NOW,
    SPREAD,
)
from benchmarks.battery.library import NotOffered, Refused
from benchmarks.battery.tests import (
    as_often,
    included,
    inclusion,
    independent,
    second_order,
    successive,
    together,
)
from benchmarks.battery.ways import KEY, Outcome, Trial, counted

P, Q = 4.0, 0.25  # of the second-order walks
_FIRST = 1 << 20  # the first of the keys in a row


def _found(**tests: Callable[[], Outcome]) -> dict[str, Outcome]:
    """The outcomes of tests by name, of those that the library offers."""
    found = {}
    for name, test in tests.items():
        try:
            found[name.replace("_", " ")] = test()
        except NotOffered:
            continue
        except Refused as error:
            found[name.replace("_", " ")] = Outcome("fail", f"refused: {error}")
    return found


def _sets(trial: Trial, graph: str, number: int, **asked: Any) -> np.ndarray | None:
    """int `[copies, number]`: the places in its row of what each copy draws, ascending; None
    where copies draw other numbers."""
    seeds = np.arange(trial.size.copies)
    asked = {"key": KEY, "seeds": seeds, "fanouts": [number], **asked}
    edges = np.asarray(trial.ask("draw", graph, **asked)[0], np.int64).reshape(-1)
    if "cutoffs" in asked:
        edges = edges.reshape(-1, 2)[:, 0]
    edges = np.sort(edges)
    saved = trial.graphs.of(graph)
    if not np.array_equal(saved.targets(edges), np.repeat(seeds, number)):
        return None
    return saved.positions(edges).reshape(-1, number)


def _follow(sets: np.ndarray | None, chances: dict[tuple[int, ...], float]) -> Outcome:
    if sets is None:
        return Outcome("fail", "fanouts fall short")
    size = 1 + max(sets.max(), *map(max, chances))
    code = sets @ (size ** np.arange(sets.shape[1]))
    weights = np.zeros(size ** sets.shape[1])
    for kind, chance in chances.items():
        weights[np.array(kind) @ (size ** np.arange(len(kind)))] = chance
    return as_often(np.bincount(code, minlength=weights.size), weights)


def _even(number: int) -> dict[tuple[int, ...], float]:
    """Equal chances of the sets of so many of six."""
    return {kind: 1.0 for kind in itertools.combinations(range(6), number)}


def _pairs(chances: np.ndarray) -> dict[tuple[int, ...], float]:
    """The probability of each two independent draws, ascending."""
    options = itertools.combinations_with_replacement(range(len(chances)), 2)
    each: dict[tuple[int, ...], float] = {}
    for pair in options:
        each[pair] = np.prod(chances[list(pair)]) * len({*pair})
    return each


def subsets(trial: Trial) -> dict[str, Outcome]:
    def of(number: int) -> Outcome:
        return _follow(_sets(trial, "six", number), _even(number))

    def before() -> Outcome:  # six edges are older than 5
        until = np.full(trial.size.copies, NOW - 5)
        return _follow(_sets(trial, "ages", 2, cutoffs=until), _even(2))

    return _found(
        one=lambda: of(1),
        two=lambda: of(2),
        three=lambda: of(3),
        two_with_replacement=lambda: _follow(
            _sets(trial, "six", 2, replace=True), _pairs(np.ones(6))
        ),
        two_before_cutoffs=before,
    )


def a_hub(trial: Trial) -> dict[str, Outcome]:
    """Places in rows of 40,000 edges, in steps of 1,000."""

    def of(fanout: int, replace: bool) -> Outcome:
        counts, seeds = np.zeros(40), np.arange(50)
        for step in range(max(trial.size.keys // max(fanout, 5), 2)):
            asked: Any = {"key": (7 + 1009 * step, 0), "seeds": seeds, "fanouts": [fanout]}
            edges = trial.ask("draw", "hub", **asked, replace=replace)[0]
            counts += np.bincount(edges % 40_000 // 1000, minlength=40)
        return as_often(counts, np.ones(40))

    return _found(
        one=lambda: of(1, False),
        sixty=lambda: of(60, False),
        one_with_replacement=lambda: of(1, True),
    )


def a_vast_hub(trial: Trial) -> dict[str, Outcome]:
    """Places in a row of five million edges: their fiftieth, and their rest by 64."""

    def of(replace: bool) -> Outcome:
        drawn = []
        for step in range(20):
            asked: Any = {
                "key": (7 + 1009 * step, 0),
                "seeds": np.zeros(1, np.int64),
                "fanouts": [1000],
            }
            drawn.append(trial.ask("draw", "vast hub", **asked, replace=replace)[0])
        edges = np.concatenate(drawn)
        parts = (edges // 100_000, 50), (edges % 64, 64)
        return together(
            [as_often(np.bincount(part, minlength=n), np.ones(n)) for part, n in parts]
        )

    if not trial.size.hubs:
        return {}
    return _found(without_replacement=lambda: of(False), with_replacement=lambda: of(True))


def by_weight(trial: Trial) -> dict[str, Outcome]:
    """Weights over nine orders of magnitude: sets of 8, and classes of 1.3 million edges."""

    def of(number: int) -> Outcome:
        sets = _sets(trial, "spread", number, law="weight")
        return _follow(sets, successive(SPREAD, number))

    def repeated() -> Outcome:
        counts, weight = np.zeros(10), trial.graphs.of("spread hub").arrays["weight"]
        for step in range(trial.size.keys // 5):
            asked: Any = {
                "key": (7 + 1009 * step, 0),
                "seeds": np.zeros(1, np.int64),
                "fanouts": [1000],
            }
            asked |= {"law": "weight", "replace": True}
            edges = trial.ask("draw", "spread hub", **asked)[0]
            kinds = np.rint(5 - np.log10(weight[edges])).astype(int)
            counts += np.bincount(kinds, minlength=10)
        return as_often(counts, HUB_WEIGHTS * HUB_NUMBERS)

    tests = {"two": lambda: of(2), "four": lambda: of(4), "seven": lambda: of(7)}
    return _found(**tests, **({"with_replacement": repeated} if trial.size.hubs else {}))


def half_life(trial: Trial) -> dict[str, Outcome]:
    """Two of 8 edges, by 2**(-age / half-life)."""
    until = np.full(trial.size.copies, NOW)
    asked: Any = {"law": "half-life", "half_life": HALF_LIFE, "cutoffs": until}
    chances = 2.0 ** (-AGES / HALF_LIFE)
    return _found(
        without_replacement=lambda: _follow(
            _sets(trial, "ages", 2, **asked), successive(chances, 2)
        ),
        with_replacement=lambda: _follow(
            _sets(trial, "ages", 2, replace=True, **asked), _pairs(chances)
        ),
    )


def _ones(trial: Trial, key: tuple[int, int], number: int) -> np.ndarray:
    """int `[number]`: which of its six neighbours each seed draws."""
    asked: Any = {"key": key, "seeds": np.arange(number), "fanouts": [1]}
    edges = np.sort(trial.ask("draw", "six", **asked)[0])
    if not np.array_equal(edges // 6, np.arange(number)):
        raise Refused("fanouts fall short")
    return edges % 6


def independence(trial: Trial) -> dict[str, Outcome]:
    copies, sizes = trial.size.copies, (6, 6)

    def hops() -> Outcome:
        """What a seed draws, and what is then drawn by its neighbour, and by itself."""
        seeds = np.arange(copies)
        hops = trial.ask("draw", "tree", key=KEY, seeds=seeds, fanouts=[1, 1])
        saved = trial.graphs.of("tree")
        first, second = (np.sort(np.asarray(hop)) for hop in hops)
        place, source = saved.positions(first), saved.sources(first)
        at = np.searchsorted(saved.targets(second), [source, seeds])
        again = second[np.minimum(at, second.size - 1)]
        tests = [independent(place, saved.positions(again[0]), sizes)]
        if np.array_equal(saved.targets(again[1]), seeds):
            tests.append(independent(place, saved.positions(again[1]), sizes))
        return together(tests)

    def steps() -> Outcome:
        return independent(_ones(trial, (7, 0), copies), _ones(trial, (7, 1), copies), sizes)

    def seeds() -> Outcome:
        places = _ones(trial, KEY, copies)
        return independent(places[::2], places[1::2], sizes)

    return _found(hops=hops, steps=steps, seeds=seeds)


def neighbouring_keys(trial: Trial) -> dict[str, Outcome]:
    keys, nodes = trial.size.keys, min(trial.size.copies, 200)

    def in_a_row() -> Outcome:
        """What two keys that follow each other draw, for the same node and for the nodes next
        to it; and what each node draws with all keys."""
        drawn = np.stack([_ones(trial, (_FIRST + i, 0), nodes) for i in range(keys)])
        each = drawn + 6 * np.arange(nodes)
        first, second = drawn[:-1:2], drawn[1::2]
        return together(
            [
                independent(first.ravel(), second.ravel(), (6, 6)),
                independent(first[:, 1:].ravel(), second[:, :-1].ravel(), (6, 6)),
                independent(first[:, :-1].ravel(), second[:, 1:].ravel(), (6, 6)),
                as_often(
                    np.bincount(each.ravel(), minlength=6 * nodes),
                    np.ones(6 * nodes),
                    fixed=nodes,
                ),
            ]
        )

    def by_one_bit() -> Outcome:
        rng, tests = np.random.default_rng(4), []
        for bit in range(31):
            bases = rng.integers(0, 1 << 31, max(keys // 62, 2)).tolist()
            pairs = [
                [_ones(trial, (key, 0), nodes) for key in (base, base ^ 1 << bit)]
                for base in bases
            ]
            first, second = np.concatenate(pairs, axis=1)
            tests.append(independent(first, second, (6, 6)))
        return together(tests)

    return _found(in_a_row=in_a_row, by_one_bit=by_one_bit)


def labor(trial: Trial) -> dict[str, Outcome]:
    """Two nodes with the same 10 neighbours, of which each takes 3 on average."""
    draws = trial.size.keys

    @cache
    def drawn() -> tuple[np.ndarray, int]:
        times, apart = np.zeros(10), 0
        for step in range(draws):
            asked: Any = {"key": (7 + 1009 * step, 0), "seeds": np.arange(2), "fanouts": [3]}
            edges = trial.ask("draw", "ten", **asked, law="labor")[0]
            taken = [edges[edges // 10 == i] % 10 for i in (0, 1)]
            times += np.bincount(taken[0], minlength=10)
            apart += not np.array_equal(np.sort(taken[0]), np.sort(taken[1]))
        return times, apart

    def inclusions() -> Outcome:
        return included(drawn()[0], draws, np.full(10, 0.3))

    def sharing() -> Outcome:
        return counted(drawn()[1], draws, "times they take others")

    return _found(inclusion=inclusions, sharing=sharing)


def layers(trial: Trial) -> dict[str, Outcome]:
    """LADIES: 3 of 6 sources, by the squared norms of their rows."""
    joined = np.arange(6)[:, None] < LAYER  # [seed, source]
    bias = ((joined / joined.sum(axis=1, keepdims=True)) ** 2).sum(axis=0)
    draws = trial.size.keys

    def drawn() -> Outcome:
        times = np.zeros(LAYER.size)
        for step in range(draws):
            asked: Any = {"key": (7 + 1009 * step, 0), "seeds": np.arange(6), "size": 3}
            nodes = np.asarray(trial.ask("layer", "layer", **asked)).reshape(-1) - 6
            times += np.bincount(nodes, minlength=LAYER.size)
        return included(times, draws, inclusion(bias, 3))

    return _found(inclusion=drawn)


def walks(trial: Trial) -> dict[str, Outcome]:
    """Two steps from one node of six, with p and q of Node2Vec or without."""
    rows: list[set[int]] = [set() for _ in range(6)]
    for a, b in NEAR:
        rows[a].add(b)
        rows[b].add(a)

    def of(**asked: Any) -> Outcome:
        roots = np.zeros(trial.size.copies, np.int64)
        paths = trial.ask("walk", "near", key=KEY, roots=roots, length=2, **asked)
        paths = np.asarray(paths)[:, 1:]
        if (paths < 0).any():
            return Outcome("fail", f"{int((paths < 0).any(axis=1).sum()):,} walks end early")
        chances = second_order(rows, asked.get("p", 1.0), asked.get("q", 1.0))
        weights = np.zeros((6, 6))
        for path, chance in chances.items():
            weights[path] = chance
        counts = np.bincount(paths @ [6, 1], minlength=36)
        return as_often(counts, weights, "walks")

    return _found(first_order=of, second_order=lambda: of(p=P, q=Q))


PROMISES = {
    "law of subsets of 6": subsets,
    "law at a hub of 40,000": a_hub,
    "law at a hub of 5 million": a_vast_hub,
    "law of weights over nine orders": by_weight,
    "law of a half-life": half_life,
    "independence of hops, steps and seeds": independence,
    "independence of neighbouring keys": neighbouring_keys,
    "law of LABOR": labor,
    "law of layers": layers,
    "law of walks": walks,
}
