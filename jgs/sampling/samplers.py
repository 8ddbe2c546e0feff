"""`SAMPLERS` and `WALKERS`: all of them by name. The tests of the contracts try each."""

from jgs.sampling.algorithms.asgcn import ASGCN
from jgs.sampling.algorithms.fastgcn import FastGCN
from jgs.sampling.algorithms.frontier import Frontier
from jgs.sampling.algorithms.gcnbs import GCNBS
from jgs.sampling.algorithms.hetgnn import HetGNN
from jgs.sampling.algorithms.labor import Labor
from jgs.sampling.algorithms.ladies import Ladies
from jgs.sampling.algorithms.metapath import Metapath
from jgs.sampling.algorithms.neighbors import Neighbors
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
