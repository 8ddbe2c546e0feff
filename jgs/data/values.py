"""Conversions and checks of a data set's arrays, its features and splits; `Dataset` states the
rules. A typed data set has a table of features for each node type, and labels and splits that
are given for the nodes of one. Features without types are those of one type, `""`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import scipy

from jgs.arrays import as_numpy, check_range, described, refuse_where, require_array
from jgs.data.label_values import are_numbers, is_missing, labelled
from jgs.errors import InputError, check_choice
from jgs.graph import Graph, Schema, TypedFeatures, as_device
from jgs.graph.row_tables import dense
from jgs.graph.row_tables.table import RowTable, as_table, of_host, plain

SPLITS = ("train", "val", "test")
SPLIT_NUMBERS = {name: number for number, name in enumerate(SPLITS)}  # in a column `split`
_LESS_MEAN = "Subtract each column's mean first."
_VALUES_AT_ONCE = 1 << 24  # bounds the temporaries of a scan over features


def training_nodes(split: str, stored: Any, labelled: Any, val_idx: Any, test_idx: Any) -> Any:
    """The training nodes for the option `split`. "public" gives those `stored` with the data.
    "full" gives all `labelled` nodes that are neither in `val_idx` nor in `test_idx`, as PyG
    and FastGCN (Chen, Ma and Xiao, 2018) do. Raises `InputError` for another name."""
    check_choice("the option split", split, ("public", "full"))
    full = split == "full"
    return np.setdiff1d(labelled, np.union1d(val_idx, test_idx)) if full else stored


def as_features(name: str, features: Any, digits: Digits | None = None) -> np.ndarray:
    """`features` as a C-contiguous float16 or float32 array, not copied if it is one
    already. Raises `InputError`, also where float32 would merge numbers: see `check_digits`;
    with `digits` these are a piece, and its `check` sees that."""
    features = as_numpy(features)
    remedy = "Give one row of numbers for every node."
    require_array(f"the features of {name}", features, "numbers [N, F]", remedy)
    keep = features.dtype in (np.float16, np.float32)
    if not keep and digits is not None:
        digits.add(features)
    elif not keep:
        check_digits(f"the features of {name}", features)
    with np.errstate(over="ignore"):  # the check for infinity names the row
        return np.ascontiguousarray(features, features.dtype if keep else np.float32)


def check_digits(what: str, rows: np.ndarray, remedy: str = _LESS_MEAN) -> None:
    """Raises `InputError` where float32 has fewer than 2**8 numbers in the range of a column of
    `rows` `[n, F]`, as of the moments of a minute in seconds since 1970. Differences of less
    than 2**-40 of the numbers are the rounding of float64."""
    if not rows.size or rows.dtype.kind == "b":
        return
    step = max(1, _VALUES_AT_ONCE // max(1, rows.shape[1]))
    pieces = [rows[start : start + step] for start in range(0, len(rows), step)]
    found = Digits(what)
    for piece in pieces:
        found.add_range(piece)
    for column in found.near():
        own = [piece[:, column].astype(np.float64) for piece in pieces]
        off = max(float(np.nanmax(abs(each - each.astype(np.float32)))) for each in own)
        found.refuse(column, off, remedy)


class Digits:
    """What `check_digits` asks, of `rows` that come piece by piece."""

    def __init__(self, what: str):
        self._what, self._off = what, list[np.ndarray]()
        self._low, self._high = list[np.ndarray](), list[np.ndarray]()

    def add(self, rows: np.ndarray) -> None:
        if rows.size and rows.dtype.kind != "b":
            self.add_range(rows)
            exact = rows.astype(np.float64)
            with np.errstate(over="ignore", invalid="ignore"):
                self._off.append(np.fmax.reduce(abs(exact - exact.astype(np.float32))))

    def check(self) -> None:
        """Raises `InputError` as `check_digits` does, of all pieces together."""
        for column in self.near():
            self.refuse(column, float(np.fmax.reduce(self._off)[column]))

    def add_range(self, rows: np.ndarray) -> None:
        self._low.append(np.fmin.reduce(rows).astype(np.float64))
        self._high.append(np.fmax.reduce(rows).astype(np.float64))

    def near(self) -> list[int]:
        """The columns that have a range in which float32 has few numbers."""
        if not self._low:
            return []
        low, high, gap = self._range()
        return np.flatnonzero((high - low > gap / 2**16) & (high - low < gap * 2**8)).tolist()

    def _range(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        low, high = np.fmin.reduce(self._low), np.fmax.reduce(self._high)
        largest = np.maximum(abs(low), abs(high))
        largest[~(largest < np.finfo(np.float32).max)] = 0  # refused, or missing
        return low, high, np.spacing(largest.astype(np.float32)).astype(np.float64)

    def refuse(self, column: int, off: float, remedy: str = _LESS_MEAN) -> None:
        """Raises `InputError` where float32 moves a number of the column by `off`, too far."""
        low, high, gap = (float(each[column]) for each in self._range())
        if off > (high - low) / 2**9:
            raise InputError(
                f"the numbers of {self._what} must differ by what float32 shows",
                f"{low:.17g} to {high:.17g} in column {column}, where float32 has steps of "
                f"{gap:.3g}",
                remedy,
            )


def check_finite(name: str, features: np.ndarray, first: int = 0) -> None:
    """`jgs.graph.row_tables.dense.check_finite`, of the features of the data set `name`."""
    dense.check_finite(f"the features of {name}", features, first)


def normalized(name: str, features: Any) -> Any:
    """`features` (CSR matrix or array) with rows that sum to 1; rows of zeros are kept."""
    sparse = hasattr(features, "tocsr")
    values = features.data if sparse else features
    if values.size and values.min() < 0:
        raise InputError(
            f"features of {name} to be row-normalised must not be negative",
            float(values.min()),
            "Load with normalize_features=False.",
        )
    total = np.asarray(features.sum(axis=1, dtype=np.float64)).reshape(-1)
    scale = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
    if not sparse:
        return (features * scale[:, None]).astype(features.dtype)
    data = (values * np.repeat(scale, np.diff(features.indptr))).astype(np.float32)
    return scipy.sparse.csr_matrix((data, features.indices, features.indptr), features.shape)


def standardized(name: str, features: Any, nodes: np.ndarray) -> np.ndarray:
    """`features` `[N, F]` as float32, shifted and scaled so that each column has the mean 0 and
    the deviation 1 over the rows of `nodes`, or over all rows if there are none. A column that
    is constant there is only shifted. Raises `InputError`."""
    features = as_numpy(features)
    if features.ndim != 2 or features.dtype.kind not in "iuf" or not features.size:
        return as_features(name, features)
    check_finite(name, features)
    rows = features[nodes] if nodes.size else features
    deviation = rows.std(axis=0, dtype=np.float64)
    deviation[rows.max(axis=0) == rows.min(axis=0)] = 1
    made = np.empty(features.shape, np.float32)
    np.subtract(
        features,
        rows.mean(axis=0, dtype=np.float64),
        out=made,
        dtype=np.float64,
        casting="unsafe",
    )
    made /= deviation
    return made


def as_ids(name: str, split: str, ids: Any, num_nodes: int) -> np.ndarray:
    """The node ids of a split as int32, each in `[0, num_nodes)`; raises `InputError`."""
    ids, form = as_numpy(ids), "integers or empty [n], ids of nodes"
    remedy = "Convert a mask with numpy.flatnonzero."
    require_array(f"the {split} split of {name}", ids, form, remedy)
    # Before narrowing, so that no id wraps around.
    rule = f"the {split} split of {name} must hold node ids"
    check_range(rule, ids, num_nodes, "Correct the split.")
    return ids.astype(np.int32)


def split_ids(name: str, splits: Any, num_nodes: int) -> list[Any]:
    """The node ids of each of `SPLITS`; see `Dataset.from_arrays`. Raises `InputError`."""
    rule = f"the splits of {name} must be train, val and test"
    if isinstance(splits, Mapping):
        if unknown := [each for each in splits if each not in SPLITS]:
            raise InputError(rule, ", ".join(map(repr, unknown)), "Rename or remove it.")
        given = {split: as_numpy(splits.get(split, ())) for split in SPLITS}
        for split, ids in given.items():
            if ids.dtype == bool:
                what, remedy = f"a mask for the {split} split", "Give [N] bools, or node ids."
                require_array(f"{what} of {name}", ids, "[N], one a node", remedy, N=num_nodes)
        return [np.flatnonzero(ids) if ids.dtype == bool else ids for ids in given.values()]
    names = as_numpy(splits)
    if names.shape != (num_nodes,) or names.dtype.kind not in "OUTf":
        raise InputError(
            f"the splits of {name} must be a dict of node ids or masks, or a name a node",
            f"{described(names)} for {num_nodes} nodes",
            'Give {"train": ids, "val": ids, "test": ids}.',
        )
    numbers = split_numbers(names, "node", rule)
    return [np.flatnonzero(numbers == number) for number in SPLIT_NUMBERS.values()]


def split_numbers(column: Any, row: str, rule: str, numbered: bool = False) -> np.ndarray:
    """int8 `[n]`: the column `split` of a table, which has names: 0 train, 1 val, 2 test, and
    -1 where it is empty. Where it may be `numbered`, it may have these numbers too. `row` is
    what messages call what has a split. Raises `InputError` with the `rule`."""
    known: dict[Any, int] = {"": -1, **SPLIT_NUMBERS}
    if numbered:
        known |= {number: number for number in (-1, *SPLIT_NUMBERS.values())}
    entries = ["" if is_missing(each) else each for each in as_numpy(column).tolist()]
    if not numbered:
        entries = [str(each) for each in entries]
    entries = [" ".join(each.split()) if isinstance(each, str) else each for each in entries]
    found = np.array([known.get(each, -2) for each in entries], np.int8)
    shown = np.array([*map(repr if row == "node" else str, entries)], object)
    refuse_where(found == -2, shown, row, rule, "Correct it, or leave it empty.")
    return found


def check_splits(
    name: str,
    splits: dict[str, np.ndarray],
    labels: np.ndarray,
    num_nodes: int,
    may_be_empty: bool = False,
) -> None:
    """Raises `InputError` unless the ids of each split are nodes of the graph that have labels,
    and each node is in at most one split, and only once. The training split `may_be_empty`."""
    rule = f"each node of {name} must be in one split at most, and once"
    earlier: dict[str, np.ndarray] = {}
    known, none = labelled(labels), "NaN" if labels.dtype.kind == "f" else "-1"
    for split, ids in splits.items():
        must = f"the {split} split of {name} must"
        remedy = "Convert a mask with numpy.flatnonzero(mask).astype(numpy.int32)."
        require_array(must.removesuffix(" must"), ids, "int32 [n], ids of nodes", remedy)
        if ids.size == 0 and split == "train" and not may_be_empty:
            raise InputError(f"{must} not be empty", "no node", "Name the nodes to train on.")
        check_range(f"{must} hold node ids", ids, known.size, "Correct the split.")
        if not known[ids].all():
            raise InputError(
                f"{must} hold nodes with a label only",
                f"node {int(ids[np.argmin(known[ids])])}, which has none ({none})",
                "Remove it from the split, or give it a label.",
            )
        members: np.ndarray = np.zeros(num_nodes, bool)
        members[ids] = True
        if np.count_nonzero(members) < ids.size:
            nodes, counts = np.unique(ids, return_counts=True)
            at = int(np.argmax(counts > 1))
            raise InputError(
                rule,
                f"node {nodes[at]} {counts[at]} times in {split}",
                "Name each node once, e.g. with numpy.unique.",
            )
        for other, others in earlier.items():
            if (both := ids[others[ids]]).size:
                raise InputError(
                    rule,
                    f"node {both.min()} in {other} and in {split} ({both.size} such nodes)",
                    "Remove them from one of the two, e.g. with numpy.setdiff1d.",
                )
        earlier[split] = members


_Data = TypeVar("_Data", bound=Any)


def schema_of(name: str, graph: Graph) -> Schema:
    """The schema of the graph of the data set `name`. Raises `InputError` if it has none."""
    if graph.schema is None:
        raise InputError(
            f"features and labels of {name} by node type must be for a graph with a schema",
            "a graph without node types",
            "Give arrays for all nodes, or make the graph with Graph.from_relations.",
        )
    return graph.schema


def nodes_of(schema: Schema, node_type: str) -> np.ndarray:
    """int32: the ids of the nodes of a type, ascending. Raises `InputError`."""
    ranges = schema.ranges(node_type)
    return np.concatenate([np.arange(r.start, r.stop, dtype=np.int32) for r in ranges])


def check_pairs(schema: Schema, pairs: np.ndarray, relation: int) -> None:
    """Raises `InputError` unless `pairs` int `[n, 2]` are nodes of the relation's types."""
    source, name, target = schema.relations[relation]
    wanted = [schema.number(source), schema.number(target)]
    kinds = np.asarray(schema.numbers(pairs.reshape(-1))).reshape(-1, 2)
    wrong = (kinds != wanted).any(axis=1)
    if wrong.any():
        row = int(np.argmax(wrong))
        src, dst = (schema.node_types[kind][0] for kind in kinds[row])
        raise InputError(
            f"pairs for the relation {name} must be of types {source} and {target}",
            f"pair {row}, of {src} and {dst}",
            "Give such pairs, or name another relation.",
        )


