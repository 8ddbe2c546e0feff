"""A partitioned data set on the disk: `open_parts`. Its layout:

    manifest.json         what `write_parts` wrote, with the SHA-256 of the manifests below
    graph/                the whole graph with new ids, as `jgs.Graph.save` writes it
    shared/               labels, val_idx, test_idx, original_ids; the schema of a typed graph;
                          the `jgs.NodeIds`, the label table and the negatives of the data set,
                          if it has them
    part-00000/ ...       the data of one part:
      features.npy          [n, F], the features of its own nodes; or for `SparseFeatures`
                            features_indptr.npy, features_indices.npy, features_values.npy;
                            for `TypedFeatures` these with features_of_type_0 in place of
                            features, and so on, for each node type that has features
      train_idx.npy         int32, its seeds, ascending; most are its own nodes
      rows.npy              int32 [m], ascending: its own nodes, and its other seeds
      indptr.npy            int64 [m+1]; the in-edges of these rows, as in `Graph`
      indices.npy ...       and the other columns of these edges, see `Graph.edge_arrays`

Nodes are renumbered so that part `p` has the ids `offsets[p]` to `offsets[p + 1]`. A rank may
not need the graph (if the topology is split too) or other parts; it can then do without their
folders.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jgs.data import stored
from jgs.data.columns import FeatureColumns
from jgs.data.label_table import LabelTable, LinkTable
from jgs.errors import InputError, refusing
from jgs.files import storage
from jgs.files.storage import Verify
from jgs.graph import Graph, NodeIds, Schema, TypedFeatures, as_device
from jgs.graph.row_tables.table import RowTable, plain
from jgs.graph.rows import row_offsets, row_positions
from jgs.graph.shown import Shown
from jgs.tables import ROW_TABLES

KIND, SHARED_KIND, PART_KIND = "jgs.parts", "jgs.parts.shared", "jgs.parts.part"
GRAPH_KIND = "jgs.graph"
GRAPH, SHARED = "graph", "shared"


@dataclass(frozen=True, eq=False)
class Part:
    """One part: what its rank trains on and serves to others.

    Fields:
      index: int, the number of the part.
      first, last: int; the part's own nodes are `[first, last)`.
      features: the features of these nodes, `jax.Array` `[last - first, F]` or
        `SparseFeatures`, memory-mapped; row `v - first` is that of node `v`. Or `TypedFeatures`
        for the schema of these nodes alone.
      train_idx: NumPy int32, ascending: the part's seeds. All parts have the same number of
        seeds, up to 1. A few may be nodes of other parts.
    """

    index: int
    first: int
    last: int
    features: jax.Array | RowTable | TypedFeatures
    train_idx: np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class Parts(Shown):
    """A partitioned data set; all node ids are the new ones.

    Fields:
      folder: the folder with the parts.
      name: the name of the data set.
      num_parts, num_nodes, num_edges, num_classes: int.
      offsets: NumPy int64 `[P + 1]`; part `p` has the nodes `[offsets[p], offsets[p + 1])`.
      parts_id: text, hexadecimal digits that identify these parts: equal on all ranks of a run.
      manifest: the contents of `manifest.json`, with the edge cut and all balance figures.
      labels, val_idx, test_idx: NumPy, as in `jgs.data.Dataset`, memory-mapped; the splits are
        ascending.
      original_ids: NumPy int32 `[N]`; each node's id in the data set.
      schema: `jgs.Schema` or None; each part has a range of ids of each node type.
      class_names, label_names, time_unit, feature_columns, edge_feature_columns: as in
        `jgs.data.Dataset`; None also in parts of earlier versions.
      verify: whether the checksums of what is opened later are compared; see `open_parts`.
    """

    folder: Path
    name: str
    num_parts: int
    num_nodes: int
    num_edges: int
    num_classes: int
    offsets: np.ndarray
    parts_id: str
    manifest: dict[str, Any]
    labels: np.ndarray
    val_idx: np.ndarray
    test_idx: np.ndarray
    original_ids: np.ndarray
    schema: Schema | None
    class_names: tuple[str, ...] | None
    label_names: tuple[str, ...] | None
    time_unit: str | None
    feature_columns: FeatureColumns | dict[str, FeatureColumns] | None
    edge_feature_columns: FeatureColumns | None
    verify: Verify

    @cached_property
    def _shared(self) -> dict[str, np.ndarray]:
        return _open(self.folder, SHARED, SHARED_KIND, self.manifest, False)

    def _facts(self) -> dict[str, str]:
        return {
            "": repr(self.name),
            "parts": f"{self.num_parts:,}",
            "nodes": f"{self.num_nodes:,}",
            "edges": f"{self.num_edges:,}",
            "classes": f"{self.num_classes:,}",
            "folder": str(self.folder),
        }

    @cached_property
    def negatives(self) -> dict[str, np.ndarray] | None:
        """As in `jgs.data.Dataset`, with the new node ids, memory-mapped."""
        prefix = "negatives."
        found = {n[len(prefix) :]: a for n, a in self._shared.items() if n.startswith(prefix)}
        return found or None

    @cached_property
    def label_table(self) -> LabelTable | None:
        """As in `jgs.data.Dataset`, its rows in the same order, with the new node ids."""
        return stored.read_table(str(self.folder / SHARED), self._shared, "label_table")

    @cached_property
    def link_table(self) -> LinkTable | None:
        """As in `jgs.data.Dataset`, its rows in the same order, with the new node ids."""
        return stored.read_table(str(self.folder / SHARED), self._shared, "link_table")

    @cached_property
    def node_ids(self) -> NodeIds | None:
        """The `node_ids` of the `jgs.data.Dataset`, or None. They are in the order of the data
        set's ids: `node_ids[original_ids[v]]` is the name of node `v` in the user's tables."""
        return stored.read_node_ids(str(self.folder / SHARED), self._shared)

    @cached_property
    def new_ids(self) -> np.ndarray:
        """int32 `[N]`: the new id of each node of the data set."""
        original = np.asarray(self.original_ids)
        found = np.empty_like(original)
        found[original] = np.arange(original.size, dtype=np.int32)
        return found

    @cached_property
    def graph(self) -> Graph:
        """The whole graph, memory-mapped; opened at its first use. Raises `InputError`.

        It has the edge columns of the data set's graph; `edge_order` is None if that had none.
        """
        _check_folder(self.folder, GRAPH, self.manifest)
        return Graph.open(self.folder / GRAPH, self.verify)

    def owner(self, ids: Any) -> np.ndarray:
        """int64, the shape of `ids`: the part of each node id in `[0, N)`."""
        return np.searchsorted(self.offsets, ids, "right") - 1

    def part(self, index: int) -> Part:
        """Part `index`, memory-mapped. Raises `InputError`, also if the part is missing."""
        arrays = self._arrays(index)
        described = self.manifest["features"]
        features: jax.Array | RowTable | TypedFeatures
        if "types" in described:
            assert self.schema is not None
            schema = self.schema.of_parts(index, index + 1)
            names = [features_name(number) for number in range(len(schema.node_types))]
            every = zip(names, described["types"], strict=True)
            features = TypedFeatures(tuple(_table(arrays, *each) for each in every), schema)
        else:
            features = _table(arrays, features_name(), described)
        first, last = self.offsets[index : index + 2].tolist()
        return Part(index, first, last, features, arrays["train_idx"])

    def local_graph(self, first_part: int, last_part: int) -> Graph:
        """A graph of all `N` nodes with the in-edges of the parts `[first_part, last_part)`.

        The nodes and seeds of these parts have all their in-edges, in the order of `graph`, so
        they draw the same neighbours. All other nodes have none. The edges of one part are
        memory-mapped, and those of several parts are copied. The offsets always take
        `8 (N + 1)` bytes. Raises `InputError`.
        """
        if not 0 <= first_part < last_part <= self.num_parts:
            raise InputError(
                f"a range of parts must lie within the {self.num_parts} of {self.folder}",
                f"[{first_part}, {last_part})",
                "Give the first, and one more than the last.",
            )
        parts = [self._arrays(index) for index in range(first_part, last_part)]
        rows = np.concatenate([arrays["rows"] for arrays in parts])
        degree = np.concatenate([np.diff(arrays["indptr"]) for arrays in parts])
        # A seed of one part that is a node of another is there twice, with equal edges.
        unique, at = np.unique(rows, return_index=True)
        of_node = np.zeros(self.num_nodes, np.int64)
        of_node[unique] = degree[at]
        edges = parts[0]
        if len(parts) > 1:
            positions = row_positions(row_offsets(degree), at)
            edges = {
                name: np.concatenate([arrays[name] for arrays in parts])[positions]
                for name in edges
                if Graph.is_edge_array(name)
            }
        made = Graph.from_edge_arrays(row_offsets(of_node), edges, schema=self.schema)
        if (node_time := self._shared.get("node_time")) is not None:
            made = made._with(node_time=as_device(node_time))
        return made

    def _arrays(self, index: int) -> dict[str, np.ndarray]:
        if not 0 <= index < self.num_parts:
            raise InputError(
                f"{self.folder} holds the parts 0 to {self.num_parts - 1}",
                index,
                "Count parts from 0.",
            )
        return _open(self.folder, part_name(index), PART_KIND, self.manifest, self.verify)


def open_parts(folder: str | os.PathLike, verify: Verify = True) -> Parts:
    """The parts that `write_parts` wrote to `folder`, memory-mapped.

    At once it checks the manifest and the folder `shared`, and other folders when they are
    opened: that they exist and belong to these parts, and every file's shape, dtype and size.
    True for `verify` also reads each file and compares its checksum (about a second a
    gigabyte). "once" does so unless this user has verified the same unchanged file on this
    machine before. Raises `InputError` that names the folder or file.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    shared = _open(folder, SHARED, SHARED_KIND, manifest, verify)
    own: dict[str, Any] = {n: stored.read_columns(manifest.get(n)) for n in stored.COLUMNS}
    for name in ("class_names", "label_names"):
        own[name] = None if manifest.get(name) is None else tuple(manifest[name])
    return Parts(
        folder=folder,
        name=manifest["dataset"],
        num_parts=manifest["num_parts"],
        num_nodes=manifest["num_nodes"],
        num_edges=manifest["num_edges"],
        num_classes=manifest["num_classes"],
        offsets=np.array(manifest["offsets"], np.int64),
        parts_id=manifest["parts_id"],
        manifest=manifest,
        labels=shared["labels"],
        val_idx=shared["val_idx"],
        test_idx=shared["test_idx"],
        original_ids=shared["original_ids"],
        schema=Schema.from_bytes(str(folder / SHARED), shared.get("schema")),
        time_unit=manifest.get("time_unit"),
        verify=verify,
        **own,
    )


