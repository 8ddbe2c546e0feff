"""Explanations of an output: attributions to the features and edges of a neighbourhood."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jgs.errors import InputError, check_choice
from jgs.graph import MiniBatch, Schema, TypedRows
from jgs.graph.foreign import drawn_edges
from jgs.graph.shown import Shown
from jgs.models import GNN, RelGT, TypedGNN
from jgs.predict.ids import named

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
