"""Leaks in a database with a task: `audit`, and the command `jgs audit`."""

from jgs.lazy import lazily

_PLACES = dict.fromkeys(("KINDS", "TRIALS", "Finding", "audit"), "jgs.audit.kinds")
__all__, __getattr__, __dir__ = lazily(__name__, _PLACES)
