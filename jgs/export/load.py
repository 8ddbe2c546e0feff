"""`load_exported` opens an artifact."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping
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
from jgs.export.store import Candidates, Store
from jgs.files.storage import Verify, open_arrays
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
    spec, arrays = read_artifact(folder, verify)
    device = _device(spec, platform)
    return opened_model(
        spec,
        arrays,
        str(folder),
        (graph, features),
        (new_nodes, new_edges),
        concurrency=concurrency,
        device=device,
    )


def read_artifact(folder: Path, verify: Verify = True) -> tuple[Spec, dict[str, np.ndarray]]:
    """The `Spec` and the arrays of the artifact in `folder`. Raises `InputError`."""
    with refusing(OSError, f"{folder} must be the folder of an exported model", _AGAIN):
        text = (folder / FILE).read_bytes()
    spec = Spec.from_text(folder / FILE, text.decode("utf-8", "replace"))
    arrays = open_arrays(folder, KIND, verify)
    digest = np.frombuffer(hashlib.sha256(text).digest(), np.uint8)
    if not np.array_equal(arrays.get(DIGEST, ()), digest):
        raise InputError(f"{folder / FILE} must be as it was written", "another", _AGAIN)
    return spec, arrays


def opened_model(
    spec: Spec,
    arrays: Mapping[str, Any],
    owner: str,
    given: tuple[Graph | None, Any] = (None, None),
    new: tuple[int, int] = (1, 1),
    concurrency: int = 1,
    device: Any = None,
) -> ExportedModel:
    """The model of an artifact's `arrays`, which error messages call `owner`. `given` are a
    graph and features, and `new` the bounds of `NewNodes`."""
    device = _device(spec, None) if device is None else device
    kernel = _uses_kernel(spec, device.platform)
    (graph, features), ids, own = given, None, False
    if graph is None and features is None and spec.has_graph:
        named = {n.removeprefix("graph."): a for n, a in arrays.items() if n[:6] == "graph."}
        graph, own = Graph.from_stored(owner, named), True
        features = read_features(owner, arrays, spec.widths, graph.schema)
        ids = read_node_ids(owner, arrays)
    if graph is None or features is None:
        raise InputError(
            "an exported model must have a graph and its features",
            f"none in {owner}" if not spec.has_graph else "one of them",
            "Give graph= and features=, or export with with_graph (--with-graph).",
        )

    def stored(graph: Graph, features: Any, state: Any = None) -> Store:
        """The `Store` of another graph of the same types, and its features."""
        names = [name for name in spec.inputs if name.startswith("state.")]

        def of_graph() -> Mapping[str, Any]:
            if state is not None or not names:
                return state or {}
            from jgs.export.write import state_of  # a slow import, of what trains

            return dict(zip(names, state_of(spec, arrays, graph), strict=True))

        return Store(spec, graph, features, *new, device, of_graph)

    state = {n: np.asarray(a) for n, a in arrays.items() if n.startswith("state.")}
    store = stored(graph, features, state if own else None)
    if own:
        store.candidates = Candidates.stored(arrays, device)
    count = sum(name.startswith("param.") for name in arrays)
    leaves = [np.asarray(arrays[f"param.{i}"]) for i in range(count)]
    params = tuple(jax.device_put(leaves, device))
    model = ExportedModel(
        spec,
        _programs(spec, arrays, "kernel" if kernel else "plain"),
        params,
        store,
        ids=ids,
        device=device,
        kernel=kernel,
        concurrency=concurrency,
        stored=stored,
    )
    model.warm()
    return model


def _programs(spec: Spec, arrays: Mapping[str, Any], kind: str) -> dict[str, Program]:
    """The programs by name and batch size, read but not compiled."""
    found: dict[str, Program] = {}
    for size in spec.batch_sizes:
        for name in ("",) if spec.pairs is None else ("", "pair.", "list."):
            program = arrays[f"program.{name}{kind}.{size}"]
            errors = (ValueError, RuntimeError, TypeError, KeyError)
            rule = "the programs of an exported model must be ones that this JAX reads"
            with refusing(errors, rule, "Write them again: jgs export --again FOLDER."):
                exported = jax.export.deserialize(bytearray(np.asarray(program).tobytes()))
            found[f"{name}{size}"] = jax.jit(exported.call)
    return found


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
