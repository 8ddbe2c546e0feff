"""Adding to and writing rows of a table: the kernels do what plain JAX and NumPy do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jgs import kernels
from jgs.dist.rows.table_rows import add_equal, put_rows

pytestmark = pytest.mark.parametrize("with_kernels", sorted({False, kernels.available()}))


def test_rows_of_one_row_are_added_in_their_order(with_kernels, implemented):
    implemented(with_kernels)
    rng = np.random.default_rng(0)
    add = jax.jit(add_equal, static_argnums=3)
    num_slots = 300
    # The old contents of the slots do not matter, even if they look like places.
    for slots in (np.zeros(num_slots), rng.integers(-9, 1000, num_slots), np.arange(num_slots)):
        ids = rng.integers(-1, num_slots, 1000).astype(np.int32)
        ids[rng.random(1000) < 0.2] = 7  # one id has a fifth of the rows
        rows = rng.normal(size=(1000, 19)).astype(np.float32)
        found = add(ids, rows, jnp.asarray(slots, jnp.int32), 64)
        num, touched = int(found.num), np.asarray(found.touched)
        assert touched.shape == (1024,)
        assert found.total.shape == (1024, 19)
        assert found.slots.shape == (num_slots,)
        assert np.all(touched[num:] == -1)
        assert sorted(touched[:num]) == sorted(set(ids.tolist()) - {-1})
        for row, total in zip(touched[:num], np.asarray(found.total), strict=False):
            wanted = np.zeros(19, np.float32)
            for own in rows[ids == row]:
                wanted += own
            np.testing.assert_array_equal(total, wanted)


def test_rows_are_written_where_they_belong(with_kernels, implemented):
    implemented(with_kernels)
    rng = np.random.default_rng(1)
    put = jax.jit(put_rows, donate_argnums=0)
    for dtype, shape in ((np.float32, (200, 5)), (np.int32, (200,))):
        table = rng.integers(99, size=shape).astype(dtype)
        ids = rng.permutation(200)[:150].astype(np.int32)
        ids[::10] = -1
        rows = rng.integers(99, size=(150, *shape[1:])).astype(dtype)
        wanted = table.copy()
        wanted[ids[ids >= 0]] = rows[ids >= 0]
        np.testing.assert_array_equal(put(jnp.asarray(table), ids, rows), wanted)
