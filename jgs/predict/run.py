"""`Run`: a trained run, and what it says of nodes and of pairs of nodes."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import jax
import numpy as np
from flax import nnx

from jgs.dist.communicators.collect import everywhere, rows_on_all
from jgs.errors import InputError, check_choice
from jgs.graph import Graph
from jgs.models import PairModel
from jgs.ops import gather
from jgs.predict.explain import (
    Explanation,
    batches,
    context_of,
    explain,
    judged_at,
    lists_at,
    lists_of,
    sampled_logits,
)
from jgs.predict.ids import cutoffs, ids_of, pairs_of
from jgs.predict.saved import Finish, Opened
from jgs.sampling import Links
from jgs.sampling.checks import check_seed_ids
from jgs.sampling.edges.random import threefry
from jgs.train.evaluation.by_samples import judges_key, outputs_of, rows_of
from jgs.train.evaluation.link_metrics import Decoded
from jgs.train.loop.data import Data
from jgs.train.loop.keys import key_of
from jgs.train.loop.model import is_contextual
from jgs.train.loop.progress import bar
from jgs.train.tasks.seal import pair_scores
from jgs.train.tasks.targets import SPLITS
from jgs.train.tasks.task import neighbor_sampler


class Run(Opened):
    """A training run with what it has learned, which `open_run` opens.

    Rows and outputs are computed from all neighbours, in the memory of the run's
    `--eval-memory` (see `jgs.train.exact_inference`), but with `fanouts`, at a `time`, of runs
    of `--sampler seal`, which draw a subgraph for each pair, and of a model of contexts such as
    `relgt`, which are drawn with the key that drew them for the run's test.

    Arguments of several methods:
      nodes: int `[n]`, ids of the data set in any order; by default all nodes. Runs of
        `--task links` and `--task edges` predict pairs int `[n, 2]`, source and target.
      node_type: the name of a node type. `nodes` are then nodes of this type, whose ids count
        from 0 in it; by default all of them.
      relation: the name of the pairs' relation, by default the one that the run has learned.
      time: of a run on labels at moments, or with `--temporal`: the cutoff of each row `[n]`,
        or one for all: ints in the unit of the graph's times, or dates (NumPy's, or text)
        where that unit is known. A row depends on edges before its cutoff alone. Neighbours are
        drawn by the run's sampler, with the key that drew them for the run's test; by a
        sampler that is by-node a row depends on its nodes and time alone.
      graph, features: another graph, and its features `[N, F]`, as wide as the run's, or of a
        model of typed graphs `TypedFeatures`. By default they are the run's data, opened when
        first needed; of pairs without the edges that it held out for the test. With `time`, and
        for learned rows of nodes, the graph has the same nodes.
      fanouts: how many neighbours to sample in each layer, seeds' hop first, in place of all.
        One process only.
      key: the random key of what `fanouts` draw, by default that of the run's `--seed`. A
        node's draws depend on the key, the hop and the node alone.

    They raise `InputError` for what does not fit the run. Runs of tasks of nodes are opened on
    many ranks too: all ranks call the methods; rank 0's process gets all rows, the others None.

    Fields:
      config, task: the run's `Config` and its task.
      flags: those of `python -m jgs.predict` by which it is asked.
      answer: the `jgs.answers.Answer` that makes columns of what `predict` returns.
      model: the model of `jgs.models`, with the parameters of the best epoch, which the run's
        `test_accuracy` is about, or of the newest checkpoint after
        `open_run(..., params="last")`. None for a run of `--task embed`.
      best_params, last_params: `nnx.State`, both of these parameters;
        `nnx.update(run.model, run.last_params)` puts them into the model.
      best_epoch, val_accuracy: the epoch of best validation, and its validation metric.
      epochs: the number of epochs that were complete at the newest checkpoint.
      metrics: dict of NumPy arrays `[epochs]`, the columns of `metrics.jsonl`.
      run_dir: str, the path as it was given.
      num_features, num_classes, multilabel, numbers: properties of the data that it was trained
        on; `numbers` says whether labels are numbers.
      scale: the mean and the deviation of the training labels that are numbers; of several
        numbers a node two lists of them.
      labelled_type: the node type of all rows of a table of labels at moments, such as a
        database's entities; None where they have several types, and for other runs.
      timed: whether each prediction is for a time. There are no rows, splits, lists or
        explanations without one.
      feature_columns: `jgs.data.FeatureColumns`, whose `encode` makes features of new rows of
        the user's table; a dict of them by node type; None for other data.
      edge_feature_columns: as in `jgs.data.Dataset`.
    """

    # -- predictions

    def predict(self, nodes: Any = None, **options: Any) -> Any:
        """The `Predictions` for nodes or for what edges are: classes and probabilities. Where
        labels are numbers float64 `[n]`, or `[n, C]` of several, in the unit of the labels. Of
        links float32 `[n]`: the logistic function of each pair's score, which is the
        probability of a link where the run has learned with `--loss bce`. Of `--task embed` the
        rows of `embed`. `options` are those of `logits`."""
        kept = self._outputs(nodes, self.answer.kept, **options)
        return None if kept is None else self.answer.read(kept)

    def logits(self, nodes: Any = None, **options: Any) -> Any:
        """float32 `[n, C]`, of links `[n]`: the outputs of the model. Where labels are numbers
        these are deviations from the mean of the training labels; `predict` has them in the
        labels' unit.

        Args:
          options: `node_type`, `relation`, `time`, `graph`, `features`, `fanouts` and `key`.
        """
        return self._outputs(nodes, lambda outputs: outputs, **options)

    scores = logits

    def embed(
        self,
        nodes: Any = None,
        *,
        node_type: str | None = None,
        graph: Graph | None = None,
        features: Any = None,
    ) -> Any:
        """float32 `[n, hidden]`: the nodes' rows of the last hidden layer, the input of the
        last layer; of a run of pairs those of which the decoder makes scores. Of `--task embed`
        the embeddings at the newest checkpoint, which after the run's end are those of
        `embeddings.npy`. Raises `InputError` for a model of one layer."""
        if self.model is None:
            schema = None if node_type is None else self.schema
            return self._table[ids_of(schema, self.num_nodes(), nodes, node_type)]
        self._check_untimed()
        self._check_takes("embed", "rows of nodes")
        if is_contextual(self.config):
            return self._on_first(self._of_contexts(nodes, node_type, graph, features, rows_of))
        layers = len(self._encoder.layers) - (not self._of_pairs)
        if layers < 1:
            raise InputError(
                "a run must have a hidden layer to embed nodes",
                "one layer",
                "Train a model of two layers or more.",
            )
        return self._rows(nodes, node_type, graph, features, layers)

    def recommend(
        self,
        nodes: Any,
        k: int,
        *,
        candidates: Any = None,
        new_only: bool = False,
        relation: str | None = None,
        time: Any = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The `k` best targets of links for each of `nodes`, exactly, in bounded memory; of a
        run with `--temporal` those at the `time` of each, from sampled rows of all candidates
        that exist before it.

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
        self._check_takes("top_k", "lists of targets")
        if self.timed:
            if new_only:
                self._refuse("new_only", "without times", "one with --temporal")
            return lists_at(self, self._relation(relation), nodes, k, candidates, time)
        if time is not None:
            self._refuse("time", "with --temporal", "a run without")
        return lists_of(self, self._relation(relation), nodes, k, candidates, new_only)

    def explain(
        self,
        node: Any,
        *,
        target: int | None = None,
        fanouts: Any = None,
        key: Any = None,
        method: str = "gradient",
        steps: int = 50,
        node_type: str | None = None,
        time: Any = None,
        graph: Graph | None = None,
        features: Any = None,
    ) -> Explanation:
        """The `Explanation` of the output for `node`: what each feature and each edge adds.

        Args:
          node: int, the node's id; with `node_type` its id in this type.
          target: the class whose output is explained; None: the class of the largest output.
          fanouts: how many neighbours to sample in each layer for the explained neighbourhood,
            by default 10. With -1 in each layer all neighbours are taken, and the output is the
            exact one. A model of contexts has none: what is explained is the prediction.
          time: of a model of contexts that has learned labels at moments: the moment.
          method: `"gradient"` (times input) or `"integrated"` (gradients); see
            `jgs.predict.explain`.
          steps: the number of steps of `"integrated"`.
        """
        contextual = is_contextual(self.config)
        if not contextual:
            self._check_untimed()
        of_nodes = contextual and not self._of_pairs
        self._check_takes("nodes" if of_nodes else "fanouts", "explanations of nodes")
        untaken = {"fanouts": fanouts, "key": key} if contextual else {}
        untaken |= {"graph": graph} if self.timed else {"time": time}
        for name, value in untaken.items():
            if value is not None:
                self._refuse(name, "whose explanations take it", "another")
        node, source = np.atleast_1d(np.asarray(node)), self.source(graph, features)
        ids = self._own_ids(source, node, node_type)
        if ids.size != 1:
            raise InputError(
                "one node is explained at a time", f"{ids.size}", "Loop over them."
            )
        own = source.graphs[0]
        if contextual:
            items = {"nodes": ids}
            if self.timed:
                items["time"] = cutoffs(source, ids, time, "explanations of this run")[1]
            batch, x = context_of(self, source, items, judges_key(self.config))
        else:
            fanouts = (10,) * len(self.model.layers) if fanouts is None else fanouts
            sampler = neighbor_sampler(self.config, self.model, fanouts, edge_ids=True)
            batch = batches(own, sampler, ids, 1, self._key(key))(ids)
            if self.model.uses_degrees:
                batch = batch.with_degrees(own.degrees())
            x = gather(source.every_row, batch.nodes)
        found = explain(self.model, batch, x, target, method, steps)
        types = None if own.edge_type is None else np.asarray(own.edge_type)[found.edge_id]
        found = replace(found, edge_type=types, schema=source.schema)
        if source.own_ids is None:
            return found
        names = ("nodes", "src", "dst")
        ends = {name: source.in_data_set(getattr(found, name)) for name in names}
        return replace(found, node=int(source.in_data_set(found.node)), **ends)

    # -- data

    @property
    def class_names(self) -> np.ndarray | None:
        """NumPy text `[C]`, so that `class_names[prediction]` names the predicted classes; None
        where the data set names none."""
        return self.answer.names

    def source_type(self, relation: str | None = None) -> str | None:
        """The node type of the sources of links of a relation, or of a table; None in a graph
        without types, and where any node may be one."""
        number, targets = self._relation(relation), self._data[1]
        types = None if targets is None else targets.types_of(number)
        return None if types is None else types[0]

    def split(self, name: str) -> np.ndarray:
        """int32, ascending: the nodes of the run's split `name`, "train", "val" or "test"."""
        check_choice("a split", name, SPLITS)
        if self.timed:
            raise InputError(
                "a split of nodes must be of a run without labels at moments",
                "a run with them",
                "Take run.rows(split): nodes and times.",
            )
        self._check_takes("split", "splits of nodes")
        data = self._source
        own = data.train_nodes() if name == "train" else data.split(name)
        return np.sort(data.in_data_set(rows_on_all(data.comm, own))).astype(np.int32)

    def rows(self, split: str) -> tuple[np.ndarray, np.ndarray | None]:
        """The nodes int32 `[n]` of a split, "train", "val" or "test". Of a run on labels at
        moments they are those of the table's rows, in its order, with their times int64 `[n]`;
        of one on links at moments the distinct sources; of others the second is None."""
        if not self.timed:
            return self.split(split), None
        check_choice("a split", split, SPLITS)
        self._check_takes("split", "splits of nodes")
        table, links = self._source.table, self._source.links
        if links is not None:
            some = links.split == SPLITS.index(split)
            nodes = self._source.in_data_set(links.src[some])
            time, nodes = np.unique(np.stack([links.time[some], nodes]), axis=1)
            return nodes.astype(np.int32), time
        some = table.split == SPLITS.index(split)
        return self._source.in_data_set(table.nodes[some]), table.time[some]

    def labels(self, split: str) -> np.ndarray:
        """The labels of `rows(split)`, as in `jgs.data.Dataset`; on one process."""
        (nodes, time), table = self.rows(split), self._data[0].table
        if time is not None:
            return np.asarray(table.labels)[np.asarray(table.split) == SPLITS.index(split)]
        source = self.source()
        return np.asarray(source.host_labels)[source.in_graph(nodes)]

    def source(self, graph: Graph | None = None, features: Any = None) -> Data:
        """The graph and the features that predictions with `fanouts`, explanations and labels
        read. Raises `InputError` on several ranks."""
        source = self._with(graph, features)
        if source.comm.size > 1:
            raise InputError(
                "one process must predict by sampled neighbours, explain and give labels",
                f"{source.comm.size} ranks",
                "Open the run without comm, or leave fanouts out.",
            )
        return source

    # -- how outputs are computed

    def _outputs(
        self,
        nodes: Any,
        finish: Finish,
        *,
        node_type: str | None = None,
        relation: str | None = None,
        time: Any = None,
        graph: Graph | None = None,
        features: Any = None,
        fanouts: Any = None,
        key: Any = None,
    ) -> Any:
        """`finish` of the outputs; on several ranks each computes it of its own."""
        if time is not None and not self.timed:
            seen = "--temporal" if self._of_pairs else "labels at moments"
            self._refuse("time", f"with {seen}", "a run without")
        if relation is not None and "relation" not in self.flags:
            self._refuse("relation", "with relations of pairs", "a run without")
        untaken = {"features": features} if self.timed else {}
        if self._of_pairs:
            untaken["node_type"] = node_type
        if self.timed or self._of_pairs or is_contextual(self.config):
            untaken |= {"fanouts": fanouts, "key": key}
        for name, value in untaken.items():
            if value is not None:
                self._refuse(name, "of nodes without times and contexts", "a run of others")
        if self.model is None:
            return self.embed(nodes, node_type=node_type)
        if self.timed:
            return self._on_first(self._at(nodes, node_type, relation, time, graph), finish)
        if self._of_pairs:
            return finish(self._scores(nodes, relation, graph, features))
        if is_contextual(self.config):
            of_nodes = nodes, node_type, graph, features
            return self._on_first(self._of_contexts(*of_nodes, outputs_of), finish)
        if fanouts is None:
            layers = len(self.model.layers)
            return self._rows(nodes, node_type, graph, features, layers, finish)
        sampler = neighbor_sampler(self.config, self.model, fanouts)
        source = self.source(graph, features)
        ids = self._own_ids(source, nodes, node_type)
        of = (source.graphs[0], source.every_row, ids, sampler, self._key(key))
        with bar("predicting", self.config.progress) as advance:
            return finish(sampled_logits(self.model, *of, self.config.batch_size, advance))

    def _of_contexts(
        self, nodes: Any, node_type: Any, graph: Any, features: Any, outputs: Any
    ) -> np.ndarray:
        """`[n, ...]`: what `outputs` computes of the context of each node."""
        source = self._with(graph, features)
        ids = everywhere(source.comm, lambda: self._own_ids(source, nodes, node_type))
        return judged_at(self, source, {"nodes": ids}, None, judges_key(self.config), outputs)

    def _on_first(self, rows: np.ndarray, finish: Finish = lambda rows: rows) -> Any:
        """`finish` of rows that all ranks have, in rank 0's process; None in others."""
        return None if self._comm.rank > 0 else finish(rows)

    def _scores(self, pairs: Any, relation: Any, graph: Any, features: Any) -> np.ndarray:
        """The outputs for pairs: of the decoder from exact rows, or of a subgraph each."""
        source = self._with(graph, features)
        number = self._relation(relation) if isinstance(self.model, PairModel) else None
        ids = pairs_of(source.schema, source.num_nodes, pairs, number)
        if not isinstance(self.model, PairModel):
            of = self.model, source.graphs[0], source.features[0], ids
            return pair_scores(self.config, *of)
        nodes, at = np.unique(ids, return_inverse=True)
        rows, at = self.embed(nodes, graph=graph, features=features), at.reshape(ids.shape)
        of_pairs = None if number is None else np.full(len(ids), number, np.int32)
        decode = Decoded(self.model)
        return decode(nnx.state(self.model), rows, at[:, 0], at[:, 1], of_pairs)

    def _at(
        self, nodes: Any, node_type: Any, relation: Any, time: Any, graph: Graph | None
    ) -> np.ndarray:
        """The outputs for nodes or pairs at times, from a sample of each."""
        (data, targets), num = self._data, self.num_nodes()
        if targets is None:
            what = "nodes of a run on labels at moments"

            def items_of() -> dict[str, np.ndarray]:
                every = nodes is None or node_type is not None
                own = ids_of(self.schema, num, nodes, node_type) if every else nodes
                rows = cutoffs(data, check_seed_ids(own, num), time, what)
                return dict(zip(("nodes", "time"), rows, strict=True))

            if graph is not None:
                self.source()
            items = everywhere(data.comm, items_of)
            return judged_at(self, data, items, graph, judges_key(self.config), outputs_of)
        number = self._relation(relation)
        ids = pairs_of(self.schema, num, nodes, number)
        own, times = cutoffs(data, ids, time, "pairs of a run of --temporal")
        items = {"src": own[:, 0], "dst": own[:, 1], "time": times}
        if number is not None:
            items["relation"] = np.full(len(own), number, np.int32)
        data.graphs, key = targets.messages, key_of(self.config, "samples of test")
        stage = Links(0, types=targets.types)
        return judged_at(self, data, items, graph, key, _positive, stage)

    @cached_property
    def _every_row(self) -> np.ndarray:
        rows, own_ids = self.embed(), self._source.own_ids
        return rows if own_ids is None else rows[np.argsort(own_ids)]

    def _key(self, key: Any) -> Any:
        return threefry(self.config.seed) if key is None else key

    def _relation(self, name: str | None) -> int | None:
        targets, schema = self._data[1], self._source.graphs[0].schema
        if name is not None and schema is not None:
            return schema.relation(name)
        if name is not None:
            self._refuse("relation", "with relations", repr(name))
        own = None if targets is None else targets.train.get("relation")
        if own is None:
            return None
        numbers = np.unique(own)
        if numbers.size > 1:
            assert schema is not None
            names = ", ".join(schema.relations[n][1] for n in numbers)
            raise InputError(
                "the relation of the pairs must be named", f"none of {names}", "Give relation=."
            )
        return int(numbers[0])


def _positive(model: Any, batch: Any, x: Any) -> tuple[jax.Array, ...]:
    return (model(batch, x).positive,)
