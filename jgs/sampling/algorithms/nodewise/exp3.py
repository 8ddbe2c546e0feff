"""The common part of bandits that draw neighbours. Every node is a player of EXP3 (Auer,
Cesa-Bianchi, Freund and Schapire, "The Nonstochastic Multiarmed Bandit Problem", SIAM J.
Computing 2002), and its arms are its in-edges. A state has the logarithm of each edge's
weight."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jgs.errors import InputError
from jgs.graph import Block, MiniBatch
from jgs.sampling.base import Feedback
from jgs.sampling.matrix import Matrix, MatrixSampler


def check(sampler: MatrixSampler, rates: tuple[str, ...]) -> None:
    """Makes the fields `rates` floats. Raises `InputError` unless they are in (0, 1], and the
    sampler draws a positive number of each node's neighbours, without edge weights."""
    for name in rates:
        value = float(vars(sampler)[name])
        object.__setattr__(sampler, name, value)
        if not 0 < value <= 1:
            raise InputError(f"{name} must be in (0, 1]", value, "Give e.g. 0.1.")
    if sampler.weighted or min(sampler.sizes) < 1:
        raise InputError(
            f"{type(sampler).__name__} must draw some of each node's neighbours, all of equal "
            "weight",
            f"weighted={sampler.weighted}, sizes={sampler.sizes}",
            "Give positive sizes alone.",
        )


def probabilities(sub: Matrix, uniform: float) -> Matrix:
    """The probability with which each column draws each of its edges. The values of `sub` are
    logarithms of weights. A share `uniform` of the draws is uniform, and the others are in
    proportion to the weights."""
    n = jnp.maximum(sub.count(axis=0), 1)
    return (sub.softmax(axis=0) * (1 - uniform)).add(uniform / n, axis=0)


def first_layer(batch: MiniBatch, feedback: Feedback) -> tuple[Block, jax.Array, jax.Array]:
    """The block of the input side, the ids of its edges, and its sources' messages."""
    block = batch.block(0)
    if block.edge_id is None:
        raise InputError(
            "a bandit learns from batches with the ids of their edges",
            "edge_ids=False",
            "Leave it out.",
        )
    return block, block.edge_id, feedback.messages[0]


def of_sources(block: Block, rows: jax.Array) -> Any:
    """`[E, ...]`: the row of each edge's source in `rows` `[S, ...]`, 0 in padding."""
    return rows.at[block.indices].get(mode="fill", fill_value=0)
