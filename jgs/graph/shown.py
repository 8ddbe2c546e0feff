"""How an object is shown to a person: one line as its `repr`, a small table in a notebook."""

from __future__ import annotations

import html
from typing import Any

import jax
import numpy as np


class Shown:
    """An object that is shown by its `_facts`, a dict of texts by name. An empty text is left
    out. A text with an empty name is shown without a name."""

    def _facts(self) -> dict[str, str]:
        raise NotImplementedError

    def __repr__(self) -> str:
        words = [f"{name}={text}" if name else text for name, text in _shown_facts(self)]
        return f"{type(self).__name__}({', '.join(words)})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{html.escape(text)}</td></tr>"
            for name, text in _shown_facts(self)
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"


def _shown_facts(shown: Shown) -> list[tuple[str, str]]:
    try:
        facts = shown._facts()
    except Exception:  # a pytree's fields may hold anything, also arrays that were donated
        return [("", "...")]
    return [(name, text) for name, text in facts.items() if text]


def real(count: Any, capacity: int) -> str:
    """A count of real entries beside a capacity, as "12/16". For a super-batch the largest
    count is given, as "≤12/16", and during tracing "?/16"."""
    if isinstance(count, jax.core.Tracer):
        return f"?/{capacity:,}"
    counts = np.asarray(count)
    most = "≤" if counts.size > 1 else ""
    return f"{most}{int(counts.max(initial=0)):,}/{capacity:,}"
