"""What a `PairModel` reads and says in evaluation: features, and scores of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jgs.graph.row_tables.table import as_table
from jgs.models import PairModel
from jgs.train.evaluation.pairs import AT_ONCE


class Encoded:
    """The features that a `PairModel`'s encoder reads: the nodes' own and the learned ones."""

    def __init__(self, own: Sequence[Any], offsets: np.ndarray, first: int, learned: int):
        """`own` are the local ranks' features; the first of these ranks is number `first`."""
        self.own, self.learned = list(own), learned
        self.bounds = np.asarray(offsets)[first : first + len(own) + 1]
        if learned:
            self.own = [_dense(rows) for rows in own]

    def features(self, params: Any) -> list[Any]:
        """For each local rank the rows of its own nodes."""
        if not self.learned:
            return list(self.own)
        table = np.asarray(jax.tree.leaves(params["table"])[0])
        each = zip(self.own, pairwise(self.bounds.tolist()), strict=True)
        return [
            jnp.asarray(np.concatenate([rows, table[a:b]], axis=1)) for rows, (a, b) in each
        ]


def _dense(rows: Any) -> np.ndarray:
    """float32 `[n, F]`: a rank's own rows in one matrix."""
    return as_table(rows).numbers().astype(np.float32, copy=False)


class Decoded:
    """Scores pairs of rows by the decoder of a `PairModel`, in chunks of one size."""

    def __init__(self, model: PairModel):
        self.graphdef = nnx.split(model.decoder)[0]

        @jax.jit
        def scores(params: Any, rows: Any, src: Any, dst: Any, relation: Any) -> jax.Array:
            decoder = nnx.merge(self.graphdef, params)
            return decoder(rows[src], rows[dst], relation)

        self._scores = scores

    def __call__(
        self, params: Any, rows: Any, src: np.ndarray, dst: np.ndarray, relation: Any = None
    ) -> np.ndarray:
        """float32 `[n]` or `[n, C]`: the scores of the pairs of rows number `src` and `dst`,
        int `[n]`; `params` are the whole model's."""
        table, found = jnp.asarray(rows), []
        own = params["decoder"] if "decoder" in params else nnx.State({})
        for a in range(0, max(src.size, 1), AT_ONCE):
            some = slice(a, a + AT_ONCE)
            count = src[some].size
            size = AT_ONCE if src.size > AT_ONCE else 1 << max(4, (src.size - 1).bit_length())
            pad = (0, size - count)
            given = [None if e is None else np.pad(e[some], pad) for e in (src, dst, relation)]
            found.append(np.asarray(self._scores(own, table, *given))[:count])
        return np.concatenate(found)

    def decoder(self, params: Any) -> Any:
        """The decoder with its parameters."""
        own = params["decoder"] if "decoder" in params else nnx.State({})
        return nnx.merge(self.graphdef, own)
