"""`open_data`: the data of a configuration; and fingerprints of data sets, which show whether a
run is resumed on the data that it began with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jgs.data
import jgs.ops
from jgs.command import loading
from jgs.data import Dataset
from jgs.data.parts import open_parts
from jgs.data.plain import Plain, load_plain
from jgs.data.values import without_types
from jgs.devices import host_device
from jgs.dist.batches.fused import mesh_loader
from jgs.dist.batches.ranks import RankParts, rank_loader
from jgs.dist.communicators.comm import Alone, Communicator
from jgs.errors import InputError, refuse
from jgs.graph import Graph, MiniBatch
from jgs.graph.reading import is_mapped, read_ahead
from jgs.graph.row_tables.table import as_table
from jgs.models import Placed, read_inputs
from jgs.partition.memory import machine
from jgs.sampling import DiskRows, HotRows, Loader, Sampler, SamplerSchedule
from jgs.sampling.base import State
from jgs.sampling.loading.items import num_items
from jgs.sampling.loading.stages import samplers_of
from jgs.train.config import Config
from jgs.train.loop.data import Data, Samplers, check_types, features_for, refuse_empty
from jgs.train.loop.model import takes_types

# A fingerprint reads arrays of at most so many bytes whole, and so many samples of larger ones.
_WHOLE, _SAMPLES = 64 << 20, 64
_COLUMNS = "edge columns"


def open_data(
    config: Config,
    comm: Communicator | None = None,
    pairs: bool = False,
    trains: bool = False,
) -> WholeData | PartedData:
    """Opens the data of a configuration, for the ranks of `comm` or, with None, for one
    process. With `pairs` they need no features, labels and splits of nodes, and their owner
    must call `ask`. Where devices share the rows each process opens all data, if it `trains`.
    Raises `InputError`."""
    with loading():
        if config.partition is not None:
            return PartedData(config, comm or Alone())
        if comm is None or comm.size == 1:
            return WholeData(config, pairs)
        if trains and config.features == "sharded":
            rule = "--features sharded on several processes must be by --comm jax"
            refuse((not comm.uniform, rule, "--comm mpi", "Choose --comm jax."))
            return WholeData(config, pairs, ranks=comm)
    raise InputError(
        "several ranks must have a partitioned data set",
        f"{comm.size} ranks and no --partition",
        "Write one with python -m jgs.partition, and give its folder, or train with --features "
        "sharded.",
    )


_COUNTED = 64  # the batches by which the rows for the devices are chosen
_read = jax.jit(read_inputs, static_argnames="reduce")


class WholeData(Data):
    """A data set on one machine; see `Data`."""

    direct = True

    def __init__(
        self,
        config: Config,
        pairs: bool = False,
        data: Any = None,
        ranks: Communicator | None = None,
    ):
        """`data` is the data set, in place of that of the configuration. Each of the `ranks`
        has all of it."""
        if data is None:
            load: Any = load_plain if pairs else jgs.data.load
            data = load(config.dataset, config.root, **config.data_arguments())
        data = data if takes_types(config) else without_types(data)
        super().__init__(config, Alone(), data, ranks)
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
        if pairs:
            self.digests = fingerprint_plain(data) | {
                "features": fingerprint_features(data.features)
            }
        else:
            self._items, self.num_seeds = data.train_idx, len(data.train_idx)
            self.num_steps = -(-self.num_seeds // self.batch_size)
            self.digests = fingerprint(data)

    def check_seeds(self) -> None:
        refuse_empty(self.plain, "train", "val", "test")
        if self.batch_size > self.num_seeds:
            raise InputError(
                "--batch-size must not exceed the number of training nodes",
                f"{self.batch_size} for {self.num_seeds}",
                f"Give --batch-size {self.num_seeds // self.ranks.size} or less.",
            )

    @property
    def _every_feature(self) -> Any:
        return self.features[0]

    def _loader(
        self, sampler: Samplers, reduce: str | None, items: Any, size: int, **options: Any
    ) -> Loader:
        config, (features,) = self._config, self.features
        judged, device = options["one_key"], options.pop("device")

        if self.mesh is not None and not judged:
            devices, seeds = self.mesh.size // self.ranks.size, config.batch_size
            rule = f"--batch-size must be a multiple of {devices}, the devices of a process"
            remedy = f"Give {-(-seeds // devices) * devices}."
            refuse((seeds % devices, rule, seeds, remedy))
            options |= {"cache_memory": config.cache_memory << 20, "wire": config.wire}
            options |= {"cache": config.cache, "in_place": reduce is not None}
            options["learned"] = self.learned
            of_all = self._graphs(sampler)[0], features, items, self.batch_size, sampler
            return mesh_loader(self.mesh, *of_all, **options)

        def read(batch: MiniBatch) -> Any:
            if batch.direct_inputs:
                return jax.block_until_ready(_read(features, batch, reduce=reduce))
            # Not within `jax.jit`, which would copy the tables of node types.
            return jax.block_until_ready(jgs.ops.gather(features, batch.nodes))

        size = min(size, num_items(items)) if judged else size
        given = (self._graphs(sampler)[0], items, size, sampler)
        make = partial(Loader, *given, device=device or host_device(), **options)
        if config.feature_memory and not judged:
            # As in memory: only such samplers leave the reading of inputs to the first layer.
            declared = (getattr(s, "__dataclass_fields__", ()) for s in samplers_of(sampler))
            direct = all("relabel_inputs" in fields for fields in declared)
            return make(read=self._on_disk(reduce if direct else None))
        if device is None or not config.device_memory:
            return make(read=read)
        memory = config.device_memory << 20
        counted = make()
        hot = HotRows.planned(features, counted, memory, device, _COUNTED)
        self.hot = _by_device(hot.table, device), hot.joined
        del hot.table  # `hot` is the loader's from here on, which reads the other rows
        one = not isinstance(sampler, SamplerSchedule)
        return make(read=hot, capacity=counted.capacity if one else None)

    def _on_disk(self, reduce: str | None) -> DiskRows:
        def inputs(tables: Any, place: jax.Array, batch: MiniBatch) -> Any:
            if batch.block(0).control is not None:
                return jgs.ops.gather(tables, place)
            return Placed(tables, place).inputs(batch, reduce or "")

        block = self._config.feature_block
        return DiskRows(
            self.features[0],
            self._config.feature_memory << 20,
            scratch=self.scratch if block else None,
            block=max(block, 1),
            then=inputs if reduce is not None else None,
        )

    def train_nodes(self) -> list[np.ndarray]:
        nodes = self.plain.train_idx
        assert nodes is not None  # which a task of nodes has
        return [nodes]

    def split(self, name: str) -> list[np.ndarray]:
        return [getattr(self.plain, f"{name}_idx")]


def _by_device(table: jax.Array, sharding: Any) -> jax.Array:
    """`[D, K, F]`: a table `[K, F]` that each of the `D` devices has, as an `OWN` value."""
    pieces = [shard.data[None] for shard in table.addressable_shards]
    shape = (len(pieces), *table.shape)
    return jax.make_array_from_single_device_arrays(shape, sharding, pieces)


class PartedData(Data):
    """The `P` parts of a data set, `P / R` on each of `R` ranks; see `Data`.

    Every batch has `batch_size * R` seeds, equally many from each part. Runs with equal
    `batch_size * R` have the same batches, up to the order of nodes.
    """

    direct = False

    def __init__(self, config: Config, comm: Communicator):
        assert config.partition is not None
        verify = config.verify == "always"
        parts = open_parts(config.partition, "once" if config.verify == "once" else verify)
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

    def check_seeds(self) -> None:
        # That every part has training nodes is checked with the state.
        refuse_empty(self._parts, "val", "test")

    def state_of(self, sampler: Sampler, folder: Path | None) -> State:
        if self._items is None:
            self._ranks.check(self._config.batch_size, sampler, self._config.mode)
        return super().state_of(sampler, folder)

    def _loader(
        self, sampler: Samplers, reduce: str | None, items: Any, size: int, **options: Any
    ) -> Loader:
        config = self._config
        in_place = reduce is not None or None  # None: rows of types alone
        if options["one_key"]:  # it judges: every rank has a share of each batch
            size = max(1, min(size, num_items(items) // self.comm.size))
        return rank_loader(
            self.comm,
            self._ranks,
            size,
            sampler,
            mode=config.mode,
            graphs=self._graphs(sampler),
            cache=config.cache,
            cache_memory=config.cache_memory << 20,
            wire=config.wire,
            in_place=in_place if self.in_place else False,
            items=items,
            **options,
        )

    def train_nodes(self) -> list[np.ndarray]:
        return self._ranks.own_seeds()

    def split(self, name: str) -> list[np.ndarray]:
        ids = getattr(self._parts, f"{name}_idx")
        places = np.searchsorted(ids, self.bounds)
        return [np.asarray(ids[a:b]) for a, b in pairwise(places)]


def fingerprint(data: Dataset) -> dict[str, str]:
    """SHA-256 of each part of the data set, by the part's name: of an array's shape, dtype and
    content. Of one larger than 64 MiB 64 evenly spaced pieces of 1 MiB are read, so that a
    fingerprint takes a fraction of a second."""
    return {
        **_of_graph(data.graph),
        "features": fingerprint_features(data.features),
        "labels": digest_of(np.array(data.num_classes), data.labels),
        "splits": digest_of(data.train_idx, data.val_idx, data.test_idx),
        **({} if data.label_table is None else {"table": digest_of(*data.label_table)}),
    }


def fingerprint_plain(data: Plain) -> dict[str, str]:
    splits = [ids for ids in (data.train_idx, data.test_idx) if ids is not None]
    return {
        **_of_graph(data.graph),
        "labels": "none" if data.labels is None else digest_of(data.labels),
        "splits": digest_of(*splits),
    }


def fingerprint_features(features: Any) -> str:
    """SHA-256 of the features of a data set, dense, sparse or typed, or "none"."""
    return "none" if features is None else as_table(features).digest(digest_of)


def changed_parts(saved: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """The parts of a data set, whose digests are `found`, that are not as those that were
    `saved`. Runs of jgs 0.2 say nothing of edge columns."""
    old = {} if _COLUMNS in saved else {_COLUMNS: found.get(_COLUMNS)}
    return [part for part in found if {**old, **saved}.get(part) != found[part]]


def _of_graph(graph: Graph) -> dict[str, str]:
    weight, types = graph.edge_weight, {}
    names = sorted(graph.edge_columns)
    named = np.frombuffer(" ".join(names).encode(), np.uint8)
    if graph.schema is not None or graph.edge_type is not None:
        schema = [] if graph.schema is None else [graph.schema.as_bytes()]
        numbers = [] if graph.edge_type is None else [graph.edge_type]
        types["types"] = digest_of(*schema, *numbers)
    if graph.edge_time is not None:
        types["edge times"] = digest_of(np.asarray(graph.edge_time))
    if graph.node_time is not None:
        types["node times"] = digest_of(np.asarray(graph.node_time))
    return {
        # In NumPy, because JAX would cut the 64-bit offsets to 32 bits when it slices them.
        "graph": digest_of(np.asarray(graph.indptr), np.asarray(graph.indices)),
        "edge weights": "none" if weight is None else digest_of(weight),
        _COLUMNS: digest_of(named, *(np.asarray(graph.edge_columns[name]) for name in names)),
        **types,
    }


def digest_of(*arrays: Any) -> str:
    """SHA-256 of the arrays: their shapes, their dtypes, and their content or samples of it."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(f"{array.dtype} {array.shape};".encode())
        for piece in _pieces(array):
            total.update(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)
    return total.hexdigest()


def _pieces(array: Any) -> list[Any]:
    if array.nbytes <= _WHOLE:
        return [array]
    row_bytes = array.nbytes // len(array)
    size = max(1, _WHOLE // _SAMPLES // row_bytes)
    starts = np.linspace(0, len(array) - size, _SAMPLES).astype(int)
    return [array[start : start + size] for start in starts.tolist()]
