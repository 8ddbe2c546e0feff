"""Negatives of events: what each kind may be, its law, and that no future decides."""

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


def test_random_ones_are_uniform():
    event = {
        name: np.full(4_000, value) for name, value in (("src", 0), ("dst", 4), ("time", 99))
    }
    made = event_negatives(KEY, HISTORY, event, np.arange(4, 12), 1)
    counts = np.bincount(made[:, 0], minlength=12)[4:]
    assert ((counts - 500) ** 2 / 500).sum() < 30  # 7 degrees of freedom


def test_what_is_refused():
    for message, options in {
        "kind must be one of": {"kind": "past"},
        "need a begin": {"kind": "inductive"},
        "num must be": {"num": 0},
    }.items():
        with pytest.raises(InputError, match=message):
            event_negatives(KEY, HISTORY, LATE, CANDIDATES, **{"num": 2, **options})
