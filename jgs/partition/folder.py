"""Writing a partitioned data set: `write_parts`. The folder's layout is in `jgs.data.parts`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from jgs.data import Dataset, stored
from jgs.data.parts import (
    GRAPH,
    GRAPH_KIND,
    KIND,
    PART_KIND,
    SHARED,
    SHARED_KIND,
    array_name,
    features_name,
    part_name,
    parts_files,
    write_manifest,
)
from jgs.errors import InputError
from jgs.files.replacing import check_replaceable, check_writable, replacing
from jgs.files.storage import MANIFEST, ArrayFile, Chunks, sha256, write_arrays
from jgs.graph.row_tables.table import RowTable, as_table
from jgs.graph.rows import offsets_of_rows, row_chunks, row_offsets, row_positions
from jgs.partition.balance import constraint_weights, edge_cut, in_neighbors, part_loads, pieces
from jgs.partition.nodes import check_machines, max_over_mean

_BYTES_AT_ONCE = 1 << 26  # of features: bounds the temporaries
_OPEN_AT_ONCE = 256  # parts; a process may have about a thousand open files


def check_out(folder: str | os.PathLike) -> None:
    """Raises `InputError` unless `write_parts` may write to `folder`."""
    here, there = Path.cwd(), Path(os.path.realpath(folder))
    # The folder is replaced, and a process inside the old one would have no directory any more.
    if there in (here, *here.parents):
        raise InputError(
            "the parts must be written to another folder than the working directory, and not "
            "above it",
            repr(os.fspath(folder)),
            "Name a folder inside it.",
        )
    check_replaceable(folder, KIND, parts_files)
    check_writable(folder)


def write_parts(
    folder: str | os.PathLike,
    data: Dataset,
    assignment: np.ndarray,
    num_parts: int,
    *,
    method: str,
    seed: int = 0,
    ranks_per_machine: int = 1,
) -> dict[str, Any]:
    """Writes `data` in `num_parts` parts to `folder`; returns the manifest.

    Args:
      folder: the folder to write. It appears whole or not at all; earlier parts are replaced.
      data: the data set.
      assignment: int32 `[N]`, the part of each node (see `partition_nodes`).
      num_parts: the number of parts.
      method, seed: how the assignment was made, for the manifest.
      ranks_per_machine: how many consecutive parts one machine has.

    Nodes get new ids, those of part 0 first; within a part they keep their order. The memory is
    at most 40 bytes a node. Edges and features are read where they lie, piece by piece, the
    features once for all parts. Raises `InputError`.
    """
    data.graph._refuse_room()
    check_out(folder)
    check_machines(num_parts, ranks_per_machine)
    offsets, order, new_id = _renumbered(assignment, num_parts)
    train = np.sort(new_id[data.train_idx])
    owner = np.searchsorted(offsets, train, "right") - 1
    dealt = deal_seeds(owner, num_parts, ranks_per_machine)
    features: Any = data.features
    schema = data.graph.schema and data.graph.schema.of_nodes(order, offsets)
    if schema is None and as_table(features).schema is not None:
        raise InputError(
            "nodes of each type must be one range of ids, where features are given by type",
            f"{data.name}, whose graph is a partitioned one",
            "Partition the data set from which it was made.",
        )
    named: dict[str, Any] = {} if schema is None else {"schema": schema.as_bytes()}
    if data.graph.node_time is not None:
        named["node_time"] = np.asarray(data.graph.node_time)[order]
    manifest: dict[str, Any] = {
        "dataset": data.name,
        "num_parts": num_parts,
        "num_nodes": data.graph.num_nodes,
        "num_edges": data.graph.num_edges,
        "weighted": data.graph.edge_weight is not None,
        "num_classes": data.num_classes,
        "class_names": data.class_names and list(data.class_names),
        "features": as_table(features).described(),
        "offsets": offsets.tolist(),
        "method": method,
        "seed": seed,
        "edge_cut": edge_cut(in_neighbors(data.graph), assignment),
        **_shares(data, assignment, np.diff(offsets), owner, dealt),
    }
    if ranks_per_machine > 1:
        manifest["ranks_per_machine"] = ranks_per_machine
        machines = assignment // ranks_per_machine
        manifest["machine_cut"] = edge_cut(in_neighbors(data.graph), machines)
    if data.label_names is not None:
        manifest["label_names"] = list(data.label_names)
    if data.time_unit is not None:
        manifest["time_unit"] = data.time_unit
    manifest |= stored.columns_of(data)
    table = data.label_table
    if table is not None:
        table = table._replace(nodes=new_id[table.nodes])
    if (links := data.link_table) is not None:
        links = links._replace(src=new_id[links.src], dst=new_id[links.dst])
    shared: dict[str, Any] = {
        "labels": _rows(data.labels, order),
        "val_idx": np.sort(new_id[data.val_idx]),
        "test_idx": np.sort(new_id[data.test_idx]),
        "original_ids": order,
        **stored.node_ids(data.node_ids),
        **stored.table("label_table", table),
        **stored.table("link_table", links),
        **named,
    }
    for split, ids in (data.negatives or {}).items():
        shared[f"negatives.{split}"] = _rows(new_id, ids)
    with replacing(folder, KIND, parts_files) as fresh:
        folders = [fresh / part_name(part) for part in range(num_parts)]
        for at in (fresh / GRAPH, fresh / SHARED, *folders):
            at.mkdir()
        write_arrays(fresh / GRAPH, GRAPH_KIND, _topology(data, new_id, order) | named)
        write_arrays(fresh / SHARED, SHARED_KIND, shared)
        shared.clear()
        featured = _write_features(folders, features, assignment)
        for part, (at, arrays) in enumerate(zip(folders, featured, strict=True)):
            first, last = offsets[part : part + 2]
            seeds = train[dealt == part]
            below, above = np.searchsorted(seeds, [first, last])
            own: np.ndarray = np.arange(first, last, dtype=np.int32)
            rows = np.concatenate([seeds[:below], own, seeds[above:]])
            del own
            topology = _topology(data, new_id, order[rows])
            write_arrays(at, PART_KIND, arrays | {"train_idx": seeds, "rows": rows} | topology)
            size = sum(path.stat().st_size for path in at.iterdir())
            manifest["parts"][part]["bytes"] = size
        sizes = np.array([part["bytes"] for part in manifest["parts"]])
        manifest["balance"]["bytes"] = max_over_mean(sizes)
        names = [GRAPH, SHARED, *map(part_name, range(num_parts))]
        manifest["folders"] = {name: sha256(fresh / name / MANIFEST) for name in names}
        return write_manifest(fresh, manifest)


def _renumbered(
    assignment: np.ndarray, num_parts: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three arrays: `offsets` int64 `[P + 1]`, where each part's new ids begin; int32 `[N]`,
    the old id of each new id; int32 `[N]`, the new id of each old id."""
    counts: np.ndarray = np.zeros(num_parts, np.int64)
    for some in pieces(assignment.size):
        counts += np.bincount(assignment[some], minlength=num_parts)
    offsets = row_offsets(counts)
    old_id: np.ndarray = np.empty(assignment.size, np.int32)
    new_id = np.empty_like(old_id)
    begin = offsets[:-1].copy()
    for some in pieces(assignment.size):
        by_part = np.argsort(assignment[some], kind="stable")
        count = np.bincount(assignment[some], minlength=num_parts)
        at = np.repeat(begin - (np.cumsum(count) - count), count) + np.arange(by_part.size)
        old_id[at] = some.start + by_part
        new_id[some.start + by_part] = at
        begin += count
    return offsets, old_id, new_id


