"""`SAMPLERS`: every sampler by its name, for commands and for the test of the contract."""

from jgs.sampling.algorithms.labor import Labor
from jgs.sampling.algorithms.neighbors import Neighbors

SAMPLERS = {"neighbors": Neighbors, "labor": Labor}
