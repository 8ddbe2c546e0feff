"""Samplers whose batches are subgraphs."""
