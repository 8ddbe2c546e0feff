"""The sampler, the model and the decoder of a configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx

from jgs.errors import InputError
from jgs.graph import Schema
from jgs.graph.typed_features import Scales
from jgs.models import GNN, PairModel
from jgs.options import arguments_of, as_typed
from jgs.sampling import ByEpoch, OnPlateau, Sampler, SamplerSchedule, Walker
from jgs.sampling.shorthand import as_sampler
from jgs.train.config import OWNERS, Config
from jgs.train.loop.edge_features import NO_EDGES, EdgeFeatures, edges_of

Widths = Callable[[], tuple[int, ...]]
_SIZES = ("fanouts", "sizes")  # options that have a number for each layer


def make_sampler(
    config: Config,
    direct: bool = False,
    widths: Widths | None = None,
    columns: tuple[str, ...] = (),
) -> Sampler | SamplerSchedule:
    """The sampler of a configuration, or its schedule of samplers. Raises `InputError`.

    Args:
      direct: whether the first layer is to read the feature store directly, if it can.
      widths: those of the messages of the model's layers; None, not known yet, counts as 1.
      columns: the edge columns that the model reads as features.
    """
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
    """What a model of a typed graph is made for.

    Fields:
      widths: the number of features of each node type, 0 for a type without features.
      schema: the graph's `jgs.graph.Schema`.
      scales: as `TypedFeatures.scales` returns them, or None: 1.
    """

    widths: tuple[int, ...]
    schema: Schema
    scales: Scales | None = None


def takes_types(config: Config) -> bool:
    """Whether the configuration's model is one of typed graphs: its class says `typed = True`.
    It reads `TypedRows`, and the relation of every edge."""
    return _is(config, "typed")


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
        own = {"embedding": embedding, "scales": types.scales}
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
    return {"widths": list(types.widths), "schema": text, "scales": types.scales}


def types_of(shape: dict[str, Any]) -> Types | None:
    """The types of which `shape` has the fields that `shape_of_types` returned."""
    if "schema" not in shape:
        return None
    text = np.frombuffer(shape["schema"].encode(), np.uint8)
    schema = Schema.from_bytes("the checkpoint", text)
    assert schema is not None
    return Types(tuple(shape["widths"]), schema, shape["scales"])


def make_decoder(config: Config, shape: dict[str, Any], rngs: nnx.Rngs) -> Any:
    """The decoder of a configuration: of its options, and of those of the width of rows, the
    number of relations and the outputs that its class takes. Raises `InputError`."""
    maker: Callable[..., Any] = OWNERS["decoder"].find(config.decoder)
    taken = arguments_of(maker)
    given: dict[str, Any] = {"width": config.hidden, "rngs": rngs}
    given |= {name: shape.get(name) for name in ("num_relations", "out_features")}
    if "num_relations" in taken and not given["num_relations"]:
        raise InputError(
            f"--decoder {config.decoder} must be for a graph with relations",
            "one without",
            "Choose another, e.g. dot.",
        )
    if given["out_features"] and "out_features" not in taken:
        raise InputError(
            f"--task {config.task} must have a decoder with several outputs",
            f"--decoder {config.decoder}",
            "Choose mlp.",
        )
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
    columns = {"type": takes_types(config), "elapsed": _is(config, "timed")}
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
    return made if isinstance(made, Walker) else as_sampler(made)


def _stage(text: str, layers: int) -> tuple[int | None, tuple[int, ...]]:
    """The epoch, or None for a plateau, and the fanouts of an entry of --fanout-schedule."""
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
