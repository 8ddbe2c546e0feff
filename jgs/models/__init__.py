"""Flax NNX modules that take `(batch, x)`; their dropout is `jgs.ops.dropout`."""

from jgs.models.gnn import GNN
from jgs.models.inputs import Inputs, read_inputs
from jgs.models.layer import AttentionLayer, Layer, Model
from jgs.models.sage import SAGEConv
from jgs.models.stacked import MODELS, GraphSAGE

__all__ = [
    "GNN",
    "MODELS",
    "AttentionLayer",
    "GraphSAGE",
    "Inputs",
    "Layer",
    "Model",
    "SAGEConv",
    "read_inputs",
]
