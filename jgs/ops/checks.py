"""Checks of the operations' arguments: each raises `InputError` or returns what it checked. And
how an operation gets its derivative."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.arrays import described, fits, require_array
from jgs.errors import InputError, check_choice
from jgs.graph import Block
from jgs.graph.row_tables.table import RowTable, as_table
from jgs.kernels.call import REDUCTIONS
from jgs.settings import exact_integers


def threads_for(num_rows: int, *arrays: Any) -> int | None:
    """The number of threads of the kernel that makes `num_rows` rows of these arrays, or of a
    `RowTable`. None: the plain form makes them, as it does of dtypes that kernels do not read
    and of arrays that are empty. An array that is None is ignored."""
    given = [a for a in arrays if a is not None]
    takes = all(
        a.in_kernels if isinstance(a, RowTable) else a.dtype == jnp.float32 for a in given
    )
    empty = 0 in (num_rows, *(size for a in given for size in a.shape))
    return kernels.NUM_THREADS if takes and not empty and kernels.available() else None


def check_reduce(reduce: Any) -> None:
    """Raises `InputError` unless `reduce` is one of `REDUCTIONS`."""
    check_choice("reduce", reduce, REDUCTIONS)


_BLOCK = {
    "indptr": "int32 [T + 1]",
    "indices": "int32 [E]",
    "edge_weight": "float32 [E], as long as indices",
}

LOST = -(2**31)
"""In place of a number of edges: the sample has overflowed (`Block.overflow`), so that what is
aggregated is NaN."""


def check_sources(x: Any, block: Block, num_sources: Any = None) -> None:
    """Raises `InputError` unless `x` has a row for every source of a block: for its targets,
    unless it says how many sources it has; and for `num_sources`, where that is known."""
    needed = block.source_capacity
    needed = block.target_capacity if needed is None else needed
    if num_sources is not None and not isinstance(num_sources, jax.core.Tracer):
        needed = max(needed, int(num_sources))
    if x.shape[0] < needed:
        raise InputError(
            "x must have a row for every source of the block",
            f"{x.shape[0]} rows for {needed} or more sources",
            "Gather the rows of all the batch's nodes, padding included.",
        )


def edges_or_lost(block: Block, num_edges: Any) -> Any:
    """`num_edges`, or `LOST` where the block's sample has overflowed."""
    if block.overflow is None:
        return num_edges
    return jnp.where(block.overflow, jnp.int32(LOST), num_edges)


