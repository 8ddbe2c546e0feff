"""Layers of typed graphs against the same in float64 NumPy, relation by relation."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.special
from cases import rarely
from derivatives import pulled, twins
from flax import nnx
from modules import arrays_of, assert_slopes, module
from refusals import refused

from jgs import Block, kernels
from jgs.graph import Schema
from jgs.models import HGTConv, RGATConv, RGCNConv, RSAGEConv, TemporalRSAGEConv
from jgs.models.masked import masked_layer
from jgs.ops.relation_runs import TILE, runs_of

R, IN, OUT, SOURCES, TARGETS = 5, 8, 6, 70, 40
SCHEMA = Schema((("a", 50), ("b", 30), ("c", 20)), tuple(("a", f"r{i}", "b") for i in range(R)))
KIND = np.random.default_rng(5).integers(0, 3, SOURCES + 2).astype(np.int32)
KIND[SOURCES:] = -1


def typed_block(seed=0, num_relations=R, capacities=(3, 9)):
    """A block, without edges of relation 1, some twice; its sources, targets, relations."""
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


def summed(values, target):
    out = np.zeros((TARGETS, *values.shape[1:]))
    np.add.at(out, target, values)
    return out


def softmax_by(target, logits):
    """The softmax of `logits` `[E, H]` within equal targets."""
    values = np.exp(logits)
    return values / summed(values, target)[target]


def rgcn(conv, p, x, source, target, relation):
    out = np.zeros((TARGETS, conv.out_features)) + p["bias"]
    if conv.self_loop:
        out += x[:TARGETS] @ p["self_kernel"]
    for r in range(R):
        if conv.bases:
            w = np.einsum("b,bio->io", p["coefficients"][r], p["kernel"])
        elif conv.blocks:
            w = scipy.linalg.block_diag(*p["kernel"][r])
        else:
            w = p["kernel"][r]
        assert w.shape == (conv.in_features, conv.out_features)
        s, t = source[relation == r], target[relation == r]
        if conv.run_reduce == "max":
            reduced = np.full((TARGETS, x.shape[1]), -np.inf)
            np.maximum.at(reduced, t, x[s])
            reduced = np.where(np.isfinite(reduced), reduced, 0)
        else:
            reduced = summed(x[s], t)
        if conv.run_reduce == "mean":
            reduced /= np.maximum(np.bincount(t, minlength=TARGETS), 1)[:, None]
        out += reduced @ w
    return out


def rgat(conv, p, x, source, target, relation):
    h, w = conv.num_heads, p["kernel"]
    out = np.zeros((TARGETS, h, w.shape[2] // h))
    for r in range(R):
        s, t = source[relation == r], target[relation == r]
        z = (x @ w[r]).reshape(len(x), h, -1)
        logits = (z[s] * p["source_attention"][r]).sum(-1)
        logits += (z[t] * p["target_attention"][r]).sum(-1)
        if conv.features:
            elapsed = (elapsed_of(target)[relation == r][:, None] - MEAN) * FACTOR
            logits += elapsed @ p["edge_attention"][r]
        logits = np.where(logits > 0, logits, conv.negative_slope * logits)
        out += summed(softmax_by(t, logits)[:, :, None] * z[s], t)
    out = out.reshape(TARGETS, -1) if conv.concat else out.mean(1)
    return out + p["bias"] + (x[:TARGETS] @ p["self_kernel"] if conv.self_loop else 0)


def hgt(conv, p, x, source, target, relation):
    kind, h, d = KIND[:SOURCES], conv.num_heads, conv.width // conv.num_heads

    def of_type(kernel, bias, rows):
        own = kind[: len(rows)]
        return np.einsum("nf,nfo->no", rows, kernel[own]) + bias[own]

    key_bias, value_bias = np.split(p["key_value_bias"], 2, axis=1)
    x = x[:SOURCES]
    k = of_type(p["key_kernel"], key_bias, x).reshape(-1, h, d)
    v = of_type(p["value_kernel"], value_bias, x).reshape(-1, h, d)
    q = of_type(p["query_kernel"], p["query_bias"], x[:TARGETS]).reshape(-1, h, d)
    keys = np.einsum("ehd,ehdf->ehf", k[source], p["attention"][relation])
    logits = (keys * q[target]).sum(-1) * p["prior"][relation] / np.sqrt(d)
    messages = np.einsum("ehd,ehdf->ehf", v[source], p["message_kernel"][relation])
    total = summed(softmax_by(target, logits)[:, :, None] * messages, target)
    total = total.reshape(TARGETS, -1)
    total = total * (1 + scipy.special.erf(total / np.sqrt(2))) / 2  # GELU
    out = of_type(p["out_kernel"], p["out_bias"], total)
    gate = scipy.special.expit(p["skip"])[kind[:TARGETS]][:, None]
    own = x[:TARGETS]
    own = own @ p["skip_kernel"] if conv.in_features != conv.out_features else own
    return gate * out + (1 - gate) * own


def temporal(conv, p, x, source, target, relation):
    """Each edge becomes a source of its own, of which an R-SAGE is taken."""
    elapsed = elapsed_of(target)[:, None] / conv.time.unit
    phi = np.cos(elapsed * np.exp(p["time"]["log_frequency"]) + p["time"]["phase"])
    message = x[source] + np.einsum("ef,efo->eo", phi, p["time_kernel"][relation])
    x = np.concatenate([x[:TARGETS], np.maximum(message, 0)])
    return rgcn(conv, p, x, TARGETS + np.arange(source.size), target, relation)


def of(kind, *sizes, **options):
    return lambda rngs: kind(IN, *sizes, **options, rngs=rngs)


MEAN, FACTOR = 20.0, 0.25
ELAPSED = {"edge_columns": ("elapsed",), "edge_width": 1, "edge_scales": ((MEAN, FACTOR),)}
TIMES = {"time_width": 5, "time_unit": 10.0}
LAYERS = {
    "rgcn": (of(RGCNConv, OUT, R), rgcn),
    "rgcn bases": (of(RGCNConv, OUT, R, bases=3, self_loop=False), rgcn),
    "rgcn blocks": (of(RGCNConv, OUT, R, blocks=2, reduce="sum"), rgcn),
    "rsage": (of(RSAGEConv, OUT, R), rgcn),
    "rsage max": (of(RSAGEConv, OUT, R, reduce="max"), rgcn),
    "temporal": (of(TemporalRSAGEConv, OUT, R, **TIMES), temporal),
    "temporal max": (of(TemporalRSAGEConv, OUT, R, reduce="max", **TIMES), temporal),
    "rgat": (of(RGATConv, OUT, R, 2), rgat),
    "rgat edges": (of(RGATConv, OUT, R, 2, **ELAPSED), rgat),
    "rgat mean": (of(RGATConv, OUT, R, 3, concat=False, self_loop=False), rgat),
    "hgt": (of(HGTConv, OUT, SCHEMA, 2), hgt),
    "hgt skip": (of(HGTConv, IN, SCHEMA, 4, width=12), hgt),
}


@pytest.mark.parametrize("name", rarely(LAYERS, 2, 4, 6, 9, 11))
def test_equals_the_layer_relation_by_relation(name):
    make, reference = LAYERS[name]
    conv = module(make)
    graphdef, params = nnx.split(conv)
    block, edges = typed_block()
    probe = np.zeros((TARGETS + 3, conv.out_features), np.float32)
    probe[:TARGETS] = np.random.default_rng(3).standard_normal(probe[:TARGETS].shape)

    def layer(params, x, block, kind):
        conv, real = nnx.merge(graphdef, params), np.arange(SOURCES + 2) < SOURCES
        return conv(block, x, real, **({"kind": kind} if conv.uses_types else {}))

    def program(params, x, block, kind):
        return pulled(lambda params, x: layer(params, x, block, kind))(probe, params, x)

    operands = arrays_of(params), np.float64(rows(padding=0))
    wanted = reference(conv, *operands, *edges)
    for out, (of_params, of_x) in twins(program)(params, rows(), block, KIND):
        assert not out[TARGETS:].any()  # zeros in padding, from NaN
        np.testing.assert_allclose(out[:TARGETS], wanted, atol=2e-5)
        assert_slopes(
            lambda operands: (probe[:TARGETS] * reference(conv, *operands, *edges)).sum(),
            operands,
            (nnx.to_pure_dict(of_params), of_x),
        )
        assert not of_x[SOURCES:].any()


@pytest.mark.parametrize("name", ["rgat edges", "hgt"])
def test_second_derivatives_in_both_modes(name):
    conv, (block, _), x = module(LAYERS[name][0]), typed_block(), jnp.asarray(rows(0))
    own = {"kind": KIND[: len(x)]} if conv.uses_types else {}
    slope = jax.grad(lambda x: jnp.sin(conv(block, x, **own)).sum())
    along = jnp.cos(jnp.arange(x.size)).reshape(x.shape)

    @jax.jit
    def both(x):
        backward = jax.grad(lambda x: jnp.vdot(slope(x), along))
        return jax.jvp(slope, (x,), (along,))[1], backward(x)

    forward, backward = both(x)
    assert np.abs(forward).max() > 0.1
    np.testing.assert_allclose(forward, backward, atol=1e-3)


def test_a_relation_with_few_edges_costs_no_row_for_each_target():
    """Of 40 relations one has 3 edges and the others none."""
    num = 10_000
    indptr, indices = np.minimum(np.arange(num + 1), 3), np.arange(3)
    counts, types = map(jnp.int32, (num, num, 3)), jnp.asarray(np.full(3, 17, np.int16))
    edges = (jnp.asarray(a.astype(np.int32)) for a in (indptr, indices))
    block = Block(*edges, *counts, source_capacity=num, edge_type=types)
    for runs in twins(lambda block: runs_of(block, 40))(block):
        # A tile for each of as many relations as there are edges.
        assert runs.slots.target.shape == (3 * TILE,)
        assert int(runs.slots.num_slots) == TILE
        assert runs.slots.relation[0] == 17


@pytest.mark.parametrize("name", ["temporal", "rgat edges"])
def test_a_block_without_room_for_edges_has_the_targets_own_rows(name):
    """As the blocks of a graph that has no edge yet."""
    block, _ = typed_block()
    columns = {n: column[:0] for n, column in block.edge_arrays().items()}
    none = replace(block.with_edge_arrays(columns), indices=block.indices[:0])
    none = replace(none, indptr=jnp.zeros_like(block.indptr), num_edges=jnp.int32(0))
    assert int(runs_of(none, R).slots.num_slots) == 0
    found, x = module(LAYERS[name][0]), jnp.asarray(rows(0))
    own = found(block, x)[: block.target_capacity]
    out = found(none, x)
    assert out.shape == own.shape
    assert jnp.isfinite(out).all()


def test_wrong_relations_are_refused():
    (block, _), x = typed_block(), rows(0)
    if kernels.available():
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"edge_type must be in \[0, 3\)"):
            jax.block_until_ready(runs_of(block, 3))
        far = replace(block, edge_type=block.edge_type.astype(jnp.int32).at[0].set(2**16))
        error = ValueError, jax.errors.JaxRuntimeError  # by how JAX calls the program
        with pytest.raises(error, match="not 32767"):
            jax.block_until_ready(runs_of(far, R))
    for name, given, said in (
        ("rgcn", block.with_edge_arrays({}), "'type'*edges=('type',)"),
        ("temporal", replace(block, edge_columns={}), "must have the edge column 'elapsed'"),
        ("hgt", block, "told the types"),
    ):
        conv = module(LAYERS[name][0])
        refused(said, jax.eval_shape, lambda x, conv=conv, given=given: conv(given, x), x)
    refused("blocks must divide", module, of(RGCNConv, OUT, R, blocks=4))


@pytest.mark.parametrize("name", ["rgcn bases", "rsage max", "temporal", "rgat", "hgt"])
def test_masks_multiply_the_messages_of_edges(name):
    """A mask of 1 changes nothing. Effects are in proportion, but for maxima and HGT's GELU."""
    conv, (block, (source, target, _)) = module(LAYERS[name][0]), typed_block()
    kind = {"kind": jnp.asarray(KIND)} if conv.uses_types else {}
    ones, chosen = np.ones(block.edge_capacity, np.float32), np.bincount(target).argmax()

    @jax.jit
    def run(mask, x):
        def of_chosen(mask):
            out = masked_layer(conv, mask, block, x, **kind)
            return out[chosen].sum(), out

        (_, out), gradient = jax.value_and_grad(of_chosen, has_aux=True)(mask)
        return out, gradient[: source.size], conv(block, x, **kind)

    whole, gradient, want = jax.device_get(run(ones, rows(0)))
    np.testing.assert_allclose(whole, want, atol=2e-5)
    mask = np.where(np.pad(target == chosen, (0, 9)), 0, ones) if "max" in name else ones.copy()
    mask[np.argmax(target == chosen)] = 0
    changed = np.abs(np.asarray(run(mask, rows(0))[0]) - whole).max(axis=1) > 1e-4
    np.testing.assert_array_equal(np.flatnonzero(changed), [chosen])
    if name in ("rgcn bases", "temporal", "rgat"):
        assert (gradient[target != chosen] == 0).all()
        nothing = np.asarray(run(0 * ones, rows(0))[0])
        total = whole[chosen].sum() - nothing[chosen].sum()
        np.testing.assert_allclose(gradient.sum(), total, atol=1e-4)
