"""The sampler, the model and the decoder of a configuration, and what it reads of edges."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx

from jgs.errors import InputError, refuse
from jgs.graph import Graph, Schema
from jgs.graph.typed_features import Scales
from jgs.models import GNN, PairModel
from jgs.models.parts import EdgeScales
from jgs.options import arguments_of, as_typed
from jgs.sampling import ByEpoch, OnPlateau, Sampler, SamplerSchedule, Walker
from jgs.sampling.shorthand import as_sampler
from jgs.tables import MODELS
from jgs.train.config import OWNERS, Config

Widths = Callable[[], tuple[int, ...]]
_SIZES = ("fanouts", "sizes")  # options that have a number for each layer


AUTO, NONE = "auto", "none"
_CHUNK = 1 << 22  # numbers that are looked at together


class EdgeFeatures(NamedTuple):
    """The `edge_columns` and `edge_scales` of a model's layers, a scale for each number."""

    columns: tuple[str, ...] = ()
    scales: EdgeScales = ()


NO_EDGES = EdgeFeatures()


def make_sampler(
    config: Config,
    direct: bool = False,  # whether the first layer is to read the features, if it can
    widths: Widths | None = None,  # of the layers' messages; None, not known yet, counts as 1
    columns: tuple[str, ...] = (),  # of edges, which the model reads as features
) -> Sampler | SamplerSchedule:
    """The sampler of a configuration, or its schedule of samplers. Raises `InputError`."""
    first = _make(config, direct, widths, {}, columns)
    if not config.fanout_schedule:
        return first
    size = next((name for name in _SIZES if name in config.options), "")
    if not size or not first.num_hops:
        raise InputError(
            "--fanout-schedule must be for a sampler that draws layer by layer",
            f"--sampler {config.sampler}",
            "Leave it out, or choose such a sampler.",
        )
    when, samplers = [], [first]
    for text in config.fanout_schedule:
        begin, numbers = _stage(text, first.num_hops)
        when.append(begin)
        samplers.append(_make(config, direct, widths, {size: numbers}, columns))
    if None not in when:
        return ByEpoch(tuple(zip((0, *when), samplers, strict=True)))
    if set(when) != {None}:
        raise InputError(
            "--fanout-schedule must go by epochs or by the loss, not by both",
            as_typed(config.fanout_schedule),
            "Write an epoch in each entry, or plateau in each.",
        )
    return OnPlateau(samplers, config.plateau_fraction, config.plateau_epochs)


class Types(NamedTuple):
    """What a model of a typed graph is made for."""

    widths: tuple[int, ...]  # the features of each node type, 0 for a type without features
    schema: Schema
    scales: Scales | None = None  # as `TypedFeatures.scales` returns them, or None: 1
    moments: Any = None  # as in `TypedInputs`
    columns: Any = None  # as in `jgs.models.CellTransformer`, where the model reads cells


def takes_types(config: Config) -> bool:
    """Whether the configuration's model is one of typed graphs: its class says `typed = True`.
    It reads `TypedRows`, and the relation of every edge."""
    return _is(config, "typed")


def is_contextual(config: Config) -> bool:
    """Whether the configuration's model reads the tokens of contexts: its class says
    `contextual = True`. It has no exact evaluation: samples judge it."""
    return _is(config, "contextual")


def reads_cells(config: Config) -> bool:
    """Whether the configuration's model takes the columns of node types."""
    of_model = "model" in config.owners and OWNERS["model"].find(config.model)
    return bool(of_model) and "columns" in arguments_of(of_model)


def _is(config: Config, kind: str) -> bool:
    if "model" not in config.owners:
        return False
    return bool(getattr(OWNERS["model"].find(config.model), kind, False))


def num_layers(config: Config) -> int:
    return _make(config, False, None, {}).num_hops or config.layers or 2


