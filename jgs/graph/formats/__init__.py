"""Graphs in the formats of other libraries and of tables."""
