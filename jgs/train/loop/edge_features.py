"""Which edge columns the model of a run reads as features."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jgs.errors import InputError
from jgs.graph import Graph
from jgs.models.edges import EdgeScales
from jgs.options import arguments_of
from jgs.tables import MODELS
from jgs.train.config import OWNERS, Config

AUTO, NONE = "auto", "none"
_CHUNK = 1 << 22  # numbers that are looked at together


class EdgeFeatures(NamedTuple):
    """The `edge_columns` and `edge_scales` of a model's layers, a scale for each number."""

    columns: tuple[str, ...] = ()
    scales: EdgeScales = ()


NO_EDGES = EdgeFeatures()


def shape_of_edges(edges: EdgeFeatures) -> dict[str, Any]:
    """What a checkpoint says of `edges`: nothing, or their fields in the form of JSON."""
    if not edges.columns:
        return {}
    return {"edge_columns": list(edges.columns), "edge_scales": [list(s) for s in edges.scales]}


def edges_of(shape: Mapping[str, Any]) -> EdgeFeatures:
    """The edge features of which `shape` has the fields that `shape_of_edges` returned."""
    scales = tuple((float(mean), float(by)) for mean, by in shape.get("edge_scales", ()))
    return EdgeFeatures(tuple(shape.get("edge_columns", ())), scales)


def edge_features(config: Config, graph: Graph) -> tuple[EdgeFeatures, str]:
    """What a run's model reads of the edges of `graph` by `--edge-features`, and a line for its
    user, which may be "". Raises `InputError` for a named column that cannot be read."""
    given, no = config.edge_features, config.options.get("label")
    own = [name for name in graph.edge_columns if name not in ("label", "split", no)]
    if "model" not in config.owners or given == (NONE,):
        return NO_EDGES, ""
    named = given != (AUTO,)
    names = tuple(dict.fromkeys(given)) if named else tuple(own)
    if not names:
        return NO_EDGES, ""
    unread = _unread(config)
    if named and unread:
        raise InputError(
            "--edge-features must be for a model, a sampler and a mode that read edge columns",
            unread,
            "Leave it out, or choose others, e.g. --model gatv2 --sampler neighbors.",
        )
    if unread:
        return NO_EDGES, f"edge columns that are not read: {', '.join(names)} ({unread})"
    read, gaps, scales = [], [], []
    for name in names:
        found = _scales(_column(graph, name, own))
        if found is None and named:
            raise InputError(
                "an edge column of --edge-features must have a finite number for every edge",
                f"{name}, which has gaps",
                "Fill them, or leave it out.",
            )
        if found is None:
            gaps.append(name)
        else:
            read.append(name)
            scales += found
    line = f"edge columns that {config.model} reads: {', '.join(read) or 'none'}"
    if gaps:
        line += f"; not read, for their gaps: {', '.join(gaps)}"
    return EdgeFeatures(tuple(read), tuple(scales)), line


def _unread(config: Config) -> str:
    """Why a run reads no edge columns; "" where it can."""
    if not _takes(OWNERS["model"].find(config.model)):
        readers = [name for name in MODELS if _takes(MODELS.find(name))]
        return f"--model {config.model} reads none; {', '.join(readers)} do"
    sampler = OWNERS["sampler"].find(config.sampler)
    if "edges" not in arguments_of(getattr(sampler, "from_options", sampler)):
        return f"--sampler {config.sampler} gives none"
    if config.partition is not None and config.mode == "vanilla":
        return "--mode vanilla sends none"
    return ""


def _takes(maker: Any) -> bool:
    return {"edge_columns", "edge_width", "edge_scales"} <= set(arguments_of(maker))


def _column(graph: Graph, name: str, own: list[str]) -> Any:
    if name == "weight" and graph.edge_weight is not None:
        return graph.edge_weight
    if name in own:
        return graph.edge_columns[name]
    raise InputError(
        "--edge-features must name edge columns of the data set",
        name,
        f"It has {', '.join(own) or 'none'}.",
    )


def _scales(column: Any) -> list[tuple[float, float]] | None:
    """The mean and one over the deviation of each number of a column `[E, ...]`; None where one
    is not finite. Both are rounded, so that they are the same on machines that add in another
    order. A number that is the same for all edges has the factor 1."""
    num, width = column.shape[0], math.prod(column.shape[1:])
    if not num:
        return [(0.0, 1.0)] * width
    rows = max(1, _CHUNK // max(width, 1))
    chunks = [slice(begin, begin + rows) for begin in range(0, num, rows)]

    # Less the first row, numbers far from 0 are added without loss.
    first = np.asarray(column[:1]).reshape(1, width).astype(np.float64)

    def chunk(at: slice) -> np.ndarray:
        return np.asarray(column[at]).reshape(-1, width).astype(np.float64) - first

    total = np.zeros(width)
    for at in chunks:
        if not np.isfinite(part := chunk(at)).all():
            return None
        total += part.sum(axis=0)
    mean = total / num
    squares = np.zeros(width)
    for at in chunks:
        squares += np.square(chunk(at) - mean).sum(axis=0)
    found = []
    of = zip(first[0].tolist(), mean.tolist(), np.sqrt(squares / num).tolist(), strict=True)
    for begin, center, deviation in of:
        unit = 10.0 ** (math.floor(math.log10(deviation)) - 4) if deviation else 1.0
        factor = float(f"{1 / deviation:.6g}") if deviation else 1.0
        found.append((begin + round(center / unit) * unit, factor))
    return found