def make_model(
    config: Config,
    num_features: int,
    num_classes: int,
    sparse: bool,
    key: jax.Array,
    types: Types | None = None,
    embedding: bool = True,
    edges: EdgeFeatures = NO_EDGES,
    head: Callable[[jax.Array], jax.Array] | None = None,
) -> GNN:
    """The model of a configuration, with computed parameters; `key` decides them. `sparse` says
    whether the features are sparse, and `edges` what it reads of edges. A model of typed graphs
    is made for the `types`; if its class takes them, it gets `embedding` and the `scales`. With
    `head` it has the task's.

    The function waits for the parameters: where memory runs out, JAX raises an error then, and
    aborts the process when NumPy reads them instead.
    """
    input_dropout = config.input_dropout
    if input_dropout is None:  # bags of words are redundant, dense features seldom are
        input_dropout = config.dropout if sparse else 0.0
    inputs: dict[str, Any] = {"in_features": num_features}
    if types is None and not num_features and ":" not in config.model:
        raise InputError(
            "the nodes must have features",
            "none",
            "Add columns to the table of nodes; or let --task links learn rows, --learned 64.",
        )
    if types is not None:
        inputs = {"in_features": types.widths, "schema": types.schema}
        own = {"embedding": embedding, "scales": types.scales, "moments": types.moments}
        own |= {"columns": types.columns}
        taken = arguments_of(OWNERS["model"].find(config.model))
        inputs |= {name: value for name, value in own.items() if name in taken}
    if edges.columns:
        named = {"edge_columns": edges.columns, "edge_width": len(edges.scales)}
        inputs |= named | {"edge_scales": edges.scales}
    model = config.made(
        "model",
        hidden_features=config.hidden,
        out_features=num_classes,
        num_layers=num_layers(config),
        dropout=config.dropout,
        input_dropout=input_dropout,
        norm=config.norm,
        rngs=nnx.Rngs(key),
        **inputs,
    )
    if head is not None:
        model.head = head
    jax.block_until_ready(nnx.state(model))
    return model


def make_pair_model(
    config: Config, shape: dict[str, Any], key: jax.Array, embedding: bool = True
) -> PairModel:
    """The model of a configuration; `key` decides its first parameters. `shape` is what
    `PairJob.shape` returned, and `embedding` as for `make_model`."""
    keys = jax.random.split(key, 3)
    width = shape["num_features"] + shape["learned"]
    of_encoder = (config, width, config.hidden, shape["sparse"], keys[0])
    encoder = make_model(*of_encoder, types_of(shape), embedding, edges_of(shape))
    decoder = make_decoder(config, shape, nnx.Rngs(keys[1]))
    nodes, learned = shape["num_nodes"], shape["learned"]
    return PairModel(encoder, decoder, nodes, learned, rngs=nnx.Rngs(keys[2]))


def shape_of_types(types: Types | None) -> dict[str, Any]:
    """What a checkpoint says of `types`: nothing, or their fields in the form of JSON."""
    if types is None:
        return {}
    text = types.schema.as_bytes().tobytes().decode()
    own = {"scales": types.scales} | ({"feature_times": types.moments} if types.moments else {})
    own |= {"cells": types.columns} if types.columns else {}
    return {"widths": list(types.widths), "schema": text, **own}


def types_of(shape: dict[str, Any]) -> Types | None:
    """The types of which `shape` has the fields that `shape_of_types` returned."""
    if "schema" not in shape:
        return None
    text = np.frombuffer(shape["schema"].encode(), np.uint8)
    schema = Schema.from_bytes("the checkpoint", text)
    assert schema is not None
    times, cells = (shape.get(name) for name in ("feature_times", "cells"))
    return Types(tuple(shape["widths"]), schema, shape["scales"], times, cells)


def make_decoder(config: Config, shape: dict[str, Any], rngs: nnx.Rngs) -> Any:
    """The decoder of a configuration: of its options, and of those of the width of rows, the
    number of relations and the outputs that its class takes. Raises `InputError`."""
    maker: Callable[..., Any] = OWNERS["decoder"].find(config.decoder)
    taken = arguments_of(maker)
    given: dict[str, Any] = {"width": config.hidden, "rngs": rngs}
    given |= {name: shape.get(name) for name in ("num_relations", "out_features")}
    refuse(
        ("num_relations" in taken and not given["num_relations"],
         f"--decoder {config.decoder} must be for a graph with relations", "one without",
         "Choose another, e.g. dot."),
        (given["out_features"] and "out_features" not in taken,
         f"--task {config.task} must have a decoder with several outputs",
         f"--decoder {config.decoder}", "Choose mlp."),
    )  # fmt: skip
    return config.made("decoder", **{n: v for n, v in given.items() if n in taken})


