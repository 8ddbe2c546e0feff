"""`neighborhood`: a picture of a sampled graph, in rings around its seeds."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jgs.errors import InputError
from jgs.graph import MiniBatch
from jgs.graph.drawn import drawn_edges
from jgs.predict import Explanation

_LABELLED = 60  # nodes in a picture with ids: with more of them the ids would overlap


class _Drawn(NamedTuple):
    """The `n` nodes and `m` distinct edges of a picture.

    Fields:
      ids: int `[n]`, the nodes' ids, ascending.
      seeds: bool `[n]`, whether each node is a seed.
      src, dst: int `[m]`, the ends of each edge, as positions in `ids`.
      hop: int `[m]`, the lowest hop in which each edge was drawn.
      node_scores, edge_scores: float `[n]` and `[m]`, or None.
    """

    ids: np.ndarray
    seeds: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    hop: np.ndarray
    node_scores: np.ndarray | None
    edge_scores: np.ndarray | None


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
        was read in several hops is drawn once, with the sum of what it adds.
      ax: matplotlib `Axes` to draw on; None: those of a new figure.
      labels: whether nodes show their ids; None: only if there are at most 60 nodes.
      most: the largest number of edges; in a picture of more nothing could be seen.

    Returns the `Axes`; `ax.figure.savefig("batch.png")` writes a file. Raises `InputError` for
    more than `most` edges, for a super-batch, for an overflowed batch, and where matplotlib is
    not installed.
    """
    try:
        import matplotlib.pyplot as plt  # an optional dependency, and a slow import
        from matplotlib.patches import FancyArrowPatch
    except ImportError as error:
        raise InputError(
            "drawing must have matplotlib", error, "pip install 'jgs[viz]'."
        ) from None
    drawn = _drawn(what)
    if drawn.src.size > most:
        raise InputError(
            f"a picture must have at most {most} edges",
            f"{drawn.src.size}",
            "Draw a smaller batch, with lower fanouts, or raise most.",
        )
    if ax is None:
        ax = plt.subplots(figsize=(6, 6), layout="constrained")[1]
    ring = _rings(drawn)
    place = _places(drawn, ring)
    size = float(np.clip(4000 / max(drawn.ids.size, 1), 12, 160))
    colors, widths = _edge_style(drawn, plt)
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
            zorder=1,
        )
        ax.add_patch(arrow)
    loops = np.unique(drawn.src[drawn.src == drawn.dst])
    ax.scatter(*place[loops].T, s=2.5 * size, facecolors="none", edgecolors="0.5", zorder=1)
    outlines = np.where(drawn.seeds, "black", "white")
    if drawn.node_scores is None:
        ax.scatter(*place.T, s=size, c=ring, cmap="viridis_r", edgecolors=outlines, zorder=2)
    else:
        far = float(np.abs(drawn.node_scores).max(initial=0)) or 1.0
        span = {"cmap": "coolwarm", "vmin": -far, "vmax": far}
        ax.scatter(*place.T, s=size, c=drawn.node_scores, edgecolors=outlines, zorder=2, **span)
    if labels or (labels is None and drawn.ids.size <= _LABELLED):
        above = (0, size**0.5 / 2 + 1)
        for spot, name in zip(place, drawn.ids.tolist(), strict=True):
            ax.annotate(
                str(name), spot, above, textcoords="offset points", ha="center", fontsize=7
            )
    edge = float(np.abs(place).max(initial=1)) + 0.3
    ax.set(aspect="equal", xlim=(-edge, edge), ylim=(-edge, edge))
    ax.set_axis_off()
    return ax


def _drawn(what: MiniBatch | Explanation) -> _Drawn:
    """Joins equal nodes and equal edges, and adds up the scores of equal edges."""
    if isinstance(what, Explanation):
        src, dst, hop, nodes = what.src, what.dst, what.hop, what.nodes
        seeds = np.array([what.node])
    else:
        src, dst, hop, *_ = drawn_edges(what)
        seeds = np.unique(np.asarray(what.seeds))
        nodes = seeds = seeds[seeds < what.num_nodes]
    ids = np.unique(np.concatenate([seeds, nodes, src, dst]))
    pairs = np.stack([np.searchsorted(ids, src), np.searchsorted(ids, dst)], axis=1)
    unique, place = np.unique(pairs, axis=0, return_inverse=True)
    place = place.reshape(-1)
    lowest = np.full(len(unique), np.iinfo(np.int32).max)
    np.minimum.at(lowest, place, hop)
    node_scores = edge_scores = None
    if isinstance(what, Explanation):
        own = what.features.sum(axis=1)
        node_scores = np.bincount(np.searchsorted(ids, nodes), own, ids.size)
        edge_scores = np.bincount(place, what.edges, len(unique))
    src, dst = unique.T
    return _Drawn(ids, np.isin(ids, seeds), src, dst, lowest, node_scores, edge_scores)


def _rings(drawn: _Drawn) -> np.ndarray:
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


def _places(drawn: _Drawn, ring: np.ndarray) -> np.ndarray:
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


def _edge_style(drawn: _Drawn, plt: Any) -> tuple[np.ndarray, np.ndarray]:
    """The colour `[m, 4]` and the width `[m]` of each edge."""
    if drawn.edge_scores is None:
        return plt.get_cmap("tab10")(drawn.hop % 10), np.full(drawn.src.size, 0.8)
    share = drawn.edge_scores / (np.abs(drawn.edge_scores).max(initial=0) or 1)
    colors = plt.get_cmap("coolwarm")((share + 1) / 2)
    colors[:, 3] = 0.25 + 0.75 * np.abs(share)
    return colors, 0.5 + 2.5 * np.abs(share)
