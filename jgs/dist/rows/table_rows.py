"""Updates of some rows of a table: `add_equal` adds up what there is for each row, `put_rows`
writes rows.

On a CPU the kernels of jgs/kernels/table_rows.cc do both.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.graph import Block
from jgs.kernels.call import floats, handler, vary_alike, where_it_is
from jgs.ops import aggregate


class Sums(NamedTuple):
    """What `add_equal` found: the rows `touched`, int32 `[M']`, each once, in any order, and -1
    after them; their sums `total`, float32 `[M', F]`; their number `num`; and the `slots`,
    int32 `[n]`, in place of those that were given."""

    touched: jax.Array
    total: jax.Array
    num: jax.Array
    slots: jax.Array


def add_equal(ids: jax.Array, rows: jax.Array, slots: jax.Array, step: int) -> Sums:
    """Adds up those of `rows` that belong to the same row of a table, in their order.

    It neither sorts nor works on all of the table.

    Args:
      ids: int32 `[M]`, which of the table's `n` rows each of `rows` belongs to; -1 for none.
      rows: float32 `[M, F]`.
      slots: int32 `[n]`, which may hold anything. Donate it: the result's takes its place.
      step: `M'` is the smallest multiple of it that is at least `M`.
    """
    size = -(-ids.shape[0] // step) * step
    ways = partial(_kernel, size=size), partial(add_equal_plain, size=size)
    return where_it_is(*ways, *vary_alike(ids, rows, slots))


def _kernel(ids, rows, slots, size):
    integers = [jax.ShapeDtypeStruct(shape, jnp.int32) for shape in ((size,), (), slots.shape)]
    results = [integers[0], floats((size, rows.shape[1])), *integers[1:]]
    call = handler("jgs_equal_rows", results, input_output_aliases={2: 3})
    found = call(ids, rows, slots, num_threads=np.int64(kernels.NUM_THREADS))
    return Sums(*vary_alike(*found, rows)[:4])


def add_equal_plain(ids: jax.Array, rows: jax.Array, slots: jax.Array, size: int) -> Sums:
    """`add_equal` in plain JAX; `size` is `M'`."""
    num_slots, nth = slots.shape[0], jnp.arange(ids.shape[0], dtype=jnp.int32)
    real = ids >= 0
    at = jnp.where(real, ids, num_slots)
    # Of the positions that belong to one row, one leads.
    slots = slots.at[at].set(nth, mode="drop")
    leader = jnp.where(real, slots.at[at].get(mode="fill", fill_value=0), 0)
    leads = real & (leader == nth)
    place = jnp.cumsum(leads, dtype=jnp.int32) - 1
    num = jnp.sum(leads, dtype=jnp.int32)
    # What belongs nowhere goes behind the sums, each to a place of its own: in one place they
    # would be a long row.
    behind = num + jnp.cumsum(~real, dtype=jnp.int32) - 1
    touched = (
        jnp.full(size, -1, jnp.int32).at[jnp.where(leads, place, size)].set(ids, mode="drop")
    )
    # Adding rows to their places is the derivative of reading rows from there.
    every = jnp.int32(ids.shape[0])
    indptr = jnp.arange(ids.shape[0] + 1, dtype=jnp.int32)
    block = Block(indptr, jnp.where(real, place[leader], behind), every, every, every)
    zeros = jnp.zeros((size, rows.shape[1]))
    _, transpose = jax.vjp(lambda x: aggregate(block, x, "sum"), zeros)
    (total,) = transpose(rows)
    return Sums(touched, total, num, slots)


def put_rows(table: jax.Array, ids: jax.Array, rows: jax.Array) -> jax.Array:
    """`table` with its rows `ids` int32 `[M]` replaced by `rows` `[M, ...]`; -1 names no row.
    No id may be given twice. Donate the table: it is then changed where it lies."""
    if table.ndim != 2 or table.dtype != jnp.float32:
        return _put_plain(table, ids, rows)
    return where_it_is(_put_kernel, _put_plain, *vary_alike(table, ids, rows))


def _put_kernel(table, ids, rows):
    put = handler("jgs_put_rows", floats(table.shape), input_output_aliases={0: 0})
    changed = put(table, ids, rows, num_threads=np.int64(kernels.NUM_THREADS))
    return vary_alike(changed, rows)[0]


def _put_plain(table, ids, rows):
    # An index of -1 would wrap around.
    return table.at[jnp.where(ids >= 0, ids, table.shape[0])].set(rows, mode="drop")
