"""Negatives of events, for evaluation: random, historical and inductive ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jgs.errors import InputError
from jgs.sampling.checks import require_int
from jgs.sampling.edges.random import as_key_data

KINDS = ("random", "historical", "inductive")


def event_negatives(
    key: Any,
    history: Mapping[str, Any],
    events: Mapping[str, Any],
    candidates: Any,
    num: int,
    kind: str = "random",
    begin: int | None = None,
) -> np.ndarray:
    """int32 `[n, num]`: nodes in place of each event's target; -1 where there are too few.

    Args:
      key: a random key, which decides them.
      history: `src`, `dst` and `time` int `[E]`: all events. An event's negatives depend on
        those before its time, and on those of its source at its time, whose targets are none
        of its negatives.
      events: `src`, `dst` and `time` int `[n]`: the events to judge.
      candidates: int `[C]`, the nodes that a target may be.
      num: the number of negatives of an event.
      kind: `"random"`: candidates, uniformly. `"historical"`: nodes that were targets of the
        same source before the event, uniformly (Poursafaei et al., "Towards Better Evaluation
        for Dynamic Link Prediction", 2022, section 4; TGB, Huang et al. 2023, takes those of
        the training events). `"inductive"`: nodes that were first a target of the source from
        `begin` on, and before the event. Where there are too few, random ones follow.
      begin: the time at which training has ended; needed for `"inductive"`.

    The negatives of one event are distinct, and none is its source. Raises `InputError`.
    """
    if kind not in KINDS:
        raise InputError(f"kind must be one of {', '.join(KINDS)}", repr(kind), "Choose one.")
    if kind == "inductive" and begin is None:
        raise InputError("inductive negatives need a begin", None, "Give begin=time.")
    num = require_int("num", num, 1)
    chance = np.random.default_rng(np.asarray(as_key_data(key)).tolist())
    candidates = np.unique(np.asarray(candidates))
    past = _Past(history)
    made: np.ndarray = np.full((len(events["src"]), num), -1, np.int32)
    for i, (src, time) in enumerate(
        zip(*(events[n].tolist() for n in ("src", "time")), strict=True)
    ):
        taken = np.append(past.at(src, time), src)
        found = np.zeros(0, np.int64)
        if kind != "random":
            known = past.before(src, time, None if kind == "historical" else begin)
            found = _some(chance, known, taken, num)
        if found.size < num:
            more = _some(chance, candidates, np.concatenate([taken, found]), num - found.size)
            found = np.concatenate([found, more])
        made[i, : found.size] = found
    return made


def _some(
    chance: np.random.Generator, nodes: np.ndarray, taken: np.ndarray, num: int
) -> np.ndarray:
    """Up to `num` distinct ones of the distinct `nodes`, uniformly, that are not `taken`."""
    most = min(nodes.size, num + taken.size)
    drawn = nodes[chance.choice(nodes.size, most, replace=False)] if most else nodes
    return drawn[~np.isin(drawn, taken)][:num]


class _Past:
    """Which targets each source had, and when first."""

    def __init__(self, history: Mapping[str, Any]):
        src, dst, time = (np.asarray(history[name]) for name in ("src", "dst", "time"))
        order = np.lexsort((time, src))
        self._src, self._dst, self._time = src[order], dst[order], time[order]
        # The first event of each pair: those of one source lie together, in order of time.
        pairs = np.lexsort((time, dst, src))
        first = np.ones(pairs.size, bool)
        same = (src[pairs][1:] == src[pairs][:-1]) & (dst[pairs][1:] == dst[pairs][:-1])
        first[1:] = ~same
        pairs = pairs[first]
        pairs = pairs[np.lexsort((time[pairs], src[pairs]))]
        self._of, self._new, self._when = src[pairs], dst[pairs], time[pairs]

    def at(self, src: int, time: int) -> np.ndarray:
        """The targets of the source's events at this time."""
        a, b = np.searchsorted(self._src, [src, src + 1])
        a, b = a + np.searchsorted(self._time[a:b], [time, time + 1])
        return self._dst[a:b]

    def before(self, src: int, time: int, begin: int | None) -> np.ndarray:
        """The nodes that were first a target of the source before `time`, from `begin` on."""
        a, b = np.searchsorted(self._of, [src, src + 1])
        when = self._when[a:b]
        low = 0 if begin is None else np.searchsorted(when, begin)
        return self._new[a:b][low : np.searchsorted(when, time)]
