"""Tests of laws. All are two-sided, and a count that no law allows has the p-value 0."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.battery.ways import Outcome

CHANCE = 1e-3  # that any test of a run fails although all laws hold
_LEAST = 5.0  # expected in a cell; rarer ones are put together


def as_often(counts: Any, weights: Any, what: str = "draws", fixed: int = 1) -> Outcome:
    """Chi-square of counts of outcomes that are likely in proportion to `weights`. `fixed`: the
    number of parts of the counts whose sums no chance changes."""
    counts, weights = np.ravel(counts), np.ravel(np.asarray(weights, np.float64))
    number = counts.sum()
    if number == 0:
        return Outcome("fail", "nothing was drawn")
    if (wrong := int(counts[weights == 0].sum())) > 0:
        return Outcome("law", f"{wrong:,} of {number:,} {what} are impossible", 0.0)
    expected = weights / weights.sum() * number
    order = np.argsort(-expected, kind="stable")
    counts, expected = counts[order], expected[order]
    common = int((expected >= _LEAST).sum())
    before = np.cumsum(expected[common:]) - expected[common:]  # of the rarer ones
    groups = np.r_[np.arange(common), common + before // _LEAST].astype(int)
    counts, expected = (np.bincount(groups, values) for values in (counts, expected))
    counts, expected = counts[expected > 0], expected[expected > 0]
    if expected.size > 1 and expected[-1] < _LEAST:  # with the one before
        counts = np.r_[counts[:-2], counts[-2:].sum()]
        expected = np.r_[expected[:-2], expected[-2:].sum()]
    statistic = ((counts - expected) ** 2 / expected).sum()
    return _by_chi_square(statistic, counts.size - fixed, number)


def independent(a: Any, b: Any, sizes: tuple[int, int]) -> Outcome:
    """Whether all pairs of two small numbers are equally likely."""
    table = np.zeros(sizes)
    np.add.at(table, (np.asarray(a), np.asarray(b)), 1)
    return as_often(table, np.ones(sizes), "pairs")


def alike(table: np.ndarray) -> Outcome:
    """Whether the rows of a table of counts `[rows, outcomes]` have one law. Outcomes that are
    too rare for the test are put together with those after them."""
    share = table.sum(axis=1).min() / max(table.sum(), 1)
    expected = np.cumsum(table.sum(axis=0)) * share
    groups = np.unique((np.r_[0, expected[:-1]] // _LEAST), return_inverse=True)[1]
    table = np.stack([np.bincount(groups, row) for row in table])
    table = table[:, table.sum(axis=0) * share >= _LEAST]
    if table.shape[1] < 2:
        return Outcome("fail", f"all {int(table.sum()):,} draws are of one kind")
    found = stats.chi2_contingency(table, correction=False)
    return _by_chi_square(found.statistic, found.dof, int(table.sum()))


def included(times: Any, draws: int, chances: Any) -> Outcome:
    """Exact binomial tests of how many of the `draws` include each outcome, with Bonferroni's
    factor: the outcomes of a draw may depend on each other."""
    times, chances = np.ravel(times), np.ravel(np.asarray(chances, np.float64))
    each = [
        stats.binomtest(int(n), draws, min(c, 1.0)).pvalue
        for n, c in zip(times, chances, strict=True)
    ]
    worst = int(np.argmin(each))
    p = min(1.0, len(each) * each[worst])
    share, chance = times[worst] / draws, chances[worst]
    said = f"{draws:,} draws, {share:.4f} for {chance:.4f}, p {p:.2g}"
    return Outcome("law", said, p)


def _by_chi_square(statistic: float, freedom: int, number: int) -> Outcome:
    if freedom < 1:
        return Outcome("fail", f"all {number:,} draws are of one kind")
    tail = min(stats.chi2.sf(statistic, freedom), stats.chi2.cdf(statistic, freedom))
    p = float(min(1.0, 2 * tail))
    said = f"{int(number):,} draws, chi-square {statistic:.1f} of {freedom}, p {p:.2g}"
    return Outcome("law", said, p)


def together(outcomes: list[Outcome]) -> Outcome:
    """The worst of several, with Bonferroni's factor."""
    laws = [each for each in outcomes if each.p is not None]
    if len(laws) < len(outcomes):
        return next(each for each in outcomes if each.p is None)
    worst = min(laws, key=lambda each: each.p or 0.0)
    p = min(1.0, (worst.p or 0.0) * len(laws))
    return replace(worst, p=p, figure=f"{worst.figure}, worst of {len(laws)}")


def judged(p_values: list[float]) -> float:
    """The p-value from which on Holm's procedure keeps a law, `CHANCE` for all together."""
    ordered = sorted(p_values)
    for i, p in enumerate(ordered):
        if p > CHANCE / (len(ordered) - i):
            return p
    return np.inf


def successive(weight: Any, number: int) -> dict[tuple[int, ...], float]:
    """The probability of each set, ascending, of `number` successive draws by weight among
    those that are left."""
    weight = np.asarray(weight, np.float64)
    chances: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(number):
        longer: dict[tuple[int, ...], float] = {}
        for kind, chance in chances.items():
            others = [i for i in np.flatnonzero(weight).tolist() if i not in kind]
            for i in others:
                more = tuple(sorted((*kind, i)))
                share = float(weight[i] / weight[others].sum())
                longer[more] = longer.get(more, 0.0) + chance * share
        chances = longer
    return chances


def second_order(rows: list[set[int]], p: float, q: float) -> dict[tuple[int, ...], float]:
    """The probability of each path of two steps of Node2Vec from node 0."""
    chances: dict[tuple[int, ...], float] = {}
    for here in rows[0]:
        nexts = {x: 1 / p if x == 0 else 1.0 if x in rows[0] else 1 / q for x in rows[here]}
        for x, chance in nexts.items():
            chances[here, x] = chance / sum(nexts.values()) / len(rows[0])
    return chances


def inclusion(weight: Any, number: int) -> np.ndarray:
    """The probability that each is among `number` successive draws by weight."""
    found = np.zeros(len(weight))
    for kind, chance in successive(weight, number).items():
        found[list(kind)] += chance
    return found
