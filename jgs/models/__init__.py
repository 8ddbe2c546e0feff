"""Flax NNX modules that take `(batch, x)`; their dropout is `jgs.models.dropout.dropout`."""

from jgs.models.sage import GraphSAGE, SAGEConv

__all__ = ["GraphSAGE", "SAGEConv"]
