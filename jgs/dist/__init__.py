"""Distributed training: partitions, communicators, feature exchange, caches, embeddings.

How a row gets from its owner to a reader: the reader sends the row's id to the rank that owns
it, in one round, and that rank sends the row back in a second.

`jgs.dist.rows.owners` knows who owns a row, and asks for it. Two things read rows through it.
`FeatureExchange` has rows that do not change: they are cached, and read where they lie. It has
a table of all nodes, or one for each node type, in the same two rounds.
`jgs.dist.rows.split` has a table whose rows are also changed by id: a tensor of a `TensorStore`
is one, and a `ShardedEmbedding` has one. Labels are not split: every rank maps those of all
nodes.
"""

from jgs.lazy import lazily

# Where each public name is. It is imported when first used, because MPI need not be installed.
_PLACES = {
    "Alone": "jgs.dist.communicators.comm",
    "Communicator": "jgs.dist.communicators.comm",
    "OWN": "jgs.dist.communicators.comm",
    "SAME": "jgs.dist.communicators.comm",
    "Mesh": "jgs.dist.communicators.mesh",
    "Mpi": "jgs.dist.communicators.comm",
    "Emulated": "jgs.dist.communicators.comm",
    "agree": "jgs.dist.communicators.launch",
    "connect": "jgs.dist.communicators.launch",
    "Watchdog": "jgs.dist.supervision.watchdog",
    "Part": "jgs.data.parts",
    "Parts": "jgs.data.parts",
    "open_parts": "jgs.data.parts",
    "partition_nodes": "jgs.partition.nodes",
    "write_parts": "jgs.partition.folder",
    "RankSource": "jgs.dist.batches.source",
    "RankParts": "jgs.dist.batches.ranks",
    "rank_loader": "jgs.dist.batches.ranks",
    "mesh_loader": "jgs.dist.batches.fused",
    "HybridSampler": "jgs.dist.batches.source",
    "VanillaSampler": "jgs.dist.batches.vanilla",
    "FeatureExchange": "jgs.dist.rows.exchange",
    "ShardedEmbedding": "jgs.dist.rows.embedding",
    "TensorStore": "jgs.dist.rows.embedding",
    "broadcast_arrays": "jgs.dist.communicators.collect",
}
__all__, __getattr__, __dir__ = lazily(__name__, _PLACES)
