"""`LocalJob`: training on one machine, on a whole data set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jgs.data
import jgs.ops
from jgs.dist.comm import Alone, Communicator
from jgs.errors import InputError
from jgs.graph import MiniBatch, as_device
from jgs.graph.features import SparseFeatures
from jgs.models import GNN, Inputs, read_inputs
from jgs.sampling import Loader
from jgs.train.config import Config
from jgs.train.evaluate import accuracy, exact_inference
from jgs.train.fingerprint import fingerprint
from jgs.train.progress import Meter

gather = jax.jit(jgs.ops.gather)
read = jax.jit(read_inputs, static_argnames="reduce")
with_degrees = jax.jit(MiniBatch.with_degrees)


class LocalJob:
    """See `Job`."""

    def __init__(self, config: Config):
        data = jgs.data.load(config.dataset, config.root, **config.data_arguments())
        refuse_empty(data, "train", "val", "test")
        if config.batch_size > len(data.train_idx):
            raise InputError(
                "--batch-size must not exceed the number of training nodes",
                f"{config.batch_size} for {len(data.train_idx)}",
                "Lower it.",
            )
        if config.weighted and data.graph.edge_weight is None:
            raise InputError(
                "--weighted must have a graph with edge weights", data.name, "Leave it out."
            )
        self.config, self._data = config, data
        self.comm: Communicator = Alone()
        self.name, self.multilabel = data.name, data.multilabel
        self.num_features, self.num_classes = data.features.shape[1], data.num_classes
        self.sparse = isinstance(data.features, SparseFeatures)
        self.num_seeds, self.batch_size = len(data.train_idx), config.batch_size
        self.labels, self.digests = jnp.asarray(data.labels), fingerprint(data)

    def start(self, model: GNN, key: jax.Array, scratch: Path | None) -> None:
        config, data = self.config, self._data
        self._input_reduce = model.input_reduce
        degrees = np.diff(np.asarray(data.graph.indptr)).astype(np.int32)
        self._degrees = as_device(degrees) if model.uses_degrees else None
        self.loader = Loader(
            data.graph,
            data.train_idx,
            config.batch_size,
            config.fanouts,
            key=key,
            replace=config.replace,
            weighted=config.weighted,
            prefetch=config.prefetch,
            relabel_inputs=model.input_reduce is None,  # else their rows are aggregated as read
        )
        memory = config.eval_memory << 20
        self._infer = exact_inference(
            model, data.graph, data.features, memory, scratch, config.weighted
        )

    def batches(self, meter: Meter) -> Iterator[tuple[MiniBatch, jax.Array | Inputs]]:
        waited = self.loader.waited
        for batch in self.loader:
            meter.seconds["sampling"] = self.loader.waited - waited
            with meter.timing("features"):
                if self._degrees is not None:
                    batch = with_degrees(batch, self._degrees)
                x = jax.block_until_ready(self._inputs(batch))
            yield batch, x

    def _inputs(self, batch: MiniBatch) -> jax.Array | Inputs:
        if self._input_reduce is None:
            return gather(self._data.features, batch.nodes)
        return read(self._data.features, batch, reduce=self._input_reduce)

    def accuracy(self, params: Any, split: str) -> float:
        nodes = getattr(self._data, f"{split}_idx")
        return accuracy(self._infer(params, nodes), self._data.labels[nodes])

    def close(self) -> None:
        self.loader.close()


def refuse_empty(data: Any, *splits: str) -> None:
    """Raises `InputError` where a data set, or parts of one, have no nodes in one of them."""
    for split in splits:
        if len(getattr(data, f"{split}_idx")) == 0:
            raise InputError(
                f"the {split} split must not be empty", data.name, "Name its nodes."
            )
