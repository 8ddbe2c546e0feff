"""Samplers that draw the neighbours of each node."""
