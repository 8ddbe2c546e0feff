"""Negatives of events, for evaluation: random, historical and inductive ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jgs.arrays import check_range, require_array
from jgs.errors import InputError, check_choice
from jgs.graph.checks import MAX_ID
from jgs.sampling.checks import require_int
from jgs.sampling.edges.random import as_key_data

KINDS = ("random", "historical", "inductive")
_AT_ONCE = 1 << 20  # nodes that are drawn or left out at a time
_STEP = np.uint64(0x9E3779B97F4A7C15)


def event_negatives(
    key: Any,
    history: Mapping[str, Any],
    events: Mapping[str, Any],
    candidates: Any,
    num: int,
    kind: str = "random",
    begin: int | None = None,
    born: Any = None,
) -> np.ndarray:
    """int32 `[n, num]`: nodes in place of each event's target; -1 where there are too few.

    Args:
      key: a random key, which decides them.
      history: `src`, `dst` and `time` int `[E]`: all events. An event's negatives depend on
        those of its source before its time, and at its time, whose targets are none of its
        negatives.
      events: `src`, `dst` and `time` int `[n]`: the events to judge. The history may lack them.
      candidates: int `[C]`, the distinct nodes that a target may be.
      num: the number of negatives of an event.
      kind: `"random"`: candidates, uniformly. `"historical"`: nodes that were targets of the
        same source before the event, uniformly (Poursafaei et al., "Towards Better Evaluation
        for Dynamic Link Prediction", 2022, section 4; TGB, Huang et al. 2023, takes those of
        the training events). `"inductive"`: nodes that were first a target of the source from
        `begin` on, and before the event. Where there are too few, random ones follow.
      begin: the time at which training has ended; needed for `"inductive"`.
      born: int `[C]`, the time from which on each candidate exists; random negatives existed
        before their event. None: all always did.

    The negatives of one event are distinct, and none is its source. They depend on the key, the
    event and its past alone: not on the other events, their order and what came later. Raises
    `InputError`.
    """
    check_choice("kind", kind, KINDS)
    if kind == "inductive" and begin is None:
        raise InputError("inductive negatives need a begin", None, "Give begin=time.")
    num = require_int("num", num, 1)
    (nodes,) = _columns("the nodes", {"candidates": candidates}, ["candidates"])
    if nodes.size == 0 or np.unique(nodes).size < nodes.size:
        raise InputError(
            "candidates must be distinct nodes, at least one",
            f"{nodes.size}, of which {np.unique(nodes).size} are distinct",
            "Give those that a target may be.",
        )
    ages = np.zeros(0, np.int64)
    if born is not None:
        both = {"candidates": nodes, "born": born}
        _, ages = _columns("the nodes", both, ["candidates", "born"])
        order = np.argsort(ages, kind="stable")
        nodes, ages = nodes[order], ages[order]
    src, dst, time = _columns("events", events)
    high, low = np.asarray(as_key_data(key)).astype(np.uint64)
    bits = mixed(np.full(src.size, (high << np.uint64(32)) | low))
    for column in (src, dst, time):
        bits = mixed(bits + _STEP ^ column.astype(np.uint64))
    past = _Past(history)
    made: np.ndarray = np.full((src.size, num), -1, np.int32)
    read = np.cumsum(2 * num + np.diff(past.events_at(src, time), axis=0)[0])
    (first,) = np.nonzero(np.diff(read // _AT_ONCE, prepend=-1))
    for some in map(slice, first, [*first[1:], src.size]):
        taken = past.at(src[some], dst[some], time[some])
        every = np.full(src[some].size, nodes.size)
        if born is not None:
            every = np.searchsorted(ages, time[some])
        pools = [_Pool(nodes, np.zeros_like(every), every)]
        if kind != "random":
            since = None if kind == "historical" else begin
            pools = [past.before(src[some], time[some], since), *pools]
        for turn, pool in enumerate(pools):
            _fill(made[some], bits[some] + np.uint64(turn), pool, taken)
    return made


_NAMES = ("src", "dst", "time")


def _columns(
    what: str, given: Mapping[str, Any], names: Sequence[str] = _NAMES
) -> list[np.ndarray]:
    """The columns of these names, int64 `[n]`. Raises `InputError`, which says `what` they are
    of."""
    if missing := [name for name in names if name not in given]:
        raise InputError(f"{what} must have {', '.join(names)}", f"no {missing[0]}", "Add it.")
    columns = [np.asarray(given[name]) for name in names]
    for name, column in zip(names, columns, strict=True):
        remedy = "Convert them; dates by .astype('datetime64[s]').astype(numpy.int64)."
        require_array(f"{name} of {what}", column, "integers or empty [n]", remedy)
    if len({column.size for column in columns}) > 1:
        sizes = ", ".join(f"{n} {c.size}" for n, c in zip(names, columns, strict=True))
        raise InputError(f"columns of {what} must be of one length", sizes, "Give as many.")
    columns = [column.astype(np.int64) for column in columns]
    for name, column in zip(names, columns, strict=True):
        if name not in ("time", "born"):
            check_range(f"{name} of {what} must be node ids", column, MAX_ID + 1)
    return columns


class _Pool(NamedTuple):
    """The nodes that each event draws from: `nodes[start[i] : start[i] + size[i]]`, which are
    distinct."""

    nodes: np.ndarray
    start: np.ndarray
    size: np.ndarray

    def of(self, event: np.ndarray, place: np.ndarray) -> np.ndarray:
        return self.nodes[self.start[event] + place]


def _fill(made: np.ndarray, bits: np.ndarray, pool: _Pool, taken: np.ndarray) -> None:
    """Puts uniform nodes of the pools where `made` `[n, num]` has -1; none that is there or, as
    a pair of event and node, `taken` `[m, 2]`.

    Nodes are drawn with replacement, and each counts once, until there are enough. Where the
    draws would be as many as the pool it is put in a random order instead.
    """
    num = made.shape[1]
    here = np.argwhere(made >= 0)
    codes = _codes(*np.concatenate([taken, np.stack([here[:, 0], made[made >= 0]], axis=1)]).T)
    start = (made >= 0).sum(axis=1)
    left, size = np.flatnonzero((start < num) & (pool.size > 0)), 2 * num
    while left.size:
        few = left[pool.size[left] <= size]
        event, place = _ragged(few, pool.size[few])
        node = pool.of(event, place)
        order = np.lexsort((mixed(bits[event] ^ mixed(node.astype(np.uint64))), event))
        _put(made, start, event[order], node[order], codes)
        left = left[pool.size[left] > size]
        event, number = _ragged(left, np.full(left.size, size))
        drawn = mixed(bits[event] + _STEP * (1 + number).astype(np.uint64)) >> np.uint64(11)
        count = pool.size[event]
        place = np.minimum((drawn * 2.0**-53 * count).astype(np.int64), count - 1)
        _put(made, start, event, pool.of(event, place), codes)
        left, size = left[made[left, -1] < 0], 2 * size


def _put(
    made: np.ndarray, start: np.ndarray, event: np.ndarray, node: np.ndarray, codes: np.ndarray
) -> None:
    """Puts the first nodes of each event into its row, from the place `start` on; each once,
    and none that is among the `codes` of pairs of event and node."""
    own = _codes(event, node)
    first = np.zeros(own.size, bool)
    first[np.unique(own, return_index=True)[1]] = True
    kept = first & ~np.isin(own, codes)
    event, node = event[kept], node[kept]
    begins = np.searchsorted(event, event)  # events are ascending
    place = start[event] + np.arange(event.size) - begins
    fits = place < made.shape[1]
    made[event[fits], place[fits]] = node[fits]


def _codes(event: np.ndarray, node: np.ndarray) -> np.ndarray:
    return (event.astype(np.int64) << 32) | node.astype(np.int64)


def _ragged(event: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each event as often as its count says, and a number from 0 on for each."""
    ends = np.cumsum(count)
    number = np.arange(ends[-1] if ends.size else 0) - np.repeat(ends - count, count)
    return np.repeat(event, count), number


