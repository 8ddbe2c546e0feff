"""A model's outputs for nodes, from sampled neighbours in place of all neighbours; and the best
targets of sources, by a run on links: exactly, or at a moment of each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import nnx

from jgs.errors import InputError
from jgs.graph import Graph, MiniBatch
from jgs.models import GNN, top_k
from jgs.ops import gather
from jgs.predict.ids import cutoffs
from jgs.sampling import Capacity, Neighbors, plan_capacity, worst_case
from jgs.sampling.capacity import Capacities
from jgs.sampling.edges.random import as_key_data
from jgs.sampling.loading.stages import samplers_of
from jgs.sampling.pairs import only_facts
from jgs.train.evaluation.by_samples import BySamples, ListsAt
from jgs.train.evaluation.edge_pieces import check_nodes
from jgs.train.evaluation.link_metrics import Decoded
from jgs.train.loop.keys import key_of
from jgs.train.loop.model import make_sampler

_SMALL = 1 << 14  # for at most so many edges no capacity is measured: the worst case is taken
Lists = tuple[np.ndarray, np.ndarray]


def sampled_logits(
    model: GNN,
    graph: Graph,
    features: Any,
    nodes: np.ndarray,
    sampler: Neighbors,
    key: Any,
    batch_size: int,
    advance: Callable[[int, int], None],
) -> np.ndarray:
    """float32 `[n, C]`: the model's outputs for `nodes` int32 `[n]`, from sampled neighbours.
    They depend on the key and the node alone. `advance(done, total)` is called after each
    batch."""
    seeds, place = np.unique(nodes, return_inverse=True)
    if not seeds.size:
        return np.zeros((0, model.layers[-1].out_features), np.float32)
    size = min(batch_size, seeds.size)
    draw = batches(graph, sampler, seeds, size, key)
    degrees = graph.degrees() if model.uses_degrees else None
    outputs: list[np.ndarray] = []
    for begin in range(0, seeds.size, size):
        some = seeds[begin : begin + size]
        rows = _outputs(*nnx.split(model), draw(some), features, degrees)
        outputs.append(np.asarray(rows)[: some.size])
        advance(begin + some.size, seeds.size)
    return np.concatenate(outputs)[place]


def batches(
    graph: Graph, sampler: Neighbors, seeds: np.ndarray, size: int, key: Any
) -> Callable[[np.ndarray], MiniBatch]:
    """A function that draws a batch of the distinct `seeds`, padded to `size`, until it
    fits."""
    key_data, state = as_key_data(key), sampler.init(graph)
    planned = worst = worst_case(graph, size, sampler, distinct=True)
    if sum(worst.edges) > _SMALL:
        planned = plan_capacity(graph, size, sampler, seeds=seeds, key=key, trials=2)
    # Single nodes are asked for one after the other, and each capacity compiles: take few.
    if size == 1:
        up = [[1 << (c - 1).bit_length() for c in sizes] for sizes in planned]
        planned = Capacity(*(tuple(map(min, *each)) for each in zip(up, worst, strict=True)))
    capacities, level = Capacities(planned, worst), 0

    def draw(some: np.ndarray) -> MiniBatch:
        nonlocal level
        padded = np.full(size, graph.num_nodes, np.int32)
        padded[: some.size] = some

        def attempt(capacity: Capacity) -> tuple[MiniBatch, Any]:
            batch = _batch(sampler, capacity, key_data, graph, state, padded)
            return batch, batch.overflow

        batch, level = capacities.fit(attempt, level)
        return batch

    return draw


@partial(jax.jit, static_argnums=(0, 1))
def _batch(
    sampler: Neighbors, capacity: Capacity, key_data: Any, graph: Graph, state: Any, seeds: Any
) -> MiniBatch:
    return sampler.sample(key_data, graph, state, seeds, capacity)


@partial(jax.jit, static_argnums=0)
def _outputs(
    graphdef: nnx.GraphDef, params: Any, batch: MiniBatch, features: Any, degrees: Any
) -> jax.Array:
    if degrees is not None:
        batch = batch.with_degrees(degrees)
    return nnx.merge(graphdef, params)(batch, gather(features, batch.nodes))


def judged_at(
    run: Any,
    data: Any,  # the run's, with the graphs that it predicts on
    items: Mapping[str, Any],  # have `time`, and nodes by their ids in `data`
    graph: Graph | None,  # the user's, by the data set's ids, in place of the run's
    key: jax.Array,  # this and the next two as in `BySamples`
    outputs: Callable[..., tuple[jax.Array, ...]],
    stage: Any = None,
) -> np.ndarray:
    """What `outputs` computes of each item with the run's parameters, `[n, ...]`."""
    graphs = None if graph is None else [_by_own_ids(data, graph)]
    of = (run.model, run.edges.columns, dict(items), key, outputs)
    judge = BySamples(run.config, data, *of, stage, graphs=graphs)
    try:
        return judge(nnx.state(run.model))[0]
    finally:
        judge.close()


