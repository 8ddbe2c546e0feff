"""Models that stack one kind of layer.

Each is a `GNN`. All of them take these arguments, and some take more:

    in_features, hidden_features, out_features: widths.
    num_layers: the number of layers, and of a batch's blocks.
    dropout, input_dropout, norm, rngs: as in `GNN`; `rngs` makes the layers' weights too.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from flax import nnx

from jgs.models.concat import ConcatConv
from jgs.models.edges import EdgeScales
from jgs.models.gat import GATConv
from jgs.models.gcn import GCNConv
from jgs.models.gin import GINConv
from jgs.models.gine import GINEConv
from jgs.models.gnn import GNN, widths_of
from jgs.models.layer import Layer
from jgs.models.sage import SAGEConv
from jgs.ops import REDUCTIONS
from jgs.options import Option

Reduce = Annotated[str, Option("how a node combines its neighbours", choices=REDUCTIONS)]
Heads = Annotated[
    int, Option("the number of heads of every hidden layer", least=1, most=1 << 10)
]


class GraphSAGE(GNN):
    """A stack of `SAGEConv`; `reduce` is the argument of these layers."""

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int,
        num_layers: int,
        *,
        reduce: Reduce = "mean",
        rngs: nnx.Rngs,
        **options: Any,
    ):
        widths = widths_of(in_features, hidden_features, out_features, num_layers)
        layers = [SAGEConv(*width, reduce=reduce, rngs=rngs) for width in widths]
        super().__init__(layers, rngs=rngs, **options)


class GCN(GNN):
    """A stack of `GCNConv`, which reads `batch.degrees`.

    Args:
      concat: True stacks `ConcatConv` instead, the convolution of gcn-ipdps19 for sampled
        subgraphs. It puts two products side by side, of a node's own row and of its neighbours'
        mean, each with weights of its own. The last layer, a `SAGEConv`, adds the two. These
        layers read no degrees.
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int,
        num_layers: int,
        *,
        concat: Annotated[
            bool,
            Option("a node's own row and its neighbours' mean side by side, as in gcn-ipdps19"),
        ] = False,
        rngs: nnx.Rngs,
        **options: Any,
    ):
        *hidden, last = widths_of(in_features, hidden_features, out_features, num_layers)
        inner, outer = (ConcatConv, SAGEConv) if concat else (GCNConv, GCNConv)
        layers: list[Layer] = [inner(*width, rngs=rngs) for width in hidden]
        layers.append(outer(*last, rngs=rngs))
        super().__init__(layers, rngs=rngs, **options)


class GAT(GNN):
    """A stack of `GATConv`, with ELU between the layers.

    Args:
      hidden_features: the width of all heads of a hidden layer together.
      heads: the number of heads of each hidden layer, which are concatenated.
      out_heads: the number of heads of the last layer, which are averaged.
      version: 1, or 2 for GATv2.
      attention_dropout: rate on the attention weights; None: `dropout`'s, as in the paper.
      edge_columns, edge_width, edge_scales: what the layers read of edges, as of `GATConv`.
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int,
        num_layers: int,
        *,
        heads: Heads = 8,
        out_heads: int = 1,
        version: int = 1,
        dropout: float = 0.5,
        attention_dropout: float | None = None,
        edge_columns: tuple[str, ...] = (),
        edge_width: int = 0,
        edge_scales: EdgeScales = (),
        rngs: nnx.Rngs,
        **options: Any,
    ):
        *hidden, last = widths_of(in_features, hidden_features, out_features, num_layers)
        own: dict[str, Any] = {"version": version, "rngs": rngs}
        own |= {"edge_columns": edge_columns, "edge_width": edge_width}
        own |= {"edge_scales": edge_scales}
        layers = [GATConv(*width, heads, **own) for width in hidden]
        layers.append(GATConv(*last, out_heads, concat=False, **own))
        rate = dropout if attention_dropout is None else attention_dropout
        options = {"activation": "elu", **options, "attention_dropout": rate}
        super().__init__(layers, dropout=dropout, rngs=rngs, **options)


class GIN(GNN):
    """A stack of `GINConv`; `eps` and `train_eps` are arguments of these layers.

    With `edge_columns` it is one of `GINEConv`, whose `edge_columns`, `edge_width` and
    `edge_scales` these are.
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int,
        num_layers: int,
        *,
        eps: float = 0.0,
        train_eps: bool = False,
        edge_columns: tuple[str, ...] = (),
        edge_width: int = 0,
        edge_scales: EdgeScales = (),
        rngs: nnx.Rngs,
        **options: Any,
    ):
        widths = widths_of(in_features, hidden_features, out_features, num_layers)
        own: dict[str, Any] = {"hidden_features": hidden_features, "eps": eps}
        own |= {"train_eps": train_eps, "rngs": rngs}
        conv: type[GINConv] = GINConv
        if edge_columns:
            conv, names = GINEConv, {"edge_columns": edge_columns, "edge_width": edge_width}
            own |= {**names, "edge_scales": edge_scales}
        layers = [conv(*width, **own) for width in widths]
        super().__init__(layers, rngs=rngs, **options)


GATv2 = partial(GAT, version=2)
