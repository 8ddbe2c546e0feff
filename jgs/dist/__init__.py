"""Distributed training: partitions, and what the ranks of a run say to each other."""
