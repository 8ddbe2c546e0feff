"""Models of one kind of layer each, and the table of their names.

Each is a `GNN`, with these arguments beside its own:

    in_features, hidden_features, out_features: widths.
    num_layers: the number of layers, and of a batch's blocks.
    dropout, input_dropout, norm, rngs: as of `GNN`; `rngs` makes the layers' weights too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from flax import nnx

from jgs.models.concat import ConcatConv
from jgs.models.gat import GATConv
from jgs.models.gcn import GCNConv
from jgs.models.gin import GINConv
from jgs.models.gnn import GNN, widths_of
from jgs.models.layer import Layer
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


class GCN(GNN):
    """`GCNConv`s: they read `batch.degrees`.

    Args:
      concat: `ConcatConv`s instead, the convolutions of gcn-ipdps19 for sampled subgraphs, of
        a node's own row and the mean of its neighbours' with weights of their own, side by
        side; the last layer adds the two up (`SAGEConv`). They read no degrees.
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int,
        num_layers: int,
        *,
        concat: bool = False,
        rngs: nnx.Rngs,
        **options: Any,
    ):
        *hidden, last = widths_of(in_features, hidden_features, out_features, num_layers)
        inner, outer = (ConcatConv, SAGEConv) if concat else (GCNConv, GCNConv)
        layers: list[Layer] = [inner(*width, rngs=rngs) for width in hidden]
        layers.append(outer(*last, rngs=rngs))
        super().__init__(layers, rngs=rngs, **options)


class GAT(GNN):
    """`GATConv`s, with ELU between them.

    Args:
      hidden_features: of all heads together.
      heads, out_heads: of each hidden layer, concatenated, and of the last one, averaged.
      version: 1, or 2 (GATv2).
      attention_dropout: by default `dropout`'s rate, as in the paper.
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int,
        num_layers: int,
        *,
        heads: int = 8,
        out_heads: int = 1,
        version: int = 1,
        dropout: float = 0.5,
        attention_dropout: float | None = None,
        rngs: nnx.Rngs,
        **options: Any,
    ):
        *hidden, last = widths_of(in_features, hidden_features, out_features, num_layers)
        layers = [GATConv(*width, heads, version=version, rngs=rngs) for width in hidden]
        layers.append(GATConv(*last, out_heads, concat=False, version=version, rngs=rngs))
        options = {"activation": "elu", **options, "dropout": dropout}
        options["attention_dropout"] = (
            dropout if attention_dropout is None else attention_dropout
        )
        super().__init__(layers, rngs=rngs, **options)


class GIN(GNN):
    """`GINConv`s; `eps` and `train_eps` as theirs."""

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int,
        num_layers: int,
        *,
        eps: float = 0.0,
        train_eps: bool = False,
        rngs: nnx.Rngs,
        **options: Any,
    ):
        widths = widths_of(in_features, hidden_features, out_features, num_layers)
        own: dict[str, Any] = {"hidden_features": hidden_features, "eps": eps}
        layers = [GINConv(*width, **own, train_eps=train_eps, rngs=rngs) for width in widths]
        super().__init__(layers, rngs=rngs, **options)


# Each takes (in_features, hidden_features, out_features, num_layers, rngs=..., **options).
MODELS: dict[str, Callable[..., GNN]] = {
    "sage": GraphSAGE,
    "gcn": GCN,
    "gat": GAT,
    "gatv2": partial(GAT, version=2),
    "gin": GIN,
}
