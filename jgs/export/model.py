"""`ExportedModel`: answers of an artifact, from any thread."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jgs
from jgs import kernels
from jgs.arrays import require_array
from jgs.data.stored import read_features, read_node_ids
from jgs.devices import default_device, host_device
from jgs.errors import InputError, refusing
from jgs.export.spec import DIGEST, FILE, KIND, Spec
from jgs.export.store import NewNodes, Store, ids_below
from jgs.files.storage import open_arrays
from jgs.files.verified import Verify
from jgs.graph import Graph, NodeIds
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


_AGAIN = "Export the run again: jgs export --run-dir RUN --out FOLDER."
log = logging.getLogger("jgs")


def load_exported(
    folder: str | os.PathLike,
    *,
    graph: Graph | None = None,
    features: Any = None,
    new_nodes: int = 64,
    new_edges: int = 4096,
    concurrency: int | None = None,
    platform: str | None = None,
    verify: Verify = True,
) -> ExportedModel:
    """Opens the artifact that `jgs.export_run` or `jgs export` wrote, and compiles its programs
    for the graph, so that requests compile nothing.

    Args:
      folder: the artifact.
      graph, features: what it reads, in place of what it holds; needed where it holds none.
        Memory-mapped arrays are used in place (`Graph.open`); others are copied once.
      new_nodes, new_edges: the most that a request may bring, as `NewNodes`.
      concurrency: how many requests compute at a time. None: as many as there are CPU cores for
        this process.
      platform: of those that it was exported for. None: that of JAX's default device, or else
        the CPU.
      verify: as in `Graph.open`.

    Raises `InputError` for a folder that is damaged, of a newer version or for other platforms,
    and for a graph or features that do not fit.
    """
    if concurrency is None:
        found = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
        concurrency = len(found) or os.cpu_count() or 1
    bounds = {"new_nodes": new_nodes, "new_edges": new_edges, "concurrency": concurrency}
    for name, value in bounds.items():
        if not isinstance(value, int) or value < 1:
            raise InputError(f"{name} must be an int of at least 1", value, "Leave it out.")
    folder = Path(folder)
    with refusing(OSError, f"{folder} must be the folder of an exported model", _AGAIN):
        text = (folder / FILE).read_bytes()
    spec = Spec.from_text(folder / FILE, text.decode("utf-8", "replace"))
    arrays = open_arrays(folder, KIND, verify)
    digest = np.frombuffer(hashlib.sha256(text).digest(), np.uint8)
    if not np.array_equal(arrays.get(DIGEST, ()), digest):
        raise InputError(f"{folder / FILE} must be as it was written", "another", _AGAIN)
    device = _device(spec, platform)
    kernel = _uses_kernel(spec, device.platform)
    ids = None
    if graph is None and features is None and spec.has_graph:
        named = {n.removeprefix("graph."): a for n, a in arrays.items() if n[:6] == "graph."}
        graph = Graph.from_stored(str(folder), named)
        features = read_features(str(folder), arrays, spec.num_features)
        ids = read_node_ids(str(folder), arrays)
    if graph is None or features is None:
        raise InputError(
            "an exported model must have a graph and its features",
            f"none in {folder}" if not spec.has_graph else "one of them",
            "Give graph= and features=, or export with with_graph (--with-graph).",
        )
    store = Store(spec, graph, features, new_nodes, new_edges, device)
    count = sum(name.startswith("param.") for name in arrays)
    leaves = [np.asarray(arrays[f"param.{i}"]) for i in range(count)]
    params = tuple(jax.device_put(leaves, device))
    kind = "kernel" if kernel else "plain"
    programs = {
        size: _compiled(folder, arrays[f"program.{kind}.{size}"], size, params, store, device)
        for size in spec.batch_sizes
    }
    return ExportedModel(
        spec,
        programs,
        params,
        store,
        ids=ids,
        platform=device.platform,
        kernel=kernel,
        concurrency=concurrency,
    )


def _device(spec: Spec, platform: str | None) -> Any:
    if platform is None:
        device = default_device()
        # JAX calls CUDA and ROCm gpu too.
        names = {"cuda", "rocm"} if device.platform == "gpu" else set()
        if (names | {device.platform}) & set(spec.platforms):
            return device
        if "cpu" in spec.platforms and host_device().platform == "cpu":
            return host_device()
        platform = device.platform
    if platform in spec.platforms:
        with refusing(RuntimeError, f"JAX must find the platform {platform}", "Install it."):
            return jax.local_devices(backend=platform)[0]
    raise InputError(
        f"the platform must be one of the exported model's: {', '.join(spec.platforms)}",
        platform,
        f"Export it again with --platforms {' '.join(spec.platforms)} {platform}.",
    )


def _uses_kernel(spec: Spec, platform: str) -> bool:
    if not (spec.kernel and platform == "cpu" and kernels.available()):
        return False
    if spec.jgs != jgs.__version__:
        log.warning(
            "a model exported by jgs %s runs without the kernels of jgs %s, slower",
            spec.jgs,
            jgs.__version__,
        )
        return False
    return True


def _compiled(
    folder: Path, program: Any, size: int, params: Any, store: Store, device: Any
) -> Program:
    errors = (ValueError, RuntimeError, TypeError, KeyError)
    rule = f"{folder} must hold programs that JAX {jax.__version__} reads"
    with refusing(errors, rule, "Install the JAX that its spec.json names."):
        exported = jax.export.deserialize(bytearray(np.asarray(program).tobytes()))
    run = jax.jit(exported.call)
    key, seeds = (
        np.zeros(2, np.uint32),
        np.full(size, store.arrays["indptr"].shape[0] - 1, np.int32),
    )
    with jax.default_device(device):
        run(params, store.arrays, key, seeds).block_until_ready()
    return run
