"""Edge columns in the blocks of a batch, with NaN in padding, and layers that read them."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from modules import exact, module

from jgs import Graph
from jgs.models import GNN, GATConv, GINEConv
from jgs.models.parts import Conv, glorot
from jgs.ops import linear

TIME = 1 << 40


def with_columns(graph, block, fill=np.nan):
    """`block`, which has `edge_id`, with all columns of `graph` too."""
    fields = {"weight": graph.edge_weight, "type": graph.edge_type, "time": graph.edge_time}
    arrays = {n: a for n, a in fields.items() if a is not None} | graph.edge_columns

    def of_edges(array):
        fill_with = fill if jnp.issubdtype(array.dtype, jnp.floating) else -9
        if isinstance(block.edge_id, jax.core.Tracer):
            return jnp.asarray(array).at[block.edge_id].get(mode="fill", fill_value=fill_with)
        rows = np.concatenate([array, np.full_like(array[:1], fill_with)])
        return jnp.asarray(rows[np.minimum(block.edge_id, len(array))])

    with jax.enable_x64(True):
        found = {name: of_edges(array) for name, array in arrays.items()}
    return block.with_edge_arrays({"id": block.edge_id} | found)


def batch_with_columns(graph, batch, fill=np.nan):
    """`batch` with these columns in every block."""
    blocks = tuple(with_columns(graph, block, fill) for block in batch.blocks)
    return replace(batch, blocks=blocks)


class Near(Conv):
    """`W [x_v ; r]`, where `r` reduces `log(d) a x_u + t b x_u + w c` over the edges into
    `v`: `d`, `t` and `w` are an edge's distance, time and weight. At 0 the logarithm is not
    finite, and a time takes 64 bits. It keeps `jgs.models.EdgeLayer`."""

    projects_first, edge_columns = True, ("dist", "time", "weight")

    def __init__(self, width, out, reduce, rngs, between=3):
        self.in_features, self.out_features, self.reduce = width, out, reduce
        self.message_width = between
        self.source_kernel = glorot(rngs, (width, 2 * between))  # a and b
        self.edge_row = glorot(rngs, (1, between))  # c
        self.kernel = glorot(rngs, (width + between, out))

    def message(self, x, num_sources=None, degree=None):
        return linear([x], [self.source_kernel[...]], None, num_sources)

    def edge_message(self, message, edge):
        with jax.enable_x64(True):
            times = (edge["time"] - TIME).astype(jnp.float32)
        of_dist, of_time = jnp.split(message, 2, axis=1)
        near = jnp.log(edge["dist"]) * of_dist + times[:, None] * of_time
        return near + edge["weight"][:, None] * self.edge_row[...]

    def update(self, own, aggregated, num_targets=None, degree=None, *, relu=False, drop=None):
        kernels = jnp.split(self.kernel[...], [self.in_features])
        return linear([own, aggregated], kernels, None, num_targets, relu=relu, drop=drop)

    def dense(self, graph, x):
        """The output for all nodes, in float64 NumPy."""
        src, dst = graph.edge_index()
        source, edge_row, kernel = map(exact, (self.source_kernel, self.edge_row, self.kernel))
        of_dist, of_time = np.split(x[src] @ source, 2, axis=1)
        times = (np.asarray(graph.edge_time) - TIME)[:, None]
        message = np.log(np.asarray(graph.edge_columns["dist"], np.float64)) * of_dist
        message += times * of_time + np.asarray(graph.edge_weight)[:, None] * edge_row
        reduced = np.zeros((len(x), self.message_width))
        for v in np.unique(dst):
            own = message[dst == v]
            reduced[v] = {"sum": np.sum, "mean": np.mean, "max": np.max}[self.reduce](own, 0)
        return np.hstack([x, reduced]) @ kernel


def edge_graph(num_nodes=50, seed=0):
    """A hub (node 7), isolated nodes (the last five), weights, times of 64 bits, distances."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, num_nodes - 5, (2, 150))
    src, dst = np.r_[src, rng.integers(0, num_nodes - 5, 200)], np.r_[dst, np.full(200, 7)]
    columns = {"dist": rng.uniform(0.1, 3, (src.size, 1)).astype(np.float32)}
    weight, time = rng.uniform(0.5, 2, src.size), TIME + rng.integers(0, 3, src.size)
    return Graph.from_edges(src, dst, num_nodes, weight, edge_columns=columns, edge_time=time)


def edge_model(reduce, widths=(6, 8, 4), **options):
    """A layer of each kind, `Near` and a `GINEConv`. Both read the weights."""
    edges = {"edge_columns": ("dist", "weight"), "edge_width": 2}

    def make(rngs):
        near, gine = (
            Near(*widths[:2], reduce, rngs),
            GINEConv(*widths[1:], 5, **edges, rngs=rngs),
        )
        return GNN([near, gine], rngs=rngs, **options)

    return module(make)


def attention_model(version, widths=(6, 8, 4), **options):
    """Layers of attention that read edges, with self-loops and without."""
    edges = {"edge_columns": ("dist", "weight"), "edge_width": 2, "version": version}

    def make(rngs):
        first = GATConv(*widths[:2], 2, **edges, rngs=rngs)
        last = GATConv(*widths[1:], 3, concat=False, self_loops=False, **edges, rngs=rngs)
        return GNN([first, last], rngs=rngs, **options)

    return module(make)


def dense_model(model, graph, x):
    """`edge_model` by its definition, in float64 NumPy."""
    near, gine = model.layers
    h = np.maximum(near.dense(graph, np.asarray(x, np.float64)), 0)
    src, dst = graph.edge_index()
    edge, total = np.hstack([graph.edge_columns["dist"], graph.edge_weight[:, None]]), h.copy()
    message = h[src] + edge @ exact(gine.edge_kernel) + exact(gine.edge_bias)
    np.add.at(total, dst, np.maximum(message, 0))
    hidden = np.maximum(total @ exact(gine.hidden_kernel) + exact(gine.hidden_bias), 0)
    return hidden @ exact(gine.kernel) + exact(gine.bias)
