"""Answers of `jgs serve`, computed again: `jgs replay`."""

__all__: list[str] = []
