"""Sampling: from a graph and seeds to the mini-batches a model trains on."""

from jgs.sampling.algorithms.neighbors import sample_neighbors
from jgs.sampling.capacity import Capacity, plan_capacity
from jgs.sampling.loader import Loader

__all__ = ["Capacity", "Loader", "plan_capacity", "sample_neighbors"]
