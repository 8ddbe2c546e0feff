"""`GNN`: a stack of message-passing layers, in Flax NNX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jgs.arrays import require_array
from jgs.errors import InputError, check_choice
from jgs.graph import MiniBatch
from jgs.kernels.call import floats
from jgs.models.inputs import Inputs, Placed
from jgs.models.layer import Layer, attends, uses_types
from jgs.models.masked import masked_layer
from jgs.models.parts import check_rates, check_width, mean_by_source, on_edges, zero_unless
from jgs.ops import REDUCTIONS, aggregate, dropout_mask
from jgs.ops import dropout as drop_units
from jgs.options import Option, joint_signature

NORMS = (None, "layer", "l2")
ACTIVATIONS = {"relu": nnx.relu, "elu": nnx.elu, "none": lambda h: h}
Reduce = Annotated[str, Option("how a node combines its neighbours", choices=REDUCTIONS)]
Heads = Annotated[
    int, Option("the number of heads of every hidden layer", least=1, most=1 << 10)
]


class GNN(nnx.Module):
    """A model of several layers, with normalisation, activation and dropout between them.

    Args:
      layers: at least one. Each keeps the contract `jgs.models.Layer`, and its `out_features`
        are the next one's `in_features`.
      dropout: rate on each hidden layer's output, after the activation.
      input_dropout: rate on the input rows.
      attention_dropout: rate on the attention weights of layers that have them; None:
        `dropout`'s.
      norm: of the hidden layers. `"layer"` is a LayerNorm before the activation. `"l2"` divides
        each row by its Euclidean norm after the activation, as line 7 of GraphSAGE's Algorithm
        1 does. None is no normalisation.
      activation: of the hidden layers, `"relu"`, `"elu"` or `"none"`.
      rngs: its `params` stream makes the norms' weights. The model keeps nothing of `rngs`.

    `model(batch, x, key=None)` returns `[B, out]`, one row for each seed slot. Rows of padding
    are finite and have no meaning. All rows are NaN where the batch has overflowed. Dropout is
    on exactly when a `key` is given, and depends on `(key, layer, node, unit)` alone (see
    `jgs.ops.dropout`). `x` is one of these; the results are equal to rounding:

    - `jgs.ops.gather(features, batch.nodes)`, a matrix `[S, in]`. Its rows beyond the real
      nodes change neither result nor gradient.
    - `read_inputs(features, batch, model.input_reduce)`, of a batch sampled with
      `relabel_inputs=False`. This is faster, and possible where `input_reduce` is not None.
    - `jgs.models.Placed`, which names the tables where these rows lie. Where `input_reduce` is
      not None the first layer reads them there directly.

    Layers that read degrees need `batch.degrees` (see `batch.with_degrees`). Layers that read
    edges need blocks with `edge_columns`, and those that read nodes' types need `batch.schema`.

    Raises `InputError` where the batch has another number of blocks or `x` another shape, and
    for `Inputs` together with `input_dropout`, which needs the rows that `Inputs` do not hold.
    """

    timed = False  # whether it is for seeds with times alone, and has no exact evaluation
    head: Callable[[jax.Array], jax.Array] | None = None  # of the last layer's rows [T, out]

    def __init__(
        self,
        layers: Sequence[Any],
        *,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        attention_dropout: float | None = 0.0,
        norm: str | None = None,
        activation: str = "relu",
        rngs: nnx.Rngs,
    ):
        _check_layers(layers)
        if norm not in NORMS:
            raise InputError(
                f"norm must be one of {NORMS}", repr(norm), "Give None for no norm."
            )
        check_choice("activation", activation, ACTIVATIONS)
        attention_dropout = dropout if attention_dropout is None else attention_dropout
        rates = {"dropout": dropout, "input_dropout": input_dropout}
        check_rates(**rates, attention_dropout=attention_dropout)
        self.dropout, self.input_dropout = dropout, input_dropout
        self.attention_dropout = attention_dropout
        self.norm, self.activation = norm, activation
        self.layers = nnx.List(layers)
        hidden = layers[:-1] if norm == "layer" else ()
        self.norms = nnx.List([nnx.LayerNorm(one.out_features, rngs=rngs) for one in hidden])

    @property
    def input_reduce(self) -> str | None:
        """The `reduce` that `read_inputs` must use for the first layer; None where that layer
        needs the rows of all input nodes."""
        first: Layer = self.layers[0]
        return first.reduce if first.takes_inputs and self.input_dropout == 0 else None

    @property
    def uses_degrees(self) -> bool:
        """Whether a layer reads `batch.degrees`."""
        return any(layer.uses_degrees for layer in self.layers)

    @property
    def edge_columns(self) -> tuple[str, ...]:
        """The names of the edge columns that the layers read. A sampler is asked for them by
        `edges=model.edge_columns`."""
        return tuple(dict.fromkeys(name for one in self.layers for name in one.edge_columns))

    def __call__(self, batch: MiniBatch, x: Any, *, key: jax.Array | None = None) -> jax.Array:
        if not batch.square and len(batch.blocks) != len(self.layers):
            raise InputError(
                "a batch must have one block for each layer of the model",
                f"{len(batch.blocks)} blocks for {len(self.layers)} layers",
                "Sample with one fanout for each layer.",
            )
        return self._run(batch, x, key, lambda i, layer, *of, **options: layer(*of, **options))

    def observed(
        self,
        batch: MiniBatch,
        x: jax.Array,
        probes: Sequence[jax.Array],
        *,
        key: jax.Array | None = None,
    ) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        """The output of `model(batch, x, key=key)`, to rounding, and every layer's messages
        float32 `[S, M]`, which are finite in padding. Adaptive samplers learn from these. Of an
        `EdgeLayer` they are the means of the messages on each source's drawn edges.

        Args:
          x: the rows of all input nodes `[S, in]`, or `Placed`; `Inputs` are refused.
          probes: float32 `[T, M]` for each layer, with `M` of `message_widths`. They are added
            to the aggregated rows, so that the derivative by probes of zeros is the derivative
            by the aggregated rows.

        Raises `InputError` as a call does, and for a layer with attention.
        """
        if isinstance(x, Inputs):
            raise InputError(
                "a model is observed on the rows of all input nodes",
                "Inputs",
                "Pass jgs.ops.gather(features, batch.nodes).",
            )
        self._check_observable()
        x = x.rows() if isinstance(x, Placed) else x
        messages = []

        def three_steps(i, layer, block, x, real, degree=None, relu=False, drop=None):
            x = zero_unless(real, x)
            message = layer.message(x, block.num_sources, degree)
            reduced_block, rows = on_edges(layer, block, message)
            aggregated = aggregate(reduced_block, rows, layer.reduce) + probes[i]
            if layer.edge_columns:
                rows = mean_by_source(block, rows[: block.edge_capacity], x.shape[0])
            messages.append(rows)
            return layer.update(x, aggregated, block.num_targets, degree, relu=relu, drop=drop)

        return self._run(batch, x, key, three_steps), tuple(messages)

    def masked(self, batch: MiniBatch, x: jax.Array, masks: Sequence[jax.Array]) -> jax.Array:
        """The output of `model(batch, x)`, to rounding, with the message of edge `e` of layer
        `i` multiplied by `masks[i][e]`; see `jgs.models.masked`. Explanations use it: it is
        differentiable in `x` and in the masks.

        Args:
          x: float32 `[S, in]`, the rows of all input nodes.
          masks: float32 `[E]` for each layer.

        Raises `InputError` as a call does.
        """

        def apply(i, layer, block, x, real, degree=None, relu=False, **types):
            return masked_layer(layer, masks[i], block, x, real, degree, relu, **types)

        return self._run(batch, x, None, apply)

    @property
    def message_widths(self) -> tuple[int, ...]:
        """The width `M` of every layer's messages. Raises `InputError` for a layer with
        attention or relations."""
        self._check_observable()
        widths = []
        for layer in self.layers:
            if layer.edge_columns:
                widths.append(layer.message_width)
                continue
            one, degree = floats((1, layer.in_features)), jax.ShapeDtypeStruct((1,), jnp.int32)
            message = jax.eval_shape(lambda x, d, of=layer: of.message(x, None, d), one, degree)
            widths.append(message.shape[1])
        return tuple(widths)

    def _check_observable(self) -> None:
        for i, layer in enumerate(self.layers):
            if layer.reduce in ("attention", "relations"):
                raise InputError(
                    "an adaptive sampler must have layers that reduce without attention or "
                    "relations",
                    f"{type(layer).__name__}, layer {i}",
                    "Choose GraphSAGE, GCN or GIN, or a sampler that does not learn.",
                )

    def _run(
        self, batch: MiniBatch, x: Any, key: jax.Array | None, apply: Callable[..., jax.Array]
    ) -> jax.Array:
        """The model's outputs; `apply(i, layer, ...)` computes layer number `i`."""
        x, real = self._enter(batch, x, key)
        degree, fused = batch.degrees, self.norm is None and self.activation == "relu"
        sources, kind = batch.nodes, self._kind(batch)
        for i, layer in enumerate(self.layers):
            block, nodes = batch.block(i), batch.target_nodes(i)
            options: dict[str, Any] = {"degree": degree} if layer.uses_degrees else {}
            if uses_types(layer):
                options["kind"] = kind
            if attends(layer) and key is not None and self.attention_dropout > 0:
                number = len(self.layers) + i  # the rows' dropout has the lower numbers
                mask = dropout_mask(key, sources, number, self.attention_dropout)
                options["attention_drop"] = mask
            if fused and i < len(self.layers) - 1:
                if key is not None and self.dropout > 0:
                    options["drop"] = dropout_mask(key, nodes, i + 1, self.dropout)
                x = apply(i, layer, block, x, real, relu=True, **options)
            else:
                h = apply(i, layer, block, x, real, **options)
                x = self.activate(i, h, nodes, key)
            real, sources = None, nodes  # from here on all rows are finite
            degree = None if degree is None else degree[: block.target_capacity]
            kind = None if kind is None else kind[: block.target_capacity]
        return batch.of_seeds(x)

    def _kind(self, batch: MiniBatch) -> jax.Array | None:
        """int32 `[S]`: the nodes' types, -1 in padding; None where no layer reads them."""
        reader = next((type(one).__name__ for one in self.layers if uses_types(one)), None)
        if reader is None:
            return None
        if batch.schema is None:
            raise InputError(
                f"a batch must have a schema, of which {reader} reads the nodes' types",
                "none",
                "Sample a typed graph, made with Graph.from_relations.",
            )
        return batch.schema.type_and_place(batch.nodes)[0]

    def _enter(
        self, batch: MiniBatch, x: Any, key: jax.Array | None
    ) -> tuple[Any, jax.Array | None]:
        """The first layer's input, and bool `[S]`, which of its rows are real; None where the
        rows of padding are 0."""
        first, controlled = self.layers[0], batch.block(0).control is not None
        if isinstance(x, Placed) and (self.input_reduce is None or controlled):
            x = x.rows()
        drops = self.input_dropout > 0 and key is not None
        rows, name, wanted = x, "x", batch.nodes.shape[0]
        if isinstance(x, Inputs):
            if drops or not first.takes_inputs:
                reader = "input_dropout" if drops else type(first).__name__
                raise InputError(
                    f"{reader} needs the rows of all input nodes",
                    "Inputs",
                    "Sample with relabel_inputs=True and pass gather(features, batch.nodes).",
                )
            rows, name, wanted = x.own, "Inputs", batch.block(0).target_capacity
        elif isinstance(x, Placed):
            rows, name = x.place, "Placed"
        form = "[n, ...], one row for each of batch.nodes"
        form += ", or, as here, target of the first block" * isinstance(x, Inputs)
        remedy = "Pass jgs.ops.gather(features, batch.nodes) or read_inputs(features, batch)."
        require_array(name, rows, form, remedy, n=wanted)
        if isinstance(x, Placed):
            x = x.inputs(batch, first.reduce)
        check_width(x.own if isinstance(x, Inputs) else x, first.in_features)
        if isinstance(x, Inputs):
            return x, None
        if key is not None:
            x = drop_units(key, x, batch.nodes, 0, self.input_dropout)
        return x, batch.nodes < batch.num_nodes  # seeds may be padded anywhere

    def activate(
        self, i: int, h: jax.Array, nodes: jax.Array | None = None, key: jax.Array | None = None
    ) -> jax.Array:
        """Applies what follows layer `i` to its output `h` `[T, out]`: norm, activation and
        dropout, or after the last layer the model's `head`, if it has one.

        `nodes` int32 `[T]`, the nodes of `h`'s rows, are needed only with a `key`.
        """
        if i == len(self.layers) - 1:
            return h if self.head is None else self.head(h)
        if self.norm == "layer":
            h = self.norms[i](h)
        h = ACTIVATIONS[self.activation](h)
        if self.norm == "l2":
            # A row of zeros stays zero; the maximum keeps its gradient finite.
            h = h * jax.lax.rsqrt(jnp.maximum(jnp.sum(h * h, -1, keepdims=True), 1e-24))
        if key is not None:
            if nodes is None:
                raise InputError(
                    "dropout needs the rows' nodes", nodes, "Pass them, or no key."
                )
            h = drop_units(key, h, nodes, i + 1, self.dropout)
        return h


