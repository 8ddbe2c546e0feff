"""What a run computes of samples: a model's outputs for nodes, from sampled neighbours in place
of all neighbours; the best targets of sources, by a run on links, exactly, or at a moment of
each; and explanations of an output, attributions to the features and edges of a
neighbourhood."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jgs.errors import InputError, check_choice
from jgs.graph import Graph, MiniBatch, Schema, TypedRows
from jgs.graph.foreign import drawn_edges
from jgs.graph.shown import Shown
from jgs.models import GNN, RelGT, TypedGNN, top_k
from jgs.ops import gather
from jgs.predict.ids import cutoffs, named
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

METHODS = ("gradient", "integrated")


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Shown):
    """What each feature and each edge adds to a model's output for one node and one class.

    Fields, as NumPy arrays of the `n` nodes and `m` edges that the model has read:
      node, target: int; the explained node, and the class.
      output: float; the model's output (the logit) for this node and class.
      nodes: int32 `[n]`; node ids, the explained node first.
      features: float32 `[n, F]`; what each feature of each node adds to the output. Of a model
        of typed graphs a dict: for each node type float32 `[k, F]`, a row for each of its nodes
        in the order of `nodes`, as wide as the type's features. A type without features has
        the hidden width: what each number of the node's learned row adds.
      src, dst: int32 `[m]`; node ids: the edge's message goes from `src` to `dst`.
      hop: int32 `[m]`; 0 for edges into the explained node, 1 for those into its neighbours,
        and so on. An edge is listed once for every hop in which it was read.
      edge_id: int64 `[m]`; the edge's position in `Graph.indices`.
      edges: float32 `[m]`; what each edge's message adds to the output. Of a model of contexts
        the edges are those from a token to its parent, and it is what the token `src` adds.
      schema: `jgs.Schema`; the node types and relations of the graph, or None.
      edge_type: int16 `[m]`; the number of each edge's relation, or None.
    """

    node: int
    target: int
    output: float
    nodes: np.ndarray
    features: np.ndarray | dict[str, np.ndarray]
    src: np.ndarray
    dst: np.ndarray
    hop: np.ndarray
    edge_id: np.ndarray
    edges: np.ndarray
    schema: Schema | None = None
    edge_type: np.ndarray | None = None

    def node_table(self) -> dict[str, np.ndarray]:
        """Columns `[n]` with a row for each of `nodes`, for example for
        `pandas.DataFrame(found.node_table())`: `node`; of a graph with types also `type`, text,
        and `id`, int32, the id in the type; and `value`, the sum of what its features add."""
        of_type = {} if self.schema is None else _columns("type", "id", self.schema, self.nodes)
        return {"node": self.nodes, **of_type, "value": self._values()}

    def _values(self) -> np.ndarray:
        """float32 `[n]`: what the features of each node add."""
        if not isinstance(self.features, dict):
            return self.features.sum(axis=1)
        assert self.schema is not None
        kinds, value = named(self.schema, self.nodes)[0], np.zeros(self.nodes.size, np.float32)
        for name, rows in self.features.items():
            value[kinds == name] = rows.sum(axis=1)
        return value

    def edge_table(self) -> dict[str, np.ndarray]:
        """Columns `[m]` with a row for each edge: `src`, `dst`, `hop`, `edge_id`; of a graph
        with types also `src_type`, `src_id`, `dst_type`, `dst_id`, the ends' types and ids in
        the type; where edges have types also `relation`, its name; and `value`, `edges`."""
        table: dict[str, np.ndarray] = {"src": self.src, "dst": self.dst}
        if self.schema is not None:
            table |= _columns("src_type", "src_id", self.schema, self.src)
            table |= _columns("dst_type", "dst_id", self.schema, self.dst)
        if self.schema is not None and self.edge_type is not None:
            names = np.array([name for _, name, _ in self.schema.relations] or [""])
            table["relation"] = names[self.edge_type]
        return table | {"hop": self.hop, "edge_id": self.edge_id, "value": self.edges}

    def _facts(self) -> dict[str, str]:
        name = ""
        if self.schema is not None:
            kinds, places = named(self.schema, np.array([self.node], np.int32))
            name = f"{kinds[0]} {places[0]}"
        rows = self.features if isinstance(self.features, dict) else {"": self.features}
        widths = [f"{kind} {own.shape[1]:,}".lstrip() for kind, own in rows.items()]
        return {
            "node": str(self.node) if self.schema is None else name,
            "target": str(self.target),
            "output": f"{self.output:.4g}",
            "nodes": f"{self.nodes.size:,}",
            "features": ", ".join(widths),
            "edges": f"{self.edges.size:,}",
        }


def _columns(type_: str, id_: str, schema: Schema, ids: np.ndarray) -> dict[str, np.ndarray]:
    return dict(zip((type_, id_), named(schema, ids), strict=True))


def explain(
    model: GNN | RelGT, batch: MiniBatch, x: jax.Array, target: Any, method: str, steps: int
) -> Explanation:
    """The `Explanation` of the output of a batch's seed.

    Args:
      model: the model.
      batch: a batch of one seed, drawn by `jgs.sampling.Neighbors` or `Context`, with
        `edge_id`, and with `degrees` if the model reads them.
      x: float32 `[S, F]`, the rows of `batch.nodes`, or for a `TypedGNN` their `TypedRows`.
      target: the class; None: the class of the largest output.
      method: `"gradient"`: the gradient of the output by a feature, times the feature, and by
        an edge's mask (`GNN.masked`), which is 1. `"integrated"`: integrated gradients
        (Sundararajan, Taly and Yan, "Axiomatic Attribution for Deep Networks", 2017, equation
        1), the mean gradient on the straight path from zeros. The path of the features has all
        edges, and that of the masks, of all edges together, the features as they are. Up to the
        error of the pieces, the attributions to features add up to the output minus the output
        for features of 0, and those to edges to the output minus that without messages.
      steps: of `"integrated"`: gradients are taken at the middles of so many equal pieces.

    Raises `InputError`.
    """
    check_choice("method", method, METHODS)
    if steps < 1:
        raise InputError("steps must be at least 1", steps, "50 is usual.")
    if isinstance(x, TypedRows):
        if not isinstance(model, TypedGNN | RelGT):
            raise InputError(
                "a model that is explained by features of each node type must be a TypedGNN or "
                "a RelGT",
                type(model).__name__,
                "Make it of relation layers, jgs.models.TypedGNN.",
            )
        x = model.inputs.by_type(x)
    graphdef, params = nnx.split(model)
    outputs = np.asarray(_outputs(graphdef, params, batch, x))[0]
    if target is None:
        target = int(np.argmax(outputs))
    if not 0 <= target < outputs.size:
        raise InputError(
            f"target must be a class from 0 to {outputs.size - 1}",
            target,
            "Leave it out for the predicted one.",
        )
    pieces = 0 if method == "gradient" else steps
    of_x, of_masks = _gradients(graphdef, params, batch, x, target, pieces)
    drawn = drawn_edges(batch)
    edges, ids = np.zeros(drawn.src.size, np.float32), np.zeros(drawn.src.size, np.int64)
    for layer, block in enumerate(batch.blocks):
        here = drawn.layer == layer
        edges[here] = np.asarray(of_masks[layer])[drawn.place[here]]
        ids[here] = np.asarray(block.edge_id)[drawn.place[here]]
    num, hop = int(batch.blocks[0].num_sources), drawn.hop
    if batch.tokens is not None:  # padding stands at the end
        num, place = int(batch.tokens.mask.sum()), np.asarray(batch.blocks[0].indices)
        hop = np.asarray(batch.tokens.hop)[0, place[: hop.size]] - 1
    return Explanation(
        node=int(batch.seeds[0]),
        target=int(target),
        output=float(outputs[target]),
        nodes=np.asarray(batch.nodes)[:num],
        features=_of_nodes(batch, jax.tree.map(jnp.multiply, of_x, x), num),
        src=drawn.src,
        dst=drawn.dst,
        hop=hop,
        edge_id=ids,
        edges=edges,
    )


def _of_nodes(batch: MiniBatch, rows: Any, num: int) -> Any:
    """The first `num` of `rows`; of a matrix for each node type the rows of its nodes."""
    if not isinstance(rows, tuple):
        return np.asarray(rows)[:num]
    assert batch.schema is not None
    kind = batch.schema.numbers(np.asarray(batch.nodes)[:num])
    each = zip(batch.schema.node_types, rows, strict=True)
    return {name: np.asarray(own)[:num][kind == t] for t, ((name, _), own) in enumerate(each)}


@partial(jax.jit, static_argnums=0)
def _outputs(graphdef: Any, params: Any, batch: MiniBatch, x: Any) -> jax.Array:
    return nnx.merge(graphdef, params)(batch, x)


@partial(jax.jit, static_argnums=(0, 5))
def _gradients(
    graphdef: Any, params: Any, batch: MiniBatch, x: Any, target: Any, steps: int
) -> tuple[Any, tuple[jax.Array, ...]]:
    """The gradients by `x` and the masks, or their means over `steps` pieces of the paths."""
    model = nnx.merge(graphdef, params)
    ones = tuple(jnp.ones(block.edge_capacity) for block in batch.blocks)

    def output(x: Any, masks: tuple[jax.Array, ...]) -> jax.Array:
        return model.masked(batch, x, masks)[0, target]

    if steps == 0:
        return jax.grad(output, argnums=(0, 1))(x, ones)

    def add(i: jax.Array, total: Any) -> Any:
        share = (i + 0.5) / steps
        less_x, less = jax.tree.map(lambda a: a * share, (x, ones))
        of_x = jax.grad(output)(less_x, ones)
        of_masks = jax.grad(output, argnums=1)(x, less)
        return jax.tree.map(lambda a, b: a + b / steps, total, (of_x, of_masks))

    zero = jax.tree.map(jnp.zeros_like, (x, ones))
    return jax.lax.fori_loop(0, steps, add, zero)


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
        rows = _sampled_outputs(*nnx.split(model), draw(some), features, degrees)
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
def _sampled_outputs(
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
