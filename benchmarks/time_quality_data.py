"""The data of the benchmark of models that see time, and what both sides do alike: NumPy alone,
but for `write`, which draws the negatives with `jgs.sampling.event_negatives`.

A data set is a log of events in the order of their times. The first 70 % train, the next 15 %
validate, the last 15 % test; equal times are never divided. Of the last two splits at most
`most` events are judged, chosen once, each among `OTHERS` nodes that are no targets of its
source at its time. The file that both sides read has:
  num_nodes: `N`. Messages pass in both directions of every event, so they are edges twice.
  src, dst int32 and time int64 `[E]`: the events, with the earliest at time 0.
  targets int32 `[2]`: the nodes that may be targets, from the first up to the second.
  ends int64 `[2]`: how many events there are before the end of training, and of validation.
  val, test int64 `[n]`: the places of the events to judge.
  val_others, test_others int32 `[n, OTHERS]`: the nodes beside their targets.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

OTHERS = 100
_SHARES = (0.7, 0.85)
_RATINGS = "recbole/dataset_example/ml-100k/ml-100k.inter"

Log = dict[str, np.ndarray]


def messages(path: Path) -> Log:
    """The messages of `collegemsg.npz`: who wrote to whom, in seconds."""
    with np.load(path) as file:
        src, dst = file["edge_index"]
        return _log(src, dst, file["edge_time"], 0, int(file["num_nodes"]))


def ratings(wheel: Path) -> Log:
    """The ratings of ml-100k, in the wheel of RecBole: which user rated which film, in seconds.
    Users come before films."""
    with zipfile.ZipFile(wheel) as archive, archive.open(_RATINGS) as file:
        user, film, _, time = np.loadtxt(file, np.int64, skiprows=1, unpack=True)
    (users, user), (films, film) = (np.unique(ids, return_inverse=True) for ids in (user, film))
    return _log(user, film + users.size, time, users.size, users.size + films.size)


def _log(src: np.ndarray, dst: np.ndarray, time: np.ndarray, first: int, end: int) -> Log:
    order = np.argsort(time, kind="stable")
    return {
        "num_nodes": np.array(end),
        "src": src[order].astype(np.int32),
        "dst": dst[order].astype(np.int32),
        "time": (time - time.min())[order].astype(np.int64),
        "targets": np.array([first, end], np.int32),
    }


def write(path: Path, log: Log, most: int) -> None:
    """Splits the log, draws the negatives, and writes the file that both sides read."""
    import jax

    from jgs.sampling import event_negatives

    time = log["time"]
    # The first event of the time at which a split would begin.
    ends = np.searchsorted(time, [time[int(share * time.size)] for share in _SHARES])
    found = log | {"ends": ends}
    history = {name: log[name] for name in ("src", "dst", "time")}
    rng, candidates = np.random.default_rng(0), np.arange(*log["targets"])
    for number, name in enumerate(("val", "test")):
        begin, end = (*ends, time.size)[number : number + 2]
        places = begin + np.sort(rng.permutation(end - begin)[:most])
        events = {column: array[places] for column, array in history.items()}
        key = jax.random.key(number)
        others = event_negatives(key, history, events, candidates, OTHERS)
        assert (others >= 0).all(), "every event has enough negatives"
        found |= {name: places, f"{name}_others": others}
    np.savez(path, **found)


class Past:
    """The latest edges of a node before a cutoff, found by bisection.

    Args:
      src, dst, time: `[E]`, the events. Each is an edge in both directions.
    """

    def __init__(self, src: np.ndarray, dst: np.ndarray, time: np.ndarray):
        there, back = np.concatenate([src, dst]), np.concatenate([dst, src])
        both = np.concatenate([time, time])
        self._span = int(time.max()) + 2
        key = there.astype(np.int64) * self._span + both
        order = np.argsort(key, kind="stable")
        self._key, self.neighbor, self.time = key[order], back[order], both[order]

    def latest(self, nodes: np.ndarray, cutoff: np.ndarray, k: int) -> tuple:
        """The row of each edge in `nodes` int64 `[n]`, ascending, and the positions in
        `neighbor` and `time` of the `k` latest edges of each node before its cutoff."""
        base = nodes.astype(np.int64) * self._span
        begin, end = (
            np.searchsorted(self._key, base + until)
            for until in (0, np.minimum(cutoff, self._span))
        )
        place = end[:, None] - 1 - np.arange(k)
        kept = place >= begin[:, None]
        return np.nonzero(kept)[0], place[kept]
