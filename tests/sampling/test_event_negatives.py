"""Negatives of events: what each kind may be, its law, and that no future decides."""

import sys

import jax
import numpy as np
import pytest
from cases import cases
from refusals import refused
from rows_law import assert_as_often

from jgs.sampling.event_negatives import KINDS, event_negatives

KEY, N, BEGIN = jax.random.key(5), 40, 30
RNG = np.random.default_rng(1)
LOW, HIGH = {"src": 0, "dst": 4, "time": 0}, {"src": 4, "dst": N, "time": 60}
HISTORY = {name: RNG.integers(LOW[name], HIGH[name], 200) for name in LOW}
LATE = {name: column[HISTORY["time"] >= BEGIN] for name, column in HISTORY.items()}
CANDIDATES, EVENT = np.arange(4, N), {"src": [0], "dst": [1], "time": [5]}


def partners(src, low, high):
    """The targets of a source whose first event with it is in [low, high)."""
    found = {}
    for s, d, t in zip(*HISTORY.values(), strict=True):
        if s == src:
            found[int(d)] = min(int(t), found.get(int(d), 1 << 30))
    return {d for d, t in found.items() if low <= t < high}


def at(src, time):
    same = (HISTORY["src"] == src) & (HISTORY["time"] == time)
    return {*HISTORY["dst"][same].tolist()}


@cases(
    "changes, says",
    ({"events": {"src": [0], "time": [5]}}, "events must have src, dst, time; got no dst"),
    ({"history": EVENT | {"dst": [1, 2]}}, "of one length; got src 1, dst 2"),
    ({"events": EVENT | {"time": [5.0]}}, "time of events must be integers"),
    ({"candidates": []}, "candidates must be distinct nodes, at least one"),
    ({"candidates": [3, 3]}, "2, of which 1 are distinct"),
    ({"candidates": [2**33]}, "candidates of the nodes must be node ids"),
    ({"born": [1]}, "got candidates 3, born 1"),
    ({"kind": "past"}, "kind must be one of"),
    ({"kind": "inductive"}, "need a begin"),
    ({"num": 0}, "num must be"),
)
def test_what_does_not_fit_is_refused(changes, says):
    given = {"history": EVENT, "events": EVENT, "candidates": [1, 2, 3], "num": 1} | changes
    refused(says, event_negatives, KEY, **given)


def test_an_event_that_the_history_lacks_has_other_negatives_than_its_target():
    history = {"src": [0], "dst": [1], "time": [0]}
    events = {"src": np.zeros(40, int), "dst": np.arange(40) % 3 + 1, "time": np.arange(40) + 1}
    made = event_negatives(KEY, history, events, np.arange(1, 4), 2)
    assert (made >= 1).all()
    assert (made != events["dst"][:, None]).all()


BORN = RNG.permutation(len(CANDIDATES)) + 20  # 20 to 55


@pytest.mark.parametrize(("kind", "born"), [*((k, None) for k in KINDS), ("random", BORN)])
def test_what_negatives_are(kind, born):
    """Distinct, no target of now, born before: those of the kind, then random ones."""
    asked = {"kind": kind, "begin": BEGIN, "born": born}
    made = event_negatives(KEY, HISTORY, LATE, CANDIDATES, N, **asked)
    some = event_negatives(KEY, HISTORY, LATE, CANDIDATES, 2, **asked)
    full = 0
    for row, two, src, time in zip(made, some, LATE["src"], LATE["time"], strict=True):
        real, now, own = row[row >= 0].tolist(), at(src, time), set()
        if kind != "random":
            own = partners(src, BEGIN if kind == "inductive" else -1, time) - now
        assert len({*real}) == len(real)
        old = CANDIDATES if born is None else CANDIDATES[born < time]
        assert {*real} == {*old.tolist()} - now
        assert {*real[: len(own)]} == own
        assert len(own) < 2 or {*two.tolist()} <= own
        full += len(own) >= 2
    assert kind == "random" or full > 20


@pytest.mark.parametrize("kind", KINDS)
def test_the_future_decides_nothing(kind):
    """Events after the judged one may be anything: its negatives are the same."""
    event = {"src": np.array([1]), "dst": np.array([5]), "time": np.array([40])}
    past = {name: column[HISTORY["time"] <= 40] for name, column in HISTORY.items()}
    more = {"src": np.ones(50, int), "dst": np.arange(4, 54) % N, "time": np.arange(41, 91)}
    other = {name: np.concatenate([past[name], more[name]]) for name in past}
    made = event_negatives(KEY, past, event, CANDIDATES, 3, kind, BEGIN)
    for history in (HISTORY, other):
        same = event_negatives(KEY, history, event, CANDIDATES, 3, kind, BEGIN)
        np.testing.assert_array_equal(same, made)


@pytest.mark.parametrize("kind", ["random", "historical"])
@pytest.mark.parametrize("num", [1, 3])
def test_they_are_uniform(kind, num):
    """Of 24 nodes all subsets alike, whether a few are drawn or all are put in order."""
    event = {"src": np.full(9_000, 0), "dst": np.full(9_000, 2), "time": 99 + np.arange(9_000)}
    for late in (24, 5):  # with a time of few nodes too
        nodes = np.arange(4, 4 + late)
        known = {"src": np.full(late, 0), "dst": nodes, "time": np.arange(late)}
        made = event_negatives(KEY, known, event, nodes, num, kind)
        for drawn in (made, made[:, 0]):
            assert_as_often(np.bincount(drawn.reshape(-1))[4:], np.ones(late))


def test_an_event_draws_for_itself():
    """Not the other events, their order and number decide, and a hub's are as others'."""
    rng = np.random.default_rng(3)
    hub = {"src": rng.integers(0, 3, 3_000), "dst": rng.integers(0, 900, 3_000)}
    hub["time"] = rng.integers(-9, 2_000, 3_000)
    hub["time"][:400], hub["src"][:400] = 1_500, 1  # 400 targets at once
    for kind in KINDS:
        options = {"candidates": np.arange(900), "num": 150, "kind": kind, "begin": 900}
        whole = event_negatives(KEY, hub, hub, **options)
        some = rng.permutation(3_000)[:200]
        own = {name: column[some] for name, column in hub.items()}
        np.testing.assert_array_equal(event_negatives(KEY, hub, own, **options), whole[some])
        assert (whole >= 0).all()
        taken = {*hub["dst"][(hub["time"] == 1_500) & (hub["src"] == 1)].tolist(), 1}
        assert not {*whole[0].tolist()} & taken
        assert all(len({*row.tolist()}) == 150 for row in whole[:50])
    assert len(np.unique(whole[:400], axis=0)) > 300  # each event of a moment has its own


def test_memory_is_bounded(monkeypatch):
    """Also where many events of one source and time each leave out the targets of all."""
    module = sys.modules["jgs.sampling.event_negatives"]
    same = {"src": np.zeros(300, int), "dst": np.arange(300) % 200, "time": np.zeros(300, int)}
    of, at, sizes = (KEY, same, same, np.arange(900), 5), module._Past.at, []

    def watched(self, *events):
        sizes.append(len(found := at(self, *events)))
        return found

    whole = event_negatives(*of)
    monkeypatch.setattr(module, "_AT_ONCE", 1_000)
    monkeypatch.setattr(module._Past, "at", watched)
    np.testing.assert_array_equal(event_negatives(*of), whole)
    assert max(sizes) < 1_400
