"""The tables of `benchmarks.subgraph_training`, in Markdown, of what its parts measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

POINTS = 0.25  # how far a method may lie below neighbour sampling's best F1
METHODS = ("neighbour sampling", "frontier", "random walk")


def curves_table(*seeds: dict[str, Any]) -> list[str]:
    """A row for each depth and method: when its curve reaches the target F1. With several seeds
    a cell has the mean and the standard deviation over them; a seed's target is its own, and
    seeds that never reach it are counted and left out."""
    columns = (
        "layers | method | best, % | after s | at neighbour sampling's - 0.25 after s | times"
    )
    lines = [f"| {columns} | ms a step | rows | seeds |", "|" + "---|" * 9]
    target, beside = [math.nan] * len(seeds), [math.nan] * len(seeds)
    for key in seeds[0]:
        layers, method = key.split(" ", 1)
        every = [seed[key]["points"] for seed in seeds]
        tops = [max(points, key=lambda point: point[1]) for points in every]
        if method == METHODS[0]:
            target = [best - POINTS for _, best in tops]
        reached = [
            next((s for s, value in points if value >= least), math.nan)
            for points, least in zip(every, target, strict=True)
        ]
        if method == METHODS[0]:
            beside = reached
        times = [one / own for one, own in zip(beside, reached, strict=True)]
        steps = [seed[key]["step"] for seed in seeds]
        of_step = [1e3 * (step["waited"] + step["computed"]) for step in steps]
        cells = [
            cell([best for _, best in tops], 2),
            cell([after for after, _ in tops], 1),
            cell(reached, 1) or "never",
            cell(times, 1),
            f"{statistics.fmean(of_step):.0f}",
            *(f"{statistics.fmean(s[n] for s in steps):,.0f}" for n in ("rows", "seeds")),
        ]
        lines.append(f"| {layers} | {method} | {' | '.join(cells)} |")
    return lines


def test_table(*seeds: dict[str, Any]) -> list[str]:
    """The F1 of the test nodes at each run's best epoch."""
    lines = ["| layers | method | test micro-F1, % | test macro-F1, % |", "|---|---|---|---|"]
    for key in seeds[0]:
        micro, macro = zip(*(seed[key]["test"] for seed in seeds), strict=True)
        layers, method = key.split(" ", 1)
        lines.append(f"| {layers} | {method} | {cell(micro, 2)} | {cell(macro, 2)} |")
    return lines


def cell(values: Sequence[float], digits: int) -> str:
    """The mean of the values that are not NaN, and their sample standard deviation where there
    are several, and how many there are where some are NaN. Without any: ""."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return ""
    text = f"{statistics.fmean(known):.{digits}f}"
    if len(known) > 1:
        text += f" ± {statistics.stdev(known):.{digits}f}"
    return text + (f" ({len(known)} of {len(values)})" if len(known) < len(values) else "")


def simple_table(found: dict[str, dict[str, Sequence[float]]]) -> list[str]:
    lines = ["| data | prediction | test micro-F1, % | test macro-F1, % |", "|---|---|---|---|"]
    for data, every in found.items():
        for what, (micro, macro) in every.items():
            lines.append(f"| {data} | {what} | {micro:.2f} | {macro:.2f} |")
    return lines


def depth_tables(found: dict[str, dict[str, list[float]]]) -> list[str]:
    rows = found["rows"]
    lines = [heads("rows for a seed", len(next(iter(rows.values()))))]
    lines.append("|" + "---|" * (lines[0].count("|") - 1))
    for method, some in rows.items():
        lines.append(f"| {method} | {' | '.join(f'{number:.1f}' for number in some)} |")
    return [*depth_table(found["seconds"]), "", *lines]


def depth_table(found: dict[str, list[float]]) -> list[str]:
    count = len(next(iter(found.values())))
    lines = [f"{heads('seconds an epoch', count)} R² |", "|" + "---|" * (count + 2)]
    for method, seconds in found.items():
        cells = " | ".join(f"{s:.2f}" for s in seconds)
        fit = statistics.correlation(range(1, count + 1), seconds) ** 2
        lines.append(f"| {method} | {cells} | {fit:.4f} |")
    return lines


def heads(first: str, count: int) -> str:
    """A table's heads: the first column's, and one for each depth."""
    names = ("1 layer", *(f"{n} layers" for n in range(2, count + 1)))
    return f"| {first} | {' | '.join(names)} |"


def deeper_table(found: dict[str, dict[str, list[float]]]) -> list[str]:
    count = len(next(iter(found.values()))["test"])
    lines = [heads("frontier's micro-F1, %", count), "|" + "---|" * (count + 1)]
    for data, splits in found.items():
        for split, values in splits.items():
            cells = " | ".join(f"{value:.2f}" for value in values)
            lines.append(f"| {data}, {split} | {cells} |")
    return lines


def pool_table(found: dict[str, dict[str, float]]) -> list[str]:
    lines = ["| run | sampling alone, ms | step alone, ms | waits with the pool |"]
    lines.append("|---|---|---|---|")
    for what, run in found.items():
        alone = f"{1e3 * run['sampling']:.1f} | {1e3 * run['computing']:.0f}"
        lines.append(f"| {what} | {alone} | {100 * run['waited']:.2f} % |")
    return lines