def _shares(data: Dataset, assignment, nodes, owner, dealt) -> dict[str, Any]:
    """Entries of the manifest: counts of each part, and the largest over the mean."""
    weights = constraint_weights(data.graph, data.train_idx, data.val_idx, data.test_idx)
    num_parts = nodes.size
    loads = part_loads(assignment, weights, num_parts)
    columns = {
        "nodes": nodes,
        **dict(zip(weights.constraints, loads.T, strict=True)),
        "seeds": np.bincount(dealt, minlength=num_parts),
        "foreign_seeds": np.bincount(dealt[owner != dealt], minlength=num_parts),
    }
    parts = [{k: int(v[p]) for k, v in columns.items()} for p in range(num_parts)]
    balance = {k: max_over_mean(v) for k, v in columns.items() if k != "foreign_seeds"}
    return {"parts": parts, "balance": balance}


def _write_features(
    folders: list[Path], features: Any, assignment: np.ndarray
) -> list[dict[str, Any]]:
    """Writes each part's rows of `features`, in their order, to the part's folder, in files for
    each node type. Returns for each part its arrays, as `write_arrays` takes them."""
    found: list[dict[str, Any]] = [{} for _ in folders]
    rows = as_table(features)
    for number, (name, table) in enumerate(rows.by_type.items()):
        if table is not None:
            prefix = features_name(None if rows.schema is None else number)
            _write_table(found, folders, table, rows.of_type(name, assignment), prefix)
    return found


def _write_table(
    found: list[dict[str, Any]],
    folders: list[Path],
    table: RowTable,
    assignment: np.ndarray,
    prefix: str,
) -> None:
    """As `_write_features`, of one table, in files whose names begin with `prefix`. It is read
    from front to back, once for every 256 parts. Each part's arrays are added to `found`."""
    counts = np.bincount(assignment, minlength=len(folders))
    whole = table.arrays()  # those that are not dealt out are written to each part
    dealt = ("indices", "values") if table.by_entries else table.row_names
    arrays = {array_name(prefix, name): np.asanyarray(whole.pop(name)) for name in dealt}
    if table.by_entries:
        indptr = np.asarray(whole.pop("indptr"))
    shared = {array_name(prefix, name): array for name, array in whole.items()}
    for first_part in range(0, len(folders), _OPEN_AT_ONCE):
        parts = range(first_part, min(first_part + _OPEN_AT_ONCE, len(folders)))
        with ExitStack() as stack:
            for part in parts:
                size = int(counts[part])
                entry = dict(shared)
                if table.by_entries:
                    own = offsets_of_rows(indptr, np.flatnonzero(assignment == part))
                    size, entry[f"{prefix}_indptr"] = int(own[-1]), own
                for name, array in arrays.items():
                    file = ArrayFile(folders[part], name, (size, *array.shape[1:]), array.dtype)
                    entry[name] = stack.enter_context(file)
                found[part] |= entry
            rows, size = next(iter(arrays.values())), assignment.size
            chunks = row_chunks(indptr) if table.by_entries else _chunks(rows, size)
            for part, own_rows in _by_part(assignment, parts, chunks):
                at = row_positions(indptr, own_rows) if table.by_entries else own_rows
                for name, array in arrays.items():
                    found[part][name].append(np.asarray(array[at]))


