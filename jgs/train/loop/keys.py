"""The random keys of a run, all of its `--seed`: each use has one of its own."""

from __future__ import annotations

import jax

from jgs.sampling.edges.random import threefry
from jgs.train.config import Config

# The number that makes each use's key of the seed's. `jax.random.split(key, n)[i]` has the bits
# of `fold_in(key, i)`, so a split is a use of the first numbers too. The seed's own key is that
# of what `Run.predict(fanouts=)` draws.
USES = {
    "parameters": 0,
    "batches": 1,
    "dropout": 2,
    "split": 16,
    "negatives of val": 17,
    "negatives of test": 18,
    "samples of val": 19,
    "samples of test": 20,
    "samples of moments": 21,
}
# Those of runs of before `Config.keys`, in which some uses share a key.
_BEFORE = USES | {
    "split": 1,
    "negatives of val": 2,
    "negatives of test": 3,
    "samples of val": 4,
    "samples of test": 5,
    "samples of moments": 4,
}


def of_use(key: jax.Array, use: str) -> jax.Array:
    return jax.random.fold_in(key, USES[use])


def key_of(config: Config, use: str) -> jax.Array:
    numbers = USES if config.keys else _BEFORE
    return jax.random.fold_in(threefry(config.seed), numbers[use])
