"""`PairRun` and `LinkRun`: predictions for pairs of nodes, and embeddings of nodes."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any, cast

import jax
import numpy as np
from flax import nnx

from jgs.errors import InputError
from jgs.graph import Graph
from jgs.models import top_k
from jgs.predict.by_time import cutoffs, judged_at
from jgs.predict.progress import bar
from jgs.predict.saved import OpenedModel, Saved
from jgs.predict.source import RunData, check_digests, of_graph
from jgs.predict.types import check_ends, ids_of, schema_of
from jgs.sampling import Links
from jgs.sampling.checks import check_seed_ids
from jgs.sampling.pairs import only_facts
from jgs.train.evaluation.by_time import batch_size
from jgs.train.evaluation.edges import check_nodes
from jgs.train.evaluation.scores import Decoded, Encoded
from jgs.train.loop.keys import key_of
from jgs.train.loop.model import types_of
from jgs.train.tasks.pairs import PairTask, open_pairs
from jgs.train.tasks.targets import Targets


class PairRun(OpenedModel):
    """A run of a task of pairs, which `jgs.open_run` opens in one process. Rows are computed
    from all neighbours, in the memory of the run's `--eval-memory`.

    Arguments of several methods:
      pairs: int `[n, 2]` node ids, source and target.
      relation: the name of the pairs' relation, for a decoder that has relations. By default
        it is the one whose edges the run has learned to predict.
      graph, features: another graph and its features, for messages. By default they are the
        run's, without the edges that it held out for the test. A run that has learned rows of
        nodes needs a graph of the same nodes.

    Fields:
      config: the run's `Config`.
      model: the `jgs.models.PairModel`, with the parameters of the best epoch, or of the newest
        checkpoint after `open_run(..., params="last")`.
      best_epoch, val_accuracy, best_params, last_params, epochs, metrics, run_dir,
        feature_columns, edge_feature_columns: as in `Run`.

    Methods raise `InputError` for ids or features that do not fit.
    """

    flags = frozenset({"pairs", "nodes", "node_type", "embed", "relation"})

    def predict(self, pairs: Any, **options: Any) -> Any:
        """What the pairs' edges are: the `Predictions` of their classes, or float64 `[n]`,
        their numbers. Of links float32 `[n]`: the logistic function of each pair's score,
        which is the probability of a link where the run has learned with `--loss bce`.
        `options` are those of `scores`."""
        return self.answer.of(self.scores(pairs, **options))

    def embed(
        self,
        nodes: Any = None,
        *,
        node_type: str | None = None,
        graph: Graph | None = None,
        features: Any = None,
    ) -> np.ndarray:
        """float32 `[n, hidden]`: the rows of `nodes`, int `[n]`, of which the decoder makes
        scores; by default of all nodes. With `node_type` they are nodes of this type, and count
        from 0 in it."""
        self._check_untimed()
        source = self._with(graph, features)
        return self._rows(source, ids_of(source.schema, source.num_nodes, nodes, node_type))

    def scores(
        self,
        pairs: Any,
        *,
        relation: str | None = None,
        graph: Graph | None = None,
        features: Any = None,
    ) -> np.ndarray:
        """float32 `[n]`, or `[n, C]`: the decoder's outputs for the pairs."""
        source = self._with(graph, features)
        ids = check_seed_ids(pairs, source.num_nodes, pairs=True)
        nodes, at = np.unique(ids, return_inverse=True)
        rows, at = self._rows(source, nodes.astype(np.int32)), at.reshape(ids.shape)
        number = self._relation(relation)
        check_ends(source.schema, number, ids)
        of = None if number is None else np.full(len(ids), number, np.int32)
        decode = Decoded(self.model)
        return decode(nnx.state(self.model), rows, at[:, 0], at[:, 1], of)

    def _rows(self, source: RunData, nodes: np.ndarray) -> np.ndarray:
        nodes = nodes if source.own_ids is None else source.own_ids[nodes]
        params = nnx.state(self.model)
        of = source.features, source.offsets, 0, self.model.learned
        rows = dataclasses.replace(source, features=Encoded(*of).features(params))
        with bar("predicting", self.config.progress) as advance:
            infer = self._inference(self.model.encoder, rows, advance)
            return infer(params["encoder"], [nodes])[0]

    @cached_property
    def _source(self) -> RunData:
        data, targets = self._data
        found = (data.comm, targets.at_test, data.offsets, data.features, data.own_ids)
        return RunData(*found, {}, data.node_ids)

    def _with(self, graph: Graph | None, features: Any) -> RunData:
        if graph is None:
            return self._source
        width, learned = self._shape["num_features"], self._shape["learned"]
        if learned and graph.num_nodes != self._shape["num_nodes"]:
            raise InputError(
                f"the graph must have the {self._shape['num_nodes']} nodes for which the run "
                "has learned rows",
                graph.num_nodes,
                "Give such a graph, or train with features and --learned 0.",
            )
        if features is None and width == 0:
            features = np.zeros((graph.num_nodes, 0), np.float32)
        return of_graph(graph, features, width, types_of(self._shape))

    def _relation(self, name: str | None) -> int | None:
        """The number of a relation; None for a graph without."""
        targets: Targets = self._data[1]
        schema, own = targets.messages[0].schema, targets.train.get("relation")
        if name is not None and schema is not None:
            return schema.relation(name)
        if own is None or name is not None:
            if name is not None:
                raise InputError(
                    "relation must be for a run with relations", repr(name), "Leave it out."
                )
            return None
        numbers = np.unique(own)
        if numbers.size > 1:
            assert schema is not None
            names = ", ".join(schema.relations[n][1] for n in numbers)
            raise InputError(
                "the relation of the pairs must be named", f"none of {names}", "Give relation=."
            )
        return int(numbers[0])

    @cached_property
    def _data(self) -> tuple[Any, Targets]:
        data, targets = open_pairs(self.config, cast(PairTask, self.task), None, self.timed)
        check_digests(data.name, self._digests, data.digests)
        return data, targets


