"""Distributed training: partitions, communicators, feature exchange, caches, embeddings."""

import importlib
from typing import Any

# Where each public name is; imported when first used, for MPI need not be installed.
_PLACES = {
    "Alone": "comm",
    "Communicator": "comm",
    "OWN": "comm",
    "SAME": "comm",
    "Mesh": "mesh",
    "Mpi": "mpi",
    "Emulated": "emulate",
    "agree": "launch",
    "connect": "launch",
    "Watchdog": "watchdog",
    "Part": "parts",
    "Parts": "parts",
    "open_parts": "parts",
    "partition_nodes": "partition",
    "DistLoader": "loader",
    "RankParts": "ranks",
    "rank_loader": "ranks",
    "HybridSampler": "loader",
    "VanillaSampler": "vanilla",
    "FeatureExchange": "exchange",
    "ShardedEmbedding": "embedding",
}
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(f"jgs.dist.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'jgs.dist' has no attribute {name!r}")
