"""`Opened`: an opened run's fields, its data, and the exact rows of nodes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from flax import nnx

from jgs.arrays import as_numpy, require_array
from jgs.data.column_values import Clock
from jgs.data.database.database import Database
from jgs.data.stored import read_columns
from jgs.dist.communicators.collect import everywhere, rows_of_all
from jgs.dist.communicators.comm import Alone, Communicator
from jgs.errors import InputError, refuse
from jgs.graph import Graph, NodeIds, Schema, TypedFeatures
from jgs.graph.row_tables.table import RowTable, as_table
from jgs.graph.shown import Shown
from jgs.predict.ids import ids_of
from jgs.train.config import Config
from jgs.train.evaluation.exact import exact_inference
from jgs.train.evaluation.link_metrics import with_learned
from jgs.train.evaluation.rows import empty
from jgs.train.loop.data import Data
from jgs.train.loop.model import Types, edges_of, types_of
from jgs.train.loop.open_data import WholeData, changed_parts
from jgs.train.loop.progress import Advance, bar
from jgs.train.tasks.targets import Targets
from jgs.train.tasks.task import Task

PARAMS = ("best", "last")
_log = logging.getLogger("jgs")
Finish = Callable[[np.ndarray], np.ndarray]


class Opened(Shown):
    """The fields of a `jgs.predict.Run`, its data, and the exact rows of its nodes."""

    def __init__(
        self,
        config: Config,
        model: Any,
        record: dict[str, Any],
        comm: Communicator,
        params: dict[str, Any],
        rows: Sequence[dict[str, Any]] = (),
        run_dir: str = "",
        elsewhere: bool = False,
    ):
        """`model` is None, and `params` are the arrays of the checkpoint, where no model was
        trained. `record` is the checkpoint's, and `rows` are the metrics of the epochs. With
        `elsewhere` the configuration names other data than those of training."""
        self.config, self._comm, self.run_dir = config, comm, run_dir
        shape = self._shape = record.get("shape", {})
        self.task: Task = config.made("task")
        self.flags, self.answer = self.task.flags(config, shape), self.task.answer(shape)
        self.timed, self._of_pairs = "at" in self.flags, "pairs" in self.flags
        self._elsewhere = elsewhere
        self.flags -= {"split"} if elsewhere else set()
        if comm.size > 1 and self.task.like != "nodes":
            raise InputError(
                f"a run of --task {config.task} must be opened by one process",
                f"{comm.size} ranks",
                "Start one.",
            )
        self.metrics, self.epochs = columns(rows), record.get("epochs", 0)
        self.model, self._record, self._params = model, record, params
        self.best_params, self.last_params = (params.get(name) for name in PARAMS)
        self.best_epoch: Any = record.get("best_epoch")
        self.val_accuracy: Any = record.get("val_accuracy")
        self.edges = edges_of(shape)
        self.feature_columns = read_columns(shape.get("feature_columns"))
        self.edge_feature_columns = read_columns(shape.get("edge_feature_columns"))
        self.num_features, self.num_classes = map(shape.get, ("num_features", "num_classes"))
        self.multilabel, self.numbers = (shape.get(n, False) for n in ("multilabel", "numbers"))
        self.scale = shape.get("mean", 0.0), shape.get("deviation", 1.0)
        self.labelled_type = shape.get("labelled_type")
        self._advance: Advance = lambda done, total: None

    def num_nodes(self) -> int:
        """The number of nodes in the run's data."""
        return len(self._table) if self.model is None else self._source.num_nodes

    @property
    def node_ids(self) -> NodeIds | None:
        """The ids of the user's tables for the nodes of the run's data; None where there are
        none. `run.node_ids[nodes]` are the ids of `nodes`."""
        if self.model is None and not self._record.get("named", False):
            return None  # the data need not be opened
        return self._source.node_ids

    @property
    def time_unit(self) -> str | None:
        """The unit of the run's times, as in `jgs.data.Dataset`."""
        return self._source.time_unit

    @property
    def schema(self) -> Schema | None:
        """The node types and relations of the run's data; None where there are none."""
        return self._source.schema

    # -- data

    @cached_property
    def _table(self) -> np.ndarray:
        """Embeddings: each node has rows as center and context, with a column behind them."""
        return np.asarray(self._params["rows"])[::2, :-1]

    @cached_property
    def _data(self) -> tuple[Any, Targets | None]:
        def opened() -> tuple[Any, Targets | None]:
            if self._elsewhere:
                return later_data(self.config, self._shape, self._comm)
            data, targets = self.task.opened(self.config, self._comm)
            check_digests(data.name, self._record["data"], data.digests)
            return data, targets

        return everywhere(self._comm, opened)

    @cached_property
    def _source(self) -> Any:
        data, targets = self._data
        if targets is None:
            return data
        source = copy(data)
        source.graphs = targets.at_test
        return source

    def _with(self, graph: Graph | None, features: Any) -> Data:
        if graph is None and features is None:
            return self._source
        if graph is None:
            raise InputError(
                "features must be given with their graph", "features alone", "Give graph= too."
            )
        width = self._shape["num_features"]
        if self._shape.get("learned") and graph.num_nodes != self._shape["num_nodes"]:
            raise InputError(
                f"the graph must have the {self._shape['num_nodes']} nodes for which the run "
                "has learned rows",
                graph.num_nodes,
                "Give such a graph, or train with features and --learned 0.",
            )
        if features is None and width == 0:
            features = np.zeros((graph.num_nodes, 0), np.float32)
        return GivenData(self.config, graph, features, width, types_of(self._shape))

    @cached_property
    def _infer(self) -> Callable[..., Any]:
        return self._exact(self._source)

    def _exact(self, source: Data) -> Callable[..., Any]:
        of = self._encoder, source.graphs, self._encoded(source), self.config.eval_memory << 20
        weighted = self.config.options.get("weighted", False)
        own: dict[str, Any] = {"comm": source.comm, "offsets": source.offsets}
        own["advance"] = lambda *done: self._advance(*done)
        return exact_inference(*of, None, weighted, **own)

    @property
    def _encoder(self) -> Any:
        return self.model.encoder if self._of_pairs else self.model

    def _encoded(self, source: Data) -> Any:
        if not self._of_pairs:
            return source.features
        return with_learned(source, self.model.learned, nnx.state(self.model))

    # -- exact rows

    def _rows(
        self,
        nodes: Any,
        node_type: str | None,
        graph: Graph | None,
        features: Any,
        num_layers: int,
        finish: Finish = lambda rows: rows,
    ) -> Any:
        """`finish` of the exact rows of a layer."""
        self._check_untimed()
        source = self._with(graph, features)
        comm, params = source.comm, nnx.state(self.model)
        infer = self._infer if graph is None else self._exact(source)
        given = None  # learned rows are those of the parameters
        if self._of_pairs:
            given = self._encoded(source) if self.model.learned else None
            params = params["encoder"]
        of_nodes = source.schema, source.num_nodes, nodes, node_type
        ids = everywhere(comm, lambda: ids_of(*of_nodes))
        owned = source.owned(ids)
        with bar("predicting", self.config.progress and comm.rank == 0) as advance:
            self._advance = advance
            outputs = infer(params, [mine for _, mine in owned], num_layers, given)
        rows = [finish(output) for output in outputs]
        memory = self.config.eval_memory << 20

        def table() -> np.ndarray | None:
            if comm.rank > 0:
                return None
            return empty((ids.size, rows[0].shape[1]), memory, None).view(rows[0].dtype)

        out = everywhere(comm, table)
        rows_of_all(comm, [at for at, _ in owned], rows, out, memory)
        return out

    def _own_ids(self, source: Data, nodes: Any, node_type: str | None) -> np.ndarray:
        return source.in_graph(ids_of(source.schema, source.num_nodes, nodes, node_type))

    # -- refusals

    def _refuse(self, name: str, taker: str, own: str) -> NoReturn:
        raise InputError(f"{name} must be for a run {taker}", own, "Leave it out.")

    def _check_takes(self, name: str, what: str) -> None:
        if name not in self.flags:
            raise InputError(
                f"{what} must be of a run that gives them",
                f"one of --task {self.config.task} --sampler {self.config.sampler}",
                "Ask this run for predictions.",
            )

    def _check_untimed(self) -> None:
        if self.timed:
            raise InputError(
                "rows, outputs, lists and explanations without a time must be of a run without "
                "labels at moments and --temporal",
                "a run with them",
                "Predict at a time: run.predict(..., time=...).",
            )

    def _facts(self) -> dict[str, str]:
        config = self.config
        found = {
            "": repr(self.run_dir),
            "dataset": config.dataset,
            "model": self.task.model_name(config),
            "sampler": config.sampler,
            "epochs": f"{self.epochs:,}/{config.epochs:,}",
        }
        if self.model is None:
            return found
        best = {"best_epoch": str(self.best_epoch), "val": f"{self.val_accuracy:.4f}"}
        return found | best


