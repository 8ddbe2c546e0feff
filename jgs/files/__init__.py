"""Files: folders of arrays, atomic replacement, locks."""

from jgs.lazy import lazily

__all__, __getattr__, __dir__ = lazily(__name__, {})
