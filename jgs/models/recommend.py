"""`top_k`: the best-scored partners of nodes among all candidates, in bounded memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jgs.arrays import check_range, require_array
from jgs.errors import InputError
from jgs.graph import Graph
from jgs.graph.rows import row_positions
from jgs.sampling.checks import require_int
from jgs.sampling.links import DST, SRC

AT_ONCE = 1 << 22  # scores that are computed at a time


def top_k(
    decoder: Any,
    rows: Any,
    nodes: Any,
    candidates: Any,
    k: int,
    *,
    end: str = "src",
    relation: int | None = None,
    known: Graph | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The `k` candidates with which each node has the highest scores, exactly.

    Args:
      decoder: a `jgs.models.Decoder`.
      rows: float `[N, F]`, the rows of all nodes, such as `jgs.train.exact_inference` computes.
      nodes: int `[n]`, the nodes to find partners for.
      candidates: int `[C]`, the distinct nodes to choose from, such as a type's. A node is no
        candidate of its own.
      k: int, at least 1.
      end: what `nodes` are: `"src"`, or `"dst"`.
      relation: for decoders that have relations.
      known: a graph whose edges between a node and its candidates, in the direction that `end`
        says, are left out; or None.

    Returns int32 `[n, k]`, the candidates, the best first, and of equal scores the one that is
    listed first; and their scores float32 `[n, k]`. Where fewer candidates are left there is
    -1, of score `-inf`. About 4 million scores are held at a time. Raises `InputError`.
    """
    if end not in ("src", "dst"):
        raise InputError("end must be src or dst", repr(end), "Give dst for the best targets.")
    k, num_nodes = require_int("k", k, 1), len(rows)
    nodes, candidates = (_ids(a, num_nodes) for a in (nodes, candidates))
    if candidates.size == 0 or len(np.unique(candidates)) < candidates.size:
        raise InputError(
            "candidates must be distinct nodes, at least one",
            f"{candidates.size} with repetitions" if candidates.size else "none",
            "Apply numpy.unique.",
        )
    side, graphdef_state = (SRC if end == "src" else DST), nnx.split(decoder)
    kept = min(k, candidates.size)
    some = max(1, min(len(nodes), AT_ONCE // candidates.size or AT_ONCE // 1024))
    block = max(1, min(candidates.size, AT_ONCE // some))
    place = np.full(num_nodes, -1, np.int64)  # of each candidate among the candidates
    place[candidates] = np.arange(candidates.size)
    chosen = np.full((len(nodes), k), -1, np.int32)
    scores = np.full((len(nodes), k), -np.inf, np.float32)
    table = jnp.asarray(rows)
    for a in range(0, len(nodes), some):
        own = nodes[a : a + some]
        query, found = _known(known, own, side, place)
        # Blocks and queries of one size, so that one program is compiled.
        own_rows = table[np.pad(own, (0, some - len(own)), mode="edge")]
        best = jnp.full((some, kept), -jnp.inf), jnp.full((some, kept), -1, jnp.int32)
        for b in range(0, candidates.size, block):
            inside = (found >= b) & (found < b + block)
            hidden = _padded(query[inside], some), _padded(found[inside] - b, block)
            part = np.pad(candidates[b : b + block], (0, max(0, b + block - candidates.size)))
            both, valid = (own_rows, table[part]), min(block, candidates.size - b)
            best = _merge(graphdef_state, best, *both, b, valid, hidden, side, relation)
        values, at = (np.asarray(array)[: len(own)] for array in best)
        scores[a : a + some, :kept] = values
        chosen[a : a + some, :kept] = np.where(values > -np.inf, candidates[at], -1)
    return chosen, scores


@partial(jax.jit, static_argnames="side")
def _merge(decoder, best, rows, others, first, valid, hidden, side, relation):
    """The best of `best` and of a block of candidates, of which the first is number `first`."""
    graphdef, state = decoder
    relation = None if relation is None else jnp.full(rows.shape[0], relation)
    scores = nnx.merge(graphdef, state).against(rows, others, side, relation)
    scores = scores.astype(jnp.float32).at[hidden].set(-jnp.inf, mode="drop")
    column = jnp.arange(others.shape[0], dtype=jnp.int32)
    scores = jnp.where(column < valid, scores, -jnp.inf)
    numbers = jnp.broadcast_to(first + column, scores.shape).astype(jnp.int32)
    every = (
        jnp.concatenate(pair, axis=1) for pair in zip(best, (scores, numbers), strict=True)
    )
    values, numbers = every
    values, at = jax.lax.top_k(values, best[0].shape[1])  # of equal ones, the first
    return values, jnp.take_along_axis(numbers, at, axis=1)


def _known(
    known: Graph | None, nodes: np.ndarray, side: int, place: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The pairs that are left out, those of a node with itself and the known ones: the index of
    each one's node in `nodes`, and its candidate's place."""
    if known is None:
        own = np.flatnonzero(place[nodes] >= 0)
        return own, place[nodes[own]]
    known._refuse_room()
    indptr, indices = np.asarray(known.indptr), np.asarray(known.indices)
    if side == DST:  # the sources of the nodes' own rows
        query = np.repeat(np.arange(len(nodes)), indptr[nodes + 1] - indptr[nodes])
        partner = indices[row_positions(indptr, nodes)]
    else:
        at, order = np.flatnonzero(np.isin(indices, nodes)), np.argsort(nodes, kind="stable")
        bounds = np.searchsorted(nodes[order], np.arange(len(place) + 1))
        source, target = indices[at], np.searchsorted(indptr, at, side="right") - 1
        query = order[row_positions(bounds, source)]  # a node may be asked for twice
        partner = np.repeat(target, np.diff(bounds)[source])
    query = np.concatenate([query, np.arange(len(nodes))])
    found = place[np.concatenate([partner, nodes])]
    return query[found >= 0], found[found >= 0]


def _padded(index: np.ndarray, beyond: int) -> np.ndarray:
    size = 1 << max(4, int(index.size - 1).bit_length())
    return np.pad(index, (0, size - index.size), constant_values=beyond)


def _ids(ids: Any, num_nodes: int) -> np.ndarray:
    ids, what = np.asarray(ids), "nodes and candidates"
    require_array(what, ids, "integers [n], ids of nodes", "Correct the ids.")
    check_range(f"{what} must be ids", ids, num_nodes, "Correct the ids.")
    return ids.astype(np.int64)