def labels_of_all(
    name: str, labels: np.ndarray, nodes: np.ndarray, num_nodes: int
) -> np.ndarray:
    """The labels of all nodes, of those of some `nodes`. Other nodes have -1, NaN among
    numbers, or zeros where a node can have several labels. Raises `InputError`."""
    form = "[n] or [n, C], one for every node of their type"
    remedy = "Give a label for every node, -1 where there is none."
    require_array(f"the labels of {name}", labels, form, remedy, n=nodes.size)
    none = np.nan if are_numbers(labels) else 0 if labels.ndim == 2 else -1
    every = np.full((num_nodes, *labels.shape[1:]), none, labels.dtype)
    every[nodes] = labels
    return every


def typed_features(
    name: str, features: Any, schema: Schema, normalize_features: bool = False
) -> TypedFeatures:
    """`features`, a dict by node type or `TypedFeatures`, for the nodes of `schema`. Raises
    `InputError`."""
    if isinstance(features, Mapping):
        given = {
            kind: table
            if table is None or isinstance(table, RowTable) or hasattr(table, "tocsr")
            else as_features(f"{kind} in {name}", table)
            for kind, table in features.items()
        }
        made = TypedFeatures.from_dict(schema, given)
    else:
        if features.schema != schema.without_relations():
            raise InputError(
                f"the features of {name} must have the node types of its graph",
                f"{features.schema.node_types} for {schema.node_types}",
                "Make them with TypedFeatures.from_dict(graph.schema, ...).",
            )
        made = features
    if not normalize_features:
        return made
    return made.changed(lambda table: of_host(normalized(name, table.host())))


