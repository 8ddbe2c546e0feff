"""`RelGT` on contexts made by hand: its equations, padding, order, precision and blocks."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from modules import exact, module
from refusals import refused

from jgs import Graph, MiniBatch
from jgs.graph import Extras, Tokens, TypedFeatures
from jgs.graph.batch import AGELESS
from jgs.models import RelGT
from jgs.models.relgt import MLP, Attention, attend
from jgs.ops import gather

NUM, WIDTH, OUT, HEADS = 50, 8, 3, 2
COUNTS = {"user": 20, "item": 18, "shop": 12}
RELATIONS = {
    ("user", "buys", "item"): ([0, 1], [2, 3]),
    ("shop", "sells", "item"): ([0, 1], [2, 3]),
}
SCHEMA = Graph.from_relations(COUNTS, RELATIONS).schema
SIZES = (5, 7, 1, 0)  # tokens of each context; the last is of a seed that is padding


def batch_of(size=7, sizes=SIZES, schema=None, overflow=False):
    """Contexts whose first tokens are the same for every `size`."""
    rng, shape = np.random.default_rng(4), (len(sizes), size)
    nodes, parent = np.full(shape, NUM, np.int32), np.full(shape, size, np.int32)
    hop, relation, age = np.zeros(shape, int), np.full(shape, -1), np.zeros(shape)
    for b, num in enumerate(sizes):
        nodes[b, :num] = rng.permutation(NUM)[:num]
        for t in range(1, num):
            up = rng.integers(0, t)
            parent[b, t], hop[b, t] = up, hop[b, up] + 1
            relation[b, t] = rng.integers(0, 2) if schema else 0
            age[b, t] = AGELESS if t == 2 else rng.integers(1, 90)
        if num > 5:
            parent[b, 4] = size  # one whose parent is not in the context
    mask = nodes < NUM
    kind = np.where(mask, 0 if schema is None else schema.type_and_place(nodes)[0], -1)
    tokens = Tokens(mask, *(a.astype(np.int32) for a in (kind, hop, parent, relation)))
    tokens = jax.tree.map(jnp.asarray, tokens._replace(age=age.astype(np.float32)))
    rows = np.arange(len(sizes), dtype=np.int32) * size
    return MiniBatch(
        jnp.asarray(nodes[:, 0]),
        jnp.asarray(nodes.reshape(-1)),
        (),
        jnp.bool_(overflow),
        NUM,
        seed_rows=jnp.asarray(rows),
        extras=Extras(tokens=tokens),
        square=True,
        schema=schema,
    )


X = np.random.default_rng(5).standard_normal((NUM + 1, 4)).astype(np.float32)


def rows_of(batch, padding=0.0):
    x = X[np.asarray(batch.nodes)]
    return jnp.asarray(np.where(np.asarray(batch.nodes)[:, None] < NUM, x, padding))


def model_of(features=4, **options):
    given = {"heads": HEADS, "centroids": 5, "time_width": 6, **options}
    return module(lambda rngs: RelGT(features, WIDTH, OUT, **given, rngs=rngs))


MODEL = model_of()


@partial(jax.jit, static_argnums=0)
def outputs(graphdef, params, batch, x, key):
    return nnx.merge(graphdef, params)(batch, x, key=key)


def run(model, batch, x, key=None):
    return outputs(*nnx.split(model), batch, x, key)


@partial(jax.jit, static_argnums=0)
def pulled(graphdef, params, batch, x):
    def loss(params, x):
        out = nnx.merge(graphdef, params)(batch, x)
        return jnp.sum(jnp.where(batch.seed_mask[:, None], out, 0) ** 2)

    return jax.grad(loss, argnums=(0, 1), allow_int=True)(params, x)


def gradients(model, batch, x):
    """Of the sum of the squares of the real seeds' outputs, by the parameters and by `x`."""
    return pulled(*nnx.split(model), batch, x)


def close(found, wanted, tolerance=2e-5):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def layer_norm(norm, h):
    h = (h - h.mean(-1, keepdims=True)) / np.sqrt(h.var(-1, keepdims=True) + 1e-6)
    return h * exact(norm.scale) + exact(norm.bias)


def linear(layer, h):
    bias = 0 if layer.bias is None else exact(layer.bias)
    return h @ exact(layer.kernel) + bias


def attended(block, h, others, bias):
    """float64 `[Q, D]`, one query and head after the other."""
    query, key, value = (
        linear(block.query, h),
        *(linear(layer, others) for layer in (block.key, block.value)),
    )
    found, size = np.zeros_like(query), WIDTH // HEADS
    for head in range(HEADS):
        own = slice(head * size, (head + 1) * size)
        for i, row in enumerate(query[:, own]):
            logits = key[:, own] @ row / np.sqrt(size) + bias[head, i]
            weights = np.exp(logits - logits.max())
            found[i, own] = weights / weights.sum() @ value[:, own]
    return linear(block.out, found)


