"""Models of one kind of layer each, and the table of their names.

Each is a `GNN`, with these arguments beside its own:

    in_features, hidden_features, out_features: widths.
    num_layers: the number of layers, and of a batch's blocks.
    dropout, input_dropout, norm, rngs: as of `GNN`; `rngs` makes the layers' weights too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flax import nnx

from jgs.models.gnn import GNN, widths_of
from jgs.models.sage import SAGEConv


class GraphSAGE(GNN):
    """`SAGEConv`s; `reduce` as theirs."""

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int,
        num_layers: int,
        *,
        reduce: str = "mean",
        rngs: nnx.Rngs,
        **options: Any,
    ):
        widths = widths_of(in_features, hidden_features, out_features, num_layers)
        layers = [SAGEConv(*width, reduce=reduce, rngs=rngs) for width in widths]
        super().__init__(layers, rngs=rngs, **options)


# Each takes (in_features, hidden_features, out_features, num_layers, rngs=..., **options).
MODELS: dict[str, Callable[..., GNN]] = {"sage": GraphSAGE}
