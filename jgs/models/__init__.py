"""Flax NNX modules that take `(batch, x)`; their dropout is `jgs.ops.dropout`."""

from jgs.models.inputs import Inputs, read_inputs
from jgs.models.layer import AttentionLayer, Layer, Model
from jgs.models.sage import GraphSAGE, SAGEConv

__all__ = [
    "AttentionLayer",
    "GraphSAGE",
    "Inputs",
    "Layer",
    "Model",
    "SAGEConv",
    "read_inputs",
]