def features_name(number: int | None = None) -> str:
    """How the names of the files of features begin; of those of a node type, by its number."""
    return "features" if number is None else f"features_of_type_{number}"


def _table(arrays: dict[str, np.ndarray], name: str, described: Any) -> Any:
    if described is None:
        return None
    # A manifest names forms that are neither dense nor sparse.
    form = ROW_TABLES[described.get("form") or ("sparse" if described["sparse"] else "dense")]
    own = {part: as_device(arrays[array_name(name, part)]) for part in form.names}
    return plain(form.opened(own, described["shape"][1], described["max_row"]))


def array_name(prefix: str, part: str) -> str:
    """The name of a file of features, for one of the `names` of a `RowTable`."""
    return f"{prefix}_{part}".removesuffix("_")


def part_name(index: int) -> str:
    """The name of the folder of part `index`."""
    return f"part-{index:05d}"


def write_manifest(folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Writes `manifest` with its kind, version and `parts_id`, and returns the result."""
    manifest = {"kind": KIND, "version": 1, **manifest}
    manifest["parts_id"] = _digest(manifest)
    text = json.dumps(manifest, indent=2, allow_nan=False) + "\n"
    (folder / storage.MANIFEST).write_text(text, "utf-8")
    return manifest


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of the parts in `folder`, whole and unaltered; raises `InputError`."""
    # A folder that is not known to be jgs's is not replaced.
    again = f"Write the parts again with python -m jgs.partition, after moving {folder} away."
    if not (folder / storage.MANIFEST).exists():
        raise InputError(
            f"{folder} must be a folder of parts, with a {storage.MANIFEST}",
            "no such file",
            again if folder.is_dir() else "Correct the path, or write the parts there.",
        )

    def check(manifest: dict[str, Any]) -> None:
        if manifest["parts_id"] != _digest(manifest):
            raise ValueError("it is not as it was written")

    return storage.read_manifest(folder, KIND, check, again)


def parts_files(folder: Path) -> set[str]:
    """The relative paths of all files that `write_parts` wrote there; raises `InputError`."""
    files = {storage.MANIFEST}
    for name in read_manifest(folder)["folders"]:
        kind = {GRAPH: GRAPH_KIND, SHARED: SHARED_KIND}.get(name, PART_KIND)
        if (folder / name).is_dir():
            files |= {f"{name}/{file}" for file in storage.array_files(folder / name, kind)}
    return files


def _open(
    folder: Path, name: str, kind: str, manifest: dict[str, Any], verify: Verify
) -> dict[str, np.ndarray]:
    _check_folder(folder, name, manifest)
    return storage.open_arrays(folder / name, kind, verify)


def _check_folder(folder: Path, name: str, manifest: dict[str, Any]) -> None:
    path = folder / name / storage.MANIFEST
    where = "Copy it there from where the parts were written"
    remedy = f"{where}, or write them again after moving {folder} away."
    with refusing(OSError, f"{folder} must hold the folder {name}", remedy):
        found = storage.sha256(path)
    if found != manifest["folders"][name]:
        raise InputError(
            f"{folder / name} must belong to the parts {manifest['parts_id'][:12]} of "
            f"{manifest['dataset']} in {folder}",
            "a folder of another graph or partition, or a damaged one",
            f"Copy the right one there, or write the parts again after moving {folder} away.",
        )


def _digest(manifest: dict[str, Any]) -> str:
    rest = {k: v for k, v in manifest.items() if k != "parts_id"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
