"""What a run trains on: a data set on one machine, or the parts of one on many ranks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jgs.data.column_values import SECONDS
from jgs.data.dataset import Plain
from jgs.data.label_table import LabelTable, LinkTable
from jgs.data.parts import Parts
from jgs.dist.communicators.collect import all_features
from jgs.dist.communicators.comm import Communicator, all_gather_rows
from jgs.dist.rows.embedding import ShardedEmbedding
from jgs.errors import InputError
from jgs.graph import Graph, NodeIds, Schema, TypedFeatures, as_device
from jgs.graph.row_tables.table import MOST_SQUARES, as_table, kept_as
from jgs.graph.typed_features import scales_of, split_by_type
from jgs.sampling import Loader, Sampler, SamplerSchedule
from jgs.sampling.base import State
from jgs.sampling.loading.items import num_items
from jgs.sampling.loading.stages import samplers_of
from jgs.train.config import Config
from jgs.train.loop.model import Types, is_contextual, reads_cells, takes_types
from jgs.train.loop.objective import Objective

Samplers = Sampler | SamplerSchedule
States = Mapping[Sampler, State]


class Data:
    """A run's data, which `Job` uses. The fields count all ranks together; those that are not
    below are as in `jgs.data.Dataset` and `jgs.data.dataset.Plain`."""

    comm: Communicator  # of the ranks that share the data
    ranks: Communicator  # of the run: `comm`, or of ranks that each have all of the data
    batch_size: int  # of all ranks together
    num_features: int  # the width of the features, of `TypedFeatures` the sum of the widths
    sparse: bool  # whether they, or those of a type, are sparse
    num_seeds: int  # the training nodes, or the items of `ask`
    num_steps: int  # in an epoch
    labels: Any  # of all nodes, as a step takes them; `host_labels`: in NumPy
    digests: dict[str, str]  # by which a resumed run recognises the data
    graphs: list[Graph]  # as `jgs.train.exact_inference` takes them, with the next two
    offsets: np.ndarray
    features: list[Any]
    direct: bool  # whether the first layer may read inputs by node id
    in_place: bool = True  # whether rows may be read where they lie, for batches on the host
    mesh: Communicator | None = None  # of devices that draw, and share the rows
    learned: ShardedEmbedding | None = None  # rows of nodes of types without features
    hot: Any = None  # rows on the devices, `[D, K, F]`, and `HotRows.joined`
    scratch: Path | None = None  # a folder for what is larger than memory
    own_ids: np.ndarray | None = None  # int32 `[N]`, the nodes' ids in `graphs`; None: equal
    node_ids: NodeIds | None = None  # of the user's tables
    links_from: int | None = None  # where links have times: the first that judges
    _of_types: Any = None
    _items: Any = None
    _before: Any = None
    _by_time: int | None = None

    def __init__(
        self,
        config: Config,
        comm: Communicator,
        data: Parts | Plain,
        ranks: Communicator | None = None,
    ):
        self._config, self.comm, self.ranks = config, comm, ranks or comm
        self.batch_size = config.batch_size * self.ranks.size
        self.name, labels, self.node_ids = data.name, data.labels, data.node_ids
        self.negatives, self.label_names = data.negatives, data.label_names
        self.table: LabelTable | None = data.label_table
        self.links: LinkTable | None = data.link_table
        self.time_unit: str | None = data.time_unit
        self.num_classes, self.class_names = data.num_classes, data.class_names
        self.feature_columns = data.feature_columns
        self.edge_feature_columns = data.edge_feature_columns
        self.host_labels = np.zeros(0, np.int32) if labels is None else labels

    @property
    def num_nodes(self) -> int:
        return int(self.offsets[-1])

    @property
    def schema(self) -> Schema | None:
        """The types of nodes, by the data set's ids, and of edges; or None."""
        schema = self.graphs[0].schema
        if schema is None or self.own_ids is None:
            return schema
        return Schema(schema.node_types, schema.relations)

    @property
    def every_row(self) -> Any:
        """The rows of all nodes, as `jgs.ops.gather` takes them; on one process only."""
        (rows,) = self.features
        return tuple(rows) if isinstance(rows, list) else rows

    @property
    def bounds(self) -> np.ndarray:
        """The offsets of the local ranks: where the nodes of each begin, and the last end."""
        return self.offsets[self.comm.rank :][: self.comm.num_local + 1]

    def in_graph(self, nodes: Any) -> Any:
        """The ids in `graphs` of nodes of the data set."""
        return nodes if self.own_ids is None else self.own_ids[nodes]

    def in_data_set(self, nodes: Any) -> Any:
        """int32: the ids in the data set of nodes of `graphs`."""
        return (
            nodes if self.own_ids is None else np.argsort(self.own_ids)[nodes].astype(np.int32)
        )

    def owned(self, nodes: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each local rank two arrays int32: the positions in `nodes`, of the data set, of
        those that the rank owns, and their ids in its graph."""
        ids = self.in_graph(nodes)
        places = [np.flatnonzero((ids >= a) & (ids < b)) for a, b in pairwise(self.bounds)]
        return [(at.astype(np.int32), ids[at].astype(np.int32)) for at in places]

    def _describe(self, of_ranks: Sequence[Any], schema: Schema | None) -> None:
        features = as_table(of_ranks[0])
        self.num_features, self.sparse = features.shape[1], features.by_entries
        if features.schema is not None and schema is not None:
            self._of_types = of_ranks, features.widths, schema

    @cached_property
    def types(self) -> Types | None:
        """Those for which a model of typed graphs is made; None for other models. All ranks ask
        for it alike: at first it reads all features."""
        if self._of_types is None:
            return None
        of_ranks, widths, schema = self._of_types
        own = [self._early(each, rank).square_sums() for rank, each in enumerate(of_ranks)]
        every = all_gather_rows(self.comm, [np.concatenate(each) for each in own])
        ends = np.cumsum([len(of_type) for of_type in own[0]])
        scales = scales_of(np.split(every.sum(axis=0), ends[:-1]))
        return Types(widths, schema, scales, self._moments(schema), self._cells(schema))

    def _cells(self, schema: Schema) -> list[list[tuple[str, str, int]]] | None:
        """The columns of each node type; None where the model takes none, or none is known."""
        became = self.feature_columns
        if not isinstance(became, dict) or not reads_cells(self._config):
            return None
        of_types = (became[t].columns if t in became else () for t, _ in schema.node_types)
        used = ([c for c in columns if c.names] for columns in of_types)
        return [[(c.name, c.kind, len(c.names)) for c in columns] for columns in used]

    def _moments(self, schema: Schema) -> list[list[tuple[int, int, float, float]]] | None:
        """The features that are times, see `TypedInputs`; None where there are none."""
        became, unit = self.feature_columns, self.time_unit
        if not isinstance(became, dict) or unit is None:
            return None
        found = [
            [
                (at, missing, mean / SECONDS[unit], deviation / SECONDS[unit])
                for at, missing, mean, deviation in (became[t].moments if t in became else ())
            ]
            for t, _ in schema.node_types
        ]
        return found if any(found) else None

    @property
    def judged_from(self) -> int | None:
        """The first moment of labels or links that judge; None without such at moments. Figures
        of features are of what is before it."""
        table = self.table or self.links
        if table is None:
            return self.links_from
        judged = np.asarray(table.time)[np.asarray(table.split) > 0]
        return int(judged.min(initial=np.iinfo(np.int64).max))

    def _early(self, features: Any, local_rank: int) -> Any:
        """A rank's typed features of nodes before `judged_from`; of large tables some rows."""
        times, since = self.graphs[0].node_time, self.judged_from
        if times is None or since is None:
            return features
        early, tables = np.asarray(times) < since, []
        begin, end = self.offsets[self.comm.rank + local_rank :][:2]
        for name, table in features.by_type.items():
            own = [r for r in self._of_types[2].ranges(name) if begin <= r.start < end]
            rows = np.concatenate([early[r.start : r.stop] for r in own] or [early[:0]])
            if table is not None and not rows.all():
                chosen = np.flatnonzero(rows)
                step = max(1, chosen.size * table.shape[1] // MOST_SQUARES)
                table = table.take(chosen[::step])
            tables.append(table)
        return TypedFeatures.of_tables(features.schema, tables)

    @abstractmethod
    def check_seeds(self) -> None:
        """Raises `InputError` unless each split has nodes, and training enough of them."""

    def ask(
        self, items: Any, before: Any, graphs: list[Graph], by_time: int | None = None
    ) -> None:
        """Has batches be of `items`, of which the stage `before` makes seeds, and drawn from
        `graphs`, in place of the training nodes. `by_time` as in `Loader`. Raises
        `InputError`."""
        what = "rows of labels" if before is None else "edges"
        size = self.batch_size
        self._items, self._before, self._by_time = items, before, by_time
        self.graphs = graphs
        self.num_seeds = num_items(items)
        self.num_steps = -(-self.num_seeds // size)
        if size > self.num_seeds:
            most = self.num_seeds * self._config.batch_size // size
            raise InputError(
                f"--batch-size, of all ranks together, must not exceed the number of {what} to "
                "train on",
                f"{size} for {self.num_seeds}",
                f"Give --batch-size {most}, or less." if most else "Use fewer ranks.",
            )

    def compare(self, objective: Objective | None) -> None:
        """Has the labels be as the loss of `objective` takes them; None: as they are."""
        own = self.host_labels
        self.labels = self.comm.same(as_device(objective.compared(own) if objective else own))
        if objective and isinstance(self._items, dict) and "label" in self._items:
            self._items = self._items | {"label": objective.compared(self._items["label"])}

    def state_of(self, sampler: Sampler, folder: Path | None) -> State:
        """The state of `sampler`, with the help of what its `save` wrote to `folder`. Raises
        `InputError`, on all ranks alike, where these data cannot be trained on with it."""
        graph = self._graphs(sampler)[0]
        return sampler.init(graph) if folder is None else sampler.restore(graph, folder)

    def _graphs(self, sampler: Samplers) -> list[Graph]:
        reads = any("features" in each.node_columns for each in samplers_of(sampler))
        if not reads or not self.num_features or self._config.mode == "vanilla":
            return self.graphs
        if self.types is not None:
            raise InputError(
                "a sampler that reads features must have them in one matrix for all nodes",
                f"--sampler {self._config.sampler} for --model {self._config.model}",
                "Choose another sampler, e.g. neighbors.",
            )
        columns = {"features": self._every_feature}
        return [graph.with_node_columns(**columns) for graph in self.graphs]

    @cached_property
    def _every_feature(self) -> Any:
        """The features of all nodes. Ranks send them to each other, once."""
        return all_features(self.comm, self.features)

    def loader(
        self,
        sampler: Samplers,
        key: jax.Array,
        reduce: str | None,
        states: States,
        judged: tuple[Any, Any] | None = None,
        size: int | None = None,
        device: Any = None,
    ) -> Loader:
        """A loader of pairs of a batch and its feature rows. `reduce` is how the first layer
        reduces neighbours; if it is not None, the rows may come as `Inputs` or `Placed`.
        `states` has what `state_of` returned for some samplers. With `judged`, items and a
        stage, it goes through these in their order, and draws all batches with one key. `size`
        is a rank's batch size, by default the configuration's. `device` as in `Loader`."""
        config = self._config
        items, before = judged or (self._items, self._before)
        options = {"key": key, "states": states, "before": before, "one_key": bool(judged)}
        options |= {"shuffle": not judged, "by_time": None if judged else self._by_time}
        options |= {"prefetch": config.prefetch, "age": config.state_age, "device": device}
        return self._loader(sampler, reduce, items, size or config.batch_size, **options)

    @abstractmethod
    def _loader(
        self, sampler: Samplers, reduce: str | None, items: Any, size: int, **options: Any
    ) -> Loader:
        """The loader; `options` are those that every loader takes."""

    @abstractmethod
    def train_nodes(self) -> list[np.ndarray]:
        """For each local rank training nodes, int32; together those of all ranks are all."""

    @abstractmethod
    def split(self, name: str) -> list[np.ndarray]:
        """The nodes of the split `name`, "val" or "test", that each local rank owns."""


def features_for(config: Config, name: str, schema: Schema | None, features: Any) -> Any:
    """The features of the data set `name` as the configuration's model reads them, for a model
    of typed graphs `TypedFeatures`. Raises `InputError` where model and data do not fit."""
    check_types(config, name, schema, features)
    if takes_types(config) and schema is not None:
        features = split_by_type(features, schema)
    return None if features is None else kept_as(features, config.feature_dtype)


def check_types(config: Config, name: str, schema: Schema | None, features: Any) -> None:
    """Raises `InputError` where the model and the types of the data do not fit."""
    if "model" not in config.owners:
        return
    typed = takes_types(config)
    if typed and schema is None and not is_contextual(config):
        raise InputError(
            f"--model {config.model} must be for a graph with node types and relations",
            f"{name}, which has none",
            "Choose a model of untyped graphs, e.g. --model sage.",
        )
    if not typed and features is not None:
        remedy = "Choose a model of typed graphs, e.g. --model rgcn."
        as_table(features).check_one_width(f"--model {config.model}", name, remedy)


def refuse_empty(data: Any, *splits: str) -> None:
    for split in splits:
        if len(getattr(data, f"{split}_idx")) == 0:
            raise InputError(
                f"the {split} split must not be empty", data.name, "Name its nodes."
            )
