"""Flax NNX modules that take `(batch, x)`; their dropout is `jgs.ops.dropout`."""

from jgs.models.gat import GATConv
from jgs.models.gcn import GCNConv
from jgs.models.gin import GINConv
from jgs.models.inputs import Inputs, read_inputs
from jgs.models.sage import GraphSAGE, SAGEConv

__all__ = ["GATConv", "GCNConv", "GINConv", "GraphSAGE", "Inputs", "SAGEConv", "read_inputs"]
