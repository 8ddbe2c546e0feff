"""Where the nodes of a picture lie: in rings around the seeds. No matplotlib is needed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jgs.errors import InputError
from jgs.graph import MiniBatch, Schema
from jgs.graph.drawn import drawn_edges
from jgs.predict import Explanation


class Drawn(NamedTuple):
    """The `n` nodes and `m` distinct edges of a picture.

    Fields:
      ids: int `[n]`, the nodes' ids, ascending.
      seeds: bool `[n]`, whether each node is a seed.
      src, dst: int `[m]`, the ends of each edge, as positions in `ids`.
      hop: int `[m]`, the lowest hop in which each edge was drawn.
      relation: int `[m]`, the number of each edge's relation, -1 where it is not known. Edges
        of two relations are distinct.
      node_scores, edge_scores: float `[n]` and `[m]`, or None.
      schema: the types of nodes and edges, or None.
    """

    ids: np.ndarray
    seeds: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    hop: np.ndarray
    relation: np.ndarray
    node_scores: np.ndarray | None
    edge_scores: np.ndarray | None
    schema: Schema | None


def drawn_of(what: MiniBatch | Explanation) -> Drawn:
    """Joins equal nodes and equal edges, and adds up the scores of equal edges."""
    if isinstance(what, Explanation):
        src, dst, hop, nodes = what.src, what.dst, what.hop, what.nodes
        seeds, relation = np.array([what.node]), what.edge_type
    elif not isinstance(what, MiniBatch):
        raise InputError(
            "a picture must be of a MiniBatch or an Explanation",
            f"a {type(what).__name__}",
            "Draw a batch of a sampler, such as Neighbors((-1,)) for a node and all its "
            "neighbours.",
        )
    else:
        src, dst, hop, layer, at = drawn_edges(what)
        seeds = np.unique(np.asarray(what.seeds))
        nodes = seeds = seeds[seeds < what.num_nodes]
        relation = None
        if all(block.edge_type is not None for block in what.blocks):
            each = [np.asarray(block.edge_type) for block in what.blocks]
            relation = np.array([each[i][e] for i, e in zip(layer, at, strict=True)], int)
    if relation is None:
        relation = _only_relations(what.schema, src, dst)
    ids = np.unique(np.concatenate([seeds, nodes, src, dst]))
    ends = np.searchsorted(ids, src), np.searchsorted(ids, dst), relation
    unique, place = np.unique(np.stack(ends, axis=1), axis=0, return_inverse=True)
    place = place.reshape(-1)
    lowest = np.full(len(unique), np.iinfo(np.int32).max)
    np.minimum.at(lowest, place, hop)
    scores: tuple[np.ndarray | None, np.ndarray | None] = None, None
    if isinstance(what, Explanation):
        own = what.node_table()["value"]
        scores = (
            np.bincount(np.searchsorted(ids, nodes), own, ids.size),
            np.bincount(place, what.edges, len(unique)),
        )
    src, dst, relation = unique.T
    is_seed = np.isin(ids, seeds)
    return Drawn(ids, is_seed, src, dst, lowest, relation, *scores, what.schema)


def _only_relations(schema: Schema | None, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """int `[m]`: the relation of edges between two types that only one relation joins; -1
    elsewhere."""
    if schema is None or not schema.relations:
        return np.full(src.size, -1)
    table = np.full((len(schema.node_types),) * 2, -1)
    joins = [(schema.number(a), schema.number(b)) for a, _, b in schema.relations]
    for number, pair in enumerate(joins):
        if joins.count(pair) == 1:
            table[pair] = number
    return table[schema.numbers(src), schema.numbers(dst)]


def rings(drawn: Drawn) -> np.ndarray:
    """int `[n]`: each node's distance in edges to the nearest seed that it leads to. Nodes that
    lead to no seed get one more than the largest distance."""
    ring = np.where(drawn.seeds, 0, -1)
    for step in range(1, drawn.ids.size + 1):
        sources = drawn.src[ring[drawn.dst] == step - 1]
        fresh = sources[ring[sources] < 0]
        if not fresh.size:
            break
        ring[fresh] = step
    ring[ring < 0] = ring.max() + 1
    return ring


def places(drawn: Drawn, ring: np.ndarray) -> np.ndarray:
    """float `[n, 2]`: each node's place. Rings lie around the middle, and a node of a ring lies
    near the angle of the nodes that it leads to."""
    angle, place = np.zeros(drawn.ids.size), np.zeros((drawn.ids.size, 2))
    for step in range(int(ring.max()) + 1):
        here = np.flatnonzero(ring == step)
        if step > 0:
            inner = (ring[drawn.src] == step) & (ring[drawn.dst] == step - 1)
            turn = np.zeros(drawn.ids.size, complex)
            np.add.at(turn, drawn.src[inner], np.exp(1j * angle[drawn.dst[inner]]))
            here = here[np.argsort(np.angle(turn[here]) % (2 * np.pi), kind="stable")]
        angle[here] = 2 * np.pi * np.arange(here.size) / max(here.size, 1)
        radius = step + (drawn.seeds.sum() > 1)  # one seed is the middle
        place[here] = radius * np.stack([np.cos(angle[here]), np.sin(angle[here])], axis=1)
    return place
