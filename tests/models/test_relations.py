"""Layers of typed graphs against the same layers written relation by relation and edge by edge
in dense `jax.numpy`: outputs, derivatives by everything, padding, and the kernels' twins."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jgs import Block, InputError, kernels
from jgs.graph import Schema
from jgs.models import HGTConv, RGATConv, RGCNConv, RSAGEConv, TemporalRSAGEConv
from jgs.models.masked import masked_layer
from jgs.ops import aggregate
from jgs.ops.relations import TILE, runs_of

R, IN, OUT, SOURCES, TARGETS = 5, 8, 6, 70, 40
SCHEMA = Schema((("a", 50), ("b", 30), ("c", 20)), tuple(("a", f"r{i}", "b") for i in range(R)))


@pytest.fixture(params=["kernel", "plain"])
def path(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(kernels, "_AVAILABLE", False)
    elif not kernels.available():
        pytest.skip("the compiled kernels are not installed")
    return request.param


def typed_block(seed=0, num_relations=R, capacities=(3, 9)):
    """A block of `TARGETS` targets, some without edges, no edges of relation 1, edges that are
    twice there, and padding; and the lists of its edges' sources, targets and relations."""
    rng = np.random.default_rng(seed)
    degrees = rng.integers(0, 9, TARGETS)
    degrees[::6] = 0
    target = np.repeat(np.arange(TARGETS), degrees)
    relation = rng.choice([r for r in range(num_relations) if r != 1], target.size)
    by_row = [relation[target == t] for t in range(TARGETS)]  # some rows are not sorted by it
    relation = np.concatenate([np.sort(r) if t % 2 else r for t, r in enumerate(by_row)])
    source = rng.integers(0, SOURCES, target.size)
    source[1::5] = source[0::5][: source[1::5].size]
    more_targets, more_edges = capacities
    indptr = np.r_[0, np.cumsum(degrees), [target.size] * more_targets]
    block = Block(
        jnp.asarray(indptr, jnp.int32),
        jnp.asarray(np.r_[source, [SOURCES + 2] * more_edges], jnp.int32),
        jnp.int32(TARGETS),
        jnp.int32(SOURCES),
        jnp.int32(target.size),
        source_capacity=SOURCES + 2,
        edge_type=jnp.asarray(np.r_[relation, [0] * more_edges], jnp.int16),
        edge_columns={"elapsed": jnp.asarray(np.r_[elapsed_of(target), [np.nan] * more_edges])},
    )
    return block, (source, target, relation)


def elapsed_of(target):
    """float32 `[E]`: the time from each edge to the cutoff of its target."""
    return np.random.default_rng(4).integers(1, 50, target.size).astype(np.float32)


def rows(padding=np.nan):
    x = np.random.default_rng(1).standard_normal((SOURCES + 2, IN)).astype(np.float32)
    x[SOURCES:] = padding
    return x


KIND = np.random.default_rng(5).integers(0, 3, SOURCES + 2).astype(np.int32)
KIND[SOURCES:] = -1


def softmax_by(groups, logits, num):
    """The softmax of `logits` `[E, H]` within equal `groups`."""
    logits = logits - jax.ops.segment_max(logits, groups, num)[groups]
    weights = jnp.exp(logits)
    return weights / jax.ops.segment_sum(weights, groups, num)[groups]


def rgcn(conv, x, source, target, relation):
    shape = conv.in_features, conv.out_features
    out = jnp.zeros((TARGETS, conv.out_features)) + conv.bias[...]
    if conv.self_loop:
        out += x[:TARGETS] @ conv.self_kernel[...]
    for r in range(R):
        if conv.bases:
            w = sum(c * v for c, v in zip(conv.coefficients[r], conv.kernel[...], strict=True))
        elif conv.blocks:
            w = jax.scipy.linalg.block_diag(*conv.kernel[r])
        else:
            w = conv.kernel[r]
        assert w.shape == shape
        s, t = source[relation == r], target[relation == r]
        if s.size == 0:
            continue
        if conv.run_reduce == "max":
            reduced = jax.ops.segment_max(x[s], t, TARGETS)
            reduced = jnp.where(jnp.isfinite(reduced), reduced, 0)
        else:
            reduced = jax.ops.segment_sum(x[s], t, TARGETS)
        if conv.run_reduce == "mean":
            reduced /= np.maximum(np.bincount(t, minlength=TARGETS), 1)[:, None]
        out += reduced @ w
    return out


