"""Exact evaluation of any model in bounded memory, and metrics."""
