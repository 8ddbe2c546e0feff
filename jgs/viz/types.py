"""How node types and relations look in a picture, and the legend that names them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jgs.graph import Schema

TYPE_COLORS = "tab10"  # a colour map of ten colours
_MARKERS = "os^Dvphd<>"
# Line styles of relations; the dashes are lengths in points, a line and a gap in turn.
_STYLES: tuple[Any, ...] = (
    *("solid", "dashed", "dotted", "dashdot"),
    *((0, (8, 2)), (0, (1, 3)), (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2, 2, 2))),
)


def marker(kind: int) -> str:
    """The marker of a node type, by its number."""
    return _MARKERS[kind % len(_MARKERS)]


def line_style(relation: int) -> Any:
    """The line style of a relation, by its number; solid for -1, which is none."""
    return _STYLES[max(relation, 0) % len(_STYLES)]


def add_legend(
    ax: Any, schema: Schema, kinds: Iterable[int], relations: Iterable[int], colored: bool
) -> None:
    """Adds a legend of the node types `kinds` and of the `relations` to matplotlib `Axes`.
    `colored`: whether nodes have the colours of their types, and not only the markers."""
    import matplotlib  # only now: an optional dependency
    from matplotlib.lines import Line2D

    colors = matplotlib.colormaps[TYPE_COLORS]
    handles = [
        Line2D(
            [],
            [],
            color=colors(kind % 10) if colored else "0.5",
            marker=marker(kind),
            linestyle="",
            label=schema.node_types[kind][0],
        )
        for kind in kinds
    ]
    names = [name for _, name, _ in schema.relations]
    for number in relations:
        if number >= 0:
            name = names[number]
            label = name if names.count(name) == 1 else " ".join(schema.relations[number])
            handles.append(Line2D([], [], color="0.4", ls=line_style(number), label=label))
    ax.legend(handles=handles, fontsize=7, loc="upper right", frameon=False)
