"""Negatives of events: what each kind may be, its law, and that no future decides."""

import importlib
import re

import jax
import numpy as np
import pytest

from jgs import InputError
from jgs.sampling.event_negatives import KINDS, event_negatives

KEY, N, BEGIN = jax.random.key(5), 40, 30
RNG = np.random.default_rng(1)
HISTORY = {
    "src": RNG.integers(0, 4, 200),
    "dst": RNG.integers(4, N, 200),
    "time": RNG.integers(0, 60, 200),
}
LATE = {name: column[HISTORY["time"] >= BEGIN] for name, column in HISTORY.items()}
CANDIDATES = np.arange(4, N)


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


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"events": {"src": [0], "time": [5]}}, "events must have src, dst, time; got no dst"),
        (
            {"history": {"src": [0], "dst": [1, 2], "time": [3]}},
            "of one length; got src 1, dst 2",
        ),
        (
            {"events": {"src": [0], "dst": [1], "time": [5.0]}},
            "time of events must be integers",
        ),
        ({"candidates": []}, "candidates must be distinct nodes, at least one"),
        ({"candidates": [3, 3]}, "2, of which 1 are distinct"),
        ({"candidates": [2**33]}, "candidates of the nodes must be node ids"),
        ({"born": [1]}, "got candidates 3, born 1"),
    ],
)
def test_what_does_not_fit_is_refused(changes, says):
    events = {"src": [0], "dst": [1], "time": [5]}
    given = {"history": events, "events": events, "candidates": [1, 2, 3], "num": 1} | changes
    with pytest.raises(InputError, match=re.escape(says)):
        event_negatives(KEY, **given)


def test_an_event_that_the_history_lacks_has_other_negatives_than_its_target():
    history = {"src": [0], "dst": [1], "time": [0]}
    events = {"src": np.zeros(40, int), "dst": np.arange(40) % 3 + 1, "time": np.arange(40) + 1}
    made = event_negatives(KEY, history, events, np.arange(1, 4), 2)
    assert (made >= 1).all()
    assert (made != events["dst"][:, None]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_what_negatives_are(kind):
    """Of each kind first, distinct, no target of now; then random ones. All there are, with
    room for all."""
    made = event_negatives(KEY, HISTORY, LATE, CANDIDATES, N, kind, BEGIN)
    some = event_negatives(KEY, HISTORY, LATE, CANDIDATES, 2, kind, BEGIN)
    full = 0
    for row, two, src, time in zip(made, some, LATE["src"], LATE["time"], strict=True):
        real = row[row >= 0].tolist()
        own = set()
        if kind == "historical":
            own = partners(src, -1, time) - at(src, time)
        elif kind == "inductive":
            own = partners(src, BEGIN, time) - at(src, time)
        assert len({*real}) == len(real)
        assert {*real} == {*CANDIDATES.tolist()} - at(src, time)
        assert {*real[: len(own)]} == own
        assert len(own) < 2 or {*two.tolist()} <= own
        full += len(own) >= 2
    assert kind == "random" or full > 20
    np.testing.assert_array_equal(
        made, event_negatives(KEY, HISTORY, LATE, CANDIDATES, N, kind, BEGIN)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_future_decides_nothing(kind):
    """Events after the judged one may be anything: its negatives are the same."""
    event = {"src": np.array([1]), "dst": np.array([5]), "time": np.array([40])}
    past = {name: column[HISTORY["time"] <= 40] for name, column in HISTORY.items()}
    more = {
        "src": np.full(50, 1),
        "dst": RNG.integers(4, N, 50),
        "time": RNG.integers(41, 99, 50),
    }
    other = {name: np.concatenate([past[name], more[name]]) for name in past}
    found = [
        event_negatives(KEY, history, event, CANDIDATES, 3, kind, BEGIN)
        for history in (past, HISTORY, other)
    ]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.parametrize("kind", ["random", "historical"])
@pytest.mark.parametrize("num", [1, 3])
def test_they_are_uniform(kind, num):
    """Of 24 nodes all subsets alike, whether a few are drawn or all are put in order."""
    history = {"src": np.full(24, 0), "dst": np.arange(4, 28), "time": np.arange(24)}
    event = {"src": np.full(9_000, 0), "dst": np.full(9_000, 2), "time": 99 + np.arange(9_000)}
    for late in (24, 5):  # with a time of few nodes too
        known = {name: column[:late] for name, column in history.items()}
        made = event_negatives(KEY, known, event, np.arange(4, 4 + late), num, kind)
        mean = 9_000 * num / late
        counts = np.bincount(made.reshape(-1), minlength=4 + late)[4:]
        assert ((counts - mean) ** 2 / mean).sum() < 55  # at most 23 degrees of freedom
        first = np.bincount(made[:, 0], minlength=4 + late)[4:]
        assert ((first - 9_000 / late) ** 2 / (9_000 / late)).sum() < 55


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
    """Also where many events have one source and one time, each of which leaves out the targets
    of all of them."""
    module = importlib.import_module("jgs.sampling.event_negatives")
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


def test_they_exist_before_their_event():
    born = RNG.permutation(len(CANDIDATES)) + 20  # 20 to 55
    made = event_negatives(KEY, HISTORY, LATE, CANDIDATES, N, born=born)
    for row, src, time in zip(made, LATE["src"], LATE["time"], strict=True):
        old = {*CANDIDATES[born < time].tolist()} - at(src, time)
        assert {*row[row >= 0].tolist()} == old


def test_what_is_refused():
    for message, options in {
        "kind must be one of": {"kind": "past"},
        "need a begin": {"kind": "inductive"},
        "num must be": {"num": 0},
    }.items():
        with pytest.raises(InputError, match=message):
            event_negatives(KEY, HISTORY, LATE, CANDIDATES, **{"num": 2, **options})
