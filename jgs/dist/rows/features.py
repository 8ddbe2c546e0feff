"""`all_features`: the features of all nodes on every rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jgs.dist.communicators.collect import rows_on_all
from jgs.dist.communicators.comm import Communicator
from jgs.graph import SparseFeatures, as_device


def all_features(comm: Communicator, features: Sequence[Any]) -> Any:
    """The rows `[N, F]` of all nodes on every rank, dense or sparse as they are given. Samplers
    that read any node need them. All ranks call it, and each sends all its rows once.

    Args:
      features: for each local rank its own nodes' rows, as `FeatureExchange` takes them.
    """
    first = features[0]
    if isinstance(first, SparseFeatures):
        counts = rows_on_all(comm, [np.diff(np.asarray(own.indptr)) for own in features])
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
        columns, values = (
            rows_on_all(comm, [np.asarray(getattr(own, name)) for own in features])
            for name in ("indices", "values")
        )
        return SparseFeatures(
            as_device(indptr),
            as_device(columns),
            as_device(values),
            first.num_features,
            int(counts.max(initial=0)),
        )
    rows = [np.concatenate([np.asarray(table) for table in own]) for own in features]
    every = rows_on_all(comm, [own.reshape(-1) for own in rows])
    return as_device(every.reshape(-1, rows[0].shape[1]))
