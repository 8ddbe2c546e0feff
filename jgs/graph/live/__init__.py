"""Graphs that grow while they are drawn from: see `Live`."""

from jgs.graph.live.live import Live
from jgs.graph.live.log import Change

__all__ = ["Change", "Live"]
