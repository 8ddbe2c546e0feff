"""`Seeds`: what a sampler draws for: nodes, their cutoffs, and the edges that are left out."""

from __future__ import annotations

from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from jgs.arrays import described, fits
from jgs.errors import InputError
from jgs.graph.shown import Shown
from jgs.settings import exact_integers

_LAST = np.iinfo(np.int64).max


@jax.tree_util.register_pytree_with_keys_class
class Seeds(Shown):
    """What a batch is drawn for. A sampler takes one, or an array of nodes alone.

    Fields (`B` seeds, a graph of `N` nodes and `E` edges):
      nodes: int32 `[B]` node ids, with `N` for padding; `[B, 2]` for a sampler of pairs.
      time: int64 `[B]` or None; each seed's cutoff. Its sample has only edges whose
        `Graph.edge_time` is less, at every hop. The time of a seed that is padding is not read.
        With `inclusive` edges at the cutoff itself are there too: the field is one more than
        what was given.
      excluded: int64 `[X]` or None; the positions in `Graph.indices` of edges that are not
        drawn, for any seed and at any hop. They ascend, without repetition; then `E` is
        padding.

    A super-batch has one more axis in front, in all fields. `Seeds(...)` takes arrays of
    integers; 64-bit ones stay 64-bit also outside `jax.enable_x64`. Raises `InputError`.
    """

    nodes: Any
    time: Any
    excluded: Any

    def __init__(
        self, nodes: Any, time: Any = None, excluded: Any = None, *, inclusive: bool = False
    ):
        self.nodes = _array(nodes)
        self.time = None if time is None else as_long("time", time)
        if self.time is not None and inclusive:
            with exact_integers():  # no edge has the last of all times
                self.time = jnp.where(self.time == _LAST, self.time, self.time + 1)
        self.excluded = None if excluded is None else as_long("excluded", excluded)

    @classmethod
    def of(cls, seeds: Any) -> Self:
        """`seeds` itself, or `Seeds` of an array of nodes."""
        return seeds if isinstance(seeds, cls) else cls(seeds)

    def replace(self, **fields: Any) -> Self:
        """The same seeds with some fields replaced, unchecked."""
        return self.tree_unflatten(None, [fields.get(n, v) for n, v in vars(self).items()])

    def batch(self, i: int) -> Self:
        """Batch `i` of a super-batch."""
        return jax.tree.map(lambda a: a[i], self)

    def _facts(self) -> dict[str, str]:
        return {n: str(list(a.shape)) for n, a in vars(self).items() if a is not None}

    # -- pytree: nothing is checked, for leaves may be tracers or anything else

    def tree_flatten_with_keys(self):
        return [(jax.tree_util.GetAttrKey(n), a) for n, a in vars(self).items()], None

    @classmethod
    def tree_unflatten(cls, _: None, leaves: Any) -> Self:
        seeds = object.__new__(cls)
        vars(seeds).update(zip(("nodes", "time", "excluded"), leaves, strict=True))
        return seeds


def _array(value: Any) -> Any:
    if isinstance(value, jax.Array):
        return value
    try:
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value)):
            return jnp.asarray(value)
        return np.array(value)  # a copy, as the caller may change it afterwards
    except ValueError:  # ragged: whoever checks the form refuses it
        return np.empty(0)


def as_long(name: str, value: Any) -> jax.Array:
    """`value` as an int64 array. Raises `InputError`, which names it, for what is no array of
    integers: a float has no exact time."""
    value = _array(value)
    single = value.ndim == 0
    if not fits(value, "integers or empty [n, ...]"):
        raise InputError(
            f"the {name} of seeds must be an array of integers",
            f"one number, {value}" if single else described(value),
            "Put it into a list." if single else "Convert it with .astype(int).",
        )
    if isinstance(value, np.ndarray) and (value > np.iinfo(np.int64).max).any():
        raise InputError(
            f"the {name} of seeds must be 64-bit integers", value.max(), "Give signed ones."
        )
    with exact_integers():
        if isinstance(value, np.ndarray):
            return jax.device_put(value.astype(np.int64))
        return value.astype(jnp.int64)
