"""Contexts: a fixed number of tokens for each seed, and the ways in which they are found."""

from jgs.sampling.contexts.hops import ByHops
from jgs.sampling.contexts.pagerank import ByPageRank
from jgs.sampling.contexts.visits import ByVisits
from jgs.sampling.contexts.way import Found, Way

__all__ = ["ByHops", "ByPageRank", "ByVisits", "Found", "Way"]


def __dir__() -> list[str]:
    return __all__
