"""What bodies of requests say: questions about nodes, and changes of the graph."""

from __future__ import annotations

import json
import math
import reprlib
from typing import Any, NamedTuple

import numpy as np

from jgs.arrays import described, id_column, refuse_where
from jgs.data.column_values import moments
from jgs.errors import InputError, nearest, refusing
from jgs.graph import NodeIds, Schema
from jgs.graph.live import Change

_BITS = ("key", "batch_size")  # beside the graph, what the bits of an answer depend on
FIELDS = {
    "predict": ("nodes", "pairs", "names", "time", "node_type", "relation", *_BITS),
    "recommend": ("sources", "names", "k", "time", "new_only", "relation", *_BITS),
    "append": ("src", "dst", "names", "time", "weight", "columns", "relation"),
    "nodes": ("features", "names", "type", "time"),
    "rows": ("nodes", "features", "names", "type", "time"),
    "delete": ("edges", "between", "nodes", "names", "relation", "type"),
}
# Of those of /delete, what goes with each.
_BESIDE = {"edges": (), "between": ("names", "relation"), "nodes": ("names", "type")}
_NEEDED = {"append": ("src", "dst"), "nodes": ("features",), "rows": ("features",)}
MOST_ROWS = 4096  # of a question, and of a list of the best targets
MOST_LISTED = 1 << 18  # the entries of all lists: half a second
_ONE_OF = {
    "predict": ("nodes", "pairs"),
    "recommend": ("sources",),
    "rows": ("nodes",),
    "delete": ("edges", "between", "nodes"),
}


class Question(NamedTuple):
    """What is asked for rows of nodes. Questions that differ in rows and times alone are
    answered together.

    Fields:
      kind: `"predict"` or `"recommend"`.
      what: the field that the rows are: `"nodes"`, `"pairs"` or `"sources"`.
      rows: int64 `[n]`, or `[n, 2]` of pairs.
      time: ints or texts, one or `[n]`; None: the latest moment.
      key: the two numbers of a random key.
      options: the other fields of the request, in the order of their names.
    """

    kind: str
    what: str
    rows: np.ndarray
    time: Any
    key: tuple[int, int]
    options: tuple[tuple[str, Any], ...]


def parsed(body: bytes) -> dict[str, Any]:
    """The object that `body` is, JSON in UTF-8. Raises `InputError`, also for numbers that are
    not finite, for a name that is there twice, and for what is too deep."""
    with refusing((ValueError, RecursionError), "the body must be JSON", "Correct it."):
        found = json.loads(
            body.decode(),
            parse_constant=_finite,
            parse_float=_finite,
            object_pairs_hook=_object,
        )
        if b"\\ud" in body.lower():  # halves of characters, which no text may have
            json.dumps(found, ensure_ascii=False).encode()
    if not isinstance(found, dict):
        raise InputError("the body must be a JSON object", type(found).__name__, "Give fields.")
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise InputError("numbers must be finite", text, "Correct it, or leave it out.")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise InputError(
            "a field must be given once", [name for name, _ in pairs], "Correct it."
        )
    return found


def question(
    kind: str, body: dict[str, Any], ids: NodeIds | None, key: tuple[int, int]
) -> Question:
    """The question of a request of this `kind`, whose key is `key` where it has none. Raises
    `InputError`."""
    what = _checked(kind, body)
    rows = _nodes(what, body, ids)
    given = body.get("key", key)
    if not (
        isinstance(given, list | tuple)
        and len(given) == 2
        and all(type(n) is int and 0 <= n < 1 << 32 for n in given)
    ):
        value = reprlib.repr(given)
        raise InputError("key must be two integers below 2^32", value, "Leave it out.")
    if len(rows) > MOST_ROWS:
        rule = f"a request must ask for at most {MOST_ROWS} rows"
        raise InputError(rule, len(rows), "Ask for fewer at once.")
    if type(k := body.get("k", 1)) is not int or not 1 <= k <= MOST_ROWS:
        raise InputError(f"k must be an int from 1 to {MOST_ROWS}", repr(k), "Correct it.")
    if len(rows) * k > MOST_LISTED:
        rule = f"a request must ask for at most {MOST_LISTED} targets, k for each source"
        raise InputError(rule, len(rows) * k, "Ask for fewer at once.")
    if type(new_only := body.get("new_only", False)) is not bool:
        raise InputError("new_only must be true or false", repr(new_only), "Correct it.")
    rest = ("names", "time", "key", what)
    options = tuple(sorted((n, v) for n, v in body.items() if n not in rest and v is not None))
    if bad := [n for n, v in options if not isinstance(v, str | int)]:
        raise InputError(f"{bad[0]} must be one value", "several", "Ask for each by itself.")
    return Question(kind, what, rows, _time(body), (given[0], given[1]), options)


