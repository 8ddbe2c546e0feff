"""`WholeData`: a data set in one process, in memory, mapped, or with features on disk."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jgs.data
import jgs.ops
from jgs.data.plain import Plain, load_plain
from jgs.data.values import without_types
from jgs.devices import host_device
from jgs.dist.communicators.comm import Alone
from jgs.errors import InputError
from jgs.graph import MiniBatch
from jgs.graph.reading import is_mapped, read_ahead
from jgs.models import read_inputs
from jgs.models.inputs import Placed
from jgs.partition.memory import machine
from jgs.sampling import DiskRows, HotRows, Loader, SamplerSchedule
from jgs.sampling.loading.items import num_items
from jgs.sampling.loading.stages import samplers_of
from jgs.train.config import Config
from jgs.train.loop.data import Data, Samplers, features_for, refuse_empty
from jgs.train.loop.fingerprint import (
    fingerprint,
    fingerprint_features,
    fingerprint_plain,
)
from jgs.train.loop.model import takes_types

_COUNTED = 64  # the batches by which the rows for the devices are chosen
_read = jax.jit(read_inputs, static_argnames="reduce")


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

    def check_seeds(self) -> None:
        refuse_empty(self.plain, "train", "val", "test")
        if self._config.batch_size > self.num_seeds:
            raise InputError(
                "--batch-size must not exceed the number of training nodes",
                f"{self._config.batch_size} for {self.num_seeds}",
                f"Give --batch-size {self.num_seeds} or less.",
            )

    @property
    def _every_feature(self) -> Any:
        return self.features[0]

    def _loader(
        self,
        sampler: Samplers,
        reduce: str | None,
        items: Any,
        size: int,
        judged: bool,
        device: Any,
        options: dict[str, Any],
    ) -> Loader:
        config, (features,) = self._config, self.features

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
        self.hot = _by_device(hot.table, device), hot.joined
        del hot.table  # `hot` is the loader's from here on, which reads the other rows
        one = not isinstance(sampler, SamplerSchedule)
        return make(read=hot, capacity=counted.capacity if one else None)

    def _on_disk(self, reduce: str | None) -> DiskRows:
        """The features in their files, some rows in memory; `reduce` as in `loader`."""

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


def _load(config: Config, pairs: bool) -> jgs.data.Dataset | Plain:
    arguments = config.data_arguments()
    load: Any = load_plain if pairs else jgs.data.load
    data = load(config.dataset, config.root, **arguments)
    return data if takes_types(config) else without_types(data)
