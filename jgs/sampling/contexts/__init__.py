"""Contexts: a fixed number of tokens for each seed, and the ways in which they are found."""
