"""The room of a matrix program for what depends on the data, and what the program needed."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Room(NamedTuple):
    """Static sizes, given once for a program. None: an upper bound is used.

    Fields:
      looked: int, the largest number of edges in a slice.
      selected: int, the largest number of edges in a selection from a slice.
    """

    looked: int | None = None
    selected: int | None = None


class Needs(NamedTuple):
    """What a matrix needed of each size of its `Room`, int32 scalars.

    Fields:
      looked, selected: int32 `[]`, as in `Room`.
      overflow: bool `[]`, whether something did not fit.
    """

    looked: jax.Array
    selected: jax.Array
    overflow: jax.Array


def more(
    needs: Needs | None,
    looked: jax.Array | None = None,
    selected: jax.Array | None = None,
    overflow: jax.Array | None = None,
) -> Needs:
    """`needs` (None: nothing), joined with these: the larger of each size, and whether
    something did not fit."""
    if needs is None:
        needs = Needs(jnp.int32(0), jnp.int32(0), jnp.zeros((), bool))
    if looked is not None:
        needs = needs._replace(looked=jnp.maximum(needs.looked, looked))
    if selected is not None:
        needs = needs._replace(selected=jnp.maximum(needs.selected, selected))
    if overflow is not None:
        needs = needs._replace(overflow=needs.overflow | overflow)
    return needs
