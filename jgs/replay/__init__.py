"""Answers of `jgs serve`, computed again: `jgs replay`."""

from jgs.lazy import lazily

__all__, __getattr__, __dir__ = lazily(__name__, {})
