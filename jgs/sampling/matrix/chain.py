"""A chain of edge maps, which waits until the values are needed: XLA then makes one loop of
it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jgs.kernels.call import FILL
from jgs.sampling.matrix.edges import Edges

OPERATIONS: dict[str, Callable[[Any, Any], jax.Array]] = {
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "div": jnp.divide,
    "pow": jnp.power,
}


class Step(NamedTuple):
    """One edge map: an operation on each edge's value and another operand. Static.

    Fields:
      operation: a name in `OPERATIONS`.
      kind: the kind of the other operand: `"number"`, `"scalar"` (an array without axes),
        `"row"` or `"column"` (a vector with an entry for each slot), or `"edge"` (a value for
        each edge).
      number: the other operand if it is a number.
      reflected: whether the other operand comes first, as in `1 - A`.
    """

    operation: str
    kind: str
    number: float = 0.0
    reflected: bool = False


def evaluate(
    steps: Sequence[Step], operands: Sequence[jax.Array], value: Any, edges: Edges
) -> jax.Array:
    """float32 `[E, ...]`: the values after all steps, undefined in padding. They begin as
    `value`, `[E, ...]` or 1. `operands` has an array for each step whose kind is not
    `"number"`."""
    rest = iter(operands)
    for step in steps:
        other: Any = step.number
        if step.kind != "number":
            other = _each(step.kind, next(rest), edges)
            most = max(jnp.ndim(other), jnp.ndim(value))  # so that [E] broadcasts with [E, H]
            other, value = (
                jnp.expand_dims(a, tuple(range(jnp.ndim(a), most))) for a in (other, value)
            )
        both = (other, value) if step.reflected else (value, other)
        value = OPERATIONS[step.operation](*both)
    return jnp.broadcast_to(value, (*edges.row.shape, *jnp.shape(value)[1:]))


def _each(kind: str, operand: jax.Array, edges: Edges) -> jax.Array:
    slot = {"row": edges.row, "column": edges.column}.get(kind)
    return operand if slot is None else operand.at[slot].get(**FILL)


def moved(
    steps: Sequence[Step], operands: Sequence[jax.Array], kind: str, at: jax.Array
) -> tuple[jax.Array, ...]:
    """The operands after a choice of slots (or edges) of `kind`: entry `i` of a new operand is
    entry `at[i]` of the old one, or 0 if `at[i]` is out of range."""
    kinds = [step.kind for step in steps if step.kind != "number"]
    return tuple(
        operand.at[at].get(**FILL) if own == kind else operand
        for own, operand in zip(kinds, operands, strict=True)
    )
