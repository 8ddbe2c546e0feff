"""Answers of `jgs serve`, computed again: `jgs replay`."""
