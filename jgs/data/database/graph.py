"""The typed graph of a database: each table is a node type, and each foreign key a relation.

A row is a node from its time on; a row of a table with times that has none is left out, and a
log says how many. The relation `(events, user_id, users)` has an edge from each event to the
user that it names, and `rev_user_id` its reverse. An edge is as old as the younger of its ends.
Columns that are neither keys nor times are features. What they become is fitted to the rows
before `val_timestamp` alone, and to all rows of tables without times. A table with times and
no such column has one feature, 1; of one without times a model learns a row for each node. Some
rows can be edges in place of nodes (`jgs.data.database.facts`).
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from jgs.data import column_values
from jgs.data.columns import ColumnRule, FeatureColumns, fit_all
from jgs.data.database.answers import column_of, labelled
from jgs.data.database.catalogue import Columns, is_number
from jgs.data.database.facts import Ends, Links, edge_columns, edge_times, links_of
from jgs.data.database.questions import Question
from jgs.data.database.stored_tables import NUMBERS, StoredTables, quoted
from jgs.data.dataset import Plain
from jgs.data.table_graph import typed_ids
from jgs.data.values import as_chosen
from jgs.errors import InputError
from jgs.files.arrow import read_columns
from jgs.graph import Graph, NodeIds, TypedFeatures
from jgs.graph.schema import Relation

_PLAIN = (
    *NUMBERS,
    "VARCHAR",
    "BOOLEAN",
    "TIMESTAMP",
    *(f"TIMESTAMP_{u}" for u in ("S", "MS", "NS")),
)

_ODD = ("DECIMAL", "BLOB", "BIT", "INTERVAL", "TIMESTAMP_NS")  # keys that NumPy would change
_FRACTIONS = ("FLOAT", "DOUBLE")  # equally long lists of these are numbers
_JOINED = "array_to_string("  # other lists are words
_FIXED = re.compile(r"(.+)\[\d+\]")  # the type of lists of one length

_log = logging.getLogger("jgs")


def plain_of(
    base: StoredTables,
    question: Question | None,
    rule: ColumnRule,
    clock: column_values.Clock,
    features: str = "typed",
    hidden: frozenset[tuple[str, str]] = frozenset(),
    facts: str = "nodes",
    fitted: Mapping[str, FeatureColumns] | None = None,
    inclusive: str | None = None,
) -> Plain:
    """The graph of a database, with the labels that a question asks for.

    Args:
      rule: what columns become; `encode` names them as `users.age`. Numbers are always scaled.
      clock: how times are counted. Dates are counted in the longest unit that is exact.
      features: "typed", or "padded" for one matrix (`jgs.data.values`).
      hidden: columns, as (table, column), that are no features, beside those of the question;
        foreign keys among them make no relation.
      facts: "nodes", or "edges" for `jgs.data.database.facts`.
      fitted: what the columns of each table became of an earlier database, whose rule this one
        is encoded by; tables that are not there have no features. None: they are fitted.
      inclusive: as in `Database.plain`.

    Raises `InputError`.
    """
    if inclusive and question is not None and question.at_its_time:
        raise InputError(
            "the option inclusive must be for moments that are not those of rows",
            f"{inclusive} for {question.what}",
            "Leave it out: what has the time of the row is seen.",
        )
    hidden |= frozenset() if question is None else question.hidden
    base, hidden = base.without(hidden)
    tables = base.catalogue.tables
    base.at_once(StoredTables.check_key, tables)
    asked = [] if question is None else [question.table, question.target or question.table]
    links = links_of(base, facts, asked)
    pairs = _pairs(base, links)
    if not pairs:
        raise InputError(
            f"{base.name} must have a foreign key",
            "none",
            "Say them in the manifest, by fkeys.",
        )
    given = {t: _times(base, t) for t, keys in tables.items() if keys.time is not None}
    moments = []
    if question is not None:
        moments = [_dates(question.what, column_of(question.rows, question.time))]
    clock = _exact(clock, [*given.values(), *moments])
    born = {t: clock.whole(f"{t} of {base.name}", times, "row") for t, times in given.items()}
    dated = any(each.size and each.dtype.kind not in "iuf" for each in given.values())
    if question is not None:
        clock.whole(question.what, moments[0], "row")
    del given
    early = _before_validation(base, clock, born, dated)

    def encoded(table: str, encoder: Any = FeatureColumns.encode) -> Any:
        if fitted is not None:
            return _encoded(base, table, fitted.get(table))
        own = rule.of_type(table, tables)
        return _features(base, table, own, early.get(table), hidden, encoder)

    of_edges = {table: encoded(table, FeatureColumns.encode_each) for table in links}
    sizes = {relation: src.size for relation, (src, _) in pairs.items()}
    columns, edges_became = edge_columns(links, of_edges, sizes)
    nodes = {table: _count(base, table) for table in tables if table not in links}
    base.release()

    def of_nodes() -> tuple[dict[str, NodeIds], dict[str, Any]]:
        ids = {table: _names(base, table, count) for table, count in nodes.items()}
        return ids, {table: of for table in nodes if (of := encoded(table))}

    with ThreadPoolExecutor(1) as beside:  # while edges are sorted
        found = beside.submit(of_nodes)
        graph = Graph.from_relations(
            nodes,
            pairs,
            edge_columns=columns,
            edge_time=edge_times(links, born, sizes),
            node_time={table: born[table] for table in nodes if table in born} or None,
            both_ways=not links,
        )
        del pairs, links, columns
        ids, made = found.result()
    assert graph.schema is not None
    rows = {table: of for table, (_, of) in made.items()}
    for table in (nodes.keys() & born.keys()) - made.keys():
        rows[table] = np.ones((nodes[table], 1), np.float32)
    plain = Plain(
        base.name,
        graph,
        node_ids=typed_ids(ids),
        features=TypedFeatures.from_dict(graph.schema, rows),
        feature_columns={table: became for table, (became, _) in made.items()},
        edge_feature_columns=edges_became,
        time_unit=clock.time_unit,
    )
    plain = as_chosen(plain, features)
    plain = plain if question is None else labelled(base, plain, question, clock)
    if not inclusive:
        return plain
    return replace(plain, graph=plain.graph.inclusive(*map(str.strip, inclusive.split(","))))


def _count(base: StoredTables, table: str) -> int:
    return base.sql(f"SELECT count(*) AS n FROM ({base.rows(table)})").column(0)[0].as_py()


def _pairs(base: StoredTables, links: Mapping[str, Links]) -> dict[Relation, Ends]:
    found: list[tuple[Relation, Ends]] = []
    reverse: list[tuple[Relation, Ends]] = []
    tables = base.catalogue.tables
    references = {t: [*keys.references.items()] for t, keys in tables.items() if t not in links}
    each = [(table, *keys) for table, own in references.items() for keys in own]
    made = iter(base.at_once(_ends, each))
    for table in tables:
        found += links[table].edges.items() if table in links else ()
        for key, target in references.get(table, ()):
            name, (src, dst, lost) = "_".join(key), next(made)
            found.append(((table, name, target), (src, dst)))
            reverse.append(((target, f"rev_{name}", table), (dst, src)))
            if lost:
                what = f"{', '.join(key)} of {table} in {base.name}"
                _log.warning(
                    "%s: %d values name no row of %s, and make no edge", what, lost, target
                )
    found += reverse if links else []
    pairs = dict(found)
    if len(pairs) < len(found):
        twice, _ = Counter(relation for relation, _ in found).most_common(1)[0]
        raise InputError(
            f"each foreign key of {base.name} must have a relation of its own",
            f"two of ({', '.join(twice)})",
            "Rename a column.",
        )
    return pairs


def _ends(
    base: StoredTables, reference: tuple[str, Columns, str]
) -> tuple[np.ndarray, np.ndarray, int]:
    """The rows of a table that name a row of `target` by a foreign key, those rows, and how
    many values name none. A reference is (table, foreign key, target)."""
    table, key, target = reference
    base.check_types(table, key, target)
    found = base.found(target, base.rows(table), key)
    src = np.flatnonzero(found >= 0).astype(np.int32)
    named = base.sql(
        f"SELECT count(*) AS n FROM ({base.rows(table)}) WHERE {base.given(table, key)}"
    )
    return src, found[src], named.column(0)[0].as_py() - src.size


def _times(base: StoredTables, table: str) -> np.ndarray:
    time = base.catalogue.tables[table].time
    assert time is not None
    gone = f"SELECT count(*) AS n FROM {quoted(table)} WHERE {quoted(time)} IS NULL"
    if number := base.sql(gone).column(0)[0].as_py():
        _log.warning(
            "%s in %s: %d rows without %s are left out", table, base.name, number, time
        )
    rows = base.sql(f"SELECT {quoted(time)} AS t FROM ({base.rows(table)})")
    return _dates(f"{table} of {base.name}", column_of(rows, "t"))


def _dates(what: str, times: np.ndarray) -> np.ndarray:
    if times.dtype.kind != "O" or not times.size:
        return times
    rule = f"the time of every row in {what} must be a whole number or a date"
    return column_values.dates_of_text(rule, times, "row")


def _exact(clock: column_values.Clock, times: list[np.ndarray]) -> column_values.Clock:
    """The clock with a unit in which all dates are whole, unless one is given."""
    dates = [each for each in times if each.dtype.kind == "M"]
    numbers = any(each.size and each.dtype.kind in "iuf" for each in times)
    if clock.time_unit is not None or not dates or numbers:
        return clock
    return column_values.Clock(column_values.exact_unit(*dates), clock.time_scale)


def _names(base: StoredTables, table: str, count: int) -> NodeIds:
    key = base.catalogue.tables[table].key
    if not key:
        return NodeIds.of_known(np.arange(count))
    kinds = {column: base.columns[table][column] for column in key}
    own = (
        f"CAST({quoted(n)} AS VARCHAR) AS {quoted(n)}" if k.startswith(_ODD) else quoted(n)
        for n, k in kinds.items()
    )
    keys = base.sql(f"SELECT {', '.join(own)} FROM ({base.rows(table)})")
    return NodeIds.of_later(count, partial(_keys, keys))


def _keys(table: Any) -> np.ndarray:
    first, *others = found = [*read_columns(table).values()]
    if not others:
        return first
    parts = (map(_escaped, map(str, column.tolist())) for column in found)
    return np.array(["|".join(each) for each in zip(*parts, strict=True)], object)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|")


def _before_validation(
    base: StoredTables, clock: column_values.Clock, born: dict[str, np.ndarray], dated: bool
) -> dict[str, np.ndarray]:
    """Which rows of tables with times are before validation; {} without a moment. `dated` says
    whether some times are dates."""
    text, unit = base.catalogue.val_time, clock.time_unit
    if text is None or not any(times.size for times in born.values()):
        if text is None and born:
            _log.warning("%s: no val_timestamp, so columns are fitted to all rows", base.name)
        return {}
    number = is_number(text)
    if (number and dated) or not (number or unit):
        raise InputError(
            f"val_timestamp of {base.name} must be a date, or a number where times are numbers",
            text,
            "Write it as '2024-08-01'."
            if number
            else "Or say what numbers count, --data-options time_unit=D or s.",
        )
    if number:
        moment = int(text) * clock.time_scale
    else:
        moment = int(np.datetime64(text).astype(f"M8[{unit}]").astype(np.int64))
    return {table: times < moment for table, times in born.items()}


def _encoded(
    base: StoredTables, table: str, became: FeatureColumns | None
) -> tuple[FeatureColumns, np.ndarray] | None:
    if became is None:
        return None
    used = {column.name for column in became.columns if column.kind != "drop"}
    if lacking := sorted(used - base.columns[table].keys()):
        raise InputError(
            f"{table} of {base.name} must have the columns that the run has learned from",
            f"no {', '.join(lacking)}",
            "Add them, perhaps without values.",
        )
    kinds = ((name, kind) for name, kind in base.columns[table].items() if name in used)
    chosen = {name: _value(table, name, kind) or quoted(name) for name, kind in kinds}
    return became, became.encode(_read(base, table, chosen), f"{table} of {base.name}")


def _read(base: StoredTables, table: str, chosen: Mapping[str, str]) -> dict[str, np.ndarray]:
    select = ", ".join(f"{value} AS {quoted(name)}" for name, value in chosen.items())
    return read_columns(base.sql(f"SELECT {select} FROM ({base.rows(table)})"))


def _features(
    base: StoredTables,
    table: str,
    rule: ColumnRule,
    early: np.ndarray | None,
    hidden: frozenset[tuple[str, str]],
    encoder: Callable[[FeatureColumns, Any, str], Any],
) -> tuple[FeatureColumns, Any] | None:
    """What columns became, and what `encoder` makes of them; None where there are none."""
    keys = base.catalogue.tables[table]
    roles = {*keys.key, *(c for key in keys.references for c in key), keys.time}
    roles |= {column for owner, column in hidden if owner == table}
    chosen = {
        name: value
        for name, kind in base.columns[table].items()
        if name not in roles and (value := _value(table, name, kind))
    }
    if not chosen:
        return None
    what = f"{table} of {base.name}"
    columns = _read(base, table, chosen)
    seen = {n: values if early is None else values[early] for n, values in columns.items()}
    empty = {name for name, values in seen.items() if column_values.missing_in(values).all()}
    for name in sorted(empty):
        _log.warning("%s: %s has no value to learn from, and is left out", what, name)
    kinds = rule.kinds()
    for name, values in seen.items():
        if name in kinds or name in empty:
            continue
        if base.columns[table][name] == "VARCHAR" and (
            odd := column_values.look_otherwise(values)
        ):
            _log.warning("%s: %s is text, though %s", what, name, odd)
        if chosen[name].startswith(_JOINED) or _is_long(f"{name} of {what}", values, rule):
            kinds[name] = "words", rule.max_categories
        elif values.dtype.kind == "M":
            kinds[name] = "moment", 0
    encode = {
        name: f"{kind}:{width}" if kind in ("hash", "words") else kind
        for name, (kind, width) in kinds.items()
        if name not in empty
    }
    known = {name: values for name, values in seen.items() if name not in empty}
    fitted = fit_all(known, replace(rule, encode=encode, standardize=True), None, what)
    fitted = replace(fitted, columns=tuple(c._replace(may_lack=True) for c in fitted.columns))
    return (fitted, encoder(fitted, columns, what)) if fitted.names else None


def _is_long(what: str, values: np.ndarray, rule: ColumnRule) -> bool:
    if column_values.kind_of(what, values) != "text":
        return False
    return len({*values[~column_values.missing_in(values)].tolist()}) > rule.max_categories


def _value(table: str, name: str, kind: str) -> str:
    """SQL of a column's values as numbers, text or dates; "" where it has none of these."""
    own, fixed = quoted(name), _FIXED.fullmatch(kind)
    base = fixed.group(1) if fixed else kind.removesuffix("[]")
    lists = "" if base == kind else "[]"
    if base.startswith("DECIMAL") or base in ("HUGEINT", "UHUGEINT"):
        base, own = "DOUBLE", f"CAST({own} AS DOUBLE{lists})"
    if base.startswith("ENUM") or base == "UUID":
        base, own = "VARCHAR", f"CAST({own} AS VARCHAR{lists})"
    if lists and base in _PLAIN:
        numbers = base in _FRACTIONS or (fixed and base in NUMBERS)
        return own if numbers else f"{_JOINED}CAST({own} AS {base}[]), ' ')"
    if not lists and (kind == "DATE" or kind.startswith("TIMESTAMP")):
        kind = "TIMESTAMP" if kind in ("DATE", "TIMESTAMP WITH TIME ZONE") else kind
        return f"CAST(CASE WHEN isfinite({own}) THEN {own} END AS {kind})"
    if not lists and base in _PLAIN:
        return own
    _log.warning("%s.%s is %s, which becomes no feature", table, name, kind)
    return ""