class _Past:
    """Which targets each source had, and when first."""

    def __init__(self, history: Mapping[str, Any]):
        src, dst, time = _columns("history", history)
        self._times = np.unique(time)
        order = np.lexsort((time, src))
        self._at, self._dst = self._code(src[order], time[order]), dst[order]
        pairs = np.lexsort(
            (time, dst, src)
        )  # those of one pair together, the first event first
        first = np.ones(pairs.size, bool)
        first[1:] = (np.diff(src[pairs]) != 0) | (np.diff(dst[pairs]) != 0)
        pairs = pairs[first]
        pairs = pairs[np.lexsort((time[pairs], src[pairs]))]
        self._first, self._new = self._code(src[pairs], time[pairs]), dst[pairs]

    def _code(self, src: np.ndarray, time: Any, side: Any = "left") -> np.ndarray:
        """A number that grows with the source, and then with the time."""
        return (src << 32) | np.searchsorted(self._times, time, side)

    def events_at(self, src: np.ndarray, time: np.ndarray) -> np.ndarray:
        """int64 `[2, m]`: where the events of each source at its time begin, and where they
        end, among those that are sorted by both."""
        codes = [self._code(src, time, side) for side in ("left", "right")]
        return np.searchsorted(self._at, codes)

    def at(self, src: np.ndarray, dst: np.ndarray, time: np.ndarray) -> np.ndarray:
        """int64 `[m, 2]`: the pairs of `i` and what is no negative of event number `i`: its two
        ends, and the targets of its source's events at its time."""
        begin, end = self.events_at(src, time)
        event, number = _ragged(np.arange(src.size), end - begin)
        found = np.stack([event, self._dst[begin[event] + number]], axis=1)
        own = [np.stack([np.arange(src.size), end], axis=1) for end in (src, dst)]
        return np.concatenate([found, *own])

    def before(self, src: np.ndarray, time: np.ndarray, begin: int | None) -> _Pool:
        """The nodes that were first a target of each source from `begin` to its time."""
        low = src << 32 if begin is None else self._code(src, np.full(src.size, begin))
        first = np.searchsorted(self._first, low)
        end = np.searchsorted(self._first, self._code(src, time))
        return _Pool(self._new, first, np.maximum(end - first, 0))


def mixed(x: np.ndarray) -> np.ndarray:
    """uint64: the finaliser of SplitMix64, whose bits are random for distinct numbers."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))
