"""Sampling: from a graph and seeds to the mini-batches that a model is trained on."""

from jgs.sampling.algorithms.by_features import ASGCN, PASS
from jgs.sampling.algorithms.context import Context
from jgs.sampling.algorithms.enclosing import Seal, Shadow
from jgs.sampling.algorithms.frontier import Frontier
from jgs.sampling.algorithms.labor import Labor
from jgs.sampling.algorithms.layers import FastGCN, Ladies
from jgs.sampling.algorithms.neighbors import Neighbors
from jgs.sampling.algorithms.node2vec import Node2Vec
from jgs.sampling.algorithms.saint import Saint, Subgraph
from jgs.sampling.algorithms.stateful import GCNBS, VRGCN, Thanos
from jgs.sampling.algorithms.visits import HetGNN, PinSage
from jgs.sampling.algorithms.walk import Metapath, Walk
from jgs.sampling.base import Adaptive, ByNode, Feedback, Sampler
from jgs.sampling.capacity import Capacity, GraphShape
from jgs.sampling.choices import choose_super_batch
from jgs.sampling.edges.induced import induced_subgraph
from jgs.sampling.event_negatives import event_negatives
from jgs.sampling.links import Links
from jgs.sampling.loading.disk_rows import DiskRows
from jgs.sampling.loading.grain import grain_iterator
from jgs.sampling.loading.hot_rows import HotRows
from jgs.sampling.loading.loader import Loader
from jgs.sampling.loading.schedule import Order
from jgs.sampling.loading.stages import ByEpoch, OnPlateau, SamplerSchedule
from jgs.sampling.matrix import MatrixSampler
from jgs.sampling.pairs import draw_negatives, edges_between, has_edge, join_nodes
from jgs.sampling.plan import plan_capacity, worst_case
from jgs.sampling.seeds import Seeds
from jgs.sampling.shorthand import sample_neighbors
from jgs.sampling.subgraphs import SubgraphSampler
from jgs.sampling.walks import Walker, Walks
from jgs.tables import SAMPLERS, WALKERS

__all__ = [
    "ASGCN",
    "GCNBS",
    "PASS",
    "SAMPLERS",
    "VRGCN",
    "WALKERS",
    "Adaptive",
    "ByEpoch",
    "ByNode",
    "Capacity",
    "Context",
    "DiskRows",
    "FastGCN",
    "Feedback",
    "Frontier",
    "GraphShape",
    "HetGNN",
    "HotRows",
    "Labor",
    "Ladies",
    "Links",
    "Loader",
    "MatrixSampler",
    "Metapath",
    "Neighbors",
    "Node2Vec",
    "OnPlateau",
    "Order",
    "PinSage",
    "Saint",
    "Sampler",
    "SamplerSchedule",
    "Seal",
    "Seeds",
    "Shadow",
    "Subgraph",
    "SubgraphSampler",
    "Thanos",
    "Walk",
    "Walker",
    "Walks",
    "choose_super_batch",
    "draw_negatives",
    "edges_between",
    "event_negatives",
    "grain_iterator",
    "has_edge",
    "induced_subgraph",
    "join_nodes",
    "plan_capacity",
    "sample_neighbors",
    "worst_case",
]


def __dir__() -> list[str]:
    return __all__
