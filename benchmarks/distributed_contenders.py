"""Who takes part in the distributed benchmarks: the rows of the report, as data."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

KEYS = ("distdgl", "figure6", "figure10", "cache")
NETWORK = (50e-6, 25e9 / 8)  # seconds, bytes a second
PLANNED_MIB = 10
BUDGETS_MIB = (3, 5, 12, 25)  # 6, 10, 25 and 50 % of the remote rows on 2 ranks
MODES = {  # of Figure 6: the mode, and what draws in place of the fused kernel
    "vanilla": ("vanilla", None),
    "hybrid": ("hybrid", "two steps"),
    "hybrid, a call for each hop": ("hybrid", "hops"),
    "hybrid, fused": ("hybrid", None),
}
_NEEDS = {"metis": "pymetis", "kaminpar": "kaminpar"}  # packages
METHODS = ("metis", "kaminpar", "ldg", "random")  # of Figure 10's partitions


class Contender(NamedTuple):
    """Fields: the benchmark's key; the contender's name in the report; how many ranks it has;
    whether glibc's allocator is tuned; what only its own task holds (see `ranks_jgs`); which
    peer it is (`distdgl` or `dgl`; None means jgs); whether the network is emulated."""

    benchmark: str
    name: str
    num_ranks: int
    tuned: bool
    task: dict[str, Any]
    peer: str | None = None
    emulated: bool = False

    def described(self) -> dict[str, Any]:
        names = ("benchmark", "name", "num_ranks", "tuned", "emulated")
        return {name: getattr(self, name) for name in names}

    def title(self) -> str:
        words = [f"{self.benchmark}: {self.name}, {self.num_ranks} ranks"]
        words += ["tuned"] * self.tuned + ["emulated network"] * self.emulated
        return ", ".join(words)


def contenders(
    only: Sequence[str], ranks: Sequence[int], quick: bool = False
) -> Iterator[Contender]:
    """The contenders in the order of their turns; `ranks`: those of the two figures. With
    `quick` these have no emulated network, and Figure 10 has 2 partitions."""
    if "distdgl" in only:
        yield from _distdgl()
    if "figure6" in only:
        yield from _figure6(ranks, quick)
    if "figure10" in only:
        yield from _figure10(ranks, quick)
    if "cache" in only:
        yield from _cache()


def _task(
    keep_memory: bool,
    unfused: str | None = None,
    emulated: bool = False,
    in_place: bool = True,
    **config,
) -> dict:
    return {
        "threads": 1,
        "keep_memory": keep_memory,
        "unfused": unfused,
        "in_place": in_place,
        "network": NETWORK if emulated else None,
        "epochs": 1,
        "config": config,
    }


def _distdgl() -> Iterator[Contender]:
    planned: dict[str, Any] = {"cache": "planned", "cache_memory": PLANNED_MIB}
    for tuned in (False, True):
        key = ("distdgl",)
        yield Contender(*key, "DistDGL", 2, tuned, {}, "distdgl")
        # With the allocator tuned there is nothing left for jgs.train to set.
        yield Contender(*key, "jgs, as jgs.train runs", 2, tuned, _task(not tuned))
        yield Contender(*key, "jgs, no cache", 2, tuned, _task(not tuned, cache="none"))
        together = _task(not tuned, in_place=False, cache="none")
        yield Contender(*key, "jgs, no cache, rows put together", 2, tuned, together)
        yield Contender(*key, "jgs, planned cache", 2, tuned, _task(not tuned, **planned))
        yield Contender(*key, "DGL, one process", 1, tuned, {}, "dgl")
        if not tuned:
            yield Contender(*key, "jgs, allocator untouched", 2, tuned, _task(False))


def _figure6(ranks: Sequence[int], quick: bool) -> Iterator[Contender]:
    for emulated in (False,) if quick else (False, True):
        for num_ranks in ranks:
            for name, (mode, unfused) in MODES.items():
                task = _task(True, unfused, emulated, mode=mode, cache="none")
                yield Contender("figure6", name, num_ranks, False, task, emulated=emulated)


def _figure10(ranks: Sequence[int], quick: bool) -> Iterator[Contender]:
    methods = ("metis", "random") if quick else METHODS
    there = [m for m in methods if m not in _NEEDS or importlib.util.find_spec(_NEEDS[m])]
    for emulated in (False,) if quick else (False, True):
        for num_ranks in ranks:
            for mode in ("vanilla", "hybrid"):
                for method in there:
                    task = _task(True, None, emulated, mode=mode, cache="none")
                    task["method"] = method
                    name = f"{mode}, {method}"
                    yield Contender("figure10", name, num_ranks, False, task, emulated=emulated)


def _cache() -> Iterator[Contender]:
    for policy in ("none", "trial"):
        yield Contender("cache", policy, 2, False, _task(True, cache=policy))
    for mib in BUDGETS_MIB:
        for policy in ("degree", "planned"):
            task = _task(True, cache=policy, cache_memory=mib)
            yield Contender("cache", f"{policy}, {mib} MiB", 2, False, task)
