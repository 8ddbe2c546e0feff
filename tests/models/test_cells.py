"""`CellTransformer`: which cells it reads, what they hold, who attends to whom, and padding."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from modules import exact, module
from refusals import refused
from test_relgt import COUNTS, NUM, OUT, SCHEMA, SIZES, WIDTH, X, batch_of, gradients, run

from jgs.graph import TypedFeatures
from jgs.models import CellTransformer
from jgs.models.cells import cells_of
from jgs.ops import gather

COLUMNS = (
    (("age", "number", 1), ("city", "category", 2)),
    (("price", "number", 1), ("made", "moment", 2), ("kind", "category", 1)),
    (),
)
NUMBERS = tuple(max(1, len(own)) for own in COLUMNS)
FEATURES = TypedFeatures.from_dict(SCHEMA, {"user": X[:20, :3], "item": X[20:38]})
MOMENTS = ((), ((1, 2, 4.0, 3.0),), ())


def model_of(**options):
    given = {"heads": 2, "time_width": 6, "columns": COLUMNS, "cells": 20, **options}
    widths = FEATURES.widths
    return module(
        lambda rngs: CellTransformer(widths, WIDTH, OUT, 1, schema=SCHEMA, **given, rngs=rngs)
    )


MODEL = model_of()


def listed(batch, size):
    """The token and the column of each cell, by loops."""
    tokens, first = batch.tokens, np.cumsum([0, *NUMBERS])
    for mask, kinds in zip(*map(np.asarray, (tokens.mask, tokens.kind)), strict=True):
        found = [(0, first[-1])] * bool(mask[0])
        for place in np.flatnonzero(mask):
            found += [(place, first[kinds[place]] + i) for i in range(NUMBERS[kinds[place]])]
        yield found[:size]


def test_cells_stand_row_by_row():
    batch = batch_of(schema=SCHEMA)
    for size in (5, 20, 40):
        cells = cells_of(batch.tokens, NUMBERS, size)
        for b, wanted in enumerate(listed(batch, size)):
            num = len(wanted)
            assert cells.mask[b].tolist() == [True] * num + [False] * (size - num)
            pairs = zip(
                cells.token[b, :num].tolist(), cells.column[b, :num].tolist(), strict=True
            )
            assert [*pairs] == wanted


def test_values_of_a_row_add_up_to_its_projected_features():
    """And times are counted from the cutoffs."""
    batch = batch_of(schema=SCHEMA)
    x = gather(FEATURES, batch.nodes)
    for moments, cutoff in ((None, None), (MOMENTS, jnp.arange(batch.nodes.size) // 7 * 1000)):
        model, own = model_of(moments=moments, cells=24), replace(batch, cutoff=cutoff)
        cells = cells_of(batch.tokens, NUMBERS, 24)
        values = np.asarray(model._values(own, batch.tokens, cells, x))
        kinds = np.asarray(batch.tokens.kind)
        for b, num in enumerate(SIZES):
            for place in np.flatnonzero(kinds[b, :num] < 2):
                mine = np.asarray(cells.token[b] == place) & np.asarray(cells.mask[b])
                mine[0] = False
                kind, node = kinds[b, place], int(batch.nodes[b * 7 + place])
                found = X[node, : FEATURES.widths[kind]].astype(np.float64)
                if moments and kind == 1:
                    found[1] += (4.0 - b * 1000) / 3.0 * (1 - found[2])
                wanted = found @ exact(model.inputs.kernels[str(kind)])
                np.testing.assert_allclose(values[b, mine].sum(0), wanted, rtol=2e-4, atol=2e-4)
        assert not values[:, 0].any()


def test_a_cell_holds_its_own_column():
    batch = batch_of(schema=SCHEMA)
    cells = cells_of(batch.tokens, NUMBERS, 24)
    changed = TypedFeatures.from_dict(
        SCHEMA, {"user": X[:20, :3] + np.float32([5, 0, 0]), "item": X[20:38]}
    )
    before, after = (
        np.asarray(MODEL._values(batch, batch.tokens, cells, gather(f, batch.nodes)))
        for f in (FEATURES, changed)
    )
    differs = np.abs(after - before).max(-1) > 1e-3
    ages = cells.mask & (cells.column == 0) & (jnp.arange(24) > 0)
    np.testing.assert_array_equal(differs, ages)


def test_who_attends_to_whom():
    batch = batch_of(schema=SCHEMA)
    cells, parent = cells_of(batch.tokens, NUMBERS, 20), np.asarray(batch.tokens.parent)
    _, masks, _, _ = MODEL._start(batch, batch.tokens, gather(FEATURES, batch.nodes), None)
    assert len(masks) == len(MODEL.blocks) == 5
    row, key, column = (np.asarray(mask[:, 0]) for mask in masks[:3])
    for b, wanted in enumerate(listed(batch, 20)):
        for i, (one, first) in enumerate(wanted):
            for j in range(20):
                real = j < len(wanted)
                other, second = wanted[j] if real else (-1, -1)
                joined = real and (parent[b, one] == other or parent[b, other] == one)
                assert row[b, i, j] == (real and one == other)
                assert key[b, i, j] == (joined or (real and one == other))
                assert column[b, i, j] == (real and first == second)
    assert np.asarray(masks[-1]).sum() == np.asarray(cells.mask).sum()


def test_padding_changes_nothing():
    few, more = batch_of(schema=SCHEMA), batch_of(11, (*SIZES, 0, 0), schema=SCHEMA)
    wide = model_of(cells=33)
    for key in (None, jax.random.key(3)):
        out = run(MODEL, few, gather(FEATURES, few.nodes), key)
        assert np.isfinite(np.asarray(out)[:3]).all()
        found = run(wide, more, gather(FEATURES, more.nodes), key)
        np.testing.assert_allclose(found[:3], out[:3], rtol=2e-5, atol=2e-5)
    of_params = gradients(MODEL, few, gather(FEATURES, few.nodes))[0]
    for path, leaf in jax.tree_util.tree_leaves_with_path(of_params):
        assert np.isfinite(leaf).all()
        name = jax.tree_util.keystr(path)
        assert np.abs(leaf).max() > 1e-5, name
    lost = replace(few, overflow=jnp.bool_(True))
    assert np.isnan(run(MODEL, lost, gather(FEATURES, few.nodes))).all()


def test_a_matrix_and_whole_rows_do_too():
    batch = batch_of(schema=SCHEMA)
    rows = {"user": X[:20], "item": X[20:38], "shop": X[38:50]}
    features = TypedFeatures.from_dict(SCHEMA, rows)
    model = module(
        lambda rngs: CellTransformer(
            features.widths, WIDTH, OUT, 1, schema=SCHEMA, heads=2, rngs=rngs
        )
    )
    assert model.columns == tuple(((name, "row", 4),) for name in COUNTS)
    x = np.where(np.asarray(batch.nodes)[:, None] < NUM, X[np.asarray(batch.nodes)], np.nan)
    found = run(model, batch, jnp.asarray(x))
    wanted = run(model, batch, gather(features, batch.nodes))
    np.testing.assert_allclose(found[:3], wanted[:3], rtol=2e-5, atol=2e-5)


def test_wrong_cells_are_refused():
    refused("columns of the node types must have", model_of, columns=COLUMNS[:1] * 3)
    refused("cells must be of a graph with node types", CellTransformer, 4, 8, 2, rngs=None)
    refused("cells must be", model_of, cells=0)