def rgat(conv, x, source, target, relation):
    h, w = conv.num_heads, conv.kernel[...]
    out = jnp.zeros((TARGETS, h, w.shape[2] // h))
    for r in range(R):
        s, t = source[relation == r], target[relation == r]
        if s.size == 0:
            continue
        z = (x @ w[r]).reshape(len(x), h, -1)
        logits = (z[s] * conv.source_attention[r]).sum(-1)
        logits += (z[t] * conv.target_attention[r]).sum(-1)
        weights = softmax_by(t, jax.nn.leaky_relu(logits, conv.negative_slope), TARGETS)
        out += jax.ops.segment_sum(weights[:, :, None] * z[s], t, TARGETS)
    out = out.reshape(TARGETS, -1) if conv.concat else out.mean(1)
    return out + conv.bias[...] + (x[:TARGETS] @ conv.self_kernel[...] if conv.self_loop else 0)


def hgt(conv, x, source, target, relation):
    kind, h, d = KIND[:SOURCES], conv.num_heads, conv.width // conv.num_heads

    def of_type(kernel, bias, rows):
        return (
            jnp.einsum("nf,nfo->no", rows, kernel[kind[: len(rows)]]) + bias[kind[: len(rows)]]
        )

    key_bias, value_bias = jnp.split(conv.key_value_bias[...], 2, axis=1)
    x = x[:SOURCES]
    k = of_type(conv.key_kernel[...], key_bias, x).reshape(-1, h, d)
    v = of_type(conv.value_kernel[...], value_bias, x).reshape(-1, h, d)
    q = of_type(conv.query_kernel[...], conv.query_bias[...], x[:TARGETS]).reshape(-1, h, d)
    keys = jnp.einsum("ehd,ehdf->ehf", k[source], conv.attention[...][relation])
    logits = (keys * q[target]).sum(-1) * conv.prior[...][relation] / np.sqrt(d)
    weights = softmax_by(target, logits, TARGETS)
    messages = jnp.einsum("ehd,ehdf->ehf", v[source], conv.message_kernel[...][relation])
    summed = jax.ops.segment_sum(weights[:, :, None] * messages, target, TARGETS)
    summed = jax.nn.gelu(summed.reshape(TARGETS, -1), approximate=False)
    out = of_type(conv.out_kernel[...], conv.out_bias[...], summed)
    gate = jax.nn.sigmoid(conv.skip[...])[kind[:TARGETS]][:, None]
    own = x[:TARGETS]
    own = own @ conv.skip_kernel[...] if conv.in_features != conv.out_features else own
    return gate * out + (1 - gate) * own


def temporal(conv, x, source, target, relation):
    """Each edge becomes a source of its own, of which an R-SAGE is taken."""
    time, kernel = conv.time, conv.time_kernel[...]
    elapsed = elapsed_of(target)[:, None] / time.unit
    phi = jnp.cos(elapsed * jnp.exp(time.log_frequency[...]) + time.phase[...])
    message = x[source] + jnp.einsum("ef,efo->eo", phi, kernel[relation])
    rows = jnp.concatenate([x[:TARGETS], jnp.maximum(message, 0)])
    return rgcn(conv, rows, TARGETS + np.arange(source.size), target, relation)


TIMES = {"time_width": 5, "time_unit": 10.0}
LAYERS = {
    "rgcn": (lambda rngs: RGCNConv(IN, OUT, R, rngs=rngs), rgcn),
    "rgcn bases": (
        lambda rngs: RGCNConv(IN, OUT, R, bases=3, self_loop=False, rngs=rngs),
        rgcn,
    ),
    "rgcn blocks": (lambda rngs: RGCNConv(IN, OUT, R, blocks=2, reduce="sum", rngs=rngs), rgcn),
    "rsage": (lambda rngs: RSAGEConv(IN, OUT, R, rngs=rngs), rgcn),
    "rsage max": (lambda rngs: RSAGEConv(IN, OUT, R, reduce="max", rngs=rngs), rgcn),
    "temporal": (lambda rngs: TemporalRSAGEConv(IN, OUT, R, **TIMES, rngs=rngs), temporal),
    "temporal max": (
        lambda rngs: TemporalRSAGEConv(IN, OUT, R, reduce="max", **TIMES, rngs=rngs),
        temporal,
    ),
    "rgat": (lambda rngs: RGATConv(IN, OUT, R, 2, rngs=rngs), rgat),
    "rgat mean": (
        lambda rngs: RGATConv(IN, OUT, R, 3, concat=False, self_loop=False, rngs=rngs),
        rgat,
    ),
    "hgt": (lambda rngs: HGTConv(IN, OUT, SCHEMA, 2, rngs=rngs), hgt),
    "hgt skip": (lambda rngs: HGTConv(IN, IN, SCHEMA, 4, width=12, rngs=rngs), hgt),
}


@pytest.mark.parametrize("name", LAYERS)
def test_equals_the_layer_relation_by_relation(path, name):
    make, reference = LAYERS[name]
    graphdef, params = nnx.split(make(nnx.Rngs(0)))
    noise = np.random.default_rng(3)  # biases of 0 and priors of 1 would hide mistakes
    params = jax.tree.map(
        lambda p: p + 0.3 * noise.standard_normal(p.shape).astype(np.float32), params
    )
    block, edges = typed_block()
    x, real = rows(), jnp.arange(SOURCES + 2) < SOURCES
    probe = noise.standard_normal((TARGETS, nnx.merge(graphdef, params).out_features))

    def layer(params, x):
        conv = nnx.merge(graphdef, params)
        kind = {"kind": jnp.asarray(KIND)} if conv.uses_types else {}
        return conv(block, x, real, **kind)

    def dense(params, x):
        return reference(nnx.merge(graphdef, params), x, *edges)

    def pulled(f, x):
        def program(params, x):
            out, pull = jax.vjp(f, params, x)
            return out, pull(jnp.zeros_like(out).at[:TARGETS].set(probe))

        return jax.jit(program)(params, x)

    out, found = pulled(layer, x)
    wanted_out, wanted = pulled(dense, rows(padding=0))
    assert not out[TARGETS:].any()  # zeros in padding, from NaN
    np.testing.assert_allclose(out[:TARGETS], wanted_out, atol=2e-5)
    for (where, a), b in zip(
        jax.tree.leaves_with_path(found), jax.tree.leaves(wanted), strict=True
    ):
        np.testing.assert_allclose(a, b, atol=1e-4, rtol=1e-4, err_msg=str(where))


def test_runs_are_the_edges_of_a_relation_into_a_target(path):
    block, (source, target, relation) = typed_block()
    runs = runs_of(block, R)
    slots, edges = runs.slots, runs.edges
    used, indptr = int(slots.num_slots), np.asarray(edges.indptr)
    found = []
    for slot in range(used):
        r, t = int(slots.relation[slot // TILE]), int(slots.target[slot])
        mine = np.asarray(runs.order)[indptr[slot] : indptr[slot + 1]]
        assert (target[mine] == t).all()
        assert (relation[mine] == r).all()
        assert mine.size == ((target == t) & (relation == r)).sum()
        np.testing.assert_array_equal(
            edges.indices[indptr[slot] : indptr[slot + 1]], source[mine]
        )
        if mine.size:
            found.append((r, t))
    assert found == sorted(set(zip(relation.tolist(), target.tolist(), strict=True)))
    assert (np.asarray(slots.target)[used:] == block.target_capacity).all()
    place = np.asarray(runs.place)[: source.size]
    np.testing.assert_array_equal(np.asarray(runs.order)[place], np.arange(source.size))
    ones = aggregate(slots.sums, aggregate(edges, jnp.ones((SOURCES + 2, 1)), "sum"), "sum")
    np.testing.assert_array_equal(ones[:, 0], np.diff(block.indptr))


def test_kernel_and_plain_form_find_the_same_runs(monkeypatch):
    if not kernels.available():
        pytest.skip("the compiled kernels are not installed")
    for num_relations, seed in ((R, 0), (40, 1)):
        block, _ = typed_block(seed, num_relations)
        found = runs_of(block, num_relations)
        with monkeypatch.context() as off:
            off.setattr(kernels, "_AVAILABLE", False)
            plain = runs_of(block, num_relations)
        jax.tree.map(np.testing.assert_array_equal, found, plain)


def test_a_relation_with_few_edges_costs_no_row_for_each_target(path):
    """Of 40 relations one has 3 edges and the others none."""
    num = 10_000
    indptr = jnp.minimum(jnp.arange(num + 1, dtype=jnp.int32), 3)
    indices = jnp.arange(3, dtype=jnp.int32)
    counts = (jnp.int32(num), jnp.int32(num), jnp.int32(3))
    types = jnp.full(3, 17, jnp.int16)
    block = Block(indptr, indices, *counts, source_capacity=num, edge_type=types)
    runs = runs_of(block, 40)
    assert runs.slots.target.shape == (
        3 * TILE,
    )  # a tile for each of as many relations as there are edges
    assert int(runs.slots.num_slots) == TILE
    assert runs.slots.relation[0] == 17


def test_wrong_relations_are_refused():
    block, _ = typed_block()
    conv = RGCNConv(IN, OUT, R, rngs=nnx.Rngs(0))
    with pytest.raises(InputError, match=r"'type'.*edges=\('type',\)"):
        conv(block.with_edge_arrays({}), rows(0))
    if kernels.available():
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"edge_type must be in \[0, 3\)"):
            jax.block_until_ready(runs_of(block, 3))
    with pytest.raises(InputError, match="must have the edge column 'elapsed'"):
        TemporalRSAGEConv(IN, OUT, R, rngs=nnx.Rngs(0))(
            replace(block, edge_columns={}), jnp.asarray(rows(0))
        )
    with pytest.raises(InputError, match="blocks must divide"):
        RGCNConv(IN, OUT, R, blocks=4, rngs=nnx.Rngs(0))
    with pytest.raises(InputError, match="told the types"):
        HGTConv(IN, OUT, SCHEMA, rngs=nnx.Rngs(0))(block, rows(0))


@pytest.mark.parametrize("name", ["rgcn bases", "rsage max", "temporal", "rgat", "hgt"])
def test_masks_multiply_the_messages_of_edges(name):
    """A mask of 1 changes nothing. What an edge adds is in proportion to its mask, except in a
    maximum and before HGT's GELU."""
    conv = LAYERS[name][0](nnx.Rngs(0))
    block, (source, target, _) = typed_block()
    kind = {"kind": jnp.asarray(KIND)} if conv.uses_types else {}
    x, ones = jnp.asarray(rows(0.0)), jnp.ones(block.edge_capacity)
    run = jax.jit(lambda mask: masked_layer(conv, mask, block, x, **kind))
    np.testing.assert_allclose(run(ones), conv(block, x, **kind), atol=2e-5)
    chosen = int(np.bincount(target).argmax())
    mask = jnp.where(np.pad(target == chosen, (0, 9)), 0.0, ones) if "max" in name else ones
    mask = mask.at[int(np.argmax(target == chosen))].set(0.0)
    changed = np.abs(run(mask) - run(ones)).max(axis=1) > 1e-4
    np.testing.assert_array_equal(np.flatnonzero(changed), [chosen])
    if name in ("rgcn bases", "temporal", "rgat"):
        gradient = jax.jit(jax.grad(lambda mask: run(mask)[chosen].sum()))(ones)
        assert (np.asarray(gradient[: source.size])[target != chosen] == 0).all()
        total = run(ones)[chosen].sum() - run(0 * ones)[chosen].sum()
        np.testing.assert_allclose(gradient[: source.size].sum(), total, atol=1e-4)