def columns(rows: Sequence[dict[str, Any]]) -> dict[str, np.ndarray]:
    """An array for each name: int64, or float64 with NaN for missing, or text with ""."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _column([row.get(name) for row in rows]) for name in names}


def _column(values: list[Any]) -> np.ndarray:
    if any(isinstance(value, str) for value in values):
        return np.array(["" if value is None else str(value) for value in values])
    if all(isinstance(value, int) for value in values):
        return np.array(values, np.int64)
    return np.array(values, np.float64)  # None becomes NaN


class GivenData(WholeData):
    """A graph in memory with its features, in place of a run's data, for a model of `width`
    features, or of the `types`. Raises `InputError` for features that do not fit it."""

    def __init__(
        self, config: Config, graph: Graph, features: Any, width: int, types: Types | None
    ):
        if types is not None and getattr(features, "schema", None) is not None:
            _check_typed(graph, features, types)
        else:
            _check_matrix(graph, features, width)
        self._config, self.comm = config, Alone()
        self.graphs, self.features = [graph], [features]
        self.offsets = np.array([0, graph.num_nodes])


def later_data(
    config: Config, shape: dict[str, Any], comm: Communicator
) -> tuple[Data, Targets | None]:
    """The database of a configuration, with the columns and the clock of the run that has a
    checkpoint's `shape`; and of a run on links whom these join. Raises `InputError`."""
    types, columns = types_of(shape), read_columns(shape.get("feature_columns"))
    learned = bool(types and _counts(types.schema, types.widths))
    refuse(
        (not shape.get("moments") or not isinstance(columns, dict) or comm.size > 1,
         "another --dataset must be for a run on a task of a database, on one process",
         f"{comm.size} ranks" if comm.size > 1 else "another run", "Leave it out."),
        (shape.get("edge_feature_columns") is not None,
         "another --dataset must be for a run whose facts are nodes", "one with facts=edges",
         "Leave it out."),
        (learned, "another --dataset must be for a run that has learned no rows of nodes",
         "types without features", "Train with a column for each table without times."),
    )  # fmt: skip
    names = "features", "inclusive", "hide"
    kept = {n: v for n, v in config.data_arguments().items() if n in names}
    clock = clock_of(config, shape["time_unit"])
    base = Database.open(config.dataset, config.data_arguments().get("manifest"))
    relations = shape.get("relations") if types is None else types.schema.relations
    if relations is not None:
        base = _with_keys_of(base, {*map(tuple, relations)})
    plain = base.plain(**kept, fitted=columns, clock=clock)
    data = WholeData(config, True, plain)
    graph, features = data.graphs[0], data.features[0]
    if types is not None:
        _check_typed(graph, features, types)
    else:
        _check_matrix(graph, features, shape["num_features"])
        own = None if graph.schema is None else graph.schema.relations
        refuse(
            (relations is not None and own != (*map(tuple, relations),),
             "the graph must have the relations that the run was trained with", own,
             "Add what is missing."),
        )  # fmt: skip
    ends = shape.get("ends")
    of_links = None if ends is None else tuple(ends)
    targets = Targets({}, {}, {}, data.graphs, data.graphs, of_links, False)
    return data, None if ends is None else targets


