"""A tuple of fanouts stands for `Neighbors(fanouts)` wherever a sampler is an argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jgs.errors import InputError
from jgs.sampling.algorithms.neighbors import Neighbors, check_fanouts
from jgs.sampling.base import Sampler

# Each option of `sample_neighbors`, and the field of `Neighbors` that it sets.
_OPTIONS = {
    "replace": "replace",
    "weighted": "weighted",
    "return_edge_ids": "edge_ids",
    "return_edge_weights": "edge_weights",
    "relabel_inputs": "relabel_inputs",
}


def as_sampler(sampler: Any = None, **options: Any) -> Sampler:
    """`sampler` itself, or for a tuple of fanouts `Neighbors` with the `options` of
    `sample_neighbors`. Raises `InputError`."""
    if "fanouts" in options:
        if sampler is not None:
            raise TypeError("give a sampler or fanouts, not both")
        sampler = options.pop("fanouts")
    if unknown := sorted(set(options) - set(_OPTIONS)):
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}")
    if isinstance(sampler, Sampler) and not isinstance(sampler, type):
        if options:
            raise InputError(
                "the options of neighbour sampling go with a tuple of fanouts",
                f"{', '.join(sorted(options))} beside {sampler!r}",
                "Give them to the sampler itself.",
            )
        return sampler
    if not isinstance(sampler, str | Sequence | np.ndarray) and hasattr(sampler, "sample"):
        missing = [n for n in ("by_node", "init", "sample", "bound") if not hasattr(sampler, n)]
        raise InputError(
            "a sampler must be an instance with by_node, init, sample and bound",
            f"{sampler!r}" + (f" without {', '.join(missing)}" if missing else ""),
            "See jgs.sampling.Sampler.",
        )
    return Neighbors(
        check_fanouts(sampler), **{_OPTIONS[name]: bool(v) for name, v in options.items()}
    )
