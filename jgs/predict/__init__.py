"""Predictions of a trained run: `jgs.open_run`, and the command `python -m jgs.predict`."""

from jgs.lazy import lazily

# Where each public name is. It is imported when first used, so the command starts without JAX.
_PLACES = {
    "Explanation": "jgs.predict.explain",
    "Predictions": "jgs.answers",
    "Run": "jgs.predict.run",
    "open_run": "jgs.predict.open",
}
__all__, __getattr__, __dir__ = lazily(__name__, _PLACES)
