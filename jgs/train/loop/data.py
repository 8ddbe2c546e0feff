"""What a run trains on: a data set on one machine, or the parts of one on many ranks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jgs.data
import jgs.ops
from jgs.command import loading
from jgs.data.label_table import LabelTable
from jgs.data.padded import without_types
from jgs.data.parts import Parts, open_parts
from jgs.data.plain import Plain, load_plain
from jgs.devices import host_device
from jgs.dist.batches.rank_parts import RankParts
from jgs.dist.batches.ranks import rank_loader
from jgs.dist.communicators.collect import all_features
from jgs.dist.communicators.comm import Alone, Communicator, all_gather_rows
from jgs.errors import InputError
from jgs.graph import (
    Graph,
    MiniBatch,
    NodeIds,
    Schema,
    SparseFeatures,
    TypedFeatures,
    as_device,
)
from jgs.graph.reading import is_mapped, read_ahead
from jgs.graph.typed_features import scales_of, shown_tables, split_by_type
from jgs.models import read_inputs
from jgs.models.inputs import Placed
from jgs.partition.memory import machine
from jgs.sampling import DiskRows, HotRows, Loader, Sampler, SamplerSchedule
from jgs.sampling.base import State
from jgs.sampling.loading.items import num_items
from jgs.sampling.loading.stages import samplers_of
from jgs.train.config import Config
from jgs.train.loop.fingerprint import (
    fingerprint,
    fingerprint_features,
    fingerprint_plain,
)
from jgs.train.loop.model import Types, takes_types

Samplers = Sampler | SamplerSchedule
States = Mapping[Sampler, State]
_gather = jax.jit(jgs.ops.gather)
_COUNTED = 64  # the batches by which the rows for the devices are chosen
_read = jax.jit(read_inputs, static_argnames="reduce")


class Data:
    """A run's data, which `Job` uses. The fields count all ranks together.

    Fields:
      comm: the communicator of the ranks.
      name, num_classes, class_names: as in `jgs.data.Dataset`.
      num_features, sparse: the width of the features, and whether they are sparse. Of
        `TypedFeatures` the sum of the widths, and whether a type has sparse ones.
      types: the `Types` for which a model of typed graphs is made; None for other models.
      num_seeds, num_steps: the training nodes, or the items of `ask`, and the training steps
        in an epoch.
      labels, host_labels: the labels of all nodes, as a step takes them and in NumPy.
      digests: digests of the data, by which a resumed run recognises them.
      graphs, offsets, features: as `jgs.train.exact_inference` takes them.
      own_ids: int32 `[N]`, the id in `graphs` of each node of the data set; None where the ids
        are equal.
      node_ids: the ids of the user's tables for the nodes of the data set, or None.
      negatives, label_names: as in `jgs.data.dataset.Plain`.
      table: the `jgs.data.LabelTable`, with ids of `graphs`, or None.
      hot: the rows that lie on the devices, `[D, K, F]`, see `HotRows`; None: none do.
      scratch: a folder for what is larger than memory, or None.
      in_place: whether rows may be read where they lie in the ranks' tables: those of batches
        that stay on the host.
      direct: whether batches may name their inputs by node id, so that the first layer can read
        the features directly.
    """

    num_features: int
    sparse: bool
    types: Types | None
    num_seeds: int
    num_steps: int
    digests: dict[str, str]
    graphs: list[Graph]
    offsets: np.ndarray
    features: list[Any]
    direct: bool
    in_place: bool = True
    hot: Any = None
    scratch: Path | None = None
    own_ids: np.ndarray | None = None
    node_ids: NodeIds | None
    _items: Any = None
    _before: Any = None
    _by_time: int | None = None

    def __init__(
        self, config: Config, comm: Communicator, data: jgs.data.Dataset | Parts | Plain
    ):
        self._config, self.comm = config, comm
        self.name, labels, self.node_ids = data.name, data.labels, data.node_ids
        self.negatives = getattr(data, "negatives", None)
        self.label_names = getattr(data, "label_names", None)
        self.table: LabelTable | None = data.label_table
        self.num_classes = getattr(data, "num_classes", 0)
        self.class_names = getattr(data, "class_names", None)
        self.host_labels = np.zeros(0, np.int32) if labels is None else labels
        self.labels = comm.same(as_device(self.host_labels))

    def _describe(self, of_ranks: Sequence[Any], schema: Schema | None) -> None:
        """Sets the fields that say what the features are, `of_ranks` of each local rank."""
        first = of_ranks[0]
        features = first[0] if isinstance(first, list) else first
        typed = isinstance(features, TypedFeatures)
        tables = features.tables if typed else [features]
        self.num_features = sum(features.widths) if typed else features.shape[1]
        self.sparse = any(isinstance(table, SparseFeatures) for table in tables)
        self.types = None
        if typed and schema is not None:
            own = [each.square_sums() for each in of_ranks]
            every = all_gather_rows(self.comm, [np.concatenate(each) for each in own])
            ends = np.cumsum([len(of_type) for of_type in own[0]])
            scales = scales_of(np.split(every.sum(axis=0), ends[:-1]))
            self.types = Types(features.widths, schema, scales)

    def ask(
        self, items: Any, before: Any, graphs: list[Graph], by_time: int | None = None
    ) -> None:
        """Has batches be of `items`, of which the stage `before` makes seeds, and drawn from
        `graphs`, in place of those of the training nodes. `by_time` as in `Loader`. Raises
        `InputError`."""
        self._by_time = by_time
        what = "rows of labels" if before is None else "edges"
        size = self._config.batch_size * self.comm.size
        self._items, self._before, self.graphs = items, before, graphs
        self.num_seeds = num_items(items)
        self.num_steps = -(-self.num_seeds // size)
        if size > self.num_seeds:
            raise InputError(
                f"--batch-size, of all ranks together, must not exceed the number of {what} to "
                "train on",
                f"{size} for {self.num_seeds}",
                "Lower it.",
            )

    def state_of(self, sampler: Sampler, folder: Path | None) -> State:
        """The state of `sampler`, with the help of what its `save` wrote to `folder`. Raises
        `InputError`, on all ranks alike, where these data cannot be trained on with it."""
        graph = self._graphs(sampler)[0]
        return sampler.init(graph) if folder is None else sampler.restore(graph, folder)

    def _graphs(self, sampler: Samplers) -> list[Graph]:
        """The local ranks' graphs, with the node columns that the sampler reads."""
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

    @abstractmethod
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
        is a rank's batch size, by default the configuration's. `device` as in `Loader`; None:
        batches stay on the host."""

    @abstractmethod
    def split(self, name: str) -> list[np.ndarray]:
        """The nodes of the split `name`, "val" or "test", that each local rank owns."""


class WholeData(Data):
    """A data set on one machine; see `Data`."""

    direct = True

    def __init__(self, config: Config, pairs: bool = False):
        super().__init__(config, Alone(), data := _load(config, pairs))
        graph, has = data.graph, machine()
        if has is not None and graph.indices.nbytes > has.free // 2 and is_mapped(graph):
            graph = read_ahead(graph)
        features = features_for(config, data.name, graph.schema, data.features)
        if features is None:
            features = jnp.zeros((graph.num_nodes, 0))
        self._describe([features], graph.schema)
        self.graphs, self.features = [graph], [features]
        self.offsets = np.array([0, graph.num_nodes])
        self.plain = data
        if isinstance(data, Plain):
            self.digests = fingerprint_plain(data) | {
                "features": fingerprint_features(data.features)
            }
        else:
            self._items, self.num_seeds = data.train_idx, len(data.train_idx)
            self.num_steps = -(-self.num_seeds // config.batch_size)
            self.digests = fingerprint(data)

    @property
    def _every_feature(self) -> Any:
        return self.features[0]

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
        config, (features,) = self._config, self.features

        def read(batch: MiniBatch) -> Any:
            if batch.direct_inputs:
                return jax.block_until_ready(_read(features, batch, reduce=reduce))
            if isinstance(features, TypedFeatures):  # a jitted function would copy the tables
                return jax.block_until_ready(jgs.ops.gather(features, batch.nodes))
            return jax.block_until_ready(_gather(features, batch.nodes))

        items, before = judged or (self._items, self._before)
        size = size or config.batch_size
        make = partial(
            Loader,
            self._graphs(sampler)[0],
            items,
            min(size, num_items(items)) if judged else size,
            sampler,
            key=key,
            before=before,
            shuffle=judged is None,
            by_time=None if judged else self._by_time,
            one_key=judged is not None,
            prefetch=config.prefetch,
            age=config.state_age,
            states=states,
            device=device or host_device(),
        )
        if config.feature_memory and not judged:
            # As in memory: only such samplers leave the reading of inputs to the first layer.
            direct = all(
                is_dataclass(each) and "relabel_inputs" in {f.name for f in fields(each)}
                for each in samplers_of(sampler)
            )
            return make(read=self._on_disk(reduce if direct else None))
        if device is None or not config.device_memory:
            return make(read=read)
        memory = config.device_memory << 20
        counted = make()
        hot = HotRows.planned(features, counted, memory, device, _COUNTED)
        self.hot = _by_device(hot.table, device)
        del hot.table  # `hot` is the loader's from here on, which reads the other rows
        one = not isinstance(sampler, SamplerSchedule)
        return make(read=hot, capacity=counted.capacity if one else None)

    def _on_disk(self, reduce: str | None) -> DiskRows:
        """The features in their files, some rows in memory; `reduce` as in `loader`."""

        def inputs(tables: Any, place: jax.Array, batch: MiniBatch) -> Any:
            placed = Placed(tables, place)
            controlled = batch.block(0).control is not None
            return placed.rows() if controlled else placed.inputs(batch, reduce or "")

        block = self._config.feature_block
        return DiskRows(
            self.features[0],
            self._config.feature_memory << 20,
            scratch=self.scratch if block else None,
            block=max(block, 1),
            then=inputs if reduce is not None else None,
        )

    def split(self, name: str) -> list[np.ndarray]:
        return [getattr(self.plain, f"{name}_idx")]


class PartedData(Data):
    """The `P` parts of a data set, `P / R` on each of `R` ranks; see `Data`.

    Every batch has `batch_size * R` seeds, equally many from each part. Runs with equal
    `batch_size * R` have the same batches, up to the order of nodes.
    """

    direct = False

    def __init__(self, config: Config, comm: Communicator, pairs: bool = False):
        assert config.partition is not None
        parts = open_parts(config.partition, config.verification())
        # That every part has training nodes is checked with the seeds.
        if not pairs and parts.label_table is None:
            _refuse_empty(parts, "val", "test")
        super().__init__(config, comm, parts)
        self._parts, self.own_ids = parts, parts.new_ids
        self._ranks = RankParts(comm, parts, takes_types(config))
        check_types(config, parts.name, parts.schema, self._ranks.features[0])
        self._describe(self._ranks.features, parts.schema)
        seeds = [part["seeds"] for part in parts.manifest["parts"]]
        self.num_seeds = sum(seeds)
        self.num_steps = -(-max(seeds) * self._ranks.per_rank // config.batch_size)
        self.digests = {"parts": parts.parts_id}
        self.graphs = self._ranks.graphs(config.mode)
        self.offsets, self.features = self._ranks.offsets, self._ranks.features

    def state_of(self, sampler: Sampler, folder: Path | None) -> State:
        if self._items is None:
            self._ranks.check(self._config.batch_size, sampler, self._config.mode)
        return super().state_of(sampler, folder)

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
        config = self._config
        items, before = judged or (self._items, self._before)
        size = size or config.batch_size
        in_place = True if reduce is not None else None  # None: rows of types alone
        if judged:  # every rank has a share of each batch
            size = max(1, min(size, num_items(items) // self.comm.size))
        return rank_loader(
            self.comm,
            self._ranks,
            size,
            sampler,
            key=key,
            shuffle=judged is None,
            by_time=None if judged else self._by_time,
            one_key=judged is not None,
            mode=config.mode,
            graphs=self._graphs(sampler),
            cache=config.cache,
            cache_memory=config.cache_memory << 20,
            wire=config.wire,
            prefetch=config.prefetch,
            age=config.state_age,
            in_place=in_place if self.in_place else False,
            states=states,
            items=items,
            before=before,
            device=device,
        )

    def split(self, name: str) -> list[np.ndarray]:
        ids = getattr(self._parts, f"{name}_idx")
        bounds = self.offsets[self.comm.rank :][: self.comm.num_local + 1]
        return [np.asarray(ids[a:b]) for a, b in pairwise(np.searchsorted(ids, bounds))]


def _by_device(table: jax.Array, sharding: Any) -> jax.Array:
    """`[D, K, F]`: a table `[K, F]` that each of the `D` devices has, as an `OWN` value."""
    pieces = [shard.data[None] for shard in table.addressable_shards]
    shape = (len(pieces), *table.shape)
    return jax.make_array_from_single_device_arrays(shape, sharding, pieces)


def features_for(config: Config, name: str, schema: Schema | None, features: Any) -> Any:
    """The features of the data set `name` as the configuration's model reads them: a model of
    typed graphs `TypedFeatures`, also where one matrix has the rows of all nodes. Raises
    `InputError` where the model and the data do not fit."""
    check_types(config, name, schema, features)
    if takes_types(config) and not isinstance(features, TypedFeatures):
        assert schema is not None
        return split_by_type(features, schema)
    return features


def check_types(config: Config, name: str, schema: Schema | None, features: Any) -> None:
    """Raises `InputError` where a model of typed graphs is to learn from a graph without types,
    or another model from features of different widths."""
    if "model" not in config.owners:
        return
    typed = takes_types(config)
    if typed and schema is None:
        raise InputError(
            f"--model {config.model} must be for a graph with node types and relations",
            f"{name}, which has none",
            "Choose a model of untyped graphs, e.g. --model sage.",
        )
    if not typed and isinstance(features, TypedFeatures):
        raise InputError(
            f"--model {config.model} must have features of one width for all nodes",
            f"{name}, with {shown_tables(features)}",
            "Choose a model of typed graphs, e.g. --model rgcn.",
        )


def open_data(
    config: Config, comm: Communicator | None = None, pairs: bool = False
) -> WholeData | PartedData:
    """Opens the data of a configuration, for the ranks of `comm` or, with None, for one
    process. With `pairs` they need no features, labels and splits of nodes, and their owner
    must call `ask`. Raises `InputError`."""
    with loading():
        if config.partition is not None:
            return PartedData(config, comm or Alone(), pairs)
        if comm is None or comm.size == 1:
            return WholeData(config, pairs)
    raise InputError(
        "several ranks must have a partitioned data set",
        f"{comm.size} ranks and no --partition",
        "Write one with python -m jgs.partition, and give its folder.",
    )


def _load(config: Config, pairs: bool) -> jgs.data.Dataset | Plain:
    arguments = config.data_arguments()
    if pairs:
        plain = load_plain(config.dataset, config.root, **arguments)
        return plain if takes_types(config) else without_types(plain)
    data = jgs.data.load(config.dataset, config.root, **arguments)
    data = data if takes_types(config) else without_types(data)
    if data.label_table is not None:
        return data
    _refuse_empty(data, "train", "val", "test")
    if config.batch_size > len(data.train_idx):
        raise InputError(
            "--batch-size must not exceed the number of training nodes",
            f"{config.batch_size} for {len(data.train_idx)}",
            "Lower it.",
        )
    return data


def _refuse_empty(data: Any, *splits: str) -> None:
    """Raises `InputError` where one of the splits is empty."""
    for split in splits:
        if len(getattr(data, f"{split}_idx")) == 0:
            raise InputError(
                f"the {split} split must not be empty", data.name, "Name its nodes."
            )