def check_features(name: str, features: Any, graph: Graph, values: bool) -> None:
    """Raises `InputError` unless the features, or those of each node type that has some, have a
    row for every node, and an allowed dtype; with `values` also finite numbers."""
    own, counts = as_table(features), {"": graph.num_nodes}
    if own.schema is not None:
        schema = schema_of(name, graph)
        typed_features(name, features, schema)
        counts = dict(schema.node_types)
    for kind, table in own.by_type.items():
        if table is None:
            continue
        what = f"the features of {f'{kind} in ' * bool(kind)}{name}"
        remedy = "Give the missing rows, remove those too many, or correct the number of nodes."
        form = "[N, F], one row for every node"
        require_array(what, plain(table), form, remedy, N=counts[kind])
        table.check_dtype(what)
        if values:
            table.check_values(what)


def without_types(data: _Data) -> _Data:
    """The `Plain` with its features as one matrix; `data` itself if they are one already.
    Raises `InputError` as `padded` does."""
    if data.features is None or as_table(data.features).schema is None:
        return data
    return replace(data, features=padded(data.name, data.features))


def as_chosen(data: _Data, choice: str) -> _Data:
    """The `Plain` with its features as a reader's option `features` asks: "typed", as they are,
    or "padded" to one matrix. Raises `InputError`."""
    check_choice(f"the option features of {data.name}", choice, ("typed", "padded"))
    return data if choice == "typed" else without_types(data)


