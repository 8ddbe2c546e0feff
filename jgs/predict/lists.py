"""The best targets of sources, by a run on links: exactly, or at a moment of each."""

from __future__ import annotations

from typing import Any

import numpy as np
from flax import nnx

from jgs.models import top_k
from jgs.predict.ids import cutoffs
from jgs.sampling.pairs import only_facts
from jgs.train.evaluation.by_samples import ListsAt
from jgs.train.evaluation.edge_pieces import check_nodes
from jgs.train.evaluation.link_metrics import Decoded
from jgs.train.loop.keys import key_of

Lists = tuple[np.ndarray, np.ndarray]


def lists_of(
    run: Any, relation: int | None, nodes: Any, k: int, candidates: Any, new_only: bool
) -> Lists:
    """See `jgs.predict.Run.recommend`; `relation` is a number."""
    data, ids = run._data[0], check_nodes(nodes, 0, run.num_nodes())
    own = _candidates(run, candidates, relation)
    decoder = Decoded(run.model).decoder(nnx.state(run.model))
    known = only_facts(data.graphs[0], relation) if new_only else None
    of = (decoder, run._every_row, run._source.in_graph(ids), own, k)
    best, scores = top_k(*of, relation=relation, known=known)
    if data.own_ids is not None:
        best = np.where(best >= 0, data.in_data_set(best), -1)
    return best, scores


def lists_at(
    run: Any, relation: int | None, nodes: Any, k: int, candidates: Any, time: Any
) -> Lists:
    """The same at times, from a sample of each row."""
    data, targets = run._data
    assert targets is not None  # of a run that gives lists
    ids = check_nodes(nodes, 0, run.num_nodes())
    own = cutoffs(data, ids, time, "lists of a run with --temporal")
    if not ids.size:
        return np.zeros((0, k), np.int32), np.zeros((0, k), np.float32)
    data.graphs, key = targets.messages, key_of(run.config, "samples of test")
    of = run.config, data, run.model, run.edges.columns
    lists = ListsAt(*of, own, _candidates(run, candidates, relation), key)
    try:
        best, scores = lists.best(nnx.state(run.model), k, relation=relation)
    finally:
        lists.close()
    return np.where(best >= 0, data.in_data_set(best), -1), scores


def _candidates(run: Any, nodes: Any, relation: int | None) -> np.ndarray:
    """int32, as the graph has them: the given nodes, or all that a target may be."""
    if nodes is not None:
        return run._source.in_graph(check_nodes(nodes, 0, run.num_nodes()))
    return run._data[1].ends(relation).dst
