"""`SAMPLERS`: every sampler by its name, for commands and for the test of the contract."""

from jgs.sampling.algorithms.labor import Labor
from jgs.sampling.algorithms.neighbors import Neighbors
from jgs.sampling.algorithms.subgraph import Subgraph

SAMPLERS = {"neighbors": Neighbors, "labor": Labor, "subgraph": Subgraph}
