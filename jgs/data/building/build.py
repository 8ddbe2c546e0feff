"""`build`: a data set larger than memory, of shards of edges and of features."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from jgs.data.building import plan
from jgs.data.building.plan import Parts, another_number, bar, graph_files
from jgs.data.building.plan import copy as copy_features
from jgs.data.building.shards import check_named
from jgs.data.building.spreading import Relation, layout_of
from jgs.data.building.table_pieces import Columns
from jgs.data.building.work import GrowingFile, Work, remove, working
from jgs.data.dataset import KIND, Dataset
from jgs.errors import InputError
from jgs.files.npy import map_npy
from jgs.files.replacing import check_replaceable
from jgs.files.storage import array_files, write_arrays
from jgs.graph import Graph, Schema
from jgs.graph.checks import check_node_time, node_count
from jgs.graph.schema import times_of_types

_log = logging.getLogger("jgs")


def build(
    out: str | os.PathLike,
    edges: Any,
    num_nodes: int | Mapping[str, int] | None = None,
    *,
    features: Any = None,
    labels: Any = None,
    splits: Any = None,
    num_classes: int | None = None,
    node_time: Any = None,
    symmetric: bool = False,
    both_ways: bool = False,
    edge_order: bool = False,
    src: str = "src",
    dst: str = "dst",
    weight: str | None = None,
    time: str | None = None,
    columns: Iterable[str] | None = None,
    binary: str | None = None,
    name: str | None = None,
    memory: int = plan.MEMORY,
    show_progress: bool = False,
) -> Dataset:
    """Builds the data set of edges and features that may be larger than memory.

    The graph is bit for bit that of `Graph.from_edges` on all edges one after the other, or
    that of `Graph.from_relations`. It is written to the folder `out`, as `Dataset.save` does,
    and opened, memory-mapped.

    Args:
      out: the folder. It appears whole or not at all, and an earlier data set is replaced.
        What is built so far lies beside it, in `.NAME.build`. The same call goes on there
        after it was killed, if all edges and features come from files that are unchanged.
      edges: paths of shards, or an iterable of chunks. A shard is a table (`.parquet`, `.csv`,
        `.csv.gz`), a `.npy` file of integers `[E, 2]` or `[2, E]` or of records with the fields
        `src`, `dst` and others, or a `.bin` file of pairs of integers. A chunk is a pair
        (sources, targets) or a dict of arrays `src`, `dst`, optionally `edge_weight` and
        `edge_time`, and edge columns by name. For a typed graph: a dict of these by relation,
        such as `("user", "buys", "item")`, with ids that count from 0 in each type.
      num_nodes: `N`. None: as many as the features have rows, or else one more than the largest
        id, for which the edges are read once more. For a typed graph, by node type.
      features: paths of parts, an array, or an iterable of arrays: numbers `[n, F]`, together
        `[N, F]`. A part is a `.npy` file or a table. float16 and float32 are kept, others
        become float32. For a typed graph also a dict of these by node type. None: of width 0.
      labels, splits, num_classes: as in `Dataset.from_arrays`. Without labels all nodes are for
        training and have the label 0.
      node_time, symmetric: as in `Graph.from_edges`.
      both_ways: as in `Graph.from_relations`.
      edge_order: whether to keep where each edge was among the given ones: 4 bytes an edge (8
        from 2^31 edges on).
      src, dst, weight, time, columns: the names of the columns of tables, and of the fields of
        records in files. None for `weight`: `edge_weight`, for `time`: `edge_time` or `time`,
        if there is one; for `columns`, those that become edge columns: all others.
      binary: "int32" or "int64", the integers of `.bin` files.
      name: the name in messages and run folders. None: that of the folder.
      memory: how much private memory the program may take, in MiB, as long as one row of the
        graph fits. The labels, splits and node times that are given come on top of it.
      show_progress: whether to show a bar on standard error, if that is a terminal.

    Raises `InputError`.
    """
    least = plan.LEAST_MEMORY
    if isinstance(memory, bool) or not isinstance(memory, int) or memory < least:
        raise InputError(
            f"memory must be an int, at least {least} MiB",
            repr(memory),
            "Give more; it need not hold the graph.",
        )
    if name is not None and not isinstance(name, str):
        raise InputError("the name of a data set must be text", repr(name), "Give text.")
    out = Path(os.path.realpath(out))
    given = None if columns is None else tuple(columns)
    named = Columns(src, dst, weight, time, given)
    relations, schema = plan.relations_of(edges, num_nodes, named, binary, both_ways)
    check_named(named, [shard for one in relations for shard in one.shards])
    if symmetric and schema is not None:
        raise InputError(
            "symmetric must be for edges without relations",
            "edges by relation",
            "Use both_ways, which adds the reverse of each relation.",
        )
    parts = _parts(features, schema)
    check_replaceable(out, KIND, lambda old: array_files(old, KIND))
    key = {
        "edges": [[one.what, [s.stamp for s in one.shards]] for one in relations],
        "schema": None if schema is None else [schema.node_types, schema.relations],
        "num_nodes": _given_nodes(num_nodes, parts),
        "node_time": None if node_time is None else _digest(node_time),
        "columns": [src, dst, weight, time, given, binary],
        "flags": [symmetric, both_ways, edge_order],
    }
    from_files = all(shard.is_file for one in relations for shard in one.shards)
    with working(out) as work:
        built = False
        try:
            _begin(work, key, out)
            count = _count_nodes(work, relations, schema, num_nodes, parts, memory)
            if count == 0:
                raise InputError(
                    "a data set must have nodes", "none", "Give edges, or --nodes."
                )
            wanted = _rows_of(parts, schema, count)
            times = _node_time(node_time, schema, count)
            if schema is None:
                nodes = range(count)
                relations = [replace(relations[0], sources=nodes, targets=nodes)]
            layout = layout_of(relations, edge_order, times)
            ways = memory, symmetric, both_ways, show_progress
            files = graph_files(work, relations, layout, count, *ways)
            built = True
            made = _copied(work, parts, wanted, show_progress)
            graph = _graph(work, files, schema, times, symmetric)
            made |= {f"graph.{array}": file for array, file in files.items()}
            told = {"name": name or out.name, "num_classes": num_classes}
            _finish(work, graph, made, told, labels, splits)
            work.publish(out, KIND, lambda old: array_files(old, KIND))
        except BaseException as error:
            if not from_files or (isinstance(error, InputError) and not built):
                remove(work)  # no call can go on from there, or it would end there again
            raise
        remove(work)
    return Dataset.open(out, verify=False)


def _parts(features: Any, schema: Schema | None) -> dict[str, Parts]:
    if features is None:
        return {}
    if not isinstance(features, Mapping):
        return {"features": Parts("features", features)}
    if schema is None:
        raise InputError(
            "features by node type must be for edges by relation", "none", "Give an array."
        )
    return {
        f"features.of_type_{schema.number(kind)}": Parts(f"features of {kind}", given)
        for kind, given in features.items()
    }


def _rows_of(
    parts: Mapping[str, Parts], schema: Schema | None, num_nodes: int
) -> dict[str, int]:
    wanted = dict.fromkeys(parts, num_nodes)
    if schema is not None and "features" not in parts:
        counts = [count for _, count in schema.node_types]
        wanted = {each: counts[int(each.rpartition("_")[2])] for each in parts}
    for each, rows in wanted.items():
        if (found := parts[each].rows) not in (None, rows):
            raise another_number(parts[each].what, rows, f"{found:,}")
    return wanted


def _copied(
    work: Work, parts: Mapping[str, Parts], wanted: Mapping[str, int], show_progress: bool
) -> dict[str, GrowingFile]:
    stamps = json.loads(json.dumps({name: each.stamp for name, each in parts.items()}))
    if work.state.get("parts") != stamps:
        work.save(parts=stamps, features={})
    files = {}
    for name, rows in wanted.items():
        with bar(parts[name].what, rows, show_progress) as advance:
            files[name] = copy_features(work, name, parts[name], rows, advance)
    return files


def _given_nodes(given: Any, parts: Mapping[str, Parts]) -> Any:
    if given is None and "features" in parts:
        return parts["features"].rows
    return None if isinstance(given, Mapping) else given


def _digest(array: Any) -> str:
    values = array.items() if isinstance(array, Mapping) else [("", array)]
    text = b"".join(str(n).encode() + np.asarray(a).tobytes() for n, a in values)
    return hashlib.sha256(text).hexdigest()


def _begin(work: Work, key: dict, out: Path) -> None:
    found = work.begin(key)
    if found == "other":
        _log.info("%s was half built of other shards or settings: begun anew", out)
    if found != "resumed":
        return
    edges = work.state.get("spread", {}).get("edges", 0)
    if not edges:
        _log.info("%s was begun before, but no edges were kept yet", out)
        return
    text = f"{edges:,} edges were read"
    if "sort" in work.state:
        text += f", {work.state['sort']['records']:,} sorted"
    _log.info("%s was half built (%s): going on from there", out, text)


def _count_nodes(
    work: Work,
    relations: Sequence[Relation],
    schema: Schema | None,
    given: Any,
    parts: Mapping[str, Parts],
    memory: int,
) -> int:
    """The number of nodes, for which the edges are read if nothing else tells."""
    if schema is not None:
        return schema.num_nodes
    given = _given_nodes(given, parts)
    if given is not None:
        return node_count(given)
    shards = [shard for one in relations for shard in one.shards]
    if not all(shard.again for shard in shards):
        raise InputError(
            "an iterator of edges, which can be read once, must have num_nodes",
            "None",
            "Give num_nodes, or an object whose __iter__ begins anew each time.",
        )
    done, most = work.state.get("counted", [0, -1])
    most_at_once = min(plan.MOST_CHUNK, (memory << 20) // 128)
    for number in range(done, len(shards)):
        most = max(most, shards[number].largest_id(most_at_once))
        work.save(counted=[number + 1, most])
    return node_count(most + 1)


def _node_time(given: Any, schema: Schema | None, num_nodes: int) -> np.ndarray | None:
    if given is None:
        return None
    if isinstance(given, Mapping) and schema is not None:
        return times_of_types(schema, given)
    return check_node_time(given, num_nodes)


def _finish(
    work: Work,
    graph: Graph,
    files: Mapping[str, GrowingFile],
    told: dict[str, Any],
    labels: Any,
    splits: Any,
) -> None:
    """Writes to `work.new` what a data set has beside the arrays in these files, and the
    manifest, as `Dataset.save` does; `told` are arguments of `Dataset.from_arrays`."""
    if (labels is None) != (splits is None):
        raise InputError(
            "labels and splits must be given together",
            "one of the two",
            "Give both or none; jgs.data.split_nodes(key, labels) draws splits.",
        )
    if labels is None:
        labels = np.zeros(graph.num_nodes, np.int32)
        splits = {"train": np.arange(graph.num_nodes, dtype=np.int32)}
    own = {n: map_npy(f.path) for n, f in files.items() if not n.startswith("graph.")}
    features: Any = own.get("features", np.empty((graph.num_nodes, 0), np.float32))
    if own and graph.schema is not None and "features" not in own:
        names = [kind for kind, _ in graph.schema.node_types]
        features = {names[int(n.rpartition("_")[2])]: array for n, array in own.items()}
    # Each piece of the features was checked.
    data = Dataset.from_arrays(graph, features, labels, splits, check_values=False, **told)
    write_arrays(work.new, KIND, {**data.stored(), **files})


def _graph(
    work: Work,
    files: Mapping[str, GrowingFile],
    schema: Schema | None,
    node_time: np.ndarray | None,
    symmetric: bool,
) -> Graph:
    arrays = {name: map_npy(file.path) for name, file in files.items()}
    if schema is not None:
        arrays["schema"] = schema.as_bytes()
    if node_time is not None:
        arrays["node_time"] = node_time
    if symmetric and "edge_time" not in files:
        arrays["sorted_by_source"] = np.empty((arrays["indices"].size, 0), bool)
    return Graph.from_stored(str(work.new), arrays)
