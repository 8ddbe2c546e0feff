"""`SealRun`: predictions of a run of `--task links --sampler seal` for pairs of nodes."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from flax import nnx

from jgs.dist.batches.pairs import PairDraws
from jgs.dist.communicators.comm import Alone
from jgs.errors import InputError
from jgs.graph import Graph
from jgs.predict.saved import OpenedModel
from jgs.predict.source import RunData, check_digests
from jgs.sampling.checks import check_seed_ids
from jgs.sampling.edges.random import threefry
from jgs.train.tasks.seal import Scores, SealData, open_seal


class SealRun(OpenedModel):
    """A run of `--task links --sampler seal` with its parameters, which `jgs.open_run` opens
    in one process. Its fields are those of `PairRun`, and `model` is the `DGCNN`."""

    flags = frozenset({"pairs"})
    learned = "dgcnn"

    def predict(
        self, pairs: Any, *, graph: Graph | None = None, features: Any = None
    ) -> np.ndarray:
        """float32 `[n]`: the probability that a link joins the two nodes of each pair.

        Args:
          pairs: int `[n, 2]` node ids.
          graph, features: the graph from which the subgraphs are drawn, and its features. By
            default they are the run's, without the links that it held out for the test. An edge
            between the two nodes of a pair is left out of their subgraph.

        Raises `InputError` for ids or features that do not fit.
        """
        if graph is None:
            graph, features = self._data.held.graph, self._data.plain.features
        width = 0 if features is None else features.shape[1]
        wanted = self.model.in_features
        if width != wanted or (width and features.shape[0] != graph.num_nodes):
            raise InputError(
                f"features must have a row a node, and the {wanted} columns of the run's",
                "none" if features is None else list(features.shape),
                "Give the features that it was trained with.",
            )
        ids = check_seed_ids(pairs, graph.num_nodes, pairs=True)
        comm, sampler = Alone(), self.config.made("sampler")
        draws = PairDraws(comm, graph, features, self.config.batch_size, sampler, ids)
        scores = Scores(comm, draws, nnx.graphdef(self.model))
        key = threefry(self.config.seed)
        logits = scores(nnx.state(self.model), ids, key)
        return self.answer.of(logits)

    @property
    def _source(self) -> RunData:
        graph, plain = self._data.held.graph, self._data.plain
        every = np.array([0, graph.num_nodes])
        return RunData(Alone(), [graph], every, [plain.features], None, {}, plain.node_ids)

    @cached_property
    def _data(self) -> SealData:
        data = open_seal(self.config)
        check_digests(data.name, self._digests, data.digests)
        return data