class Sizes(NamedTuple):
    """The sizes that every `Stack` is made of: widths, and the number of layers."""

    in_features: int
    hidden_features: int
    out_features: int
    num_layers: int

    @property
    def widths(self) -> list[tuple[int, int]]:
        """The input and output widths of each layer; raises `InputError`."""
        if self.num_layers < 1:
            rule = "num_layers must be at least 1"
            raise InputError(rule, self.num_layers, "Give one a hop.")
        hidden = [self.hidden_features] * (self.num_layers - 1)
        return list(pairwise([self.in_features, *hidden, self.out_features]))


class Stack(GNN):
    """A `GNN` that stacks one kind of layer. A subclass has `convs`, which makes the layers.
    What else `convs` takes are arguments of the class, and its options are flags. Keywords of
    the subclass are its own defaults of `GNN`'s arguments: `class Deep(Stack, dropout=0.1)`.

    Args:
      in_features, hidden_features, out_features: widths.
      num_layers: the number of layers, and of a batch's blocks.
      rngs: makes the layers' weights too.
      options: those of `convs`, and those of `GNN`.
    """

    convs: ClassVar[Callable[..., Sequence[Any]]]  # of `Sizes`, and `rngs=` and its options
    _usual: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, **usual: Any):
        super().__init_subclass__()
        cls._usual = cls._usual | usual
        if "convs" in vars(cls) or usual:
            joint = joint_signature(cls.__init__, cls.convs, GNN.__init__, **cls._usual)
            cls.__signature__ = joint  # type: ignore[attr-defined]

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int,
        num_layers: int,
        *,
        rngs: nnx.Rngs,
        **options: Any,
    ):
        sizes = Sizes(in_features, hidden_features, out_features, num_layers)
        self._stack(sizes, rngs, options)

    def _stack(self, sizes: Sizes, rngs: nnx.Rngs, options: dict[str, Any], **given: Any):
        taken = joint_signature(self.convs).parameters.keys() & options.keys()
        of_layers = {name: options.pop(name) for name in taken}
        layers = self.convs(sizes, rngs=rngs, **given, **of_layers)
        GNN.__init__(self, layers, rngs=rngs, **{**self._usual, **options})


def _check_layers(layers: Sequence[Layer]) -> None:
    if not layers:
        raise InputError("a GNN must have at least one layer", "none", "Give one a hop.")
    for i, layer in enumerate(layers):
        names = getattr(layer, "edge_columns", None)
        if not isinstance(names, tuple):
            raise InputError(
                "a layer must say which edge columns it reads: edge_columns, a tuple of names",
                f"{names!r} in {type(layer).__name__}, layer {i}",
                "Write edge_columns = () if it reads none, or edge_columns = ('dist',).",
            )
        if i and layers[i - 1].out_features != layer.in_features:
            raise InputError(
                "a layer's input must be as wide as the output of the layer before it",
                f"{layer.in_features} after {layers[i - 1].out_features}, layer {i}",
                "Give it in_features = the other's out_features.",
            )
