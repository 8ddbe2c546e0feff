"""`EventRun`: scores of links at a time, by a run of `--task links --temporal`."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jgs.errors import InputError
from jgs.graph import Graph
from jgs.predict.by_time import cutoffs, judged_at
from jgs.predict.pairs import LinkRun
from jgs.sampling import Links
from jgs.sampling.checks import check_seed_ids
from jgs.train.evaluation.by_time import batch_size
from jgs.train.loop.keys import key_of


class EventRun(LinkRun):
    """A run of `--task links --temporal`, which `jgs.open_run` opens in one process. Its fields
    are those of `LinkRun`."""

    flags = frozenset({"pairs", "relation", "at"})
    timed = True

    def scores(  # type: ignore[override]
        self,
        pairs: Any,
        *,
        time: Any = None,
        relation: str | None = None,
        graph: Graph | None = None,
    ) -> np.ndarray:
        """float32 `[n]`: the decoder's outputs for the pairs, each at its own time.

        Args:
          pairs: int `[n, 2]` node ids, source and target.
          time: `[n]`, the cutoff of each pair, or one for all: ints in the unit of the
            graph's times, or dates (NumPy's, or text) where that unit is known. A pair's score
            depends on edges before it alone.
          relation: as in `LinkRun`.
          graph: a graph of the same nodes, by the data set's ids, with other edges, such as
            `graph.with_edges(src, dst, time)`. None: the run's.

        Neighbours are drawn by the run's sampler, with the key by which the test was judged. So
        a pair's score does not depend on the other pairs.
        """
        data, targets = self._data
        ids = check_seed_ids(pairs, self.num_nodes(), pairs=True)
        times = cutoffs(time, len(ids), "pairs of a run of --temporal", data.time_unit)
        ids = ids if data.own_ids is None else data.own_ids[ids]
        items = {"src": ids[:, 0], "dst": ids[:, 1], "time": times}
        if (number := self._relation(relation)) is not None:
            items["relation"] = np.full(len(ids), number, np.int32)
        data.graphs, key = targets.messages, key_of(self.config, "samples of test")
        stage, size = Links(0, types=targets.types), batch_size(self.config, 0)
        return judged_at(self, data, items, graph, key, _positive, stage, size)

    def embed(self, *args: Any, **options: Any) -> np.ndarray:
        """Raises `InputError`: a node has a row at each time."""
        raise InputError(
            "rows of nodes must be of a run without --temporal",
            "a run with it",
            "Score pairs at a time: run.scores(pairs, time=...).",
        )

    def recommend(self, *args: Any, **options: Any) -> Any:
        """Raises `InputError`, as `embed` does."""
        return self.embed()


def _positive(model: Any, batch: Any, x: Any) -> tuple[jax.Array, ...]:
    return (model(batch, x).positive,)