def _by_part(
    assignment: np.ndarray, parts: range, chunks: Iterator[tuple[int, int]]
) -> Iterator[tuple[int, np.ndarray]]:
    """Yields one of `parts` and its nodes in a chunk, ascending, for each in each chunk."""
    for first, stop in chunks:
        order = np.argsort(assignment[first:stop], kind="stable")
        bounds = np.searchsorted(assignment[first:stop][order], [*parts, parts.stop])
        for part, (begin, end) in zip(parts, pairwise(bounds), strict=True):
            if begin < end:
                yield part, first + order[begin:end]


def _chunks(array: np.ndarray, num_rows: int) -> Iterator[tuple[int, int]]:
    """Ranges of `num_rows` rows, of which some megabytes are read at once."""
    size = max(1, _BYTES_AT_ONCE // max(1, array[:1].nbytes))
    for first in range(0, num_rows, size):
        yield first, min(first + size, num_rows)


def _topology(data: Dataset, new_id: np.ndarray, rows: np.ndarray) -> dict[str, Any]:
    """The arrays of the in-edges of the old ids `rows`; their neighbours are new ids."""
    graph = data.graph
    old = np.asarray(graph.indptr)
    indptr = offsets_of_rows(old, rows)

    def chunks(name: str, array: Any) -> Chunks:
        source = np.asarray(array)

        def pieces() -> Iterator[np.ndarray]:
            for first, stop in row_chunks(indptr):
                some = source[row_positions(old, rows[first:stop])]
                yield new_id[some] if name == "indices" else some

        return Chunks((int(indptr[-1]), *source.shape[1:]), source.dtype, pieces())

    columns = {name: chunks(name, array) for name, array in graph.edge_arrays().items()}
    return {"indptr": indptr, **columns}


def _rows(array: np.ndarray, rows: np.ndarray) -> Chunks:
    wider = max(array, rows, key=lambda each: each[:1].nbytes)
    pieces = (array[rows[first:stop]] for first, stop in _chunks(wider, len(rows)))
    return Chunks((*rows.shape, *array.shape[1:]), array.dtype, pieces)


def deal_seeds(owner: np.ndarray, num_parts: int, ranks_per_machine: int = 1) -> np.ndarray:
    """int32 `[T]`: the part that trains on each seed. The numbers of the parts' seeds differ by
    at most 1.

    This is DistDGL's two-level split (section III-E), which deals ranges of ids. A part keeps
    its own seeds, those whose `owner` int `[T]` it is. If it has too many, its last ones go to
    parts that lack some, in order: first to parts of its own machine, then to others. So as few
    seeds as can be leave their part, and of such ways this is one in which the fewest leave
    their machine.
    """
    count = np.bincount(owner, minlength=num_parts)
    share, rest = divmod(owner.size, num_parts)
    quota = np.full(num_parts, share)
    # Some parts have one seed more: those that have too many, and of these first those whose
    # machine has too many.
    machine = np.arange(num_parts) // ranks_per_machine
    above = np.bincount(machine, count - share)
    for _ in range(rest):
        key = (quota > share, count <= share, above[machine] <= 0, -count)
        chosen = np.lexsort(key[::-1])[0]
        quota[chosen] += 1
        above[machine[chosen]] -= 1
    order = np.argsort(owner, kind="stable")
    rank = np.arange(owner.size) - np.repeat(np.cumsum(count) - count, count)
    surplus = order[rank >= quota[owner[order]]]
    dealt = owner.astype(np.int32)
    lacking = np.repeat(np.arange(num_parts), np.maximum(quota - count, 0))
    gives, takes = owner[surplus] // ranks_per_machine, lacking // ranks_per_machine
    stay, meet = _first_of_both(gives, takes), _first_of_both(takes, gives)
    dealt[surplus[stay]], dealt[surplus[~stay]] = lacking[meet], lacking[~meet]
    return dealt


def _first_of_both(these: np.ndarray, those: np.ndarray) -> np.ndarray:
    """bool `[n]`: of ascending numbers, the first of each, as many as are among `those` too."""
    return np.arange(these.size) - np.searchsorted(these, these) < (
        np.searchsorted(those, these, "right") - np.searchsorted(those, these)
    )
