"""`Expiry`: which rows have edges whose time to live is over."""

from __future__ import annotations

import numpy as np

_MOST = 16  # runs that are looked at each time


class Expiry:
    """The times of edges that are still to expire, and their rows: runs, each ascending by
    time. Small runs are merged, so that there are few."""

    def __init__(self) -> None:
        self._runs: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, times: np.ndarray, rows: np.ndarray) -> None:
        """Adds edges int64 `[n]`, int `[n]`."""
        order = np.argsort(times, kind="stable")
        self._runs.append((times[order], rows[order].astype(np.int32)))
        while len(self._runs) > _MOST:
            self._runs.sort(key=lambda run: run[0].size)
            (one, of_one), (other, of_other), *rest = self._runs
            times, rows = np.concatenate([one, other]), np.concatenate([of_one, of_other])
            order = np.argsort(times, kind="stable")
            self._runs = [*rest, (times[order], rows[order])]

    def before(self, time: int) -> np.ndarray:
        """The distinct rows of edges before a time, which are forgotten."""
        rows = [np.empty(0, np.int32)]
        for i, (times, of) in enumerate(self._runs):
            num = int(np.searchsorted(times, time))
            rows.append(of[:num])
            self._runs[i] = times[num:], of[num:]
        self._runs = [run for run in self._runs if run[0].size]
        return np.unique(np.concatenate(rows))
