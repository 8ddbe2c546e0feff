"""An artifact behind HTTP, over a graph that may grow: `jgs serve`."""

from jgs.lazy import lazily

_PLACES = {
    "Application": "jgs.serve.application",
    "Engine": "jgs.serve.engine",
}
__all__, __getattr__, __dir__ = lazily(__name__, _PLACES)
