"""Distributed training: partitions, communicators, and the exchange of feature rows."""

from jgs.dist.parts import Part, Parts, open_parts

__all__ = ["Part", "Parts", "open_parts"]