def padded(name: str, features: TypedFeatures) -> Any:
    """The features of all nodes in one matrix `[N, F]`, in the order of their ids. The nodes of
    types without features have rows of zeros.

    It is a `jax.Array` float32 or float16 if all tables are dense, and else `SparseFeatures`.
    The matrix is a copy. Raises `InputError` unless all types that have features have equally
    many.
    """
    schema, tables = features.schema, features.by_type
    widths = {kind: table.shape[1] for kind, table in tables.items() if table is not None}
    if len(set(widths.values())) > 1:
        raise InputError(
            f"all node types of {name} that have features must have equally many for a model "
            "that knows no types",
            ", ".join(f"{kind} {width}" for kind, width in widths.items()),
            "Choose a model of typed graphs, such as rgcn or trsage, or features of one type.",
        )
    width = max(widths.values(), default=0)
    sparse = any(table is not None and table.by_entries for table in tables.values())
    rows: dict[str, Any] = {}
    for kind, count in schema.node_types:
        table = tables[kind]
        own: Any = np.zeros((count, width), np.float16)
        if table is not None:
            own = table.host() if table.by_entries else table.numbers()
        rows[kind] = scipy.sparse.csr_matrix(own.astype(np.float32)) if sparse else own
    used = dict.fromkeys(rows, 0)  # how many rows of each table are placed
    pieces = []
    for part in schema.every_part:
        for (kind, table), count in zip(rows.items(), part, strict=True):
            pieces.append(table[used[kind] : used[kind] + count])
            used[kind] += count
    if sparse:
        return of_host(scipy.sparse.vstack(pieces, format="csr"))
    kinds = {table.kind for table in tables.values() if table is not None}
    dtype = np.float16 if kinds == {"float16"} else np.float32
    nothing = np.empty((0, width), dtype)
    return as_device(np.concatenate([nothing, *(p.astype(dtype, copy=False) for p in pieces)]))