def zeros_or_lost(block: Block, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """What is aggregated over a block that has no room for edges."""
    empty = jnp.zeros(shape, dtype)
    return empty if block.overflow is None else jnp.where(block.overflow, jnp.nan, empty)


def check_block(block: Block) -> tuple[jax.Array | np.ndarray, ...]:
    """The block's counts, `num_targets`, `num_sources` and `num_edges`, as int32 scalars."""
    for name, form in _BLOCK.items():
        array = getattr(block, name)
        if name == "edge_weight" and array is None:
            continue
        sizes = {"E": block.edge_capacity} if name == "edge_weight" else {}
        if not isinstance(array, jax.Array | np.ndarray) or not fits(array, form, **sizes):
            remedy = f"Make it as the docstring of jgs.Block says, in numpy.{form.split()[0]}."
            raise InputError(f"block.{name} must be {form}", described(array), remedy)
    names = ("num_targets", "num_sources", "num_edges")
    return tuple(check_count(f"block.{name}", getattr(block, name)) for name in names)


def check_control(block: Block, x: jax.Array, reduce: str) -> None:
    """Raises `InputError` unless the block's control variates fit a mean of `x` `[S, F]`."""
    assert block.control is not None
    if reduce != "mean":
        raise InputError(
            "what is aggregated with control variates must be a mean",
            repr(reduce),
            "Use reduce='mean', or a sampler without control variates.",
        )
    found = [rows.shape for rows in block.control]
    if found != [x.shape, (block.target_capacity, x.shape[1])]:
        raise InputError(
            f"a block's control variates must be as wide as its messages, {x.shape[1]}",
            " and ".join(str(list(shape)) for shape in found),
            "Make the sampler for this model: widths=model.message_widths.",
        )


def check_count(name: str, count: Any) -> jax.Array | np.ndarray:
    """`count` as an int32 scalar; a value beyond 32 bits is clipped and stays out of range."""
    if not isinstance(count, jax.Array):
        count = np.asarray(count)
    if not fits(count, "integers []"):
        remedy = "Give the number as an integer, e.g. jax.numpy.int32(3)."
        raise InputError(f"{name} must be an int32 scalar", described(count), remedy)
    if count.dtype != np.int32:
        with exact_integers():
            count = jnp.clip(count.astype(jnp.int64), -1, 2**31 - 1).astype(jnp.int32)
    return count


def check_rows(name: str, x: Any, real: bool = False) -> None:
    """Raises `InputError` unless `x` is a matrix of floats; of any real numbers if `real`."""
    form = f"floats{' or integers' * real} [N, F], one row a node"
    require_array(name, x, form, "Give it two dimensions and a float dtype.")


def check_edge_weight(edge_weight: Any, num_slots: int, width: int, reduce: str) -> jax.Array:
    """`edge_weight` as an array: `[E]`, or `[E, H]` where the number of heads `H` divides the
    `width` of `x`."""
    good = fits(edge_weight, "floats [E] or [E, H]", E=num_slots)
    heads = math.prod(edge_weight.shape[1:]) if good else 0
    if not heads or width % heads != 0:
        raise InputError(
            f"edge_weight must be floats [{num_slots}], or [{num_slots}, H] where the {width} "
            "columns of x are H heads of one width",
            described(edge_weight),
            "Give each of the block's edges, padding included, a weight for each head.",
        )
    if heads > 1 and reduce == "max":
        raise InputError(
            "a maximum takes one weight an edge",
            f"{heads} heads",
            "Aggregate each head's columns by themselves, or use sum or mean.",
        )
    edge_weight = jnp.asarray(edge_weight)
    return edge_weight if heads > 1 else edge_weight.reshape(num_slots)


def check_num_nodes(num_rows: int, num_nodes: int) -> None:
    """Raises `InputError` unless features of `num_rows` rows have one for each of `num_nodes`:
    nodes beyond the last row would read zeros, as padding does."""
    if num_rows != num_nodes:
        raise InputError(
            "features must have a row for each node of the graph",
            f"{num_rows} rows for {num_nodes} nodes",
            "Give the features of all nodes, in the order of their ids.",
        )


def check_features(features: Any, typed: bool = False) -> RowTable:
    """`features` as a `RowTable`: one, a JAX matrix, or a tuple of JAX matrices; also one of
    tables by node type if `typed`. Raises `InputError` for anything else."""
    if isinstance(features, RowTable) and (typed or features.schema is None):
        return features
    tables = features if isinstance(features, tuple) else (features,)
    for table in tables:
        if isinstance(table, RowTable):
            raise InputError(
                "features in several tables must be JAX arrays",
                type(table).__name__,
                "Join them with scipy.sparse.vstack.",
            )
        if not isinstance(table, jax.Array):
            raise InputError(
                "features must be a JAX array or SparseFeatures",
                type(table).__name__,
                "Put them on the device once: jax.device_put(features, may_alias=True).",
            )
        check_rows("features", table, real=True)
    if not isinstance(features, tuple):
        return as_table(features)  # whose number of rows may be a symbol
    widths = {table.shape[1] for table in tables}
    if len(widths) != 1 or sum(table.shape[0] for table in tables) >= 2**31:
        raise InputError(
            "features in several tables must have one width and fewer than 2**31 rows in all",
            ", ".join(str(list(table.shape)) for table in tables) or "no table",
            "Pass matrices [N_i, F].",
        )
    return as_table(features)


def check_ids(ids: Any, num_rows: int) -> jax.Array:
    """`ids` as int32; a 64-bit id beyond 32 bits becomes padding, not another node."""
    if not isinstance(ids, jax.Array):
        ids = np.asarray(ids)
    remedy = "Convert it with .astype(numpy.int32)."
    require_array("ids", ids, "int32 or int64 [n]", remedy)
    if isinstance(ids, np.ndarray):  # a copy, as the caller may change it afterwards
        return jax.device_put(np.clip(ids, -1, num_rows).astype(np.int32))
    if ids.dtype == np.int64:
        with exact_integers():
            return jnp.clip(ids, -1, num_rows).astype(jnp.int32)
    return ids


def with_derivative(
    forward: Callable[..., Any],
    keep: Callable[..., Any],
    backward: Callable[..., Any],
    static: int,
) -> Callable[..., Any]:
    """`forward`, whose first `static` arguments are not differentiated. Its derivative is
    `backward(*static arguments, kept, derivative by the result)`: a value or None for each
    other argument. `keep(*other arguments, result)` says what is kept for it."""
    run = jax.custom_vjp(forward, nondiff_argnums=tuple(range(static)))

    def forwards(*arguments: Any) -> tuple[Any, Any]:
        out = forward(*arguments)
        return out, keep(*arguments[static:], out)

    run.defvjp(forwards, backward)
    return run