def in_numpy(model, batch, b):
    """The outputs for seed `b`, from its real tokens alone."""
    tokens = jax.tree.map(lambda a: np.asarray(a[b]), batch.tokens)
    num = int(tokens.mask.sum())
    h = X[np.asarray(batch.nodes).reshape(len(SIZES), -1)[b, :num]]
    h = h.astype(np.float64) @ exact(model.inputs.kernels["0"]) + exact(model.inputs.bias)[0]
    links, bias = exact(model.links), np.zeros((HEADS, num, num))
    for i in range(num):
        children = int((tokens.parent[:num] == i).sum())
        rows = {"kind": tokens.kind[i], "hop": tokens.hop[i]}
        rows |= {"relation": tokens.relation[i] + 1, "children": children.bit_length()}
        for name, row in rows.items():
            h[i] += exact(model.encodings[name].embedding)[row]
        if tokens.age[i] < AGELESS:
            phase = tokens.age[i] * np.exp(exact(model.time.log_frequency))
            h[i] += linear(model.age, np.cos(phase + exact(model.time.phase)))
        for j in range(num):
            if tokens.parent[i] == tokens.parent[j] and tokens.parent[i] < num:
                bias[:, i, j] = links[0]
            if tokens.parent[j] == i:
                bias[:, i, j] = links[1]
            if tokens.parent[i] == j:
                bias[:, i, j] = links[2]
        bias[:, i, i] = links[3]
    for block in model.blocks:
        normed = layer_norm(block.norm, h)
        if isinstance(block, Attention):
            h = h + attended(block, normed, normed, bias)
        else:
            h = h + linear(block.outer, np.asarray(nnx.gelu(linear(block.inner, normed))))
    seed, block = h[:1], model.to_centroids
    others = exact(model.centroids.embedding)
    none = np.zeros((HEADS, 1, len(others)))
    seed = seed + attended(block, layer_norm(block.norm, seed), others, none)
    return linear(model.last, layer_norm(model.last_norm, seed))[0]


def test_outputs_are_the_equations():
    batch = batch_of()
    out = run(MODEL, batch, rows_of(batch, np.nan))
    assert out.shape == (4, OUT)
    assert np.isfinite(out).all()
    for b in range(3):
        np.testing.assert_allclose(out[b], in_numpy(MODEL, batch, b), rtol=2e-5, atol=2e-5)


def test_padding_changes_nothing():
    few, more = batch_of(), batch_of(11, (*SIZES, 0, 0))
    for key in (None, jax.random.key(3)):
        out = run(MODEL, few, rows_of(few), key)
        close(run(MODEL, more, rows_of(more, np.nan), key)[:4], out)
    of_params, of_x = gradients(MODEL, more, rows_of(more, np.nan))
    close(of_params, gradients(MODEL, few, rows_of(few))[0], 1e-4)
    assert not np.asarray(of_x)[np.asarray(more.nodes) == NUM].any()
    for leaf in jax.tree.leaves(of_params):  # all are learned, and by more than rounding
        assert np.abs(leaf).max() > 1e-4
    assert np.isnan(run(MODEL, replace(few, overflow=jnp.bool_(True)), rows_of(few))).all()


def with_tokens(batch, **fields):
    return replace(batch, extras=Extras(tokens=batch.tokens._replace(**fields)))


def test_tokens_have_no_order_but_their_places():
    batch, order = batch_of(sizes=(7, 7, 1, 0)), np.array([0, 5, 3, 6, 1, 4, 2])
    moved = jax.tree.map(lambda a: a[:, order], batch.tokens)
    parent = jnp.asarray(np.argsort([*order, 7])[moved.parent])
    nodes = batch.nodes.reshape(4, 7)[:, order].reshape(-1)
    other = replace(batch, nodes=nodes, extras=Extras(tokens=moved._replace(parent=parent)))
    keys = (None, jax.random.key(1))
    few, some = (run(MODEL, batch, rows_of(batch), key)[:3] for key in keys)
    for wanted, key in zip((few, some), keys, strict=True):  # dropout is by node
        close(run(MODEL, other, rows_of(other), key)[:3], wanted)
    assert not np.allclose(few, some)
    unlinked = with_tokens(batch, parent=jnp.full_like(batch.tokens.parent, 7))
    assert not np.allclose(run(MODEL, unlinked, rows_of(batch))[:3], few)


def test_types_have_features_and_rows_of_their_own():
    batch = batch_of(schema=SCHEMA)
    rows = {"user": X[:20], "item": X[20:38], "shop": X[38:50]}
    alike = model_of((4, 4, 4), schema=SCHEMA)
    x = gather(TypedFeatures.from_dict(SCHEMA, rows), batch.nodes)
    of_types = run(alike, batch, x)
    close(run(alike, batch, rows_of(batch, np.nan)), of_types)
    for name in ("kind", "relation"):
        other = with_tokens(batch, **{name: 0 * getattr(batch.tokens, name)})
        assert not np.allclose(run(alike, other, x), of_types)
    bare = TypedFeatures.from_dict(SCHEMA, {"user": X[:20, :2], "item": X[20:38]})
    learns = model_of(bare.widths, schema=SCHEMA)
    of_params = gradients(learns, batch, gather(bare, batch.nodes))[0]
    assert np.any(of_params["inputs"]["embedding"])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(of_params))


