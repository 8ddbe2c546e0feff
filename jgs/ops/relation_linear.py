"""`relation_linear`: rows times the matrices of their relations."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from jgs.errors import InputError
from jgs.kernels.call import call, floats, kernel_or_plain, vary_alike
from jgs.ops.checks import check_rows, threads_for
from jgs.ops.derivative import with_derivative
from jgs.ops.linear import finish
from jgs.ops.relations import TILE, Slots, groups_of, permuted


def relation_linear(slots: Slots, x: jax.Array, kernel: jax.Array) -> jax.Array:
    """For each slot, its row of `x` times the matrix of its relation.

    Args:
      slots: `Slots` of `R` relations, with `K` slots.
      x: float `[K, F]`, a row for each slot.
      kernel: float `[R, F, O]`; or `[R, B, F / B, O / B]`, the `B` blocks on the diagonal of
        each matrix.

    Returns:
      `[K, O]`; 0 in slots that are not in use. What `x` and the gradient hold there changes
      nothing, NaN included. Slots in use that have no run are multiplied like others.

    Only tiles in use are computed, on the CPU. Differentiable in `x` and `kernel`. Raises
    `InputError` for shapes that do not match.
    """
    check_rows("x", x)
    blocks = kernel if kernel.ndim == 4 else kernel[:, None]
    num_slots = slots.target.shape[0]
    if blocks.ndim != 4 or x.shape != (num_slots, blocks.shape[1] * blocks.shape[2]):
        raise InputError(
            f"relation_linear takes x [{num_slots}, F] and a kernel [R, F, O], or in B blocks "
            "[R, B, F / B, O / B]",
            f"{list(x.shape)} and {list(kernel.shape)}",
            "Give each slot a row, and each relation a matrix.",
        )
    dtype = jnp.result_type(x, blocks)
    x, blocks = x.astype(dtype), blocks.astype(dtype)
    num_threads = threads_for(num_slots, x, blocks)
    return _linear(num_threads, *vary_alike(slots.num_slots, slots.relation, x, blocks))


def group_linear(
    kind: jax.Array,
    x: jax.Array,
    kernel: jax.Array,
    bias: jax.Array | None,
    num_rows: jax.Array,
) -> jax.Array:
    """float32 `[S, O]`: each row of `x` `[S, F]` times the matrix of its group in `kernel` `[G,
    F, O]`, plus the `bias` `[G, O]` of its group; zeros from row `num_rows` on. `kind` int32
    `[S]` has the groups. Where it is negative the row counts to group 0, so `x` must be finite
    there."""
    num_groups, num = kernel.shape[0], kind.shape[0]
    slots = groups_of(kind, num_groups, num_rows)
    row_of_slot, slot_of_row = slots.target, slots.sums.indices
    y = relation_linear(slots, permuted(x[:num], row_of_slot, slot_of_row), kernel)
    y = permuted(y, slot_of_row, row_of_slot)
    if bias is None:
        return y
    # A product, whose derivative is one too.
    of_row = jax.nn.one_hot(jnp.maximum(kind, 0), num_groups) @ bias
    return finish(y + of_row, num_rows)


# The passes are jitted, so that eager calls compile once too. `num_threads` None means that no
# kernel runs.


@partial(jax.jit, static_argnums=0)
def _forward(num_threads, *operands):
    def run(num_rows, relation, x, kernel):
        out = floats((x.shape[0], kernel.shape[1] * kernel.shape[3]))
        return call("jgs_relation_linear", out, (num_rows, relation, x, kernel), num_threads)

    def plain(num_rows, relation, x, kernel):
        tiles = _tiles(num_rows, x, kernel.shape[1])
        y = jnp.einsum("ntbi,nbio->ntbo", tiles, kernel[relation])
        return finish(y.reshape(x.shape[0], -1), num_rows)

    return kernel_or_plain(num_threads, run, plain, *operands)


@partial(jax.jit, static_argnums=0)
def _grad_kernel(num_threads, num_rows, relation, x, grad, kernel):
    shape = kernel.shape

    def run(num_rows, relation, x, grad):
        arguments = (num_rows, relation, x, grad)
        return call("jgs_relation_linear_grad", floats(shape), arguments, num_threads)

    def plain(num_rows, relation, x, grad):
        x, grad = (_tiles(num_rows, a, shape[1]) for a in (x, grad))
        of_tile = jnp.einsum("ntbi,ntbo->nbio", x, grad)
        return jax.ops.segment_sum(of_tile, relation, shape[0])

    return kernel_or_plain(num_threads, run, plain, num_rows, relation, x, grad)


def _backward(num_threads, operands, grad):
    num_rows, relation, x, kernel = operands
    grad_x = _forward(num_threads, num_rows, relation, grad, kernel.swapaxes(2, 3))
    return None, None, grad_x, _grad_kernel(num_threads, num_rows, relation, x, grad, kernel)


_linear = with_derivative(_forward, lambda *operands: operands[:-1], _backward, 1)


def _tiles(num_rows, x, num_blocks):
    """`x` `[K, F]` as `[K / TILE, TILE, B, F / B]`, with zeros in padding."""
    return finish(x, num_rows).reshape(-1, TILE, num_blocks, x.shape[1] // num_blocks)
