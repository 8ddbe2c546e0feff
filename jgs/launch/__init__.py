"""`python -m jgs.launch` runs `python -m jgs.train` on several hosts, by ssh."""

from jgs.lazy import lazily

__all__, __getattr__, __dir__ = lazily(__name__, {})
