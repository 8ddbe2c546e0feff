"""An adaptive sampler's update on many ranks, which all reach the same state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jgs.dist.communicators.comm import OWN, SAME, Communicator
from jgs.sampling.base import State
from jgs.settings import exact_integers


def update_program(
    comm: Communicator, update: Callable[..., State], donate_argnums: Sequence[int] = ()
) -> Callable[..., State]:
    """A program `update(state, batch, feedback, graph)`: every rank applies the updates of all
    ranks, in the order of the ranks. State and graph are `SAME`; batch and feedback are `OWN`.
    One round gathers them."""

    def of_all_ranks(state: State, batch: Any, feedback: Any, graph: Any) -> State:
        def step(state: State, one: Any) -> tuple[State, None]:
            return update(state, *one, graph), None

        return jax.lax.scan(step, state, _gathered(comm, (batch, feedback)))[0]

    specs = (SAME, OWN, OWN, SAME)
    return comm.program(of_all_ranks, specs, SAME, donate=tuple(donate_argnums))


def _gathered(comm: Communicator, tree: Any) -> Any:
    """`tree` with a leading axis of ranks, by one `all_gather` of its bits."""
    leaves, structure = jax.tree.flatten(tree)
    with exact_integers():  # without it 64-bit edge ids would be cut
        words = [_to_words(leaf) for leaf in leaves]
        every = comm.all_gather(jnp.concatenate(words))
        found, begin = [], 0
        for leaf, own in zip(leaves, words, strict=True):
            rows = every[:, begin : begin + own.shape[0]]
            found.append(_from_words(rows, leaf))
            begin += own.shape[0]
    return jax.tree.unflatten(structure, found)


def _to_words(leaf: jax.Array) -> jax.Array:
    """uint32 `[n]`: the bits of an array of 32 or 64 bits, or of booleans."""
    if leaf.dtype == bool:
        return leaf.reshape(-1).astype(jnp.uint32)
    return jax.lax.bitcast_convert_type(leaf, jnp.uint32).reshape(-1)


def _from_words(rows: jax.Array, leaf: jax.Array) -> jax.Array:
    shape = (rows.shape[0], *leaf.shape)
    if leaf.dtype == bool:
        return rows.reshape(shape) != 0
    if leaf.dtype.itemsize == 8:
        shape = (*shape, 2)
    return jax.lax.bitcast_convert_type(rows.reshape(shape), leaf.dtype)
