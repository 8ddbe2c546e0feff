"""The model of a configuration."""

from __future__ import annotations

from typing import Any

import jax
from flax import nnx

from jgs.errors import InputError
from jgs.models import GNN, MODELS
from jgs.train.config import Config, as_typed, flag
from jgs.train.samplers import num_layers

# For each option that only some models take: which models.
OPTIONS = {"reduce": ("sage",), "heads": ("gat", "gatv2"), "concat": ("gcn",)}


def make_model(
    config: Config, num_features: int, num_classes: int, sparse: bool, key: jax.Array
) -> GNN:
    """The model of a configuration, with computed parameters; `key` decides them. `sparse` says
    whether the features are sparse.

    The function waits for the parameters. If memory runs out, JAX raises an error when it is
    waited for; when NumPy reads the arrays instead, JAX aborts the process.
    """
    input_dropout = config.input_dropout
    if input_dropout is None:  # bags of words are redundant, dense features seldom are
        input_dropout = config.dropout if sparse else 0.0
    widths = (num_features, config.hidden, num_classes)
    model = MODELS[config.model](
        *widths,
        num_layers(config),
        dropout=config.dropout,
        input_dropout=input_dropout,
        norm=config.norm,
        rngs=nnx.Rngs(key),
        **own_options(config),
    )
    jax.block_until_ready(nnx.state(model))
    return model


def shape_of(job: Any) -> dict[str, Any]:
    """What `make_model`, and readers of the model's outputs, must know about a
    `jgs.train.loop.job.Job` beside its configuration."""
    names = ("num_features", "num_classes", "sparse", "class_names")
    found = {name: getattr(job.data, name) for name in names}
    return found | {"multilabel": job.data.host_labels.ndim == 2}


def own_options(config: Config) -> dict[str, Any]:
    """The configuration's options for its model alone, as keyword arguments. Raises
    `InputError` for options of another model."""
    own = {}
    for name, models in OPTIONS.items():
        value = getattr(config, name)
        if config.model in models:
            own[name] = value
        elif value != getattr(Config, name):
            raise InputError(
                f"{flag(name)} must be for --model {' or '.join(models)}",
                f"{flag(name)} {as_typed(value)} for --model {config.model}",
                "Leave it out, or choose such a model.",
            )
    if "heads" in own and num_layers(config) > 1 and config.hidden % config.heads:
        raise InputError(
            "--hidden must be a multiple of --heads",
            f"{config.hidden} for {config.heads}",
            "Give the width of all heads together.",
        )
    return own
