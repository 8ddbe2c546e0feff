"""`Candidates`: rows of the nodes that may be the targets of links, and the best of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import jax
import numpy as np

from jgs.graph import Schema
from jgs.graph.device import as_device

Lists = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class Candidates:
    """The rows of candidates, which were computed once, for many requests.

    Fields:
      nodes: int32 `[C]`, ascending.
      rows: float32 `[C, W]`, on the model's device.
      time: int64 scalar, the moment at which they were computed; None without times.
      known: the links that are left out by `new_only`, by source: int64 `[N+1]` and int32
        `[m]`, as `indptr` and `indices` of a `Graph`, and their relations int16 `[m]` or None;
        or None.
    """

    nodes: np.ndarray
    rows: jax.Array
    time: np.ndarray | None = None
    known: tuple[np.ndarray, np.ndarray, np.ndarray | None] | None = None

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by the names of their files, without the known links."""
        time = {} if self.time is None else {"candidates.time": np.asarray(self.time)}
        own = {"candidates.nodes": self.nodes, "candidates.rows": np.asarray(self.rows)}
        return own | time

    @classmethod
    def stored(cls, arrays: Any, device: Any) -> Self | None:
        """The candidates of an artifact, or None."""
        if "candidates.nodes" not in arrays:
            return None
        rows, known = np.asarray(arrays["candidates.rows"]), None
        if "known.indptr" in arrays:
            names = ("known.indptr", "known.indices", "known.type")
            known = tuple(None if n not in arrays else np.asarray(arrays[n]) for n in names)
        own = as_device(rows) if device.platform == "cpu" else jax.device_put(rows, device)
        nodes, time = np.asarray(arrays["candidates.nodes"]), arrays.get("candidates.time")
        return cls(nodes, own, time, known)  # type: ignore[arg-type]

    def of_type(self, schema: Schema | None, node_type: str | None) -> slice:
        """Those of the candidates that are of a node type, or all for None. In a graph that has
        grown they are nodes of its first part."""
        if schema is None or node_type is None:
            return slice(0, self.nodes.size)
        own = schema.ranges(node_type)[0]
        return slice(*np.searchsorted(self.nodes, [own.start, own.stop]).tolist())

    def linked(self, node: int, relation: int | None) -> np.ndarray:
        """int32: the nodes to which one is linked, by a relation if it is given."""
        assert self.known is not None
        indptr, indices, types = self.known
        some = slice(*indptr[node : node + 2].tolist())
        kept = indices[some]
        return kept if types is None or relation is None else kept[types[some] == relation]

    def best(
        self,
        scores: np.ndarray,
        nodes: np.ndarray,
        k: int,
        some: slice,
        left_out: np.ndarray | None,
        new_only: bool,
        relation: int | None,
    ) -> Lists:
        """The `k` best of `some` candidates, but nodes that are `left_out`, bool `[N]` or None,
        for each of `nodes`, whose `scores` are float32 `[n, C]`, as `jgs.predict.Run.recommend`
        returns them."""
        best = np.full((len(nodes), k), -1, np.int32)
        values = np.full((len(nodes), k), -np.inf, np.float32)
        others = self.nodes[some]
        for row, node in enumerate(nodes.tolist()):
            left, gone = scores[row, some].copy(), np.array([node], np.int32)
            if left_out is not None:
                left[left_out[others]] = -np.inf
            if new_only:
                gone = np.append(self.linked(node, relation), gone)
            at = np.searchsorted(others, gone)
            at, gone = at[at < others.size], gone[at < others.size]
            left[at[others[at] == gone]] = -np.inf
            place = _largest(left, k)
            best[row, : place.size], values[row, : place.size] = others[place], left[place]
        return best, values


def _largest(scores: np.ndarray, k: int) -> np.ndarray:
    """The places of the `k` largest of `scores`, the largest first, and of equal ones the
    first; fewer where others are `-inf`."""
    if k < scores.size:
        least = np.partition(scores, scores.size - k)[scores.size - k]
        above = np.flatnonzero(scores > least)
        equal = np.flatnonzero(scores == least)[: k - above.size]
        place = np.sort(np.concatenate([above, equal]))
    else:
        place = np.arange(scores.size)
    place = place[np.argsort(-scores[place], kind="stable")]
    return place[scores[place] > -np.inf]