def _with_keys_of(base: Database, relations: set[Any]) -> Database:
    """The database without the foreign keys that are none of the relations of a run, such as
    those that its task hides."""
    tables, found = dict(base.catalogue.tables), copy(base)
    for table, keys in tables.items():
        named = {key: (table, "_".join(key), to) for key, to in keys.references.items()}
        known = {key: to for key, (_, _, to) in named.items() if named[key] in relations}
        for key in named.keys() - known:
            said = ", ".join(key), table, base.name
            _log.warning("%s of %s in %s: a key that the run has not learned from", *said)
        tables[table] = keys._replace(references=known)
    found.catalogue = base.catalogue._replace(tables=tables)
    return found


def clock_of(config: Config, unit: str | None) -> Clock:
    """How the times in the tables of a run are counted, in `unit`."""
    return Clock(unit, config.data_arguments().get("time_scale", 1))


def _check_matrix(graph: Graph, features: Any, width: int) -> None:
    form = "[N, F], one row for each of the graph's nodes"
    remedy = "Give a matrix [N, F], or SparseFeatures."
    require_array("features", features, form, remedy, N=graph.num_nodes)
    remedy = "Give the features that it was trained with."
    require_array("features", features, "[N, F], with the run's columns", remedy, F=width)
    table = as_table(features if isinstance(features, RowTable) else as_numpy(features))
    table.check_one_width("the run's model", "the graph", remedy)
    table.check_values("the features of the graph")


def _check_typed(graph: Graph, features: TypedFeatures, types: Types) -> None:
    schema, parts = graph.schema, types.schema.parts
    if schema is None or features.schema != schema.without_relations():
        raise InputError(
            "features by node type must have the node types of the graph",
            f"{features.schema.node_types}",
            "Make them with TypedFeatures.from_dict(graph.schema, ...).",
        )
    rows, given = _counts(types.schema, types.widths), _counts(schema, features.widths)
    refuse(
        (schema.relations != types.schema.relations,
         "the graph must have the relations that the run was trained with", schema.relations,
         "Give a graph of the same types and relations, in the same order."),
        (features.widths != types.widths or rows != given,
         f"the features of the node types must have the widths {list(types.widths)} of the "
         f"run's, and types without features as many nodes, {rows}",
         f"{features.shown_widths()}, and {given} nodes",
         "Give features as those that it was trained with."),
        (rows and len(parts) > 1 and schema.parts != parts,
         f"the graph must be in the {len(parts)} parts that the run was trained on, in whose "
         "order it has learned rows of nodes", "one in others, or whole",
         "Open the run on its own data, or train on the whole graph."),
    )  # fmt: skip


def _counts(schema: Schema, widths: Sequence[int]) -> list[int]:
    """The numbers of nodes of the types without features."""
    each = zip(schema.node_types, widths, strict=True)
    return [count for (_, count), width in each if not width]


def check_digests(name: str, saved: dict[str, str], found: dict[str, str]) -> None:
    if changed := changed_parts(saved, found):
        raise InputError(
            "a run must predict on the data set that it was trained on",
            f"{name} with other {', '.join(changed)}",
            "Restore its files, or give another graph to jgs.open_run(...).predict.",
        )
