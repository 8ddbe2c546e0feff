"""Partitions: the part that each node belongs to, and the folders that ranks open."""

from jgs.lazy import lazily

_PLACES = {"partition_nodes": "jgs.partition.nodes", "write_parts": "jgs.partition.folder"}
__all__, __getattr__, __dir__ = lazily(__name__, _PLACES)