def change(
    kind: str,
    body: dict[str, Any],
    ids: NodeIds | None,
    schema: Schema | None,
    unit: str | None,
) -> Change:
    """The change of the graph that a request of this `kind` asks for, of a graph of this
    `schema` whose times are counted in this `unit`. Raises `InputError`."""
    what, relation = _checked(kind, body), body.get("relation")
    relation = tuple(relation) if isinstance(relation, list) else relation
    if kind == "append":
        src, dst = (_nodes(name, body, ids) for name in ("src", "dst"))
        columns = body.get("columns", {})
        if not isinstance(columns, dict):
            raise InputError("columns must be an object", type(columns).__name__, "Name them.")
        fields = {
            **_ends(src, dst, relation, schema),
            "time": _moments("edges", body, src.size, unit),
            "edge_weight": _numbers("weight", body.get("weight")),
        }
        named = {f"edge_columns.{name}": _numbers(name, v) for name, v in columns.items()}
        return Change("append", fields | named)
    if kind == "nodes":
        return _new_nodes(body, ids, unit)
    if what == "edges":
        return Change("delete_edges", {"numbers": _numbers("edges", body["edges"])})
    nodes, of_type = _nodes(what, body, ids), {"type": body.get("type")}
    if kind == "rows":
        rows = _numbers("features", body["features"])
        if body.get("time") is not None:
            of_type["time"] = _moments("rows", body, nodes.size, unit)
        return Change("set_rows", {"nodes": nodes, "rows": rows, **of_type})
    if what == "nodes":
        return Change("delete_nodes", {"nodes": nodes, **of_type})
    src, dst = nodes.T
    return Change("delete_between", _ends(src, dst, relation, schema))


def _new_nodes(body: dict[str, Any], ids: NodeIds | None, unit: str | None) -> Change:
    rows = _numbers("features", body["features"])
    fields = {"count": len(rows), "type": body.get("type"), "rows": rows}
    fields["time"] = _moments("nodes", body, len(rows), unit)
    names = body.get("names")
    if (ids is None) != (names is None):
        rule = "new nodes must have names where the artifact has names of nodes, and only there"
        raise InputError(rule, "none" if names is None else "some", "Correct names.")
    if ids is not None:
        entries = names if isinstance(names, list) else [names]
        column = id_column("names of new nodes", np.array(entries, object))
        if column.dtype != ids.values.dtype:
            rule = "names of new nodes must be text or integers, as others are"
            raise InputError(rule, described(column), "Correct them.")
        rule, remedy = "names of new nodes must be new", "Choose others, or ask for that node."
        refuse_where(ids.find(column) >= 0, column, "position", rule, remedy)
        fields["names"] = column if column.dtype == np.int64 else tuple(column.tolist())
    return Change("add_nodes", fields)


def _ends(src: np.ndarray, dst: np.ndarray, relation: Any, schema: Schema | None) -> dict:
    """The fields of edges between nodes of the graph, which in a change count from 0 in the
    types of their relation."""
    if relation is not None and schema is not None and schema.relations:
        types = schema.relations[schema.relation(relation)]
        for what, nodes, name in (("src", src, types[0]), ("dst", dst, types[2])):
            inside = (nodes >= 0) & (nodes < schema.num_nodes)
            wrong = ~inside | (schema.numbers(nodes) != schema.number(name))
            own = [f"{r.start} to {r.stop - 1}" for r in schema.ranges(name) if r]
            rule = f"{what} must be nodes of type {name}, {' or '.join(own)}"
            refuse_where(wrong, nodes, "position", rule, "Correct it.")
        src, dst = schema.places(src), schema.places(dst)
    return {"src": src, "dst": dst, "relation": relation}


