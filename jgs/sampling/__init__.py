"""Sampling: from a graph and seeds to the mini-batches a model trains on."""

from jgs.sampling.capacity import Capacity, plan_capacity
from jgs.sampling.loader import Loader
from jgs.sampling.neighbors import sample_neighbors

__all__ = ["Capacity", "Loader", "plan_capacity", "sample_neighbors"]
