"""The fields of a `Dataset` that are not plain arrays, converted to arrays for files, and
back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from jgs.data.columns import FeatureColumns
from jgs.data.label_table import LabelTable, LinkTable
from jgs.data.text import require_all
from jgs.errors import InputError, refusing
from jgs.graph import NodeIds, Schema, TypedFeatures
from jgs.graph.row_tables.table import as_table, opened_table
from jgs.tables import ROW_TABLES

_AGAIN = "Write the folder again with `Dataset.save`."
_ABOUT = {
    "name": str,
    "num_classes": int,
    "num_features": int | list,
    "class_names": list | None,
}
COLUMNS = ("feature_columns", "edge_feature_columns")


def require(owner: str, arrays: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raises `InputError` unless the folder `owner` holds the arrays `names`."""
    require_all(f"{owner} must hold the arrays of a data set", arrays, names, _AGAIN)


def about(fields: dict[str, Any]) -> dict[str, np.ndarray]:
    """The array of the file that holds `fields` as JSON text, by its name."""
    return {"about": np.frombuffer(json.dumps(fields).encode(), np.uint8)}


def read_about(owner: str, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The fields that `about` wrote, with their types checked; raises `InputError`."""
    require(owner, arrays, ("about",))
    rule = f"{owner}/about.npy must be sound"
    with refusing((ValueError, KeyError, TypeError), rule, _AGAIN):
        fields = json.loads(np.asarray(arrays["about"], np.uint8).tobytes())
        wrong = [name for name, kind in _ABOUT.items() if not isinstance(fields[name], kind)]
        if wrong:
            raise ValueError(f"another type of {', '.join(wrong)}")
        return fields


def features(values: Any) -> dict[str, np.ndarray]:
    """The arrays of dense, sparse or typed features, by the names of their files. Those of the
    node type of number `i` begin with `features.of_type_i`."""
    arrays = as_table(values).arrays()
    return {f"features.{name}".removesuffix("."): array for name, array in arrays.items()}


def widths(values: Any) -> int | list[int | None]:
    """The width of features, or of those of each node type, None where a type has none."""
    tables = as_table(values).by_type
    own = [None if table is None else table.shape[1] for table in tables.values()]
    return values.shape[1] if "" in tables else own


def read_features(
    owner: str,
    arrays: Mapping[str, np.ndarray],
    num_features: int | list[int | None],
    schema: Schema | None = None,
) -> Any:
    """The features that `features` wrote, which has `widths` `num_features`, for the nodes of
    `schema` if they are typed. Memory maps are not copied. Raises `InputError`."""
    if isinstance(num_features, int):
        return _read_table(owner, arrays, num_features, "features")
    if schema is None or len(schema.node_types) != len(num_features):
        raise InputError(
            f"{owner} must have features for each node type of its graph",
            f"{len(num_features)} tables",
            _AGAIN,
        )
    tables = [
        None if width is None else _read_table(owner, arrays, width, f"features.of_type_{i}")
        for i, width in enumerate(num_features)
    ]
    return TypedFeatures(tuple(tables), schema.without_relations())


def _read_table(owner: str, arrays: Mapping[str, np.ndarray], width: int, file: str) -> Any:
    own = {
        name.removeprefix(file).removeprefix("."): array
        for name, array in arrays.items()
        if name == file or name.startswith(f"{file}.")
    }
    own = {name: array for name, array in own.items() if "." not in name}  # none of a type
    if (table := opened_table(own, width)) is None:
        form = max(ROW_TABLES.values(), key=lambda form: len({*form.names} & {*own}))
        require(owner, arrays, [f"{file}.{name}".removesuffix(".") for name in form.names])
    return table


def node_ids(ids: NodeIds | None) -> dict[str, np.ndarray]:
    """The arrays of the ids, by the names of their files; none if `ids` is None."""
    if ids is None:
        return {}
    if ids.values.dtype != object:
        return {"node_ids": ids.values}
    texts = [each.encode() for each in ids.values.tolist()]
    ends = np.cumsum([len(each) for each in texts], dtype=np.int64)
    return {"node_ids.text": np.frombuffer(b"".join(texts), np.uint8), "node_ids.ends": ends}


def read_node_ids(owner: str, arrays: Mapping[str, np.ndarray]) -> NodeIds | None:
    """The ids that `node_ids` wrote, or None; raises `InputError`."""
    if "node_ids" in arrays:
        return NodeIds.of_known(arrays["node_ids"])
    if "node_ids.text" not in arrays:
        return None
    require(owner, arrays, ("node_ids.ends",))
    text = np.asarray(arrays["node_ids.text"], np.uint8).tobytes()
    ends = [0, *arrays["node_ids.ends"].tolist()]
    with refusing((ValueError, TypeError), f"{owner}/node_ids.text.npy must be text", _AGAIN):
        names = [text[a:b].decode() for a, b in pairwise(ends)]
    return NodeIds.of_known(np.array(names, object))


def table(name: str, table: LabelTable | LinkTable | None) -> dict[str, np.ndarray]:
    """The arrays of a table of labels or links, by the names of their files; none if it is
    None."""
    fields = {} if table is None else table._asdict()
    return {f"{name}.{field}": array for field, array in fields.items()}


def read_table(owner: str, arrays: Mapping[str, np.ndarray], name: str) -> Any:
    """The `LabelTable` or `LinkTable` that `table` wrote as "label_table" or "link_table", or
    None; raises `InputError`."""
    kind: Any = {"label_table": LabelTable, "link_table": LinkTable}[name]
    names = [f"{name}.{field}" for field in kind._fields]
    if not any(each in arrays for each in names):
        return None
    require(owner, arrays, names)
    return kind(*(arrays[each] for each in names))


def columns_of(data: Any) -> dict[str, Any]:
    """What columns of the tables of a data set became, as JSON can hold it: its fields
    `feature_columns` and `edge_feature_columns`, if it has them."""
    found = {name: getattr(data, name, None) for name in COLUMNS}
    return {name: _columns(became) for name, became in found.items() if became is not None}


def _columns(became: FeatureColumns | Mapping[str, FeatureColumns]) -> dict[str, Any]:
    if isinstance(became, FeatureColumns):
        return became.to_json()
    return {"types": {name: each.to_json() for name, each in became.items()}}


def read_columns(fields: Any) -> Any:
    """The `FeatureColumns`, or the dict of them by node type, or None, of one entry of
    `columns_of`; raises `InputError`."""
    if fields is None:
        return None
    if isinstance(fields, dict) and isinstance(types := fields.get("types"), dict):
        return {name: FeatureColumns.from_json(each) for name, each in types.items()}
    return FeatureColumns.from_json(fields)
