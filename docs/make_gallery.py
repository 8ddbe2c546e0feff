"""Draws the pictures of the gallery: `python docs/make_gallery.py`.

Each sampler draws from the same small graph, with the same key and the same seed nodes.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import jgs
import jgs.viz
from jgs.sampling import (
    Context,
    FastGCN,
    Frontier,
    Labor,
    Ladies,
    Links,
    Loader,
    Neighbors,
    PinSage,
    Saint,
    Seal,
    Seeds,
    Shadow,
    Subgraph,
    Walk,
)

IMAGES = Path(__file__).parent / "images"
SEEDS = [0, 20]
GRAY, SEED, DRAWN, LINK = "#b8bcc8", "#d1495b", "#30638e", "#2a9d8f"
SAMPLERS: dict[str, Any] = {
    "Neighbors": Neighbors((3, 2)),
    "Labor": Labor((3, 2)),
    "FastGCN": FastGCN((5, 5)),
    "Ladies": Ladies((5, 5)),
    "PinSage": PinSage((3, 2)),
    "Subgraph": Subgraph(extra=6),
    "Context": Context(7, (3, 2)),
    "Shadow": Shadow((3, 2)),
    "Frontier": Frontier(m=4, budget=14),
    "Saint": Saint("walk", 4, length=3),
    "Seal": Seal((3,)),
    "Walk": Walk(8),
}


def small_graph() -> tuple[nx.Graph, jgs.Graph, dict[int, Any]]:
    """A graph of three communities of 12 nodes: as NetworkX draws it, as jgs samples it, and
    the places of its nodes."""
    known = nx.planted_partition_graph(3, 12, 0.35, 0.03, seed=4)
    graph = jgs.Graph.from_networkx(known, symmetric=True)
    return known, graph, nx.spring_layout(known, seed=3, k=0.28)


def drawn(sampler: Any, graph: jgs.Graph) -> tuple[list[int], set[int], set[tuple[int, int]]]:
    """The seeds, the nodes and the edges (source, target) of one sample."""
    key, state = jax.random.key(2), sampler.init(graph)
    if isinstance(sampler, Walk):
        paths = np.asarray(sampler.sample(key, graph, state, np.array(SEEDS)).nodes)
        steps = {(int(b), int(a)) for path in paths for a, b in pairwise(path)}
        return SEEDS, _nodes(paths, graph), {e for e in steps if max(e) < graph.num_nodes}
    pairs = getattr(sampler, "pairs", False)
    seeds = np.array([SEEDS] if pairs else SEEDS, np.int32)
    by_key = not hasattr(sampler, "fanouts") and isinstance(sampler, (Frontier, Saint))
    seeds = np.arange(graph.num_nodes, dtype=np.int32) if by_key else seeds
    capacity = jgs.sampling.plan_capacity(graph, len(seeds), sampler, seeds=seeds)
    batch = sampler.sample(key, graph, state, seeds, capacity)
    return ([] if by_key else SEEDS), _nodes(batch.nodes, graph), edges_of(batch)


def edges_of(batch: jgs.MiniBatch) -> set[tuple[int, int]]:
    """The edges (source, target) of a sample."""
    edges = set()
    for layer, block in enumerate(batch.blocks):
        sources, targets = (
            np.asarray(ids) for ids in (batch.source_nodes(layer), batch.target_nodes(layer))
        )
        indptr, indices = np.asarray(block.indptr), np.asarray(block.indices)
        for target in range(int(block.num_targets)):
            for source in indices[indptr[target] : indptr[target + 1]]:
                edges.add((int(sources[source]), int(targets[target])))
    return edges


def _nodes(ids: Any, graph: jgs.Graph) -> set[int]:
    """The distinct ids, without padding, which is the graph's number of nodes."""
    return set(np.asarray(ids).ravel().tolist()) - {graph.num_nodes}


def draw(axes: Any, name: str, known: nx.Graph, graph: jgs.Graph, place: dict) -> None:
    seeds, nodes, edges = drawn(SAMPLERS[name], graph)
    common = {"pos": place, "ax": axes}
    nx.draw_networkx_edges(known, edge_color=GRAY, width=0.5, **common)
    nx.draw_networkx_nodes(known, node_color=GRAY, node_size=14, **common)
    shown = nx.DiGraph(list(edges))
    shown.add_nodes_from(nodes)
    drawn_edges = {"edge_color": DRAWN, "width": 1.1, "arrowsize": 5, "node_size": 30}
    nx.draw_networkx_edges(shown, **drawn_edges, **common)
    others = sorted(nodes - set(seeds))
    nx.draw_networkx_nodes(shown, nodelist=others, node_color=DRAWN, node_size=30, **common)
    nx.draw_networkx_nodes(known, nodelist=seeds, node_color=SEED, node_size=55, **common)
    axes.set_title(repr(SAMPLERS[name]).split("(")[0], fontsize=11)
    axes.axis("off")


