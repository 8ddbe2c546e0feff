"""`facts="edges"`: rows that join two other rows as edges, in place of nodes.

Such a row is one of a table with two foreign keys that no other table names, and that a task
asks nothing of. A row of `sales` that names a user and a shop becomes two edges: one into the
user, of the relation `(shops, sales.user, users)`, and one into the shop, of
`(users, sales.shop, shops)`. They are as old as the youngest of the three rows. A row of which
a key is missing, or names no row, makes no edge, and a log says how many.

The columns of the table are edge columns of both edges, with the names `sales_price`; those of
other relations have 0. What they become is fitted as features of nodes are.

With `facts="nodes"` a user draws sales, and each sale has one user and one shop. Here the user
draws the shops at once, one hop earlier:

- With full fanouts the sales and shops are the same.
- Otherwise the law of the sales that a user draws at a hop is the same, if each sale names a
  user and a shop that are not younger than the sale.
- The sales that seeds draw at the first hop are then the same, bit for bit, where all such
  tables are the last in the catalogue: nodes and relations keep their numbers.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from jgs.data.columns import FeatureColumns
from jgs.data.database.stored_tables import StoredTables
from jgs.errors import check_choice
from jgs.graph.arrays import TAKEN
from jgs.graph.schema import Relation

Ends = tuple[np.ndarray, np.ndarray]

_log = logging.getLogger("jgs")


class Links(NamedTuple):
    """The rows int64 `[e]` of one table of facts that make edges, ascending; and by relation
    the sources and the targets int32 `[e]` of the edges, in the order of the rows."""

    rows: np.ndarray
    edges: dict[Relation, Ends]


def links_of(base: StoredTables, facts: str, asked: Collection[str]) -> dict[str, Links]:
    """The edges of each table of facts, except those that are `asked` for; {} for
    `facts="nodes"`. Raises `InputError`."""
    check_choice("the option facts", facts, ("nodes", "edges"))
    if facts == "nodes":
        return {}
    refers = {table: keys.references for table, keys in base.catalogue.tables.items()}
    named = {*asked, *(target for keys in refers.values() for target in keys.values())}
    chosen = [table for table, keys in refers.items() if len(keys) == 2 and table not in named]
    if not chosen:
        _log.warning("%s has no table whose rows can be edges; all are nodes", base.name)
    return {table: _links(base, table) for table in chosen}


def _links(base: StoredTables, table: str) -> Links:
    keys, found = base.catalogue.tables[table].references, []
    for key, target in keys.items():
        base.check_types(table, key, target)
        found.append(base.found(target, base.rows(table), key))
    rows = np.flatnonzero((found[0] >= 0) & (found[1] >= 0))
    if lost := found[0].size - rows.size:
        what = f"{table} in {base.name}"
        _log.warning("%s: %d rows do not name two rows, and make no edge", what, lost)
    (first, a), (second, b) = keys.items()
    first_rows, second_rows = (each[rows] for each in found)
    into_first = b, f"{table}.{'_'.join(first)}", a
    into_second = a, f"{table}.{'_'.join(second)}", b
    ends = {into_first: (second_rows, first_rows), into_second: (first_rows, second_rows)}
    return Links(rows, ends)


def edge_times(
    links: Mapping[str, Links], times: Mapping[str, np.ndarray], sizes: Mapping[Relation, int]
) -> dict[Relation, np.ndarray] | None:
    """The times of the edges of each relation of `sizes`, its number of edges: those of the
    rows, from the `times` of all rows of tables. Edges of other relations have the first of all
    times, as they are as old as their ends. None where no table of facts has times."""
    known = {
        relation: times[table][own.rows]
        for table, own in links.items()
        if table in times
        for relation in own.edges
    }
    always = np.iinfo(np.int64).min
    return {r: known.get(r, np.full(n, always)) for r, n in sizes.items()} if known else None


def edge_columns(
    links: Mapping[str, Links],
    became: Mapping[str, tuple[FeatureColumns, dict[str, np.ndarray]] | None],
    sizes: Mapping[Relation, int],
) -> tuple[dict[Relation, dict[str, np.ndarray]], FeatureColumns | None]:
    """The edge columns of each relation of `sizes`, its number of edges; and what the columns
    of tables became, under the names of the edge columns, or None where there are none.
    `became` is this of each table, and what `encode_each` made of all its rows; or None."""
    found: dict[Relation, dict[str, np.ndarray]] = {relation: {} for relation in sizes}
    used, columns = set(TAKEN), []
    for table, (fitted, encoded) in ((t, each) for t, each in became.items() if each):
        for column in fitted.columns:
            if column.name not in encoded:
                continue
            name, values = _identifier(f"{table}_{column.name}", used), encoded[column.name]
            columns.append(column._replace(name=name))
            for relation, size in sizes.items():
                own = relation in links[table].edges
                none = np.zeros((size, *values.shape[1:]), np.float32)
                found[relation][name] = values[links[table].rows] if own else none
    return found, FeatureColumns(tuple(columns)) if columns else None


def _identifier(text: str, used: set[str]) -> str:
    name = "".join(c if f"_{c}".isidentifier() else "_" for c in text)
    name = name if name.isidentifier() else f"_{name}"
    while name in used:
        name += "_"
    used.add(name)
    return name
