"""`load_exported` opens an artifact, without training code."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jgs
from jgs import kernels
from jgs.data.stored import read_features, read_node_ids
from jgs.devices import default_device, host_device
from jgs.errors import InputError, refusing
from jgs.export.model import ExportedModel, Program
from jgs.export.spec import DIGEST, FILE, KIND, Spec
from jgs.export.store import Store
from jgs.files.storage import open_arrays
from jgs.files.verified import Verify
from jgs.graph import Graph

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
    """The device that the model runs on. Raises `InputError` where it has no program for one
    that is here."""
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
    """Whether the programs that call the kernels run here: these belong to a version of jgs."""
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
