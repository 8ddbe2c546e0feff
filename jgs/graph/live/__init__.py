"""Graphs that grow while they are drawn from: see `Live`."""

from jgs.graph.live.change import Change
from jgs.graph.live.live import Live

__all__ = ["Change", "Live"]
