"""What an artifact of a run computes: rows of nodes, and of pairs of rows scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jgs.errors import InputError, refuse
from jgs.models import GNN
from jgs.sampling import Neighbors, Sampler
from jgs.sampling.edges.random import as_key_data, fold_each, step_key_data, threefry
from jgs.sampling.fanouts import ByRelation, check_fanouts
from jgs.sampling.loading.stages import samplers_of
from jgs.train.config import Config
from jgs.train.evaluation.by_samples import outputs_of
from jgs.train.loop.keys import key_of
from jgs.train.loop.model import is_contextual, make_sampler


class PairForm(NamedTuple):
    """What pairs of nodes may be.

    Fields:
      relation: the number of the relation of pairs for which none is named; None where it must
        be named, or where the graph has none.
      named: whether a relation must be named.
      types: the node types of a pair's ends where no relation says them; None: any.
      lists: whether the best targets of a node can be asked for.
      new_only: whether known links can be left out of these.
    """

    relation: int | None
    named: bool
    types: tuple[str, str] | None
    lists: bool
    new_only: bool


class Served(NamedTuple):
    """What an artifact of a run computes.

    Fields:
      sampler: draws, by node, what a row is computed of.
      key: uint32 `[2]`, what it draws with where a request has no key.
      rows: `rows(model, batch, x)` returns a tuple of float32 `[B, W]`, a row for each seed.
      pairs: whether the model's decoder makes outputs of pairs of rows; or rows are outputs.
    """

    sampler: Sampler
    key: np.ndarray
    rows: Callable[..., Any]
    pairs: bool = False


def neighbor_sampler(
    config: Config, model: GNN, fanouts: Any, edge_ids: bool = False
) -> Neighbors:
    """The sampler `Neighbors` with these fanouts, which draws like the run's sampler. Raises
    `InputError` unless there is one for each layer."""
    fanouts = check_fanouts(fanouts, by_relation=True)
    if len(fanouts) != len(model.layers):
        raise InputError(
            f"fanouts must be one for each of the model's {len(model.layers)} layers",
            fanouts,
            "Give as many, the seeds' hop first; -1 takes all neighbours.",
        )
    own = {name: config.options.get(name, False) for name in ("replace", "weighted")}
    return Neighbors(fanouts, **own, edge_ids=edge_ids, edges=model.edge_columns)


def served_nodes(
    run: Any,
    fanouts: Any,
    rows: Callable[..., Any] = outputs_of,
    use: str = "samples of moments",
) -> Served:
    """What is computed of each node. Draws are those of `run.predict` at a time or of contexts,
    by the key of this `use`, or else those of `run.predict(..., fanouts=)`. Raises
    `InputError`."""
    config, model = run.config, run.model
    if run.timed or is_contextual(config):
        columns = run.edges.columns
        made = make_sampler(config, False, lambda: model.message_widths, columns)
        sampler: Any = samplers_of(made)[0]
        sampler = sampler if fanouts is None else _with_fanouts(sampler, fanouts)
        key = _first_key(as_key_data(key_of(config, use)))
    else:
        given = config.options.get("fanouts") if fanouts is None else fanouts
        refuse(
            (given is None,
             "an exported model must draw a number of neighbours in each layer",
             f"no fanouts, for a run of --sampler {config.sampler}",
             "Give fanouts (--fanouts), such as 10 10."),
        )  # fmt: skip
        sampler = neighbor_sampler(config, getattr(model, "encoder", model), given)
        key = np.asarray(as_key_data(threefry(config.seed)))
    _check(sampler)
    return Served(sampler, key, rows)


def _first_key(key_data: Any) -> np.ndarray:
    """The key with which a loader that has `one_key` draws its first epoch."""
    return step_key_data(fold_each(key_data, [0])[0], [0])[0]


def _with_fanouts(sampler: Any, fanouts: Any) -> Sampler:
    if isinstance(sampler, Neighbors) and len(sampler.fanouts) == len(fanouts):
        return dataclasses.replace(sampler, fanouts=fanouts)
    raise InputError(
        "fanouts must be for a sampler that has as many",
        f"{len(fanouts)} for {sampler!r}",
        "Leave them out.",
    )


def _check(sampler: Any) -> None:
    own: Any = sampler.fanouts if isinstance(sampler, Neighbors) else ()
    least = [min(k.values()) if isinstance(k, ByRelation) else k for k in own]
    refuse(
        (min(least, default=1) < 1,
         "the fanouts of an exported model must be positive, for its memory is bounded", own,
         "Give the number of neighbours that each layer draws, such as 10 10."),
        (not (sampler.by_node and (isinstance(sampler, Neighbors) or sampler.contextual)),
         "an exported model must draw each node's neighbours by itself, and a bounded number",
         repr(sampler), "Train with --sampler neighbors or context."),
    )  # fmt: skip
