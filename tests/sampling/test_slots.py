"""What stands in for sorting in plain JAX: equal slots."""

import jax
import jax.numpy as jnp
import numpy as np
from cases import cases

from jgs.sampling.edges.relabel import first_equal
from jgs.settings import exact_integers

NUM = 819  # 1023 cells are asked for, so the table is as full as it can be


@cases("kinds, timed", (1, False), (5, True), (400, False), (400, True), (10**9, True))
def test_the_first_of_equal_slots(kinds, timed):
    rng = np.random.default_rng(kinds % 97)
    ids = rng.integers(-(2**31), 2**31, kinds if kinds < NUM else NUM).astype(np.int32)
    ids = ids[rng.permutation(np.arange(NUM) % ids.size)]
    time = rng.choice([-(2**63), -1, 0, 2**32, 2**63 - 1], NUM)
    real = rng.random(NUM) < 0.9
    keys = [ids, time] if timed else [ids]
    with exact_integers():
        found = np.asarray(jax.jit(first_equal)([jnp.asarray(k) for k in keys], real))
    first: dict[tuple, int] = {}
    for slot in range(NUM):
        own = tuple(key[slot] for key in keys)
        want = first.setdefault(own, slot) if real[slot] else slot
        assert found[slot] == want
    assert len(first) > min(kinds, NUM // 2) * 0.7
