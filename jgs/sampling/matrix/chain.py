"""A chain of edge maps, which waits until the values are needed: XLA then makes one loop of
it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jgs.kernels.call import FILL
from jgs.sampling.matrix.edges import Edges, inner

OPERATIONS: dict[str, Callable[[Any, Any], jax.Array]] = {
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "div": jnp.divide,
    "pow": jnp.power,
}


class Factors(NamedTuple):
    """The operand of a product, see `Matrix.dot`: a vector for each slot, float `[R, D]` and
    `[C, D]`."""

    row: jax.Array
    column: jax.Array


class Step(NamedTuple):
    """One edge map: an operation on each edge's value and another operand, which comes first if
    it is `reflected`. Static.

    The `operation` is a name in `OPERATIONS`. The `kind` of the other operand is `"number"`,
    `"scalar"` (an array without axes), `"row"` or `"column"` (a vector with an entry for each
    slot), `"dot"` (`Factors`), or `"edge"` (a value for each edge).
    """

    operation: str
    kind: str
    number: float = 0.0
    reflected: bool = False

    def reads(self, kind: str) -> bool:
        """Whether the operand has an entry for each slot of `kind`, or for each edge."""
        return self.kind == kind or (self.kind == "dot" and kind in Factors._fields)


def evaluate(
    steps: Sequence[Step], operands: Sequence[Any], value: Any, edges: Edges
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


def _each(kind: str, operand: Any, edges: Edges) -> jax.Array:
    if kind == "dot":
        return inner(operand.row, operand.column, edges.row, edges.column)
    slot = {"row": edges.row, "column": edges.column}.get(kind)
    return operand if slot is None else operand.at[slot].get(**FILL)


def moved(
    steps: Sequence[Step], operands: Sequence[Any], kind: str, at: jax.Array
) -> tuple[Any, ...]:
    """The operands after a choice of slots (or edges) of `kind`: entry `i` of a new operand is
    entry `at[i]` of the old one, or 0 if `at[i]` is out of range."""

    def move(step: Step, operand: Any) -> Any:
        if not step.reads(kind):
            return operand
        if step.kind == "dot":
            return operand._replace(**{kind: getattr(operand, kind).at[at].get(**FILL)})
        return operand.at[at].get(**FILL)

    others = [step for step in steps if step.kind != "number"]
    return tuple(map(move, others, operands))
