"""Promises of which edges a sample has, and what is said where they cannot be kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.battery.library import NotOffered, Refused
from benchmarks.battery.ways import KEY, WAYS, Outcome, Trial, Way, counted, cutoffs_of, offered

_DRAWS = [way for way in WAYS if way.method == "draw" and way.name != "LABOR"]
_DISTINCT = [way for way in _DRAWS if not way.arguments.get("replace")]


def full_fanouts(trial: Trial) -> dict[str, Outcome]:
    """Every seed, and every other node that the first hop draws, draws as many as it can."""
    return offered(
        trial, _DISTINCT, lambda way: _short(trial, way, trial.rows(way), np.zeros(0, int))
    )


def _short(trial: Trial, way: Way, rows: np.ndarray, excluded: np.ndarray) -> Outcome:
    saved, seeds = trial.graphs.of(way.graph), trial.seeds(way)
    indptr, kind = saved.arrays["indptr"], saved.arrays.get("kind")
    left = np.ones(saved.arrays["indices"].size, bool)
    left[excluded] = False
    entries = np.stack([seeds, cutoffs_of(seeds) if way.timed() else seeds * 0], axis=1)
    short = number = 0
    for hop, fanout in enumerate(way.arguments["fanouts"]):
        drawn = rows[rows[:, 0] == hop, 1:]
        until = drawn[:, 1] if way.timed() else 0 * drawn[:, 0]
        edges, target = drawn[:, 0], saved.targets(drawn[:, 0])
        times: dict[tuple[int, ...], int] = {}
        ends = zip(target.tolist(), until.tolist(), edges.tolist(), strict=True)
        for node, cutoff, edge in ends:
            relation = -1 if kind is None else int(kind[edge])
            times[node, cutoff, relation] = times.get((node, cutoff, relation), 0) + 1
        for node, cutoff in entries.tolist():
            row = slice(indptr[node], indptr[node + 1])
            known = left[row] & (saved.arrays["time"][row] < cutoff if way.timed() else True)
            for relation, k in enumerate(fanout) if kind is not None else [(-1, fanout)]:
                able = known if kind is None else known & (kind[row] == relation)
                wanted = min(k, int(able.sum()))
                number += wanted
                short += max(wanted - times.get((node, cutoff, relation), 0), 0)
        entries = np.unique(np.stack([saved.sources(edges), until], axis=1), axis=0)
        entries = entries[~np.isin(entries[:, 0], seeds)]
    return counted(short, number, "edges are missing")


def no_edge_twice(trial: Trial) -> dict[str, Outcome]:
    """In the first hop, without replacement."""

    def count(way: Way) -> Outcome:
        rows = trial.rows(way)
        first = rows[rows[:, 0] == 0]
        return counted(len(first) - len(np.unique(first, axis=0)), len(first), "edges repeat")

    return offered(trial, _DISTINCT, count)


def before_the_cutoff(trial: Trial) -> dict[str, Outcome]:
    """No edge at its cutoff or later, in any hop; and no cutoff that no seed has."""

    def count(way: Way) -> Outcome:
        rows, seeds = trial.rows(way), trial.seeds(way)
        time = trial.graphs.of(way.graph).arrays["time"][rows[:, 1]]
        strange = ~np.isin(rows[:, 2], cutoffs_of(seeds))
        ties = int((time == rows[:, 2]).sum())
        late = int((time > rows[:, 2]).sum() + strange.sum())
        said = counted(ties + late, len(rows), "edges are at the cutoff or later")
        return Outcome(said.kind, said.figure + (f" ({ties:,} at it)" if ties else ""))

    return offered(trial, [way for way in _DRAWS if way.timed()], count)


def the_latest(trial: Trial) -> dict[str, Outcome]:
    """What a seed takes by `latest` are the latest of its edges before the cutoff."""

    def count(way: Way) -> Outcome:
        saved, seeds = trial.graphs.of(way.graph), trial.seeds(way)
        indptr, time = saved.arrays["indptr"], saved.arrays["time"]
        rows = trial.rows(way)
        first, wrong = rows[rows[:, 0] == 0, 1], 0
        target = saved.targets(first)
        for node, cutoff in zip(seeds.tolist(), cutoffs_of(seeds).tolist(), strict=True):
            row = time[indptr[node] : indptr[node + 1]]
            k = way.arguments["fanouts"][0]
            wanted = row[row < cutoff][-k:]
            wrong += not np.array_equal(np.sort(time[first[target == node]]), wanted)
        return counted(wrong, len(seeds), "seeds have others")

    return offered(trial, [way for way in WAYS if way.name == "latest"], count)


def _excluded(trial: Trial, way: Way) -> np.ndarray:
    """Every third edge of the graph."""
    return np.arange(0, trial.graphs.of(way.graph).arrays["indices"].size, 3)


def exclusion(trial: Trial) -> dict[str, Outcome]:
    """No excluded edge in any hop."""

    def count(way: Way) -> Outcome:
        excluded = _excluded(trial, way)
        rows = trial.rows(way, excluded=excluded)
        wrong = int(np.isin(rows[:, 1], excluded).sum())
        return counted(wrong, len(rows), "edges are excluded ones")

    return offered(trial, _DRAWS, count)


def full_after_exclusion(trial: Trial) -> dict[str, Outcome]:
    def count(way: Way) -> Outcome:
        excluded = _excluded(trial, way)
        return _short(trial, way, trial.rows(way, excluded=excluded), excluded)

    return offered(trial, _DISTINCT, count)


def negatives(trial: Trial) -> dict[str, Outcome]:
    """No negative is an edge of the graph, in a batch of hubs."""

    def count(way: Way) -> Outcome:
        saved = trial.graphs.of("plain")
        hubs = np.argsort(-np.diff(saved.arrays["indptr"]))[: trial.size.seeds]
        pairs = trial.rows(way, hubs.astype(np.int64))
        edges = np.arange(saved.arrays["indices"].size)
        real = saved.sources(edges) * saved.num_nodes + saved.targets(edges)
        wrong = int(np.isin(pairs[:, 0] * saved.num_nodes + pairs[:, 1], real).sum())
        return counted(wrong, len(pairs), "negatives are edges")

    return offered(trial, [way for way in WAYS if way.name == "negatives"], count)


def _said(call: Callable[[], Any], count: Callable[[Any], str]) -> dict[str, Outcome]:
    """What a library says to a question that has no good answer."""
    try:
        return {"": Outcome("said", count(call()))}
    except NotOffered:
        return {}
    except Refused as error:
        return {"": Outcome("said", f"an error: {str(error)[:90]}")}


def no_negatives(trial: Trial) -> dict[str, Outcome]:
    """In a graph of all edges that there can be."""
    nodes = np.zeros(1, np.int64)
    return _said(
        lambda: trial.ask("negatives", "full", key=KEY, sources=nodes, number=4),
        lambda pairs: f"nothing, {len(pairs)} edges" if len(pairs) else "none is given",
    )


def no_weights(trial: Trial) -> dict[str, Outcome]:
    """Draws by weight from rows whose weights are all 0."""
    asked: Any = {"key": KEY, "seeds": np.arange(3), "fanouts": [2], "law": "weight"}
    return _said(
        lambda: trial.ask("draw", "no weight", **asked),
        lambda hops: f"nothing, {len(hops[0])} edges",
    )


def a_weight_below_zero(trial: Trial) -> dict[str, Outcome]:
    asked: Any = {"key": KEY, "seeds": np.arange(3), "fanouts": [2], "law": "weight"}
    return _said(
        lambda: trial.ask("draw", "below zero", **asked),
        lambda hops: f"nothing, {len(hops[0])} edges",
    )


PROMISES = {
    "full fanouts": full_fanouts,
    "no edge twice": no_edge_twice,
    "no edge at the cutoff or later": before_the_cutoff,
    "the latest edges are the latest": the_latest,
    "no excluded edge": exclusion,
    "full fanouts beside excluded edges": full_after_exclusion,
    "negatives that are none": negatives,
    "said where no negative exists": no_negatives,
    "said where all weights are 0": no_weights,
    "said of a weight below 0": a_weight_below_zero,
}
