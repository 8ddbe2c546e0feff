"""Graph neural networks, and their layers, as Flax NNX modules that take `(batch, x)`. Their
dropout is `jgs.ops.dropout`."""

from jgs.models.concat import ConcatConv
from jgs.models.dgcnn import DGCNN
from jgs.models.gat import GATConv
from jgs.models.gcn import GCNConv
from jgs.models.gin import GINConv
from jgs.models.gine import GINEConv
from jgs.models.gnn import GNN
from jgs.models.inputs import Inputs, Placed, read_inputs
from jgs.models.layer import AttentionLayer, EdgeLayer, Layer, Model
from jgs.models.sage import SAGEConv
from jgs.models.stacked import GAT, GCN, GIN, GraphSAGE
from jgs.tables import MODELS

__all__ = [
    "DGCNN",
    "GAT",
    "GCN",
    "GIN",
    "GNN",
    "MODELS",
    "AttentionLayer",
    "ConcatConv",
    "EdgeLayer",
    "GATConv",
    "GCNConv",
    "GINConv",
    "GINEConv",
    "GraphSAGE",
    "Inputs",
    "Layer",
    "Model",
    "Placed",
    "SAGEConv",
    "read_inputs",
]


def __dir__() -> list[str]:
    return __all__
