"""`SAMPLERS` and `WALKERS`: all of them by name. The tests of the contracts try each."""

from jgs.sampling.algorithms.layerwise.asgcn import ASGCN
from jgs.sampling.algorithms.layerwise.fastgcn import FastGCN
from jgs.sampling.algorithms.layerwise.ladies import Ladies
from jgs.sampling.algorithms.nodewise.gcnbs import GCNBS
from jgs.sampling.algorithms.nodewise.labor import Labor
from jgs.sampling.algorithms.nodewise.neighbors import Neighbors
from jgs.sampling.algorithms.nodewise.pass_ import PASS
from jgs.sampling.algorithms.nodewise.thanos import Thanos
from jgs.sampling.algorithms.nodewise.vrgcn import VRGCN
from jgs.sampling.algorithms.subgraphs.frontier import Frontier
from jgs.sampling.algorithms.subgraphs.saint import Saint
from jgs.sampling.algorithms.subgraphs.seal import Seal
from jgs.sampling.algorithms.subgraphs.shadow import Shadow
from jgs.sampling.algorithms.subgraphs.subgraph import Subgraph
from jgs.sampling.algorithms.walks.hetgnn import HetGNN
from jgs.sampling.algorithms.walks.metapath import Metapath
from jgs.sampling.algorithms.walks.node2vec import Node2Vec
from jgs.sampling.algorithms.walks.pinsage import PinSage
from jgs.sampling.algorithms.walks.walk import Walk

SAMPLERS = {
    "neighbors": Neighbors,
    "labor": Labor,
    "subgraph": Subgraph,
    "fastgcn": FastGCN,
    "ladies": Ladies,
    "vrgcn": VRGCN,
    "gcnbs": GCNBS,
    "thanos": Thanos,
    "pass": PASS,
    "asgcn": ASGCN,
    "pinsage": PinSage,
    "hetgnn": HetGNN,
    "saint": Saint,
    "shadow": Shadow,
    "frontier": Frontier,
    "seal": Seal,
}

WALKERS = {
    "walk": Walk,
    "node2vec": Node2Vec,
    "metapath": Metapath,
}