def _checked(kind: str, body: dict[str, Any]) -> str:
    """The one of the fields of `_ONE_OF` that the body has. Raises `InputError` for other
    fields than the known ones, and where needed ones are missing."""
    known, needed, choice = FIELDS[kind], _NEEDED.get(kind, ()), _ONE_OF.get(kind, ())
    for name in body:
        if name not in known:
            rule = f"a field of /{kind} must be one of {', '.join(known)}"
            raise InputError(rule, repr(name), nearest(name, known))
    what = [name for name in choice if name in body]
    if choice and len(what) != 1:
        listed = ", ".join(choice[:-1]) + " or " * (len(choice) > 1) + choice[-1]
        value = " and ".join(what) or "none"
        raise InputError(f"/{kind} must have {listed}", value, "Give one.")
    for name in body.keys() - {*what, *_BESIDE[what[0]]} if kind == "delete" else ():
        rule = f"{name} must not be beside {what[0]}"
        raise InputError(rule, reprlib.repr(body[name]), "Leave it out.")
    if missing := [name for name in needed if body.get(name) is None]:
        rule = f"/{kind} must have {' and '.join(needed)}"
        raise InputError(rule, f"no {missing[0]}", "Give it.")
    return "".join(what)


def _nodes(what: str, body: dict[str, Any], ids: NodeIds | None) -> np.ndarray:
    """int64 `[n]`, or of pairs `[n, 2]`: ids of nodes in the field `what`. Text is a name, and
    so are integers where `names` is true."""
    value, names, pairs = body[what], body.get("names"), what in ("pairs", "between")
    entries = value if isinstance(value, list) else [value]
    if pairs:
        if not all(isinstance(each, list) and len(each) == 2 for each in entries):
            raise InputError(f"{what} must be pairs of nodes", "others", "E.g. [[7, 42]].")
        entries = [end for each in entries for end in each]
    if not isinstance(names, bool | None):
        raise InputError("names must be true or false", type(names).__name__, "Correct it.")
    if names or any(isinstance(each, str) for each in entries):
        if ids is None:
            raise InputError(
                f"{what} must be ids", "names", "The artifact has no names of nodes."
            )
        if typed := [name for name in ("type", "node_type") if body.get(name) is not None]:
            rule = f"{what} by name must be without {typed[0]}, which names have"
            raise InputError(rule, repr(body[typed[0]]), "Leave it out.")
        found = ids.nodes(np.array(entries, object), f"a name of {what}").astype(np.int64)
    else:
        if bad := [each for each in entries if type(each) is not int]:
            rule = f"{what} must be integers or names"
            raise InputError(rule, reprlib.repr(bad[0]), "Correct it.")
        found = _numbers(what, entries)
    return found.reshape(-1, 2) if pairs else found


def _moments(what: str, body: dict[str, Any], num: int, unit: str | None) -> Any:
    time = _time(body)
    return None if time is None else moments(what, time, num, unit)


def _time(body: dict[str, Any]) -> Any:
    time = body.get("time")
    if any(
        type(t) not in (int, str) for t in (time if isinstance(time, list) else [time or 0])
    ):
        raise InputError("time must be times: integers, or dates", "others", "Correct it.")
    return time


def _numbers(what: str, value: Any) -> Any:
    if value is None:
        return None
    rule, remedy = f"{what} must be numbers", "Give a list of numbers, one for each."
    with refusing((ValueError, RecursionError), rule, remedy):
        array = np.array(value if isinstance(value, list) else [value])
    if array.dtype.kind not in "iufb":
        raise InputError(rule, array.dtype.name, remedy)
    return array if array.size else array.astype(np.int64)
