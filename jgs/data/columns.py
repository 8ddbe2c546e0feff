"""The columns of a table of nodes as features: one rule, which options can change.

The rule: numbers stay as they are, true is 1 and false 0, text becomes a column of 0 and 1 for
each category, dates become seconds since 1970, standardised over the training rows, and
what is missing (empty, null or NaN) becomes 0, with one more column that is 1 there.

A column's kind says what it becomes:

  `number`: itself, or all numbers of equally long lists. Something missing is 0.
  `standard`: the same, shifted and scaled to the mean 0 and the deviation 1 over the rows for
    training (all rows, if none is). Something missing is 0, which is the mean.
  `category`: a column of 0 and 1 for each different text in it, in alphabetical order.
  `hash:K`: `K` columns, with a 1 in the one that the text's BLAKE2b digest modulo `K` names,
    the same on every machine (feature hashing, Weinberger et al., 2009, without signs).
  `words:K`: the same for each word of the text, in lower case.
  `date`: dates, or text in the form of ISO 8601; seconds since 1970 (UTC), as `standard`.
  `moment`: as `date`, and sine and cosine of the part of the year, of the week and of the day,
    as `standard`. A model of typed graphs reads the first relative to the cutoff of a sample
    that has one, as the time since.
  `drop`: nothing.

Where nothing says the kind, dates are `date`, text of at most `max_categories` different ones
is `category`, other text is `hash:<max_categories>`, and all else is `number`. The column of
what is missing stands behind those of the column itself, and only where something was missing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from jgs.arrays import refuse_where
from jgs.data import column_values
from jgs.data.values import check_digits, normalized
from jgs.errors import InputError, refusing, require_columns
from jgs.files.arrow import read_columns, table_name

KINDS = ("number", "standard", "category", "hash", "words", "date", "moment", "drop")
TEXT = ("category", "hash", "words")
_PERIODS = 86_400 * np.array([365.2425, 7, 1])  # a year, a week and a day, in seconds
_WIDE = ("hash", "words")  # those that take a width
MAX_CATEGORIES = 64
_WORD = re.compile(r"\w+")
_ENTRY = re.compile(rf"(.+?):({'|'.join(KINDS)})(?::(\d+))?", re.DOTALL)

SPECIAL = ("id", "label", "split", "time")
"""The columns of a table of nodes that are no features."""


@dataclass(frozen=True)
class ColumnRule:
    """What a user says of the columns of a table of nodes.

    Fields:
      encode: kinds by the names of columns, `{"city": "hash:64", "id2": "drop"}`; or the same
        as text, `city:hash:64,id2:drop`. `edges.kind` is a column of the table of edges, and in
        a typed graph `user.age` one of the nodes of a type. Other columns are by the rule.
      max_categories: int, at least 1: the most different texts of a column that nothing says
        more of, before it is hashed.
      standardize: whether columns of numbers that nothing says more of are `standard`. Those of
        true and false stay 0 and 1.
      normalize_features: whether each row of all features is divided by its sum at last.
    """

    encode: str | Mapping | None = None
    max_categories: int = MAX_CATEGORIES
    standardize: bool = False
    normalize_features: bool = False

    def kinds(self) -> dict[str, tuple[str, int]]:
        """The kind of each column that `encode` names, and its width if it takes one. Raises
        `InputError`."""
        if self.max_categories < 1:
            raise InputError(
                "the option max_categories must be 1 or more", self.max_categories, "Raise it."
            )
        given = self.encode or {}
        if isinstance(given, str):
            entries = map(str.strip, given.split(","))
        else:
            entries = map(":".join, given.items())
        found = {}
        for entry in entries:
            match = _ENTRY.fullmatch(entry)
            width = match and match.group(3)
            if not match or (width and match.group(2) not in _WIDE) or width == "0":
                raise InputError(
                    f"the option encode must be NAME:KIND, with a kind of {', '.join(KINDS)}, "
                    "or hash:K or words:K of K columns",
                    repr(entry),
                    "E.g. encode=city:hash:64,joined:date,serial:drop.",
                )
            found[match.group(1)] = match.group(2), int(width or self.max_categories)
        return found

    def text(self) -> list[str]:
        """The columns that are text in a CSV file, whatever they look like."""
        return [name for name, (kind, _) in self.kinds().items() if kind in TEXT]

    def shown(self, name: str) -> str:
        """The kind of a column that `encode` names, as the option has it."""
        kind, width = self.kinds()[name]
        return f"{kind}:{width}" if kind in _WIDE else kind

    def of_edges(self) -> tuple[ColumnRule, ColumnRule]:
        """The rule for a table of nodes, and that for the tables of edges, which has the names
        that begin with `edges.`."""
        own: tuple[dict, dict] = {}, {}
        for name in self.kinds():
            own[name.startswith("edges.")][name.removeprefix("edges.")] = self.shown(name)
        return replace(self, encode=own[0]), replace(self, encode=own[1])

    def of_type(self, node_type: str, types: Collection[str]) -> ColumnRule:
        """The rule for the table of one node type. `encode` names columns as `user.age`.
        Raises `InputError` for a name that begins with none of `types`."""
        own = {}
        for name in self.kinds():
            owner = max((t for t in types if name.startswith(f"{t}.")), key=len, default=None)
            if owner is None:
                raise InputError(
                    "the option encode must name columns by their node type, as user.age",
                    f"{name!r}, and types {', '.join(types) or 'without tables'}",
                    "Correct it.",
                )
            if owner == node_type:
                own[name.removeprefix(f"{owner}.")] = self.shown(name)
        return replace(self, encode=own)


class FeatureColumn(NamedTuple):
    """What one column of a table became.

    Fields:
      name: the column's name.
      kind: its kind, without its width.
      width: the number of features, without that of what is missing.
      categories: of `category`, the texts in order.
      mean, deviation: of `standard` and `date`, float64 `[width]`, over the rows for training.
      missing: the number of rows without a value when the rule was fitted. Where it is not 0,
        one more feature says which rows of a table have none.
      rows, distinct: the number of rows when the rule was fitted, and of text how many
        different ones.
      may_lack: whether other rows may have no value where all had one; they have 0.
    """

    name: str
    kind: str
    width: int
    categories: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()
    missing: int = 0
    rows: int = 0
    distinct: int = 0
    may_lack: bool = False

    @property
    def becomes(self) -> str:
        """The kind, with the width of `hash`, and whether missing values are marked."""
        shown = f"{self.kind}:{self.width}" if self.kind in _WIDE else self.kind
        return f"{shown} + missing" if self.missing else shown

    @property
    def names(self) -> tuple[str, ...]:
        """What each of its features is called, such as `city=Rome` and `city missing`."""
        if self.kind == "drop":
            return ()
        if self.kind == "category":
            own = [f"{self.name}={text}" for text in self.categories]
        elif self.kind in _WIDE or self.width > 1:
            own = [f"{self.name}[{i}]" for i in range(self.width)]
        else:
            own = [self.name]
        return (*own, *[f"{self.name} missing"] * bool(self.missing))

    def encode(self, what: str, values: np.ndarray) -> np.ndarray:
        """float32 `[n, len(names)]`: the features of the column `values` of the table `what`.
        A category that was not there when the rule was fitted has zeros. Raises
        `InputError`."""
        found, missing = _read(what, values, self.kind)
        if missing.any() and not (self.missing or self.may_lack):
            rule = f"{what} must have a value in every row, as when its kind was fitted"
            refuse_where(missing, np.full(missing.size, "none"), "row", rule, "Fill it.")
        if self.kind in TEXT:
            rows = self._of_text(found, missing)
        else:
            if found.shape[1] != self.width:
                raise InputError(
                    f"{what} must have {self.width} numbers a row",
                    found.shape[1],
                    "Correct it.",
                )
            if self.mean:
                found = (found - np.array(self.mean)) / np.array(self.deviation)
            with np.errstate(over="ignore"):  # the check below names the row
                rows = np.where(missing[:, None], np.float32(0), found.astype(np.float32))
            wrong = ~np.isfinite(rows).all(axis=1)
            refuse_where(wrong, values, "row", f"{what} must be finite", "Correct it.")
        marks = missing[:, None].astype(np.float32)
        return np.concatenate([rows, marks], axis=1) if self.missing else rows

    def _of_text(self, texts: np.ndarray, missing: np.ndarray) -> np.ndarray:
        at = np.flatnonzero(~missing)
        rows = np.zeros((texts.size, self.width), np.float32)
        if self.kind == "words":
            of_text = {
                text: [_bucket(word, self.width) for word in set(_WORD.findall(text.lower()))]
                for text in set(texts[at].tolist())
            }
            for row, text in zip(at.tolist(), texts[at].tolist(), strict=True):
                rows[row, of_text[text]] = 1
            return rows
        if self.kind == "category":
            place = {text: i for i, text in enumerate(self.categories)}
        else:
            place = {text: _bucket(text, self.width) for text in set(texts[at].tolist())}
        column = np.array([place.get(text, -1) for text in texts[at].tolist()], np.int64)
        rows[at[column >= 0], column[column >= 0]] = 1
        return rows


@dataclass(frozen=True)
class FeatureColumns:
    """What each column of a table became, so that other rows can be encoded alike.

    Fields:
      columns: `FeatureColumn` for each column of the table that is a feature, in order.
      normalize_features: whether each row of all features is divided by its sum at last.
    """

    columns: tuple[FeatureColumn, ...]
    normalize_features: bool = False

    @classmethod
    def fit(
        cls,
        table: Any,
        encode: Any = None,
        *,
        train: Any = None,
        max_categories: int = MAX_CATEGORIES,
        standardize: bool = False,
        normalize_features: bool = False,
        name: str | None = None,
    ) -> FeatureColumns:
        """The rule of `jgs.data.columns`, fitted to a table.

        Args:
          table: the path of a Parquet or CSV file, a data frame, an Arrow table, or a dict of
            arrays, as of `Graph.from_table`. The columns `id`, `label`, `split`, `time` and
            `label:NAME` are no features.
          encode: kinds by the names of columns, `{"city": "hash:64", "joined": "date"}`.
          train: bool `[n]`, or integers, the rows for training, over which `standard` and
            `date` have the mean 0 and the deviation 1. None: all rows.
          max_categories, standardize, normalize_features: see `ColumnRule`.
          name: what messages call the table.

        Raises `InputError` for columns that have no such kind, with the first row that is
        wrong.
        """
        rule = ColumnRule(encode, max_categories, standardize, normalize_features)
        found = {k: v for k, v in read_columns(table, rule.text()).items() if is_feature(k)}
        return fit_all(found, rule, train, name or table_name(table))

    def encode(self, table: Any, name: str | None = None) -> np.ndarray:
        """float32 `[n, F]`: the features of a table's rows, encoded as those that the rule was
        fitted to. Columns of other names are left out; `table` and `name` as in `fit`. Raises
        `InputError`."""
        name = name or table_name(table)
        found, count = self._encoded(table, name)
        rows = np.concatenate([np.empty((count, 0), np.float32), *found.values()], axis=1)
        return normalized(name, rows) if self.normalize_features else rows

    def encode_each(self, table: Any, name: str | None = None) -> dict[str, np.ndarray]:
        """float32 `[n]`, or `[n, k]` where it became several: each column of a table's rows by
        its name, encoded as those that the rule was fitted to, as `edge_columns` of
        `Graph.from_edges`. No row is divided by its sum. Columns that were dropped or have
        other names are left out; `table` and `name` as in `fit`. Raises `InputError`."""
        found, _ = self._encoded(table, name or table_name(table))
        return {k: rows[:, 0] if rows.shape[1] == 1 else rows for k, rows in found.items()}

    def _encoded(self, table: Any, name: str) -> tuple[dict[str, np.ndarray], int]:
        """The features `[n, k]` of each column by its name, and `n`."""
        used = [c for c in self.columns if c.kind != "drop"]
        found = read_columns(table, [c.name for c in used if c.kind in TEXT])
        require_columns(name, found, [c.name for c in used])
        rows = {c.name: c.encode(_what(c.name, name), found[c.name]) for c in used}
        return rows, len(next(iter(found.values()), ()))

    @property
    def names(self) -> tuple[str, ...]:
        """`F` texts: what each feature is called."""
        return tuple(name for column in self.columns for name in column.names)

    @property
    def moments(self) -> list[tuple[int, int, float, float]]:
        """Of each column of the kind `moment` the numbers of the feature that is its time, and
        of the one that says where it is missing, or -1; and the mean and the deviation of the
        time, in seconds since 1970."""
        found, first = [], 0
        for column in self.columns:
            if column.kind == "moment":
                missing = first + column.width if column.missing else -1
                found.append((first, missing, column.mean[0], column.deviation[0]))
            first += len(column.names)
        return found

    @property
    def filled(self) -> dict[str, int]:
        """How many values were missing, by the name of the column that lacked some."""
        return {c.name: c.missing for c in self.columns if c.missing}

    def to_json(self) -> dict[str, Any]:
        """The fields, as JSON can hold them."""
        own = [column._asdict() for column in self.columns]
        return {"columns": own, "normalize_features": self.normalize_features}

    @classmethod
    def from_json(cls, fields: Any) -> FeatureColumns:
        """What `to_json` wrote. Raises `InputError`."""
        rule = "feature columns must be as FeatureColumns.to_json wrote them"
        with refusing((TypeError, KeyError, ValueError), rule, "Write them again."):
            lists = ("categories", "mean", "deviation")
            own = [
                FeatureColumn(**c | {k: tuple(c[k]) for k in lists}) for c in fields["columns"]
            ]
            return cls(tuple(own), bool(fields["normalize_features"]))


def is_feature(name: str) -> bool:
    """Whether a column of a table of nodes, by its name, is a feature."""
    return name not in SPECIAL and not name.startswith("label:")


def encoded(
    what: str, columns: dict[str, np.ndarray], rule: ColumnRule, special: Iterable[str]
) -> tuple[dict[str, np.ndarray], FeatureColumns | None]:
    """The columns of the table of edges `what`, with those that the rule's `encode` names,
    which must not be `special`, as float32 `[E]` or `[E, k]`; and what these became, or None
    where it names none. The edges whose `split` is 0 are the rows for training, or all, if
    none is. Raises `InputError`."""
    kinds = rule.kinds()
    require_columns(what, columns.keys() - {*special}, kinds)
    if not kinds:
        return columns, None
    train = columns["split"] == 0 if "split" in columns else None
    chosen = {name: columns[name] for name in kinds}
    became = fit_all(chosen, replace(rule, normalize_features=False), train, what)
    others = {name: values for name, values in columns.items() if name not in kinds}
    return others | became.encode_each(columns, what), became


def fit_all(
    found: dict[str, np.ndarray], rule: ColumnRule, train: Any, name: str
) -> FeatureColumns:
    """The rule fitted to all columns of a table, whatever their names; see
    `FeatureColumns.fit`. Raises `InputError`."""
    kinds = rule.kinds()
    require_columns(name, found, kinds)
    made = []
    for column, values in found.items():
        kind, width = kinds.get(column, (None, rule.max_categories))
        made.append(_fitted(_what(column, name), column, values, kind, width, rule, train))
    return FeatureColumns(tuple(made), rule.normalize_features)


def _what(column: str, table: str) -> str:
    return f"the feature column {column!r} in {table}"


def _fitted(
    what: str,
    name: str,
    values: np.ndarray,
    kind: str | None,
    width: int,
    rule: ColumnRule,
    train: Any,
) -> FeatureColumn:
    if kind == "drop":
        return FeatureColumn(name, "drop", 0, rows=len(values))
    if kind is None:
        kind = column_values.kind_of(what, values)
        if kind == "truth":
            kind = "number"
        elif kind == "number" and rule.standardize:
            kind = "standard"
    found, missing = _read(what, values, kind)
    if missing.all():
        remedy = f"Delete the column, or give encode={name}:drop, of a type TYPE.{name}:drop."
        raise InputError(f"{what} must have a value somewhere", "none", remedy)
    made = FeatureColumn(name, kind, 1, missing=int(missing.sum()), rows=missing.size)
    if kind in (*TEXT, "text"):
        texts = tuple(sorted(set(found[~missing].tolist())))
        made = made._replace(distinct=len(texts))
        if kind == "category" or (kind == "text" and len(texts) <= width):
            return made._replace(kind="category", width=len(texts), categories=texts)
        return made._replace(kind="hash" if kind == "text" else kind, width=width)
    made = made._replace(width=found.shape[1])
    if kind == "number":
        remedy = f"Give encode={name}:standard, or TYPE.{name}:standard for that of a type."
        check_digits(what, found[~missing], remedy)
        return made
    wrong = ~np.isfinite(found).all(axis=1) & ~missing
    refuse_where(wrong, values, "row", f"{what} must be finite", "Correct it.")
    chosen = np.zeros(missing.size, bool)
    chosen[slice(None) if train is None else train] = True
    chosen &= ~missing
    rows = found[chosen if chosen.any() else ~missing]
    alike = _PERIODS[0] if kind == "moment" else 1.0  # ages of moments alike count in years
    deviation = np.where(rows.max(axis=0) == rows.min(axis=0), alike, rows.std(axis=0))
    return made._replace(
        mean=tuple(rows.mean(axis=0).tolist()), deviation=tuple(deviation.tolist())
    )


def _read(what: str, values: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """The values of a column as its kind has them, and which of its rows `[n]` have none."""
    if kind in (*TEXT, "text"):
        return column_values.texts(what, values)
    if kind == "date":
        return column_values.seconds(what, values)
    if kind == "moment":
        found, missing = column_values.seconds(what, values)
        turns = 2 * np.pi * found / _PERIODS
        return np.concatenate([found, np.sin(turns), np.cos(turns)], axis=1), missing
    return column_values.numbers(what, values, np.float64)


def _bucket(text: str, width: int) -> int:
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % width