def context_of(
    run: Any, data: Any, items: Mapping[str, Any], key: jax.Array
) -> tuple[MiniBatch, Any]:
    """The batch of the only one of `items`, and its rows, that `judged_at` computes with; its
    block has `edge_id`."""
    made = samplers_of(make_sampler(run.config, columns=run.edges.columns))[0]
    sampler: Any = replace(made, edge_ids=True)  # type: ignore[type-var]
    with contextlib.closing(data.loader(sampler, key, None, {}, (items, None), 1)) as loader:
        return next(iter(loader))


def _by_own_ids(data: Any, graph: Graph) -> Graph:
    num = data.graphs[0].num_nodes
    if graph.num_nodes != num:
        raise InputError(
            f"the graph must have the run's {num} nodes",
            graph.num_nodes,
            "Give a graph of the same nodes.",
        )
    if data.own_ids is None:
        return graph
    made = graph.subgraph(np.argsort(data.own_ids))
    return made._with(schema=graph.schema and data.graphs[0].schema)


def lists_of(
    run: Any, relation: int | None, nodes: Any, k: int, candidates: Any, new_only: bool
) -> Lists:
    """See `jgs.predict.Run.recommend`; `relation` is a number."""
    data, ids = run._data[0], check_nodes(nodes, 0, run.num_nodes())
    own = _candidates(run, candidates, relation)
    decoder = Decoded(run.model).decoder(nnx.state(run.model))
    known = only_facts(data.graphs[0], relation) if new_only else None
    of = (decoder, run._every_row, run._source.in_graph(ids), own, k)
    best, scores = top_k(*of, relation=relation, known=known)
    if data.own_ids is not None:
        best = np.where(best >= 0, data.in_data_set(best), -1)
    return best, scores


def lists_at(
    run: Any, relation: int | None, nodes: Any, k: int, candidates: Any, time: Any
) -> Lists:
    """The same at times, from a sample of each row."""
    data, targets = run._data
    assert targets is not None  # of a run that gives lists
    ids = check_nodes(nodes, 0, run.num_nodes())
    own = cutoffs(data, ids, time, "lists of a run with --temporal")
    if not ids.size:
        return np.zeros((0, k), np.int32), np.zeros((0, k), np.float32)
    data.graphs, key = targets.messages, key_of(run.config, "samples of test")
    of = run.config, data, run.model, run.edges.columns
    lists = ListsAt(*of, own, _candidates(run, candidates, relation), key)
    try:
        best, scores = lists.best(nnx.state(run.model), k, relation=relation)
    finally:
        lists.close()
    return np.where(best >= 0, data.in_data_set(best), -1), scores


def _candidates(run: Any, nodes: Any, relation: int | None) -> np.ndarray:
    """int32, as the graph has them: the given nodes, or all that a target may be."""
    if nodes is not None:
        return run._source.in_graph(check_nodes(nodes, 0, run.num_nodes()))
    return run._data[1].ends(relation).dst
