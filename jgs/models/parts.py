"""What layers are made of: checks of widths, weight matrices, the call in three steps, and the
encoding of times; what a layer reads of a block's edges, their columns, and a message for each
of them; and of typed graphs a matrix for each relation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jgs.arrays import is_real, require_array
from jgs.errors import InputError
from jgs.graph import Block, Schema
from jgs.graph.batch import AGELESS, Control
from jgs.models.layer import by_each_edge
from jgs.ops import Runs, aggregate, gather, linear, runs_of
from jgs.ops.checks import check_sources
from jgs.ops.linear import finish
from jgs.options import Option
from jgs.settings import exact_integers, usual_promotion

# For each number of an edge a mean, which is taken off, and a factor; (): as they are.
EdgeScales = Sequence[tuple[float, float]]


class EdgeOptions(TypedDict, total=False):
    """The arguments of layers that are `ReadsEdges`, and of their stacks."""

    edge_columns: tuple[str, ...]
    edge_width: int
    edge_scales: EdgeScales


def read_edges(layer: Any, block: Block) -> dict[str, jax.Array]:
    """The columns `[E, ...]` of `block` that `layer` declares, by name. Padding holds copies of
    the first edge. Raises `InputError` where the block lacks a column."""
    found, reader = block.edge_arrays(), type(layer).__name__
    for name in layer.edge_columns:
        if name not in found:
            raise InputError(
                f"a block must have the edge column {name!r}, which {reader} reads",
                ", ".join(found) or "no edge columns",
                f"Ask the sampler for it: edges=({name!r},).",
            )
    return {name: _with_finite_padding(block, found[name]) for name in layer.edge_columns}


def on_edges(layer: Any, block: Block, message: jax.Array) -> tuple[Block, jax.Array]:
    """The block and the rows that `layer` reduces, from the sources' rows `message` `[S, P]`.
    In an `EdgeLayer` they are a block whose sources are the edges, and the edges' messages. In
    other layers these are `block` and `message` themselves."""
    if not by_each_edge(layer):
        return block, message
    rows = _with_finite_padding(block, gather(message, block.indices))
    rows = layer.edge_message(rows, read_edges(layer, block))
    what = f"what edge_message of {type(layer).__name__} returns"
    remedy = "Set message_width to the width of an edge's message."
    sizes = {"E": block.edge_capacity, "W": layer.message_width}
    require_array(what, rows, "[E, W], as its message_width says", remedy, **sizes)
    if block.control is not None:
        sources = gather(block.control.sources, block.indices)
        control = Control(padded_edges(block, sources), block.control.targets)
        block = replace(block, control=control)
    return by_edge(block), padded_edges(block, rows)


def by_edge(block: Block) -> Block:
    """The same rows of edges, where each edge is a source of its own. `padded_edges` makes
    matrices for it."""
    each = jnp.arange(block.edge_capacity, dtype=jnp.int32)
    return replace(block, indices=each, num_sources=block.num_edges, source_capacity=None)


def padded_edges(block: Block, rows: jax.Array) -> jax.Array:
    """`rows` `[E, ...]`, with more rows where `block` has more targets than edges, because a
    matrix has a row for every target."""
    return jnp.pad(rows, ((0, max(block.target_capacity - rows.shape[0], 0)), (0, 0)))


def mean_by_source(block: Block, rows: jax.Array, num_sources: int) -> jax.Array:
    """float32 `[S, M]`: the mean of `rows` `[E, M]` over the edges from each source."""
    total = jax.ops.segment_sum(rows, block.indices, num_sources)
    count = jax.ops.segment_sum(jnp.ones_like(rows[:, :1]), block.indices, num_sources)
    return total / jnp.maximum(count, 1)


class ReadsEdges:
    """A layer that reads the features of edges, `e` in its equations.

    Fields:
      features: the names of the edge columns that together are `e`.
      edge_columns: those and others that the layer reads.
      edge_width: how many numbers the features hold for each edge.
      edge_scales: pairs (mean, factor), one for each of these numbers: `e` is
        `(number - mean) * factor`. (): `e` are the numbers.
    """

    features: tuple[str, ...]
    edge_columns: tuple[str, ...]
    edge_width: int
    edge_scales: EdgeScales

    def reads(
        self,
        *others: str,
        edge_columns: Iterable[str] = (),
        edge_width: int = 0,
        edge_scales: EdgeScales = (),
    ) -> None:
        """Sets these fields, from the `EdgeOptions` of a layer and the names of `others` that
        it reads. Raises `InputError`."""
        features, width, scales = edge_columns, edge_width, edge_scales
        if isinstance(features, str):
            raise InputError(
                "edge_columns must be a tuple of names",
                repr(features),
                f"Write ({features!r},).",
            )
        names = tuple(features)
        if width < 0 or bool(names) != (width > 0):
            raise InputError(
                "edge_width must be how many numbers the edge_columns hold for each edge",
                f"{width} for {names}",
                "Give both, as in edge_columns=('dist',), edge_width=1, or neither.",
            )
        found = tuple((float(mean), float(factor)) for mean, factor in scales)
        if found and len(found) != width:
            raise InputError(
                "edge_scales must have a pair for each number of an edge",
                f"{len(found)} for edge_width {width}",
                "Give a mean and a factor for each, or leave it out.",
            )
        self.features, self.edge_columns = names, (*others, *names)
        self.edge_width, self.edge_scales = width, found

    def of_edges(self, edge: dict[str, jax.Array]) -> jax.Array:
        """`e`, float32 `[n, edge_width]`, from columns of edges."""
        own = {name: edge[name] for name in self.features}
        return joined(own, self.edge_width, self.edge_scales)


def joined(edge: dict[str, jax.Array], width: int, scales: EdgeScales = ()) -> jax.Array:
    """The columns side by side, float32 `[n, width]`, scaled by the `EdgeScales`: numbers of 64
    bits as float64, so that what is far from 0 keeps digits. Raises `InputError` for another
    width."""
    columns = [c.reshape(c.shape[0], math.prod(c.shape[1:])) for c in edge.values()]
    found = sum(column.shape[1] for column in columns)
    if found != width:
        raise InputError(
            f"edge_width must be the numbers of an edge in {', '.join(edge)} together, {found}",
            width,
            "Build the layer with this edge_width.",
        )
    if not scales:
        return jnp.hstack([column.astype(jnp.float32) for column in columns])
    ends = np.cumsum([column.shape[1] for column in columns])
    with exact_integers():
        scaled = []
        for column, own in zip(columns, np.split(np.array(scales), ends[:-1]), strict=True):
            kind = np.float64 if column.dtype.itemsize == 8 else np.float32
            mean, factor = own.T.astype(kind)
            scaled.append(((column.astype(kind) - mean) * factor).astype(jnp.float32))
        return jnp.hstack(scaled)


def _with_finite_padding(block: Block, array: jax.Array) -> jax.Array:
    """`array` `[E, ...]` with copies of the first edge's entry in padding, and 1 if there is no
    edge. What a layer computes of padding gets a gradient of 0, and 0 * NaN would be NaN in a
    weight's gradient. A function that is finite on the real edges is finite on copies of them;
    it need not be at 0, as a logarithm is not."""
    with exact_integers():  # positions and times are 64-bit
        real = jnp.arange(array.shape[0]) < block.num_edges
        first = array[:1]
        first = jnp.where(block.num_edges > 0, first, jnp.ones_like(first))
        return jnp.where(real.reshape(-1, *[1] * (array.ndim - 1)), array, first)


ELAPSED = "elapsed"  # the edge column that layers encode
TimeWidth = Annotated[
    int, Option("the number of cosines that encode a time", least=1, most=1 << 12)
]
TimeUnit = Annotated[
    float, Option("what times are divided by, e.g. 86400 to have days of seconds", above=0)
]
# A program for each shape, instead of one for each operation.
_glorot = jax.jit(
    nnx.initializers.variance_scaling(2.0, "fan_avg", "uniform"), static_argnums=1
)


def check_widths(**widths: int) -> None:
    """Raises `InputError` unless each width, by its argument's name, is a positive int."""
    for name, width in widths.items():
        if not isinstance(width, int | np.integer) or width < 1:
            rule, remedy = f"{name} must be at least 1, and whole", "Give a positive int."
            raise InputError(rule, repr(width), remedy)


