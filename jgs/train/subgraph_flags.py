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

    extra_nodes: int = setting(0, "for subgraph: nodes to draw beside the seeds, on each rank")
    layers: int | None = setting(
        None,
        "for frontier, saint, shadow and subgraph: layers of the model (default: 2; models for "
        "other samplers have one a fanout); for seal: graph convolutions (default: 3)",
    )
    budget: int = setting(
        8000,
        "for frontier and saint: how many nodes, edges or roots of walks are drawn for a "
        "subgraph, on each rank",
    )
    frontier_size: int = setting(1000, "for frontier: the number of nodes it starts from")
    degree_cap: int = setting(
        30, "for frontier: nodes of more neighbours are popped as if they had so many"
    )
    draw: str = setting(
        "walk",
        "for saint: what is drawn: nodes by the norm of their column (node) or by their degree "
        "(degree), edges, or walks",
        choices=("node", "degree", "edge", "walk"),
    )
    walk_steps: int = setting(2, "for saint with --draw walk: the steps of a walk")
    norm_error: float = setting(
        0.0,
        "for frontier and saint: GraphSAINT's normalisation, estimated before training from "
        "enough subgraphs that its relative error is at most this, e.g. 0.15; 0: no "
        "normalisation. On sparse graphs give --norm layer too",
    )
    scope_size: int = setting(
        0,
        "for shadow: take so many nodes around each seed, those of the largest personalised "
        "PageRank (0: the nodes that --fanouts draw)",
    )
    disjoint: bool = setting(
        False, "for shadow: a graph for each seed by itself, not one graph for all seeds"
    )
