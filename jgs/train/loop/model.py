"""The model of a configuration."""

from __future__ import annotations

from typing import Any

import jax
from flax import nnx

from jgs.errors import InputError
from jgs.models import GNN
from jgs.train.config import Config
from jgs.train.loop.sampler import num_layers


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
    model = config.made(
        "model",
        in_features=num_features,
        hidden_features=config.hidden,
        out_features=num_classes,
        num_layers=num_layers(config),
        dropout=config.dropout,
        input_dropout=input_dropout,
        norm=config.norm,
        rngs=nnx.Rngs(key),
    )
    jax.block_until_ready(nnx.state(model))
    return model


def shape_of(job: Any) -> dict[str, Any]:
    """What `make_model`, and readers of the model's outputs, must know about a
    `jgs.train.loop.job.Job` beside its configuration."""
    names = ("num_features", "num_classes", "sparse", "class_names")
    found = {name: getattr(job.data, name) for name in names}
    return found | {"multilabel": job.data.host_labels.ndim == 2}


def check_model(config: Config) -> None:
    """Raises `InputError` for heads that do not share the width of a hidden layer."""
    heads = config.options.get("heads", 1)
    if num_layers(config) > 1 and config.hidden % heads:
        raise InputError(
            "--hidden must be a multiple of --heads",
            f"{config.hidden} for {heads}",
            "Give the width of all heads together.",
        )
