"""The battery of promises: jgs keeps them, and an adapter that breaks one is seen."""

import os
from pathlib import Path

import numpy as np
import pytest
from forks import quick_python

from benchmarks import peers
from benchmarks.battery import __main__ as battery
from benchmarks.battery import tests as laws
from benchmarks.battery.graphs import Graphs
from benchmarks.battery.library import Direct, Library, NotOffered
from benchmarks.battery.ways import SMALLEST, Trial


def test_jgs_keeps_what_it_promises(tmp_path):
    library = Library("jgs_", [quick_python()], dict(os.environ))
    graphs = Graphs(tmp_path, SMALLEST.copies)
    # Other threads are in another process too, and tests/dist has ranks.
    left_out = {"the same in another process", "the same on other numbers of ranks"}
    names = [name for name in battery.PROMISES if name not in left_out]
    said, found = battery.tried_by(library, graphs, SMALLEST, names)
    assert said.startswith("jgs ")
    assert battery.failures(battery.judge({said: found})[said]) == []
    offered = [name for name, ways in found.items() if ways]
    assert len(offered) > 25, offered


class Draws:
    """A library of uniform draws in NumPy, a generator for each (key, hop, node)."""

    fault = ""

    def __init__(self, folder: Path, disk: bool):
        self.arrays = {file.stem: np.load(file) for file in folder.glob("*.npy")}
        self.asked = 0

    @staticmethod
    def versions():
        return {"draws": "1"}

    def draw(self, key, seeds, fanouts, law="uniform", cutoffs=None, excluded=(), **how):
        if law != "uniform" or how.pop("replace", False) or how or "kind" in self.arrays:
            raise NotOffered("")
        self.asked += 1
        indptr, hops = self.arrays["indptr"], []
        until = [None] * len(seeds) if cutoffs is None else cutoffs.tolist()
        entries = list(zip(seeds.tolist(), until, strict=True))
        for hop, k in enumerate(fanouts):
            drawn = []
            for at, (node, until) in enumerate(entries):
                row = np.arange(indptr[node], indptr[node + 1])
                if until is not None:
                    row = row[self.arrays["time"][row] < until + (self.fault == "late")]
                own = row if self.fault == "short" else row[~np.isin(row, excluded)]
                took = own[self.places((*key, hop, node, at), len(own), k)]
                took = took[~np.isin(took, excluded)]
                drawn += [(edge, until) for edge in took.tolist()]
            hops.append(np.array(drawn if cutoffs is not None else [e for e, _ in drawn], int))
            ends = {(int(self.arrays["indices"][edge]), until) for edge, until in drawn}
            entries += sorted(ends - set(entries), key=str)
        return hops

    def places(self, counter, degree, k):
        seed, step, hop, node, at = counter
        if self.fault == "key":
            seed = 7
        if self.fault == "next key":
            seed, node = seed + node, 0
        if self.fault == "hop":
            hop = 0
        if self.fault == "order":
            node = at
        if self.fault == "stream":
            step = self.asked
        rng = np.random.default_rng((seed, step, hop, node))
        if self.fault == "16 bits" and k < degree:
            return np.unique(rng.integers(0, 1 << 16, k) % degree)
        if self.fault == "last" and 0 < k < degree:
            return rng.choice(degree - 1, k, replace=False)
        return rng.choice(degree, min(k, degree), replace=False, shuffle=False)


FAULTS = {
    "": (),
    "key": ("another key, another draw", "independence of neighbouring keys"),
    "next key": ("independence of neighbouring keys",),
    "hop": ("independence of hops, steps and seeds",),
    "order": ("the same in another order", "the same in batches of other sizes"),
    "stream": ("the same twice",),
    "16 bits": ("law at a hub of 40,000",),
    "last": ("law of subsets of 6",),
    "late": ("no edge at the cutoff or later",),
    "short": ("full fanouts beside excluded edges",),
}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    return Graphs(tmp_path_factory.mktemp("graphs"), 300)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_its_promise(fault, graphs):
    adapter = type("Faulty", (Draws,), {"fault": fault})
    trial = Trial(Direct(adapter), graphs, SMALLEST._replace(copies=300, keys=40))
    names = [*FAULTS[fault]] or [name for names in FAULTS.values() for name in names]
    found = {name: battery.PROMISES[name](trial) for name in names}
    assert all(found.values())
    failed = {
        said.partition(":")[0] for said in battery.failures(battery.judge({"": found})[""])
    }
    assert failed == set(FAULTS[fault])


def test_what_cannot_be_installed_is_not_tried(monkeypatch, tmp_path):
    def missing(cache):
        raise peers.Missing("no network")

    monkeypatch.setitem(battery.PEERS, "pyg", ("pyg", missing))
    assert battery.opened("pyg", tmp_path, tmp_path) == "no network"
    found = {"jgs 1": {name: {} for name in battery.PROMISES}}
    page = battery.render(found, {"pyg": "no network"}, "")
    assert page.count("| – | not tried |") == len(battery.PROMISES)
    assert "**fails**" not in page


def test_laws_are_judged_together():
    assert laws.as_often([5, 5, 1], [1, 1, 0]).p == 0
    assert laws.as_often([500] * 4, np.ones(4)).p == 0  # more even than chance
    rng = np.random.default_rng(0)
    even = [laws.as_often(rng.multinomial(900, [1 / 9] * 9), np.ones(9)).p for _ in range(400)]
    assert 15 < sum(p < 0.1 for p in even) < 70
    chances = [0.5, 0.49, 0.005, 0.005]
    assert laws.as_often(rng.multinomial(900, chances), chances).p > 1e-4
    least = laws.CHANCE / 3
    assert laws.judged([least / 2, 0.4, 0.9]) == 0.4
    assert laws.judged([least * 1.1, 0.4, 0.9]) == least * 1.1
    sets = {(0, 1): 5 / 12, (0, 2): 1 / 6, (1, 2): 5 / 12}
    assert laws.successive([1, 2, 1], 2) == pytest.approx(sets)
    assert sum(laws.second_order([{1, 2}, {0, 2}, {0, 1}], 4, 0.5).values()) == 1


def test_adapters_are_short():
    files = sorted((Path(battery.__file__).parent / "adapters").glob("*.py"))
    assert len(files) > 4
    assert not [file for file in files if len(file.read_text().splitlines()) > 120]