def _make(
    config: Config,
    direct: bool,
    widths: Widths | None,
    changed: dict[str, Any],
    features: tuple[str, ...] = (),
) -> Any:
    maker = OWNERS["sampler"].find(config.sampler)
    fields = arguments_of(getattr(maker, "from_options", maker))
    arguments: dict[str, Any] = {}
    if direct and "relabel_inputs" in fields:
        arguments["relabel_inputs"] = False
    contextual = is_contextual(config)
    columns = {"type": takes_types(config) and not contextual, "elapsed": _is(config, "timed")}
    for column in (*(name for name, wanted in columns.items() if wanted), *features):
        if "edges" not in fields:
            raise InputError(
                f"--model {config.model} must have a sampler that says the {column} of an edge",
                f"--sampler {config.sampler}",
                "Choose another, e.g. neighbors.",
            )
        arguments["edges"] = (*arguments.get("edges", ()), column)
    if "widths" in fields:
        sizes = next(changed.get(n, config.options[n]) for n in _SIZES if n in config.options)
        arguments["widths"] = (1,) * len(sizes) if widths is None else widths()
    made = config.made("sampler", changed, **arguments)
    made = made if isinstance(made, Walker) else as_sampler(made)
    if contextual and not getattr(made, "contextual", False):
        raise InputError(
            f"--model {config.model} must have a sampler of contexts",
            f"--sampler {config.sampler}",
            "Add --sampler context.",
        )
    return made


def _stage(text: str, layers: int) -> tuple[int | None, tuple[int, ...]]:
    when, _, rest = text.partition(":")
    try:
        begin = None if when == "plateau" else int(when)
        numbers = tuple(map(int, rest.split(",")))
    except ValueError:
        numbers = ()
    if len(numbers) != layers:
        raise InputError(
            "an entry of --fanout-schedule must be an epoch or plateau, a colon, and a fanout "
            f"for each of {layers} layers",
            repr(text),
            "Write 10:15,15 or plateau:15,15.",
        )
    return begin, numbers


def shape_of_edges(edges: EdgeFeatures) -> dict[str, Any]:
    """What a checkpoint says of `edges`: nothing, or their fields in the form of JSON."""
    if not edges.columns:
        return {}
    return {"edge_columns": list(edges.columns), "edge_scales": [list(s) for s in edges.scales]}


def edges_of(shape: Mapping[str, Any]) -> EdgeFeatures:
    """The edge features of which `shape` has the fields that `shape_of_edges` returned."""
    scales = tuple((float(mean), float(by)) for mean, by in shape.get("edge_scales", ()))
    return EdgeFeatures(tuple(shape.get("edge_columns", ())), scales)


def edge_features(
    config: Config, graph: Graph, before: int | None = None
) -> tuple[EdgeFeatures, str]:
    """What a run's model reads of the edges of `graph` by `--edge-features`, scaled by those
    `before` a time if it is given; and a line for its user, which may be "". Raises
    `InputError` for a named column that cannot be read."""
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
    early = None
    if before is not None and graph.edge_time is not None:
        early = np.asarray(graph.edge_time) < before
        early = early if early.any() else None
    for name in names:
        found = _scales(_column(graph, name, own), early)
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
    if not config.whole_topology:
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


def _scales(column: Any, early: np.ndarray | None) -> list[tuple[float, float]] | None:
    """The mean and one over the deviation of each number of a column `[E, ...]`, over `early`
    edges, bool `[E]` or None for all; None where one of any edge is not finite. Both are
    rounded, so that they are the same on machines that add in another order. A number that is
    the same for all edges has the factor 1."""
    width = math.prod(column.shape[1:])
    num = column.shape[0] if early is None else int(early.sum())
    if not num:
        return [(0.0, 1.0)] * width
    rows = max(1, _CHUNK // max(width, 1))
    chunks = [slice(at, at + rows) for at in range(0, column.shape[0], rows)]

    # Less the first row, numbers far from 0 are added without loss.
    begin = 0 if early is None else int(np.argmax(early))
    first = np.asarray(column[begin : begin + 1]).reshape(1, width).astype(np.float64)

    def chunk(at: slice) -> np.ndarray:
        return np.asarray(column[at]).reshape(-1, width).astype(np.float64) - first

    total = np.zeros(width)
    for at in chunks:
        if not np.isfinite(part := chunk(at)).all():
            return None
        total += (part if early is None else part[early[at]]).sum(axis=0)
    mean = total / num
    squares = np.zeros(width)
    for at in chunks:
        part = chunk(at) if early is None else chunk(at)[early[at]]
        squares += np.square(part - mean).sum(axis=0)
    found = []
    of = zip(first[0].tolist(), mean.tolist(), np.sqrt(squares / num).tolist(), strict=True)
    for least, center, deviation in of:
        unit = 10.0 ** (math.floor(math.log10(deviation)) - 4) if deviation else 1.0
        factor = float(f"{1 / deviation:.6g}") if deviation else 1.0
        found.append((least + round(center / unit) * unit, factor))
    return found
