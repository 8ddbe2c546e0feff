"""Flax NNX modules that take `(batch, x)`; their dropout is `jgs.ops.dropout`."""

from jgs.models.inputs import Inputs, read_inputs
from jgs.models.sage import GraphSAGE, SAGEConv

__all__ = ["GraphSAGE", "Inputs", "SAGEConv", "read_inputs"]
