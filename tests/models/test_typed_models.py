"""Models of typed graphs: inputs of several widths, learned rows, and the whole model."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from derivatives import pulled, twins
from flax import nnx
from modules import arrays_of, module
from refusals import refused

from jgs import Graph
from jgs.graph import Schema, TypedFeatures
from jgs.models import HGT, RGCN, TypedInputs, inputs
from jgs.ops import gather
from jgs.sampling import sample_neighbors

COUNTS = {"user": 90, "item": 60, "shop": 25, "tag": 8}
WIDTHS = (3, 40, 0, 0)


def typed_graph():
    rng = np.random.default_rng(0)
    edges = {
        ("user", "buys", "item"): (rng.integers(0, 90, 400), rng.integers(0, 60, 400)),
        ("shop", "sells", "item"): (rng.integers(0, 25, 200), rng.integers(0, 60, 200)),
        ("tag", "of", "item"): (rng.integers(0, 8, 90), rng.integers(0, 60, 90)),
    }
    return Graph.from_relations(COUNTS, edges, both_ways=True)


def typed_features(schema):
    rng = np.random.default_rng(1)
    items = scipy.sparse.random(60, 40, 0.3, format="csr", rng=rng)
    users = rng.standard_normal((90, 3)).astype(np.float16)
    return TypedFeatures.from_dict(schema, {"user": users, "item": items}), users, items


GRAPH = typed_graph()
SCHEMA = GRAPH.schema
FEATURES, USERS, ITEMS = typed_features(SCHEMA)


def inputs_of(**options):
    return module(lambda rngs: TypedInputs(WIDTHS, 7, schema=SCHEMA, **options, rngs=rngs))


def test_inputs_equal_a_product_for_each_node(monkeypatch):
    monkeypatch.setattr(inputs, "_CHUNK_ROWS", 32)  # several chunks for a type
    graphdef, params = nnx.split(inputs_of())
    ids = np.random.default_rng(2).permutation(183).astype(np.int32)
    ids[[0, 17, 150, 182]] = [183, -1, 183, 999]  # padding anywhere
    probe = np.random.default_rng(3).standard_normal((183, 7)).astype(np.float32)

    def run(params, features):
        f = pulled(lambda params: nnx.merge(graphdef, params)(gather(features, ids)))
        return f(probe, params)

    p = arrays_of(params)
    rows = [np.float64(USERS) @ p["kernels"]["0"], ITEMS @ p["kernels"]["1"]]
    with_bias = [r + b for r, b in zip(rows, p["bias"], strict=False)]
    table = np.concatenate([*with_bias, p["embedding"]])
    real = (ids >= 0) & (ids < 183)
    want, back = np.where(real[:, None], table[np.where(real, ids, 0)], 0), np.zeros((183, 7))
    back[ids[real]] = probe[real]
    kernels = {"0": np.float64(USERS).T @ back[:90], "1": ITEMS.T @ back[90:150]}
    for out, (grads,) in twins(run)(params, FEATURES):
        np.testing.assert_allclose(out, want, atol=2e-5)
        found = arrays_of(grads)
        for name, exact in kernels.items():
            np.testing.assert_allclose(found["kernels"][name], exact, atol=1e-4)
        np.testing.assert_allclose(found["bias"][0], back[:90].sum(0), atol=1e-4)
        np.testing.assert_allclose(found["bias"][1], back[90:150].sum(0), atol=1e-4)
        np.testing.assert_allclose(found["embedding"], back[150:], atol=1e-4)


def stacked(params):
    """The matrices of the types with features and their biases, one above the other."""
    kernels = list(params["kernels"].values())
    return np.vstack([*kernels, params["bias"][: len(kernels)]])


SECOND = np.random.default_rng(2).permutation(150).astype(np.int32)
SECOND[17] = 183  # padding
KIND = np.where(np.arange(9) == 4, -1, 0).astype(np.int32)
ROWS = np.where(KIND[:, None] < 0, np.nan, np.random.default_rng(3).normal(size=(9, 3)))


@pytest.mark.parametrize("form", ["by type", "matrix"])
def test_second_derivatives_are_those_of_the_products(form, monkeypatch):
    """Forward over reverse, as `jax.hessian` takes them: of `sin(W x + b)`, in a direction."""
    monkeypatch.setattr(inputs, "_CHUNK_ROWS", 32)  # several chunks for a type
    if form == "matrix":  # of one type, with padding between
        only = Schema((("user", 90),), ())
        own, rows = module(lambda rngs: TypedInputs((3,), 7, schema=only, rngs=rngs)), ROWS
        rows = np.where(KIND[:, None] < 0, 0, np.hstack([rows, np.ones((9, 1))]))
    else:
        own, rows = inputs_of(), np.zeros((184, 45))
        rows[:90, :3], rows[90:150, 3:43] = USERS, ITEMS.toarray()
        rows[:90, 43] = rows[90:150, 44] = 1
        rows = rows[SECOND]
    graphdef, params = nnx.split(own)
    rng = np.random.default_rng(7)
    along = jax.tree.map(lambda a: np.float32(rng.normal(size=a.shape)), params)

    def outputs(params, features):
        own = nnx.merge(graphdef, params)
        if form == "matrix":
            return own(np.float32(ROWS), KIND)
        return own(gather(features, SECOND))

    def run(params, along, features):
        slope = jax.grad(lambda params: jnp.sin(outputs(params, features)).sum())
        return outputs(params, features), jax.jvp(slope, (params,), (along,))[1]

    before, change = (rows @ stacked(arrays_of(each)) for each in (params, along))
    for out, slopes in twins(run)(params, along, FEATURES):
        np.testing.assert_allclose(out, before, atol=1e-4)  # zeros in padding
        wanted = rows.T @ (-np.sin(before) * change)
        np.testing.assert_allclose(stacked(arrays_of(slopes)), wanted, atol=2e-3)


IDS = np.array([4, 160, 176, 183, 100], np.int32)


def test_scaled_features_are_those_of_another_unit():
    """To the bit, for powers of two."""
    scales = ((0.25, 2.0, 1.0), (8.0,), (), ())
    units = {"user": np.float32(USERS) * np.float32([0.25, 2.0, 1.0]), "item": ITEMS * 8}
    same = TypedFeatures.from_dict(SCHEMA, units)
    run = nnx.jit(lambda inputs, features: inputs(gather(features, IDS)))
    found = run(inputs_of(scales=scales), FEATURES), run(inputs_of(), same)
    np.testing.assert_array_equal(*found)
    for wrong in (scales[:2], ((0.0,), *scales[1:]), ((1.0, 2.0), *scales[1:]), (1.0,) * 4):
        refused("scales must be 1 or F positive numbers for each", inputs_of, scales=wrong)


def test_times_are_read_from_the_cutoff():
    """In nanoseconds since 1970, which neither float32 nor int32 holds; and what is missing."""
    rng, day = np.random.default_rng(5), 86_400 * 10**9
    time = 1_700_000_000 * 10**9 + rng.integers(0, 900, 90) * day
    cutoff = np.int64(1_760_000_000 * 10**9) + rng.integers(0, 99, IDS.size) * day
    lacks, mean, deviation = rng.random(90) < 0.3, float(time.mean()), 50.0 * day
    lacks[IDS[0]] = False

    def features(standard):
        rows = np.stack([np.ones(90), np.where(lacks, 0, standard), lacks], axis=1)
        return TypedFeatures.from_dict(SCHEMA, {"user": np.float32(rows), "item": ITEMS})

    own = inputs_of(moments=((((1, 2, mean, deviation)),), (), (), ()))
    ids = np.array([*IDS, *range(60)], np.int32)
    every = np.resize(cutoff, ids.size)
    place = np.clip(ids, 0, 89)
    with jax.enable_x64(True):
        until = jax.numpy.asarray(every)
    given = features((time - mean) / deviation)
    run = nnx.jit(lambda inputs, x, cutoff: inputs(gather(x, ids), None, cutoff))
    found = run(own, given, until)
    np.testing.assert_array_equal(run(own, given, None), run(inputs_of(), given, None))
    for at, until_there in ((0, every[0]), (9, every[9]), (40, every[40])):
        wanted = features((time - until_there) / deviation)
        row = run(inputs_of(), wanted, None)[at]
        np.testing.assert_allclose(found[at], row, atol=2e-4, err_msg=str(place[at]))
    x = gather(given, ids)
    by_type = nnx.jit(lambda own, x, cutoff: own(own.by_type(x), x.kind, cutoff))(own, x, until)
    np.testing.assert_allclose(by_type, found, rtol=1e-4, atol=2e-3)  # an explanation reads it


def test_learned_rows_from_elsewhere():
    inputs, own = inputs_of(embedding=False), inputs_of()
    rows = gather(FEATURES, IDS)
    refused("must have learned rows", inputs, rows)
    learned = np.zeros((5, 7), np.float32)
    learned[1:3] = [[1], [2]]
    out = nnx.jit(lambda inputs, rows: inputs(rows))(inputs, rows._replace(learned=learned))
    np.testing.assert_array_equal(out[1:4], [[1.0] * 7, [2.0] * 7, [0.0] * 7])
    assert own.embedding.shape == (33, 7)
    assert not hasattr(inputs, "embedding")
    other = rows._replace(tables=(*rows.tables[:2], np.zeros((25, 5)), None))
    refused("the widths (3, 40, 0, 0)*(3, 40, 5, 0)", own, other)


def test_a_batch_without_types_is_refused():
    made = module(lambda rngs: HGT(WIDTHS, 8, 2, 1, schema=SCHEMA, rngs=rngs))
    seeds = np.array([95], np.int32)
    batch = sample_neighbors(jax.random.key(0), GRAPH, seeds, (3,), edges=("type",))
    run = lambda batch, x: made(batch, gather(x, batch.nodes))  # noqa: E731
    said, bare = "must have a schema, of which HGTConv reads", replace(batch, schema=None)
    refused(said, jax.eval_shape, run, bare, FEATURES)
    make = lambda rngs: RGCN(WIDTHS, 8, 2, 1, schema=FEATURES.schema, rngs=rngs)  # noqa: E731
    refused("must have some*Pass the schema", module, make)
