"""`MomentRun`: what nodes are at a time, by a run on labels at moments."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from jgs.data.values import SPLITS
from jgs.errors import InputError, check_choice
from jgs.graph import Graph
from jgs.predict.by_time import cutoffs, judged_at
from jgs.predict.classes import best_class, of_classes
from jgs.predict.run import Run
from jgs.predict.source import RunData, check_digests
from jgs.sampling.checks import check_seed_ids
from jgs.train.loop.open_data import open_data
from jgs.train.tasks.moments import judges_key, outputs_of


class MomentRun(Run):
    """A run of `--task nodes` on a data set with a `jgs.data.LabelTable`, which `jgs.open_run`
    opens in one process. Its fields are those of `Run`."""

    ranks = False
    flags = frozenset({"split", "nodes", "node_type", "at"})
    timed = True

    def predict(  # type: ignore[override]
        self, nodes: Any = None, *, time: Any = None, graph: Graph | None = None
    ) -> Any:
        """What nodes are at a time: the `Predictions` of their classes; or where labels are
        numbers, float64 `[n]`.

        Args:
          nodes: int `[n]`, in any order; by default all nodes.
          time: `[n]`, the cutoff of each, or one for all: ints in the unit of the
            graph's times, or dates (NumPy's, or text) where that unit is known. A prediction
            depends on edges before it alone.
          graph: a graph of the same nodes, by the data set's ids, with other edges; None: the
            run's.

        Neighbours are drawn by the run's sampler, with the key that drew them for the run's
        validation and test. By a sampler that is by-node a prediction depends on its node and
        time alone, not on the others. Raises `InputError`.
        """
        data, num = self._opened, self._opened.graphs[0].num_nodes
        ids = check_seed_ids(np.arange(num) if nodes is None else nodes, num)
        times = cutoffs(time, len(ids), "nodes of a run on labels at moments", data.time_unit)
        own = ids if data.own_ids is None else data.own_ids[ids]
        key, items = judges_key(self.config), {"nodes": own, "time": times}
        outputs = judged_at(self, data, items, graph, key, outputs_of)
        if self.numbers:
            return self.in_units(outputs)
        return of_classes(best_class(outputs))

    def rows(self, split: str) -> tuple[np.ndarray, np.ndarray]:
        """The nodes int32 `[n]` and times int64 `[n]` of the label table's rows in a split,
        "train", "val" or "test", in the table's order. Raises `InputError`."""
        check_choice("a split", split, SPLITS)
        table, ids = self._opened.table, self._opened.own_ids
        some = table.split == SPLITS.index(split)
        nodes = table.nodes[some]
        return nodes if ids is None else ids.argsort()[nodes].astype(np.int32), table.time[some]

    def split(self, name: str) -> Any:
        """Raises `InputError`: a split has rows of the label table."""
        raise InputError(
            "a split of nodes must be of a run without labels at moments",
            "a run with them",
            "Take run.rows(split): nodes and times.",
        )

    def logits(self, *args: Any, **options: Any) -> Any:
        """Raises `InputError`: a node has outputs at each time."""
        raise InputError(
            "outputs and rows of nodes must be of a run without labels at moments",
            "a run with them",
            "Predict at a time: run.predict(nodes, time=...).",
        )

    def embed(self, *args: Any, **options: Any) -> Any:
        """Raises `InputError`, as `logits` does."""
        return self.logits()

    def explain(self, *args: Any, **options: Any) -> Any:
        """Raises `InputError`, as `logits` does."""
        return self.logits()

    @cached_property
    def _data(self) -> tuple[RunData, Any]:
        data = self._opened
        found = (data.comm, data.graphs, data.offsets, data.features, data.own_ids)
        about = {"labels": data.host_labels, "label_table": data.table}
        # There is no inference over all neighbours.
        return RunData(*found, {}, data.node_ids, **about), self.logits

    @cached_property
    def _opened(self) -> Any:
        data = open_data(self.config)
        check_digests(data.name, self._digests, data.digests)
        return data