def draw_links(known: nx.Graph, graph: jgs.Graph, place: dict) -> None:
    """A batch of one link: its negative, and the sample, without the link itself."""
    source, target = next(
        (u, v) for u, v in known.edges if known.degree(u) + known.degree(v) > 12
    )
    items = {"src": np.array([source]), "dst": np.array([target])}
    options = {"before": Links(sides="dst", filtered=True), "key": jax.random.key(1)}
    batch = next(iter(Loader(graph, items, 1, Neighbors((3, 2)), prefetch=0, **options)))
    nodes = np.asarray(batch.nodes)
    wrong = int(nodes[int(batch.items["negative_rows"][0, 0])])
    figure, axes = plt.subplots(figsize=(7.5, 4.6), layout="constrained")
    common = {"pos": place, "ax": axes}
    nx.draw_networkx_edges(known, edge_color=GRAY, width=0.5, **common)
    nx.draw_networkx_nodes(known, node_color=GRAY, node_size=20, **common)
    shown = nx.DiGraph(sorted(edges_of(batch)))
    shown.add_nodes_from(_nodes(nodes, graph))
    nx.draw_networkx_edges(shown, edge_color=DRAWN, width=1.1, node_size=60, **common)
    nx.draw_networkx_nodes(shown, node_color=DRAWN, node_size=45, **common)
    lines = {"width": 2.6, "arrows": False, **common}
    nx.draw_networkx_edges(known, edgelist=[(source, target)], edge_color=LINK, **lines)
    pair = nx.Graph([(source, wrong)])
    nx.draw_networkx_edges(pair, edge_color=SEED, style="dotted", **lines)
    for node, text, color in (
        (source, "src", LINK),
        (target, "dst", LINK),
        (wrong, "negative", SEED),
    ):
        nx.draw_networkx_nodes(
            known, nodelist=[node], node_color=color, node_size=150, **common
        )
        axes.annotate(text, place[node], xytext=(9, 7), textcoords="offset points", fontsize=10)
    axes.axis("off")
    figure.savefig(IMAGES / "links.png", dpi=110)


def draw_time() -> None:
    """Messages between six nodes, and the sample of one of them without and with a cutoff."""
    rng = np.random.default_rng(11)
    src, dst = rng.integers(0, 6, (2, 34))
    apart = src != dst
    src, dst = src[apart], dst[apart]
    time = np.arange(src.size)
    graph = jgs.Graph.from_edges(src, dst, 6, edge_time=time)
    asked = src.size * 3 // 5
    ends, key = [int(src[asked]), int(dst[asked])], jax.random.key(3)
    figure, both = plt.subplots(1, 2, figsize=(11, 3.4), layout="constrained")
    sampler = Neighbors((2, 2), edge_ids=True)
    for axes, cutoff, title in zip(both, (src.size, asked), ("a leak", "shut"), strict=True):
        seeds = Seeds(np.array(ends), np.full(2, cutoff))
        batch = sampler.sample(key, graph, (), seeds, None)
        ids = [np.asarray(b.edge_id)[: int(b.num_edges)] for b in batch.blocks]
        drawn = set(np.asarray(graph.edge_order)[np.concatenate(ids)].tolist()) - {asked}
        axes.hlines(range(6), -1, src.size, color=GRAY, linewidth=0.6)
        axes.axvline(asked, color=LINK, linestyle="dotted")
        for i in range(src.size):
            color = GRAY if i not in drawn else DRAWN if i < asked else SEED
            color, width = (LINK, 2.6) if i == asked else (color, 1.6 if i in drawn else 0.7)
            arrow = {"arrowstyle": "->", "color": color, "linewidth": width}
            axes.annotate("", (i, dst[i]), (i, src[i]), arrowprops=arrow)
        axes.set_title(title, fontsize=11)
        axes.set_xlabel("time", loc="right")
        axes.set_ylim(-0.5, 5.5)
        axes.set_xticks([])
        axes.set_yticks(range(6), [f"node {v}" for v in range(6)])
        axes.spines[:].set_visible(False)
    figure.savefig(IMAGES / "time.png", dpi=110)


def draw_context() -> None:
    """One context of a user: events, their items, and other events of these, before a day."""
    rng, events = np.random.default_rng(2), 240
    day = np.sort(rng.integers(0, 100, events))
    ends = {"user": rng.integers(0, 12, events), "item": rng.integers(0, 30, events)}
    keys = {("event", f"of_{end}", end): (np.arange(events), ids) for end, ids in ends.items()}
    counts = {"user": 12, "item": 30, "event": events}
    times = dict.fromkeys(keys, day)
    graph = jgs.Graph.from_relations(counts, keys, both_ways=True, edge_time=times)
    sampler = Context(24, ({"*": 4}, {"*": 2}, {"*": 2}), edges=("type",))
    seeds = Seeds(np.array([3]), np.array([80]))
    batch = sampler.sample(jax.random.key(0), graph, sampler.init(graph), seeds)
    jgs.viz.neighborhood(batch).figure.savefig(IMAGES / "context.png", dpi=80)


def main() -> None:
    known, graph, place = small_graph()
    figure, grid = plt.subplots(3, 4, figsize=(11, 7.6), layout="constrained")
    for axes, name in zip(grid.flat, SAMPLERS, strict=False):
        draw(axes, name, known, graph, place)
    for axes in grid.flat[len(SAMPLERS) :]:
        axes.axis("off")
    IMAGES.mkdir(exist_ok=True)
    figure.savefig(IMAGES / "samplers.png", dpi=110)
    draw_links(known, graph, place)
    draw_time()
    draw_context()


if __name__ == "__main__":
    main()
