"""The flags of the samplers of subgraphs."""

from __future__ import annotations

from dataclasses import dataclass

from jgs.train.flags import setting

_INT32 = 2**31 - 1
BOUNDS = {
    "frontier_size": (1, _INT32),
    "budget": (1, _INT32),
    "degree_cap": (1, _INT32),
    "walk_steps": (1, 1 << 16),
    "scope_size": (0, _INT32),
}


@dataclass(frozen=True)
class SubgraphFlags:
    """Settings of --sampler frontier, saint, shadow and subgraph."""

    extra_nodes: int = setting(0, "of subgraph: nodes to draw beside the seeds; of each rank")
    layers: int | None = setting(
        None,
        "of frontier, saint, shadow and subgraph: layers of the model (default: 2; else one a "
        "fanout); of seal: its graph convolutions (default: 3)",
    )
    budget: int = setting(
        8000,
        "of frontier and saint: what a subgraph is drawn from, as many nodes, edges or roots "
        "of walks; of each rank",
    )
    frontier_size: int = setting(1000, "of frontier: with how many nodes it begins")
    degree_cap: int = setting(
        30, "of frontier: nodes of more neighbours are popped as if they had so many"
    )
    draw: str = setting(
        "walk",
        "of saint: what is drawn, nodes by the norm of their column or by their degree, edges, "
        "or walks",
        choices=("node", "degree", "edge", "walk"),
    )
    walk_steps: int = setting(2, "of saint by walks: their steps")
    norm_error: float = setting(
        0.0,
        "of frontier and saint: GraphSAINT's normalisation, estimated before training from as "
        "many subgraphs as make its relative error so small, e.g. 0.15; 0: none. On sparse "
        "graphs it wants --norm layer too",
    )
    scope_size: int = setting(
        0,
        "of shadow: take so many nodes of the largest personalised PageRank around each seed "
        "(0: what --fanouts draw)",
    )
    disjoint: bool = setting(
        False, "of shadow: a graph for each seed by itself, not one of them all"
    )
