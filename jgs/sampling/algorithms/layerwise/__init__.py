"""Samplers that draw the nodes of a layer together."""