def check_heads(num_heads: int, **widths: int) -> None:
    """Raises `InputError` unless `num_heads` heads share each width equally."""
    check_widths(num_heads=num_heads)
    for name, width in widths.items():
        if width % num_heads != 0:
            raise InputError(
                f"{name} must be a multiple of num_heads, which share it",
                f"{width} features, {num_heads} heads",
                "Give the width of all heads together.",
            )


def check_rates(**rates: float) -> None:
    """Raises `InputError` unless each rate of dropout, by its argument's name, is in [0, 1)."""
    for name, rate in rates.items():
        if not is_real(rate) or not 0 <= rate < 1:
            raise InputError(f"{name} must be in [0, 1)", repr(rate), "0 switches it off.")


def glorot(rngs: nnx.Rngs, shape: tuple[int, int]) -> nnx.Param:
    """A weight matrix of `shape`, drawn Glorot uniform with a gain of sqrt(2)."""
    return nnx.Param(_glorot(rngs.params(), shape))


def check_width(x: jax.Array, in_features: int) -> None:
    form = "[S, F], with the layer's input features"
    remedy = "Build the model with in_features = features.shape[1]."
    require_array("x", x, form, remedy, F=in_features)


def zero_unless(real: jax.Array | None, x: jax.Array) -> jax.Array:
    """The first `len(real)` rows of `x`, with zeros where `real` is False. With `real` None it
    is `x` itself.

    Rows that are not real must enter no product: 0 * NaN would be NaN in a weight's gradient.
    """
    return x if real is None else jnp.where(real[:, None], x[: real.shape[0]], 0)


