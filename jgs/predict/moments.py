"""`MomentRun`: what nodes are at a time, by a run on labels at moments."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from flax import nnx

from jgs.data.values import SPLITS
from jgs.dist.communicators.comm import Communicator
from jgs.errors import InputError
from jgs.graph import Graph
from jgs.predict.run import Predictions, Run, best_class
from jgs.predict.source import check_digests, on_graph
from jgs.sampling.checks import check_seed_ids
from jgs.train.config import Config
from jgs.train.evaluation.by_time import ByTime, numbered
from jgs.train.loop.data import open_data
from jgs.train.loop.model import make_sampler
from jgs.train.tasks.moments import judges_key, outputs_of


class MomentRun(Run):
    """A run of `--task nodes` on a data set with a `jgs.data.LabelTable`, which `jgs.open_run`
    opens in one process. Its fields are those of `Run`."""

    ranks = False

    def __init__(
        self,
        config: Config,
        model: Any,
        record: dict[str, Any],
        comm: Communicator,
        **about: Any,
    ):
        super().__init__(config, model, record, comm, **about)
        self._shape = record["shape"]

    def predict(  # type: ignore[override]
        self, nodes: Any = None, *, time: Any = None, graph: Graph | None = None
    ) -> Any:
        """What nodes are at a time: the `Predictions` of their classes; or where labels are
        numbers, float32 `[n]`.

        Args:
          nodes: int `[n]`, in any order; by default all nodes.
          time: int `[n]`, the cutoff of each, or one int for all, in the unit of the graph's
            times. A prediction depends on edges before it alone.
          graph: a graph of the same nodes, by the data set's ids, with other edges; None: the
            run's.

        Neighbours are drawn by the run's sampler, with the key that drew them for the run's
        validation and test. By a sampler that is by-node a prediction depends on its node and
        time alone, not on the others. Raises `InputError`.
        """
        data, num = self._opened, self._opened.graphs[0].num_nodes
        ids = check_seed_ids(np.arange(num) if nodes is None else nodes, num)
        times = np.asarray(-1.5 if time is None else time)
        wide = times.dtype == np.uint64  # of which int64 makes another time
        if wide or times.dtype.kind not in "iu" or times.shape not in ((), (len(ids),)):
            raise InputError(
                "nodes of a run on labels at moments must have times, one or one for each",
                "none" if time is None else f"{times.dtype}{list(times.shape)}",
                "Give time=, the moment that each is predicted at.",
            )
        own = ids if data.own_ids is None else data.own_ids[ids]
        items = {"nodes": own, "time": np.broadcast_to(times, len(ids)).astype(np.int64)}
        whole = data.graphs
        data.graphs = whole if graph is None else [on_graph(data, num, graph)]
        sampler: Any = make_sampler(self.config, widths=lambda: self.model.message_widths)
        key, judged = judges_key(self.config), (numbered(items), None)
        loader = data.loader(sampler, key, None, {}, judged)
        data.graphs = whole
        judge = ByTime(data.comm, loader, self.model, outputs_of)
        try:
            (outputs,) = judge(nnx.state(self.model))
        finally:
            judge.close()
        if self._shape["numbers"]:
            return outputs[:, 0] * np.float32(self._shape["deviation"]) + np.float32(
                self._shape["mean"]
            )
        rows = best_class(outputs)
        return Predictions(rows[:, 0].copy(), rows[:, 1].copy().view(np.float32))

    def rows(self, split: str) -> tuple[np.ndarray, np.ndarray]:
        """The nodes int32 `[n]` and times int64 `[n]` of the label table's rows in a split,
        "train", "val" or "test", in the table's order. Raises `InputError`."""
        if split not in SPLITS:
            raise InputError(
                f"a split must be one of {', '.join(SPLITS)}", repr(split), "Choose."
            )
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

    def _inference(self, source: Any) -> Any:
        return self.logits  # there is none over all neighbours

    @cached_property
    def _opened(self) -> Any:
        data = open_data(self.config)
        check_digests(data.name, self._digests, data.digests)
        return data