@pytest.mark.parametrize("dtype", [None, jnp.bfloat16])
def test_blocks_compute_in_a_dtype(dtype):
    batch = batch_of()
    model = model_of(dtype=dtype)
    if dtype is None:  # as `--precision bfloat16` computes a step
        graphdef, params = nnx.split(model)
        model = nnx.merge(graphdef, jax.tree.map(lambda a: a.astype(jnp.bfloat16), params))
    out, x = run(model, batch, rows_of(batch)), rows_of(batch)
    assert out.dtype == jnp.float32
    assert "bf16[4,7,2,4]" in str(jax.make_jaxpr(lambda x: model(batch, x))(x))
    assert 0 < np.abs(out - run(MODEL, batch, x))[:3].max() < 0.2


@jax.tree_util.register_pytree_node_class
class Pytree:
    """A block that is no NNX module, as those of Equinox are."""

    def __init__(self, kernel, activation):
        self.kernel, self.activation = kernel, activation

    def tree_flatten(self):
        return (self.kernel, self.activation), None

    @classmethod
    def tree_unflatten(cls, _, leaves):
        return cls(*leaves)

    def __call__(self, tokens, mask, bias):
        assert (mask.shape, bias.shape) == ((4, 1, 1, 7), (4, HEADS, 7, 7))
        return self.activation(tokens @ self.kernel)


def test_blocks_may_be_the_users():
    batch, x = batch_of(), rows_of(batch_of())
    own = [Attention(WIDTH, HEADS, rngs=nnx.Rngs(0)), MLP(WIDTH, rngs=nnx.Rngs(1))]
    model = model_of(blocks=own)
    first = nnx.merge(nnx.split(model_of(num_layers=1))[0], nnx.state(model))
    close(run(first, batch, x), run(model, batch, x))  # its attention is of the seed alone
    pytree = Pytree(jnp.ones((WIDTH, WIDTH)), jnp.tanh)
    of_params = gradients(model_of(blocks=[pytree, *own]), batch, x)[0]
    assert np.any(of_params["blocks"][0]["arrays"][0])


def test_age_may_be_missing():
    batch = batch_of()
    ageless = with_tokens(batch, age=jnp.full((4, 7), AGELESS))
    x, without = rows_of(batch), run(MODEL, with_tokens(batch, age=None), rows_of(batch))
    close(run(MODEL, ageless, x), without)
    assert not np.allclose(run(MODEL, batch, x), without)


def test_attention_on_a_cpu_is_that_of_jax():
    draw = np.random.default_rng(1).standard_normal
    rows = tuple(jnp.asarray(draw((3, 6, 2, 4)), jnp.float32) for _ in range(3))
    bias, mask = jnp.asarray(draw((3, 2, 6, 6))), np.arange(6) < np.array([6, 3, 0])[:, None]

    @partial(jax.jit, static_argnums=0)
    def both(attended, rows, bias, mask):
        found = attended(*rows, bias, mask[:, None, None])
        loss = lambda *of: jnp.sum(attended(*of, mask[:, None, None]) ** 2)  # noqa: E731
        return found, jax.grad(loss, argnums=(0, 1, 2, 3))(*rows, bias)

    close(*(both(f, rows, bias, mask) for f in (attend, jax.nn.dot_product_attention)))


def test_attention_begins_as_a_mean():
    block = Attention(WIDTH, HEADS, rngs=nnx.Rngs(3))
    tokens = np.random.default_rng(2).standard_normal((2, 5, WIDTH)).astype(np.float32)
    mask = np.arange(5) < np.array([[3], [5]])
    values = linear(block.value, layer_norm(block.norm, tokens.astype(np.float64)))
    wanted = [
        linear(block.out, own[some].mean(0)) for own, some in zip(values, mask, strict=True)
    ]
    found = block(jnp.asarray(tokens), jnp.asarray(mask)[:, None, None])
    np.testing.assert_allclose(found, np.repeat(wanted, 5, 0).reshape(found.shape), atol=2e-5)


def test_what_does_not_fit_is_refused():
    batch = batch_of()
    without = replace(batch, extras=Extras())
    refused("tokens*jgs.sampling.Context", MODEL, without, rows_of(batch))
    refused("one row for each of batch.nodes", MODEL, batch, X)
    refused("multiple of num_heads", model_of, heads=3)
    refused("norm of RelGT", model_of, norm="l2")
    refused("adaptive sampler*RelGT", lambda: MODEL.message_widths)
