"""What `python -m jgs.data describe` says: of a data set; and of a database its tables and
keys, in words and a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from typing import Any

import numpy as np

from jgs.data.column_values import UNITS
from jgs.data.database.catalogue import Columns
from jgs.data.database.sql import quoted
from jgs.data.database.stored_tables import StoredTables
from jgs.data.dataset import Plain
from jgs.data.label_values import are_numbers, count_classes, labelled
from jgs.data.values import SPLITS
from jgs.data.warned import edge_facts, label_counts, rows_alike, warnings
from jgs.errors import InputError
from jgs.graph import Graph
from jgs.graph.row_tables.table import as_table


def facts(data: Plain) -> dict[str, Any]:
    """Numbers and texts by name, as JSON can hold them.

    Where edges have times, `first_time`, `last_time` and `distinct_times` tell of them, and
    where the unit is known, `first_date` and `last_date` too. Of a typed graph,
    `features_of_types` has for each node type the `width` of its features and their `kind`: a
    dtype, "sparse", or "none". `edges_of_relations` has for each relation its edges, and the
    mean and the largest in-degree of the nodes of its target type. `columns` says what each
    column of the users' tables of nodes became, `label_counts` how many nodes of each class are
    in each split, and `warnings` what usually is a mistake (`jgs.data.warned`).
    """
    graph, labels = data.graph, data.labels
    found: dict[str, Any] = {"nodes": graph.num_nodes, "edges": graph.num_edges}
    found["weighted"] = graph.edge_weight is not None
    found["timed"] = graph.edge_time is not None
    if graph.edge_time is not None:
        found |= _times(np.asarray(graph.edge_time), data.time_unit)
    if graph.node_time is not None:
        found["timed_nodes"] = True
    if graph.schema is not None:
        found["node_types"] = dict(graph.schema.node_types)
        found["relations"] = [" ".join(relation) for relation in graph.schema.relations]
    found |= _features(data.features)
    if labels is not None:
        found |= _labels(data, labels)
    for split in SPLITS:
        if (ids := getattr(data, f"{split}_idx")) is not None:
            found[split] = len(ids)
    if (label := graph.edge_columns.get("label")) is not None:
        found["edge_labels"] = "classes" if label.dtype.kind == "i" else "numbers"
    if (numbers := graph.edge_columns.get("split")) is not None:
        counts = np.bincount(np.asarray(numbers) + 1, minlength=4)[1:].tolist()
        found |= {f"{name}_edges": n for name, n in zip(SPLITS, counts, strict=True)}
    if data.label_table is not None:
        found |= _label_table(data)
    if data.filled:
        found["missing_values_filled"] = data.filled
    if graph.schema is not None and graph.edge_type is not None:
        found["edges_of_relations"] = _relations(graph)
    edges = edge_facts(graph)
    found |= {"in_degree": edges.in_degree, "out_degree": edges.out_degree}
    found |= {"isolated_nodes": edges.isolated, "self_loops": edges.self_loops}
    found |= {"duplicate_edges": edges.duplicates, "edges_without_reverse": edges.one_way}
    if (alike := rows_alike(data.features)) is not None:
        found["rows_like_an_earlier_one"] = alike
    if counts := label_counts(data):
        found["label_counts"] = counts
    if data.feature_columns is not None:
        found["columns"] = _columns(data.feature_columns)
    return found | {"warnings": warnings(data, edges)}


def of_database(
    base: StoredTables, graph: Callable[[], Plain], options: dict[str, Any]
) -> dict[str, Any]:
    """The facts of a database's tables (`schema_of`) and of the graph
    that they make with `options`, or a warning why they make none. Raises `InputError` where an
    option asks for more than the tables."""
    found = schema_of(base, options.get("time_unit"))
    says = found["warnings"]
    try:
        of_graph = facts(graph())
        says.extend(of_graph["warnings"])
        found = of_graph | found
    except InputError as error:
        if options.keys() - {"manifest", "time_unit"}:
            raise
        if str(error) not in [each["says"] for each in says]:
            says.append({"kind": "no_graph", "says": str(error)})
    return found


def _columns(became: Any) -> list[dict[str, Any]]:
    tables = became if isinstance(became, dict) else {"": became}
    return [
        {
            "column": f"{node_type}.{column.name}" if node_type else column.name,
            "becomes": column.becomes,
            "features": len(column.names),
            "missing": column.missing,
            "different_texts": column.distinct,
        }
        for node_type, table in tables.items()
        for column in table.columns
    ]


def _times(times: np.ndarray, unit: str | None) -> dict[str, Any]:
    """The first and last time, perhaps as dates, and the number of different ones."""
    found: dict[str, Any] = {} if unit is None else {"time_unit": unit}
    times = times[times > np.iinfo(times.dtype).min]
    if times.size:
        ends = [int(times.min()), int(times.max())]
        found |= dict(zip(("first_time", "last_time"), ends, strict=True))
        if unit is not None:
            days = zip(("first_date", "last_date"), ends, strict=True)
            found |= {name: str(np.array(at).astype(f"M8[{unit}]")) for name, at in days}
    return found | {"distinct_times": int(np.unique(times).size)}


def _label_table(data: Plain) -> dict[str, Any]:
    table = data.label_table
    assert table is not None
    counts = np.bincount(table.split + 1, minlength=len(SPLITS) + 1)[1:].tolist()
    found = {"labels_at_moments": table.nodes.size, "label_kind": "numbers"}
    if not table.numbers:
        kind = "several labels" if table.several else "classes"
        found |= {"label_kind": kind, "classes": table.num_classes}
    if (times := data.graph.edge_time) is not None and table.time.size:
        found["edges_before_labels"] = int((np.asarray(times) < table.time.max()).sum())
    return found | {f"{name}_rows": n for name, n in zip(SPLITS, counts, strict=True)}


def _features(features: Any) -> dict[str, Any]:
    if features is None:
        return {}
    own = as_table(features)
    tables = own.by_type
    if "" in tables:
        return {"features": own.shape[1], "sparse": own.by_entries}
    kinds = {
        name: {"width": 0, "kind": "none"}
        if table is None
        else {"width": table.shape[1], "kind": table.kind}
        for name, table in tables.items()
    }
    lacking = [name for name, table in tables.items() if table is None]
    without = {"types_without_features": lacking} if lacking else {}
    return {"features_of_types": kinds} | without


def _labels(data: Plain, labels: np.ndarray) -> dict[str, Any]:
    several = labels.ndim == 2
    found: dict[str, Any] = {"labels": "numbers"}
    if several:
        found["numbers_of_a_node"] = labels.shape[1]
    if not are_numbers(labels):
        found = {"classes": count_classes(labels)}
        found["labels_of_a_node"] = "several" if several else "one"
    if missing := int(np.isnan(labels).sum()) if several else 0:
        found["labels_not_known"] = missing
    if (schema := data.graph.schema) is not None:
        some = several and not are_numbers(labels)
        nodes = np.flatnonzero(labels.any(axis=1) if some else labelled(labels))
        types = np.unique(schema.numbers(nodes)).tolist()
        found["labelled_types"] = [schema.node_types[number][0] for number in types]
        found["labelled_nodes"] = len(nodes)
    return found


def _relations(graph: Graph) -> list[dict[str, Any]]:
    schema, types = graph.schema, np.asarray(graph.edge_type)
    assert schema is not None
    row = np.repeat(np.arange(graph.num_nodes, dtype=np.int32), np.asarray(graph.degrees()))
    # The edges of a node by one relation are a run, because rows are sorted by relation.
    change = (row[1:] != row[:-1]) | (types[1:] != types[:-1])
    begin = np.concatenate([[0], np.flatnonzero(change) + 1])[: types.size]
    edges = np.bincount(types, minlength=len(schema.relations)).tolist()
    most = np.zeros(len(schema.relations), np.int64)
    np.maximum.at(most, types[begin], np.diff(np.append(begin, types.size)))
    nodes = dict(schema.node_types)
    return [
        {
            "relation": " ".join(one),
            "edges": count,
            "mean_in_degree": round(count / max(1, nodes[one[2]]), 4),
            "max_in_degree": int(top),
        }
        for one, count, top in zip(schema.relations, edges, most, strict=True)
    ]


_YEARS = 11_323, 47_482  # 2001 and 2100, in days since 1970
_PER_DAY = (1, *(86_400 * 1000**power for power in range(4)))  # of `UNITS`
_LINE, _WIDTH, _ACROSS = 18, 230, 320  # pixels: of a line, a box, a box and the gap beside it
_SVG = """<svg xmlns="http://www.w3.org/2000/svg" width="{}" height="{}" font-size="12">
<style>rect{{fill:#fff}}rect,path{{stroke:#456}}path{{fill:none}}</style>
<marker id="to" refX="8" refY="4" markerWidth="9" markerHeight="9" orient="auto">
<path d="M0 0L8 4L0 8"/></marker>
{}
</svg>
"""


def schema_of(base: StoredTables, unit: str | None = None) -> dict[str, Any]:
    """The facts of a database, whose numbers count times in `unit`, as JSON can hold them.

    `tables` are dicts with `table`, `rows`, `key`, `time`, its `first` and `last` moment, and
    `missing`, the rows without each column. `keys` are dicts of the foreign keys, with `key`,
    `names`, `missing`, and `lost`, the rows whose key names no row. `warnings` are as in
    `jgs.data.described.facts`: what people often get wrong.
    """
    found: dict[str, Any] = {"tables": [], "keys": [], "warnings": []}
    tables = base.catalogue.tables
    for table, own in tables.items():
        says = list(_refusals(base.check_key, table))
        found["tables"].append(facts := _table(base, table))
        says += _of_times(base, facts, unit)
        for key, target in own.references.items():
            if refused := list(_refusals(base.check_types, table, key, target)):
                says += refused
                continue
            found["keys"].append(facts := _reference(base, table, key, target))
            if lost := facts["lost"]:
                says.append(f"{lost:,} values of {facts['key']} name no row of {target}")
            if tables[target].time and not own.time:
                said = f"{table} has no time, but names rows of {target}, which have one"
                says.append(f"{said}: it is seen from then on, however late it came")
        found["warnings"] += [{"kind": "database", "says": each} for each in says]
    return found


def _refusals(check: Callable[..., None], *of: Any) -> Iterator[str]:
    try:
        check(*of)
    except InputError as error:
        yield str(error)


def _table(base: StoredTables, table: str) -> dict[str, Any]:
    keys, columns = base.catalogue.tables[table], base.columns[table]
    time = quoted(keys.time) if keys.time else "NULL"
    ends = [f"CAST({end}({time}) AS VARCHAR)" for end in ("min", "max")]
    counts = ", ".join(["count(*)", *ends, *(f"count({quoted(column)})" for column in columns)])
    found = base.sql(f"SELECT {counts} FROM {quoted(table)}").columns
    rows, first, last, *known = (column[0].as_py() for column in found)
    missing = {c: rows - n for c, n in zip(columns, known, strict=True) if n < rows}
    facts = {"table": table, "rows": rows, "key": ", ".join(keys.key), "time": keys.time or ""}
    return facts | {"first": first or "", "last": last or "", "missing": missing}


def _reference(base: StoredTables, table: str, key: Columns, target: str) -> dict[str, Any]:
    named, of = base.catalogue.tables[target].key, f"FROM {quoted(table)} a"
    on = [f"a.{quoted(c)} = b.{quoted(k)}" for c, k in zip(key, named, strict=True)]
    gone = f"NOT ({base.given(table, key)})"
    found = base.sql(
        f"SELECT count(*) FILTER (WHERE {gone}), "
        f"(SELECT count(*) {of} ANTI JOIN {quoted(target)} b ON {' AND '.join(on)}) {of}"
    )
    missing, without = (column[0].as_py() for column in found.columns)
    facts = {"key": f"{table}.{', '.join(key)}", "names": target}
    return facts | {"missing": missing, "lost": without - missing}


def _of_times(base: StoredTables, facts: dict[str, Any], unit: str | None) -> Iterator[str]:
    table, time, last = facts["table"], facts["time"], facts["last"]
    what = f"{time} of {table}"
    if last and base.columns[table][time].startswith(("DATE", "TIMESTAMP")):
        value = f"CAST(CAST({quoted(time)} AS TIMESTAMP) AS TIMESTAMPTZ)"  # in UTC
        later = f"SELECT count(*) FROM {quoted(table)} WHERE {value} > now()"
        if number := base.sql(later).column(0)[0].as_py():
            yield f"{what} is in the future in {number:,} rows, up to {last}"
        if last < "1971":
            yield f"{what} ends before 1971, as times of another unit do"
    elif last.isdigit():
        days = {name: int(last) / each for name, each in zip(UNITS, _PER_DAY, strict=True)}
        like = [name for name, day in days.items() if _YEARS[0] < day < _YEARS[1]] or UNITS
        if unit not in like:
            said = f"{what} is a number up to {last}, and its unit is {unit or 'not known'}"
            yield f"{said}: say --data-options time_unit={' or '.join(like)}"


def picture_of(base: StoredTables) -> str:
    """An SVG of the tables, each to the right of those that it names, and of its keys."""
    tables, level = base.catalogue.tables, dict.fromkeys(base.catalogue.tables, 0)
    for _ in tables:  # as many steps as the longest way; where keys go round, it ends too
        for table, own in tables.items():
            named = [level[target] + 1 for target in own.references.values() if target != table]
            level[table] = min(max(named, default=0), len(tables) - 1)
    below, at, drawn = [20] * len(tables), {}, []
    for table, own in tables.items():
        keys = {*own.key, own.time, *(c for key in own.references for c in key)}
        lines = [f"{c} {kind.lower()}" for c, kind in base.columns[table].items() if c in keys]
        more = len(base.columns[table]) - len(lines)
        x, y = at[table] = 20 + level[table] * _ACROSS, below[level[table]]
        height = _LINE * (len(lines) + 2) + 8
        below[level[table]] += height + 30
        drawn.append(f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{height}" rx="4"/>')
        for i, line in enumerate([table, *lines, f"and {more} columns"]):
            bold = "" if i else ' font-weight="bold"'
            own_line = f'x="{x + 8}" y="{y + _LINE * (i + 1)}"{bold}>{escape(line)}'
            drawn.append(f"<text {own_line}</text>")
    for table, own in tables.items():
        for key, target in own.references.items():
            (x, y), (to, end) = at[table], at[target]
            side, y = (-45, y + 12) if x > to else (45, y + 34)
            x, to, end = x if x > to else x + _WIDTH, to + _WIDTH, end + 12
            way = f"M{x} {y}C{x + side} {y} {to + 45} {end} {to} {end}"
            name = f"<title>{escape(', '.join(key))}</title>"
            drawn.append(f'<path d="{way}" marker-end="url(#to)">{name}</path>')
    return _SVG.format(_ACROSS * (max(level.values()) + 1), max(below), "\n".join(drawn))
