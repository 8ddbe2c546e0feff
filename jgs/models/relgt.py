"""`RelGT`: a relational graph transformer over contexts, in Flax NNX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jgs.arrays import require_array
from jgs.devices import computes_on_cpu
from jgs.errors import InputError
from jgs.graph import MiniBatch, Schema, Tokens, TypedRows
from jgs.models import parts
from jgs.models.gnn import Heads
from jgs.models.inputs import Placed, TypedInputs
from jgs.ops import dropout as drop_units
from jgs.options import Option
from jgs.settings import usual_promotion

Centroids = Annotated[
    int, Option("learned rows that every seed attends to; 0: none", least=0, most=1 << 16)
]
_SIZES = 16  # hops, and powers of two of children, that are told apart
_LEAST = 1e-30  # of a weight, where its logarithm is taken
_LINKS = 4  # how a pair of tokens may be linked: see `RelGT`


class RelGT(nnx.Module):
    """A transformer that reads the contexts of seeds, which `jgs.sampling.Context` draws, as
    Dwivedi et al., "Relational Graph Transformer" (2025), with simpler parts where said.

    1. A token is the sum of its node's features, projected by `TypedInputs` with a matrix for
       each type, and of encodings (section 3.1): rows that are learned for its type, its hop,
       the relation of the edge along which it was reached, and its number of children in the
       context, by powers of two; and a `TimeEncoding` of its age, projected.
    2. Tokens of a context attend to each other (section 3.2.1). The logit of each head has a
       learned bias for a pair of tokens of which one is the other itself, its parent, its child
       or its sibling. With the children this is the local structure, as in Graphormer (Ying et
       al., 2021). RelGT has a small graph network on random marks in its place, by which an
       output would depend on the marks.
    3. The seed attends to learned centroids (section 3.2.2). They are parameters. RelGT's
       follow moving means of clusters.
    4. The seed's row, normalised, is projected to the outputs.

    Blocks are residual and normalise their input (pre-norm); each layer is attention and then
    an MLP of twice the width.

    Args:
      in_features: the width of the features; with a `schema` of those of each node type, 0 for
        a type without features, as for `TypedInputs`.
      hidden_features: the width of tokens, a multiple of `heads`.
      out_features: the number of outputs.
      num_layers: the number of layers of jgs's own blocks.
      heads: of all attention.
      centroids: their number; 0: none.
      time_width, time_unit: `width` and `unit` of the `TimeEncoding`.
      blocks: others in place of jgs's own, in order: each a callable `block(tokens, mask,
        bias)`, whose result `[B, T, hidden_features]` is added to `tokens`, of that shape.
        `mask` bool `[B, 1, 1, T]` says which are real, and `bias` is `[B, heads, T, T]`, both
        as `jax.nn.dot_product_attention` takes them. A block is an `nnx.Module`, or a pytree
        such as an Equinox module, whose arrays, of floats, are then parameters.
      dropout: rate on what each block adds. input_dropout: rate on the projected features.
      norm: must be None.
      dtype: in which blocks compute, such as `jnp.bfloat16`; None: that of the parameters.
      schema: the graph's `Schema`; None: types and relations are not told apart.
      embedding, scales, moments: as in `TypedInputs`.
      rngs: its `params` stream makes the weights.

    `model(batch, x, key=None)` returns float32 `[B, out_features]`, a row for each seed. `x` is
    `jgs.ops.gather(features, batch.nodes)`, or `Placed`. Rows of padding may hold anything:
    they change neither a result nor a gradient, and a result for a seed that is padding is
    finite and has no meaning. All are NaN where the batch has overflowed. Dropout is on exactly
    when a `key` is given, and depends on (key, block, node, unit) alone.

    Raises `InputError` for other sizes, and for a batch without `tokens`.
    """

    timed, typed = False, True
    contextual = True  # it reads `batch.tokens`, and has no exact evaluation
    defaults: ClassVar[dict[str, Any]] = {"lr": 3e-3, "lr_schedule": "warmup_cosine"}
    uses_degrees, input_reduce = False, None
    head: Callable[[jax.Array], jax.Array] | None = None  # of the outputs

    def __init__(
        self,
        in_features: int | Sequence[int],
        hidden_features: int,
        out_features: int,
        num_layers: int = 2,
        *,
        heads: Heads = 4,
        centroids: Centroids = 16,
        time_width: parts.TimeWidth = 16,
        time_unit: parts.TimeUnit = 1.0,
        blocks: Sequence[Any] | None = None,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        norm: str | None = None,
        dtype: Any = None,
        schema: Schema | None = None,
        embedding: bool | None = True,
        scales: Sequence[Sequence[float]] | None = None,
        moments: Sequence[Sequence[tuple[int, int, float, float]]] | None = None,
        rngs: nnx.Rngs,
    ):
        width = hidden_features
        parts.check_widths(out_features=out_features, num_layers=num_layers)
        parts.check_heads(heads, hidden_features=width)
        parts.check_rates(dropout=dropout, input_dropout=input_dropout)
        if norm is not None:
            rule = "norm of RelGT must be None: its blocks normalise their inputs"
            raise InputError(rule, repr(norm), "Leave it out.")
        self.dropout, self.input_dropout, self.dtype = dropout, input_dropout, dtype
        self.heads, self.typed_tokens = heads, schema is not None
        if schema is None:
            in_features, schema = (int(in_features),), Schema((("node", 1),))  # type: ignore
        made: dict[str, Any] = {"embedding": embedding, "scales": scales, "moments": moments}
        self.inputs = TypedInputs(in_features, width, schema=schema, **made, rngs=rngs)  # type: ignore
        relations = max(1, len(schema.relations))
        rows = {"kind": len(schema.node_types), "hop": _SIZES, "children": _SIZES}
        rows["relation"] = relations + 1  # the first is the seed's
        self.encodings = nnx.Dict(
            {name: nnx.Embed(num, width, rngs=rngs) for name, num in rows.items()}
        )
        self.time = parts.TimeEncoding(time_width, unit=time_unit)
        self.age = nnx.Linear(time_width, width, use_bias=False, rngs=rngs)
        self.links = nnx.Param(jnp.zeros((_LINKS, heads)))
        own: dict[str, Any] = {"dtype": dtype, "rngs": rngs}
        if blocks is None:
            blocks = []
            for layer in range(num_layers):
                last = layer == num_layers - 1  # of which the seed's row alone is read
                blocks += [Attention(width, heads, last, **own), MLP(width, **own)]
        self.blocks = nnx.List(
            each if isinstance(each, nnx.Module) else PytreeBlock(each) for each in blocks
        )
        self.num_centroids = centroids
        if centroids:
            self.centroids = nnx.Embed(centroids, width, rngs=rngs)
            self.to_centroids = Attention(width, heads, **own)
        self.last_norm = nnx.LayerNorm(width, rngs=rngs)
        self.last = nnx.Linear(width, out_features, rngs=rngs)

    @property
    def message_widths(self) -> tuple[int, ...]:
        raise InputError(
            "an adaptive sampler must have layers that pass messages",
            type(self).__name__,
            "Choose GraphSAGE, GCN or GIN, or a sampler that does not learn.",
        )

    def __call__(self, batch: MiniBatch, x: Any, *, key: jax.Array | None = None) -> jax.Array:
        return self._outputs(batch, self.rows(batch, x, key=key))

    def _outputs(self, batch: MiniBatch, rows: jax.Array) -> jax.Array:
        out = self.last(rows).astype(jnp.float32)
        out = out if self.head is None else self.head(out)
        return jnp.where(batch.overflow, jnp.nan, out)

    def masked(self, batch: MiniBatch, x: Any, masks: Sequence[jax.Array]) -> jax.Array:
        """The output of `model(batch, x)`, with the weight of a token in all attention, before
        weights are made to sum to 1, multiplied by the mask of the block's edge from it to its
        parent. With masks of 0 the seed is alone. `masks` are one float32 `[E]`. Explanations
        use it: it is differentiable in `x` and in the masks. `x` may be a matrix for each node
        type too, as `TypedInputs.by_type` makes them."""
        edge = batch.block(0).indices
        gates = jnp.ones(batch.nodes.shape[0]).at[edge].set(masks[0], mode="drop")
        return self._outputs(batch, self.rows(batch, x, gates=gates))

    @usual_promotion()
    def rows(
        self,
        batch: MiniBatch,
        x: Any,
        *,
        key: jax.Array | None = None,
        gates: jax.Array | None = None,
    ) -> jax.Array:
        """`[B, hidden_features]`: the seeds' rows, of which the outputs are made. `gates`
        float32 `[B * T]` multiply the weights of tokens in attention."""
        if batch.tokens is None:
            raise InputError(
                f"{type(self).__name__} takes batches with tokens",
                "a batch without",
                "Draw them with jgs.sampling.Context.",
            )
        x = x.rows() if isinstance(x, Placed) else x
        rows, remedy = x.kind if isinstance(x, TypedRows) else x, "Pass batch.gather(features)."
        rows = rows[0] if isinstance(rows, tuple) else rows
        form = "[n, ...], one row for each of batch.nodes"
        require_array("x", rows, form, remedy, n=batch.tokens.mask.size)
        h, masks, bias, ids = self._start(batch, batch.tokens, x, key)
        if gates is not None:  # not of `h`, whose size its normalisation takes away
            gates = self._of_tokens(batch.tokens, gates.reshape(batch.tokens.mask.shape))
            gates = jnp.log(jnp.maximum(gates, _LEAST))[:, None, None].astype(h.dtype)
            bias = gates if bias is None else bias + gates
        for number, (block, mask) in enumerate(zip(self.blocks, masks, strict=True), 1):
            added = block(h, mask, bias)
            h = h[:, : added.shape[1]] + self._dropped(added, ids, number, key)
        h = h[:, :1]
        if self.num_centroids:
            others = self.centroids.embedding[...][None].astype(h.dtype)
            added = self.to_centroids(h, others=others)
            h += self._dropped(added, ids, len(self.blocks) + 1, key)
        return self.last_norm(h[:, 0])

    def _start(
        self, batch: MiniBatch, tokens: Tokens, x: Any, key: jax.Array | None
    ) -> tuple[jax.Array, list[Any], jax.Array | None, jax.Array]:
        """What the first block reads, `[B, n, D]`; the mask of each block; the bias of all; and
        int32 `[B, n]`, by which units are dropped."""
        ids, mask = batch.nodes.reshape(tokens.mask.shape), tokens.mask
        kind = tokens.kind if self.typed_tokens else jnp.where(mask, 0, -1)
        h = self.inputs(x, kind.reshape(-1), batch.cutoff)
        h = h.reshape(*mask.shape, -1).astype(self._dtype)
        h = self._dropped(h, ids, 0, key, self.input_dropout) + self._encoded(tokens)
        bias = self._bias(tokens).astype(h.dtype)
        real = mask[:, None, None]
        return jnp.where(mask[:, :, None], h, 0), [real] * len(self.blocks), bias, ids

    def _of_tokens(self, tokens: Tokens, values: jax.Array) -> jax.Array:
        """`values` `[B, T]` of tokens for each row that the first block reads, `[B, n]`."""
        return values

    @property
    def _dtype(self) -> Any:
        return self.dtype or self.last.kernel[...].dtype

    def _encoded(self, tokens: Tokens) -> jax.Array:
        """`[B, T, D]`: the encodings of tokens, without their features."""
        mask, parent = tokens.mask, tokens.parent
        place = jnp.arange(mask.shape[1])
        children = jnp.sum(parent[:, None] == place[:, None], axis=2)
        numbers = {"hop": tokens.hop, "relation": tokens.relation + 1}
        numbers["kind"] = tokens.kind if self.typed_tokens else jnp.zeros_like(tokens.kind)
        numbers["children"] = 32 - jax.lax.clz(children.astype(jnp.int32))
        h = jnp.zeros((*mask.shape, self.last.in_features), self._dtype)
        for name, number in numbers.items():
            table = self.encodings[name].embedding[...].astype(h.dtype)
            h += jnp.take(table, number, axis=0, mode="clip")
        if tokens.age is not None:
            h += self.age(self.time(tokens.age.reshape(-1)).astype(h.dtype)).reshape(h.shape)
        return h

    def _bias(self, tokens: Tokens) -> jax.Array:
        """`[B, H, T, T]`: the bias of the logit of each token's attention to each."""
        parent, num = tokens.parent, tokens.parent.shape[1]
        place = jnp.arange(num, dtype=parent.dtype)
        up = parent[:, :, None] == place
        beside = (parent[:, :, None] == parent[:, None]) & (parent < num)[:, :, None]
        itself = jnp.broadcast_to(place[:, None] == place, up.shape)
        links, bias = self.links[...], jnp.zeros((1, 1, 1, 1))
        for link, own in enumerate((beside, up.swapaxes(1, 2), up, itself)):
            bias = jnp.where(own[:, None], links[link][:, None, None], bias)
        return bias

    def _dropped(
        self,
        h: jax.Array,
        ids: jax.Array,
        number: int,
        key: jax.Array | None,
        rate: float | None = None,
    ) -> jax.Array:
        """`h` `[B, n, D]` of the first `n` tokens of each context, some units set to 0."""
        rate = self.dropout if rate is None else rate
        if key is None or rate == 0:
            return h
        ids = ids[:, : h.shape[1]].reshape(-1)
        return drop_units(key, h.reshape(ids.size, -1), ids, number, rate).reshape(h.shape)


class Attention(nnx.Module):
    """A block of `RelGT`: attention of normalised tokens to all of their context, or to
    `others` `[1 or B, n, width]`. With `seed_only` the first token alone attends, and the
    result is `[B, 1, width]`. Queries are 0 at first, so that attention begins as a mean."""

    def __init__(self, width: int, heads: int, seed_only: bool = False, **options: Any):
        self.heads, self.seed_only = heads, seed_only
        self.norm = nnx.LayerNorm(width, **options)
        self.value, self.out = (nnx.Linear(width, width, **options) for _ in range(2))
        zero = nnx.initializers.zeros
        self.query = nnx.Linear(width, width, kernel_init=zero, **options)
        # The weights do not depend on a bias of the keys: its gradient would be rounding alone.
        self.key = nnx.Linear(width, width, use_bias=False, **options)

    def __call__(
        self, tokens: jax.Array, mask: Any = None, bias: Any = None, others: Any = None
    ) -> jax.Array:
        h = self.norm(tokens)
        own = h[:, :1] if self.seed_only else h
        others = h if others is None else others
        others = jnp.broadcast_to(others, (h.shape[0], *others.shape[1:]))
        query, key, value = (
            each(rows).reshape(*rows.shape[:2], self.heads, -1)
            for each, rows in ((self.query, own), (self.key, others), (self.value, others))
        )
        bias = bias[:, :, : own.shape[1]] if bias is not None else None
        attended = attend if computes_on_cpu() else jax.nn.dot_product_attention
        found = attended(query, key, value, bias, mask)
        return self.out(found.reshape(own.shape))


def attend(query: Any, key: Any, value: Any, bias: Any = None, mask: Any = None) -> jax.Array:
    """What `jax.nn.dot_product_attention` returns, to rounding. With its derivatives it takes
    half of the time on a CPU: heads are apart, and sums are divided in place of weights."""
    query, key, value = (rows.swapaxes(1, 2) for rows in (query, key, value))
    query = query * np.asarray(query.shape[-1] ** -0.5, query.dtype)
    logits = query @ key.swapaxes(2, 3)
    logits = logits if bias is None else logits + bias
    logits = logits if mask is None else jnp.where(mask, logits, jnp.finfo(logits.dtype).min)
    most = jax.lax.stop_gradient(logits.max(axis=-1, keepdims=True))
    weights = jnp.exp(logits - most)
    return (weights @ value / weights.sum(axis=-1, keepdims=True)).swapaxes(1, 2)


class MLP(nnx.Module):
    """A block of `RelGT`: two layers, of twice the width between, of each normalised token."""

    def __init__(self, width: int, **options: Any):
        self.norm = nnx.LayerNorm(width, **options)
        self.inner = nnx.Linear(width, 2 * width, **options)
        self.outer = nnx.Linear(2 * width, width, **options)

    def __call__(self, tokens: jax.Array, mask: Any, bias: Any) -> jax.Array:
        return self.outer(nnx.gelu(self.inner(self.norm(tokens))))


class PytreeBlock(nnx.Module):
    """A callable pytree, such as an Equinox module, as an NNX module: its arrays are
    parameters."""

    def __init__(self, block: Any):
        leaves, structure = jax.tree.flatten(block)
        self.structure: Any = structure
        arrays = [isinstance(leaf, jax.Array) for leaf in leaves]
        each = [*zip(leaves, arrays, strict=True)]
        self.arrays = nnx.List([nnx.Param(leaf) for leaf, is_array in each if is_array])
        self.others = tuple(None if is_array else (leaf,) for leaf, is_array in each)

    def __call__(self, *tokens: Any) -> jax.Array:
        arrays = iter(self.arrays)
        leaves = [next(arrays)[...] if own is None else own[0] for own in self.others]
        return self.structure.unflatten(leaves)(*tokens)