class Conv(nnx.Module):
    """A layer in three steps: messages, at its sources or at its edges, a reduction by
    `jgs.ops.aggregate`, and an update. A subclass has `update`, and says what else it has of
    the contract `jgs.models.Layer`. Where it `projects_first` it has a `message`, or the matrix
    of its neighbours under the name that `message_kernel` says."""

    reduce, uses_degrees, takes_inputs = "mean", False, False
    edge_columns: tuple[str, ...] = ()
    message_kernel = "neighbor_kernel"

    @property
    def projects_first(self) -> bool:
        return False

    def message(self, x, num_sources=None, degree=None):
        """The rows to aggregate: `x` itself or, if `projects_first`, its product."""
        if not self.projects_first:
            return x
        return linear([x], [getattr(self, self.message_kernel)[...]], None, num_sources)

    def __call__(self, block: Block, x: Any, real=None, *, degree=None, **after: Any):
        layer: Any = self
        check_width(x, layer.in_features)
        own = x if real is None else zero_unless(real[: block.target_capacity], x)
        if layer.projects_first:
            x = zero_unless(real, x)
        message = layer.message(x, block.num_sources, degree)
        aggregated = aggregate(*on_edges(layer, block, message), layer.reduce)
        return layer.update(own, aggregated, block.num_targets, degree, **after)


class TimeEncoding(nnx.Module):
    """Encodes times: `encode(elapsed)`, float32 `[n, width]` from `[n]`, is
    `cos(elapsed / unit * w + b)`.

    With `learned` it is the functional encoding of TGAT (Xu et al., "Inductive Representation
    Learning on Temporal Graphs", 2020, section 3.2), which Bochner's theorem suggests: `w` and
    `b` are learned, and at first `w[i] = 10**(-9 i / (width - 1))` and `b = 0`. The parameter
    is the logarithm of `w`. A step of Adam moves a parameter by about its rate, such as 1e-3,
    which would wipe out a `w` of 1e-6.

    An edge that was always there has no age: its `elapsed` is 2**63, and its encoding zeros.

    Without `learned` it is the encoding of GraphMixer (Cong et al., "Do We Really Need
    Complicated Model Architectures For Temporal Networks?", 2023, section 3.1):
    `w[i] = sqrt(width)**(-i / sqrt(width))` is not learned, and there is no `b`. Here `i`
    counts from 0.

    Args:
      width: the number of cosines.
      unit: what `elapsed` is divided by, such as 86,400 for days where times are in seconds. A
        float32 has 24 bits: the phase of `elapsed / unit * w[i]` is lost from about 10**7 on,
        and the cosine is then noise. Lower frequencies are right.
      learned: see above.

    Raises `InputError` for a width below 1 and for a unit that is not positive.
    """

    def __init__(self, width: int, *, unit: float = 1.0, learned: bool = True):
        check_widths(width=width)
        if not 0 < unit < np.inf:
            raise InputError("the unit of times must be above 0", unit, "Give e.g. 86400.0.")
        self.width, self.unit, self.learned = width, float(unit), learned
        if learned:
            frequency = (10.0 ** -np.linspace(0, 9, width)).astype(np.float32)
            self.log_frequency = nnx.Param(jnp.log(jnp.asarray(frequency)))
            self.phase = nnx.Param(jnp.zeros(width))

    @usual_promotion()
    def __call__(self, elapsed: jax.Array) -> jax.Array:
        aged = (elapsed < AGELESS)[:, None]
        # Masked before the cosine too, whose derivative would be as large as the time.
        scaled = jnp.where(aged, elapsed.astype(jnp.float32)[:, None], 0) / np.float32(
            self.unit
        )
        if not self.learned:
            root = np.sqrt(self.width)
            frequency = root ** (-np.arange(self.width) / root)
            return jnp.where(aged, jnp.cos(scaled * frequency.astype(np.float32)), 0)
        phase = scaled * jnp.exp(self.log_frequency[...]) + self.phase[...]
        return jnp.where(aged, jnp.cos(phase), 0)


