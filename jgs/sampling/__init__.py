"""Sampling: from a graph and seeds to the mini-batches that a model is trained on."""

from jgs.sampling.algorithms.asgcn import ASGCN
from jgs.sampling.algorithms.fastgcn import FastGCN
from jgs.sampling.algorithms.frontier import Frontier
from jgs.sampling.algorithms.gcnbs import GCNBS
from jgs.sampling.algorithms.hetgnn import HetGNN
from jgs.sampling.algorithms.labor import Labor
from jgs.sampling.algorithms.ladies import Ladies
from jgs.sampling.algorithms.metapath import Metapath
from jgs.sampling.algorithms.neighbors import Neighbors, sample_neighbors
from jgs.sampling.algorithms.node2vec import Node2Vec
from jgs.sampling.algorithms.pass_ import PASS
from jgs.sampling.algorithms.pinsage import PinSage
from jgs.sampling.algorithms.saint import Saint
from jgs.sampling.algorithms.seal import Seal
from jgs.sampling.algorithms.shadow import Shadow
from jgs.sampling.algorithms.subgraph import Subgraph
from jgs.sampling.algorithms.thanos import Thanos
from jgs.sampling.algorithms.vrgcn import VRGCN
from jgs.sampling.algorithms.walk import Walk
from jgs.sampling.base import Adaptive, ByNode, Feedback, Sampler
from jgs.sampling.capacity import Capacity
from jgs.sampling.grain import grain_iterator
from jgs.sampling.induced import induced_subgraph
from jgs.sampling.loader import Loader
from jgs.sampling.pairs import draw_negatives, edges_between, join_nodes
from jgs.sampling.plan import plan_capacity, worst_case
from jgs.sampling.samplers import SAMPLERS, WALKERS
from jgs.sampling.seeds import Seeds
from jgs.sampling.stages import ByEpoch, OnPlateau, SamplerSchedule
from jgs.sampling.subgraphs import SubgraphSampler
from jgs.sampling.walks import Walker, Walks

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
    "FastGCN",
    "Feedback",
    "Frontier",
    "HetGNN",
    "Labor",
    "Ladies",
    "Loader",
    "Metapath",
    "Neighbors",
    "Node2Vec",
    "OnPlateau",
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
    "draw_negatives",
    "edges_between",
    "grain_iterator",
    "induced_subgraph",
    "join_nodes",
    "plan_capacity",
    "sample_neighbors",
    "worst_case",
]


def __dir__() -> list[str]:
    return __all__
