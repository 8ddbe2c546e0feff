"""`ExportedModel`: answers of an artifact, from any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from jgs.arrays import require_array
from jgs.export.spec import Spec
from jgs.export.store import NewNodes, Store, ids_below
from jgs.graph import NodeIds
from jgs.graph.shown import Shown

Program = Callable[[Any, Any, Any, Any], Any]


class ExportedModel(Shown):
    """An exported model with the graph that it reads; `jgs.load_exported` returns it.

    Methods may be called from any threads. At most `concurrency` calls compute at a time, and
    the others wait, so memory is bounded by as many batches. Nothing is compiled in a call.

    Arguments of the methods:
      nodes: int `[n]`, ids of nodes in any order. With `new` its `n` nodes have the ids from
        `num_nodes` on, and are the default.
      new: `NewNodes`, which this call alone knows.
      key: the random key of what is drawn, a Threefry key or its key data uint32 `[2]`. None:
        that of the run's seed. A node's answer depends on the key and the graph alone, and not
        on the other nodes of the call.

    They raise `InputError` for what does not fit.

    Fields:
      spec: the `Spec` of the artifact.
      answer: the `jgs.answers.Answer` of its outputs; `answer.columns` makes columns of what
        `predict` returns.
      class_names: NumPy text `[num_classes]`, or None.
      node_ids: `jgs.NodeIds` of the run's data, or None: `model.node_ids.nodes(["ann"])`.
      platform: where it runs, as JAX names it.
      kernel: whether it calls the compiled kernels.
      num_nodes: the number of nodes of its graph.
    """

    def __init__(
        self,
        spec: Spec,
        programs: Mapping[int, Program],
        params: Any,
        store: Store,
        *,
        ids: NodeIds | None,
        platform: str,
        kernel: bool,
        concurrency: int,
    ):
        self.answer = spec.answer()
        self.spec, self.node_ids, self.platform, self.kernel = spec, ids, platform, kernel
        self.class_names = self.answer.names
        self.num_nodes = store.num_nodes
        self._programs, self._params, self._store = programs, params, store
        self._key = np.array([0, spec.seed], np.uint32)
        self._free = threading.BoundedSemaphore(concurrency)

    def predict(
        self, nodes: Any = None, *, new: NewNodes | None = None, key: Any = None
    ) -> Any:
        """The `jgs.predict.Predictions` for nodes: their classes and probabilities. Where
        labels are numbers float64 `[n]`, or `[n, C]` of several, in the unit of the labels."""
        return self.answer.of(self.logits(nodes, new=new, key=key))

    def logits(
        self, nodes: Any = None, *, new: NewNodes | None = None, key: Any = None
    ) -> np.ndarray:
        """float32 `[n, C]`: the model's outputs, as `jgs.predict.Run.logits`."""
        key_data = self._key if key is None else _key_data(key)
        with self._free:
            added, arrays = 0, self._store.arrays
            if new is not None:
                added, arrays = self._store.with_new(new)
            total = self.num_nodes + added
            if nodes is None:
                nodes = np.arange(0 if new is None else self.num_nodes, total)
            ids = ids_below("nodes", nodes, total)
            seeds, place = np.unique(ids, return_inverse=True)
            outputs = [np.zeros((0, self.spec.num_classes), np.float32)]
            begin = 0
            while begin < seeds.size:
                size = self._size(seeds.size - begin)
                some = seeds[begin : begin + size]
                begin += size
                padded = np.full(size, arrays["indptr"].shape[0] - 1, np.int32)
                padded[: some.size] = some
                rows = self._programs[size](self._params, arrays, key_data, padded)
                outputs.append(np.asarray(rows)[: some.size])
        return np.concatenate(outputs)[place]

    def _size(self, wanted: int) -> int:
        """The smallest of the batch sizes that holds so many seeds, or the largest of all."""
        sizes = self.spec.batch_sizes
        return next((size for size in sizes if size >= wanted), sizes[-1])

    def _facts(self) -> dict[str, str]:
        return {
            "": f"{self.spec.model} of {self.spec.dataset}",
            "num_nodes": f"{self.num_nodes:,}",
            "fanouts": str(tuple(self.spec.fanouts)),
            "batch_sizes": str(tuple(self.spec.batch_sizes)),
            "platform": self.platform + ", kernels" * self.kernel,
        }


def _key_data(key: Any) -> np.ndarray:
    if isinstance(key, jax.Array) and jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.key_data(key)
    data = np.asarray(key)
    remedy = 'Make one with jax.random.key(seed, impl="threefry2x32").'
    require_array("key", data, "uint32 [2], a Threefry key", remedy)
    return data