def matrices(rngs: nnx.Rngs, *shape: int, gain: float = 2**0.5) -> nnx.Param:
    """Matrices of `shape` `[..., in, out]`, each drawn Glorot uniform with this gain."""
    axes = tuple(range(len(shape) - 2))
    scale = gain**2
    draw = nnx.initializers.variance_scaling(scale, "fan_avg", "uniform", batch_axis=axes)
    return nnx.Param(jax.jit(draw, static_argnums=1)(rngs.params(), shape))


def relations_of(schema: Schema) -> int:
    """The number of relations; raises `InputError` where there are none."""
    if not schema.relations:
        raise InputError(
            "the schema of a model of relations must have some",
            "none",
            "Pass the schema of a typed graph, graph.schema.",
        )
    return len(schema.relations)


def from_edges(edges: Block) -> Block:
    """The same rows of edges, where each edge is a source of its own."""
    each, num = jnp.arange(edges.edge_capacity, dtype=jnp.int32), edges.num_edges
    capacity = edges.edge_capacity
    return replace(
        edges, indices=each, num_sources=num, source_capacity=capacity, edge_weight=None
    )


class RelationConv(nnx.Module):
    """A layer that reduces the edges of each run by `jgs.ops.aggregate`. A subclass has
    `update`, and says what else it has of the contract `jgs.models.RelationLayer`: one with
    more `edge_columns` has `edge_message`."""

    reduce, run_reduce = "relations", "mean"
    projects_first, uses_degrees, uses_types, takes_inputs = False, False, False, False
    edge_columns: tuple[str, ...] = ("type",)
    in_features: int
    num_relations: int
    self_loop: bool
    self_kernel: nnx.Param
    bias: nnx.Param

    def __call__(self, block: Block, x: Any, real=None, *, degree=None, **after: Any):
        layer: Any = self
        check_width(x, self.in_features)
        edges, rows = on_edges(self, block, x)
        runs = runs_from(edges, rows, self.num_relations)
        own = x if real is None else zero_unless(real[: block.target_capacity], x)
        reduced = aggregate(runs.edges, rows, self.run_reduce)
        return layer.update(own, runs.slots, reduced, block.num_targets, **after)

    def message(self, x, num_sources=None, degree=None, kind=None):
        """`x` itself."""
        return x

    def with_own(self, own, summed, num_targets=None, **after: Any) -> jax.Array:
        """The output: the bias, what the runs of each target sum to, `[T, out]`, and with
        `self_loop` the product of the target's own row."""
        if not self.self_loop:
            return finish(summed + self.bias[...], num_targets, **after)
        kernels, bias = [self.self_kernel[...]], self.bias[...]
        return linear([own], kernels, bias, num_targets, add=summed, **after)


def runs_from(block: Block, x: jax.Array, num_relations: int) -> Runs:
    """The runs of `block`, whose sources have the rows `x`."""
    if block.source_capacity is None:
        check_sources(x, block)
        block = replace(block, source_capacity=x.shape[0])
    return runs_of(block, num_relations)
