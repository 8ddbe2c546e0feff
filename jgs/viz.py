"""Pictures by matplotlib (the extra `viz`): `neighborhood` draws a batch or an explanation, in
rings around its seeds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from jgs.errors import InputError, refusing
from jgs.graph import MiniBatch, Schema
from jgs.graph.foreign import drawn_edges
from jgs.predict import Explanation

__all__ = ["neighborhood"]
_TYPE_COLORS = "tab10"  # a colour map of ten colours
_MARKERS = "os^Dvphd<>"
# Line styles of relations; the dashes are lengths in points, a line and a gap in turn.
_STYLES: tuple[Any, ...] = (
    *("solid", "dashed", "dotted", "dashdot"),
    *((0, (8, 2)), (0, (1, 3)), (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2, 2, 2))),
)
_LABELLED = 60  # nodes in a picture with ids: with more of them the ids would overlap


def neighborhood(
    what: MiniBatch | Explanation,
    *,
    ax: Any = None,
    labels: bool | None = None,
    most: int = 2000,
) -> Any:
    """Draws seeds, the rings of nodes around them, hop by hop, and the edges between them.

    Args:
      what: a `MiniBatch` of any sampler, or an `Explanation` of `run.explain`. An edge of a
        batch has the colour of its hop. In an explanation red edges and nodes add to the
        output, blue ones take from it, and stronger ones are wider and darker. An edge that
        was read in several hops is drawn once, with the sum of what it adds. In a graph with
        types a node has the marker and, in a batch, the colour of its type, and an edge has the
        line style of its relation. A legend names them. Where a batch has no column `type`, an
        edge's relation is known only if it is the only one between the types of its ends.
      ax: matplotlib `Axes` to draw on; None: those of a new figure.
      labels: whether nodes show their ids (in a graph with types, those in the type); None:
        only if there are at most 60 nodes.
      most: the largest number of edges; in a picture of more nothing could be seen.

    Returns the `Axes`; `ax.figure.savefig("batch.png")` writes a file. Raises `InputError` for
    more than `most` edges, for a super-batch, for an overflowed batch, and where matplotlib is
    not installed.
    """
    with refusing(ImportError, "drawing must have matplotlib", "pip install 'jgs[viz]'."):
        import matplotlib.pyplot as plt  # an optional dependency, and a slow import
        from matplotlib.patches import FancyArrowPatch
    drawn = drawn_of(what)
    if drawn.src.size > most:
        raise InputError(
            f"a picture must have at most {most} edges",
            f"{drawn.src.size}",
            "Draw a smaller batch, with lower fanouts, or raise most.",
        )
    if ax is None:
        ax = plt.subplots(figsize=(6, 6), layout="constrained")[1]
    ring = rings(drawn)
    place = places(drawn, ring)
    size = float(np.clip(4000 / max(drawn.ids.size, 1), 12, 160))
    colors, widths = _edge_style(drawn, plt)
    bends = _bends(drawn)
    for e in np.flatnonzero(drawn.src != drawn.dst):
        arrow = FancyArrowPatch(
            place[drawn.src[e]],
            place[drawn.dst[e]],
            arrowstyle="-|>",
            mutation_scale=4 + 2 * widths[e],
            shrinkA=size**0.5 / 2,
            shrinkB=size**0.5 / 2,
            color=colors[e],
            linewidth=widths[e],
            linestyle=_STYLES[max(drawn.relation[e], 0) % len(_STYLES)],
            connectionstyle=f"arc3,rad={bends[e]}",
            zorder=1,
        )
        ax.add_patch(arrow)
    loops = np.unique(drawn.src[drawn.src == drawn.dst])
    ax.scatter(*place[loops].T, s=2.5 * size, facecolors="none", edgecolors="0.5", zorder=1)
    outlines = np.where(drawn.seeds, "black", "white")
    kinds, names = np.zeros(drawn.ids.size, int), drawn.ids
    if drawn.schema is not None:
        kinds, names = map(np.asarray, drawn.schema.type_and_place(drawn.ids))
    fill: dict[str, Any] = {"cmap": "viridis_r", "vmin": 0, "vmax": max(ring.max(), 1)}
    values = ring.astype(float)
    if drawn.node_scores is not None:
        far = float(np.abs(drawn.node_scores).max(initial=0)) or 1.0
        fill, values = {"cmap": "coolwarm", "vmin": -far, "vmax": far}, drawn.node_scores
    elif drawn.schema is not None:
        fill, values = {"cmap": _TYPE_COLORS, "vmin": 0, "vmax": 9}, kinds % 10
    for kind in np.unique(kinds):
        own = kinds == kind
        shown = {
            "c": values[own],
            "edgecolors": outlines[own],
            "marker": _MARKERS[kind % len(_MARKERS)],
        }
        ax.scatter(*place[own].T, s=size, zorder=2, **shown, **fill)
    if drawn.schema is not None:
        colored = drawn.node_scores is None
        _add_legend(ax, drawn.schema, np.unique(kinds), np.unique(drawn.relation), colored)
    if labels or (labels is None and drawn.ids.size <= _LABELLED):
        above = (0, size**0.5 / 2 + 1)
        for spot, name in zip(place, names.tolist(), strict=True):
            ax.annotate(
                str(name), spot, above, textcoords="offset points", ha="center", fontsize=7
            )
    edge = float(np.abs(place).max(initial=1)) + 0.3
    ax.set(aspect="equal", xlim=(-edge, edge), ylim=(-edge, edge))
    ax.set_axis_off()
    return ax


def _bends(drawn: Drawn) -> np.ndarray:
    """float `[m]`: 0 for the first edge between two nodes, more for each further one, so that
    parallel edges of several relations do not lie on each other. Edges are sorted by ends."""
    bends = np.zeros(drawn.src.size)
    for e in range(1, drawn.src.size):
        if drawn.src[e] == drawn.src[e - 1] and drawn.dst[e] == drawn.dst[e - 1]:
            bends[e] = bends[e - 1] + 0.15
    return bends


def _edge_style(drawn: Drawn, plt: Any) -> tuple[np.ndarray, np.ndarray]:
    """The colour `[m, 4]` and the width `[m]` of each edge."""
    if drawn.edge_scores is None:
        return plt.get_cmap("tab10")(drawn.hop % 10), np.full(drawn.src.size, 0.8)
    share = drawn.edge_scores / (np.abs(drawn.edge_scores).max(initial=0) or 1)
    colors = plt.get_cmap("coolwarm")((share + 1) / 2)
    colors[:, 3] = 0.25 + 0.75 * np.abs(share)
    return colors, 0.5 + 2.5 * np.abs(share)


def _add_legend(
    ax: Any, schema: Schema, kinds: Iterable[int], relations: Iterable[int], colored: bool
) -> None:
    from matplotlib import colormaps  # only now: an optional dependency
    from matplotlib.lines import Line2D

    colors = colormaps[_TYPE_COLORS]
    handles = [
        Line2D(
            [],
            [],
            color=colors(kind % 10) if colored else "0.5",
            marker=_MARKERS[kind % len(_MARKERS)],
            linestyle="",
            label=schema.node_types[kind][0],
        )
        for kind in kinds
    ]
    names = [name for _, name, _ in schema.relations]
    for number in relations:
        if number >= 0:
            name = names[number]
            label = name if names.count(name) == 1 else " ".join(schema.relations[number])
            handles.append(
                Line2D([], [], color="0.4", ls=_STYLES[number % len(_STYLES)], label=label)
            )
    ax.legend(handles=handles, fontsize=7, loc="upper right", frameon=False)


class Drawn(NamedTuple):
    """The `n` nodes and `m` distinct edges of a picture."""

    ids: np.ndarray  # int `[n]`, ascending
    seeds: np.ndarray  # bool `[n]`
    src: np.ndarray  # int `[m]`, positions in `ids`, as `dst`
    dst: np.ndarray
    hop: np.ndarray  # int `[m]`, the lowest hop in which each edge was drawn
    relation: np.ndarray  # int `[m]`, -1 where it is not known; edges of two are distinct
    node_scores: np.ndarray | None  # float `[n]`
    edge_scores: np.ndarray | None  # float `[m]`
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
    """int `[m]`: the relation between two types that only one joins; -1 elsewhere."""
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