class LinkRun(PairRun):
    """A run of `--task links` by a sampler of nodes. Its fields, and arguments of its methods,
    are those of `PairRun`. A run with `--temporal` is `timed`: it scores pairs at a time, and
    has no rows of nodes and no lists."""

    flags = PairRun.flags | {"top_k", "new_only"}
    untimed = (
        "rows of nodes must be of a run without --temporal",
        "a run with it",
        "Score pairs at a time: run.scores(pairs, time=...).",
    )

    def __init__(self, saved: Saved):
        self.timed = saved.config.options.get("temporal", False)
        if self.timed:
            self.flags = frozenset({"pairs", "relation", "at"})
        super().__init__(saved)

    def scores(self, pairs: Any, *, time: Any = None, **options: Any) -> np.ndarray:
        """float32 `[n]`: the decoder's outputs for the pairs; `options` as for `PairRun`.

        Of a run with `--temporal`, `time` is the cutoff of each pair `[n]`, or one for all:
        ints in the unit of the graph's times, or dates (NumPy's, or text) where that unit is
        known. A pair's score depends on edges before it alone, and not on the other pairs:
        neighbours are drawn by the run's sampler, with the key by which the test was judged.
        `graph=` has the same nodes, by the data set's ids, and other edges, such as
        `graph.with_edges(src, dst, time)`.
        """
        if self.timed:
            return self._at(pairs, time, **options)
        if time is not None:
            raise InputError(
                "time must be for a run with --temporal", "one without", "Leave it out."
            )
        return super().scores(pairs, **options)

    def _at(
        self, pairs: Any, time: Any, relation: str | None = None, graph: Graph | None = None
    ) -> np.ndarray:
        data, targets = self._data
        ids = check_seed_ids(pairs, self.num_nodes(), pairs=True)
        ids, times = cutoffs(data, ids, time, "pairs of a run of --temporal")
        items = {"src": ids[:, 0], "dst": ids[:, 1], "time": times}
        number = self._relation(relation)
        check_ends(schema_of(targets.messages[0], data.own_ids), number, ids)
        if number is not None:
            items["relation"] = np.full(len(ids), number, np.int32)
        data.graphs, key = targets.messages, key_of(self.config, "samples of test")
        stage, size = Links(0, types=targets.types), batch_size(self.config, 0)
        return judged_at(self, data, items, graph, key, _positive, stage, size)

    def source_type(self, relation: str | None = None) -> str | None:
        """The node type of the sources of links of a relation; None in a graph without types,
        and where any node may be one."""
        number, schema = self._relation(relation), self._data[1].messages[0].schema
        return None if number is None or schema is None else schema.relations[number][0]

    def recommend(
        self,
        nodes: Any,
        k: int,
        *,
        candidates: Any = None,
        new_only: bool = False,
        relation: str | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The `k` best targets for each of `nodes`, exactly, in bounded memory.

        Args:
          nodes: int `[n]`, the sources.
          k: int, at least 1.
          candidates: int `[C]`, distinct nodes to choose from; by default all, or in a typed
            graph those of the relation's target type. A node is none of its own.
          new_only: whether those are left out to which a node has an edge in the run's data:
            an edge of this relation, and none that was added as another's reverse.

        Returns int32 `[n, k]`, the best first, and their scores float32 `[n, k]`. Where fewer
        candidates are left there is -1, of score `-inf`. The rows of all nodes are computed at
        the first call and kept. Raises `InputError`.
        """
        self._check_untimed()
        data, targets = self._data
        ids, number = check_nodes(nodes, 0, self.num_nodes()), self._relation(relation)
        schema = targets.messages[0].schema
        if candidates is not None:
            own = check_nodes(candidates, 0, self.num_nodes())
            own = own if data.own_ids is None else data.own_ids[own]
        elif number is not None and schema is not None:
            kind = schema.relations[number][2]
            own = np.concatenate([np.array(r, np.int32) for r in schema.ranges(kind)])
        else:
            own = np.arange(self.num_nodes(), dtype=np.int32)
        ids = ids if data.own_ids is None else data.own_ids[ids]
        decoder = Decoded(self.model).decoder(nnx.state(self.model))
        known = only_facts(data.graphs[0], number) if new_only else None
        of = (decoder, self._every_row, ids, own, k)
        best, scores = top_k(*of, relation=number, known=known)
        if data.own_ids is not None:
            names = np.argsort(data.own_ids).astype(np.int32)
            best = np.where(best >= 0, names[best], -1)
        return best, scores

    @cached_property
    def _every_row(self) -> np.ndarray:
        """The rows of all nodes, in the order of the graph's ids."""
        data, _ = self._data
        rows = self.embed()
        return rows if data.own_ids is None else rows[np.argsort(data.own_ids)]


def _positive(model: Any, batch: Any, x: Any) -> tuple[jax.Array, ...]:
    return (model(batch, x).positive,)
