"""Conversions and checks of labels: of a data set's nodes, whose rules `Dataset` states, and of
edges and of nodes in tables.

Columns `label:NAME` of a table of nodes are labels of which a node can have several. Each is 0
or 1, or empty where it is not known whether a node has the label NAME. Or they are numbers, of
which one is not whole: targets of a regression, empty where one is not known.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jgs.arrays import as_numpy, refuse_where, refuse_words, require_array
from jgs.errors import InputError, check_choice, refusing

NUMBERS = (np.dtype(np.float64), np.dtype(np.float32))
"""The dtypes of labels that are numbers."""

PREFIX = "label:"
"""How the names of columns of labels begin of which a node can have several."""

_MOST_CLASSES = 1 << 16  # of edges
_FEW_CLASSES = 1 << 16  # a graph with fewer nodes may have this number of classes too
_AT_ONCE = 1 << 22  # labels of a matrix that are looked at
_KINDS = ("class", "number")
_TAKES = "label_kind=number takes numbers."


def as_labels(name: str, labels: Any, kind: str | None = None) -> np.ndarray:
    """`labels` as int32 `[N]`, classes (-1 for NaN), or `[N]`, numbers (see `as_numbers`), or
    `[N, C]`, several classes, float32, or several numbers; `kind` and the rest as in
    `Dataset.from_arrays`. Raises `InputError`."""
    labels = as_numpy(labels)
    check_kind(kind)
    form, remedy = "numbers [N] or [N, C]", "Number the classes from 0."
    require_array(f"the labels of {name}", labels, form, remedy)
    if labels.ndim == 2 and labels.shape[1] != 1:
        found = as_numbers(labels)
        if _is_number(kind, labels):
            return found if are_numbers(found) else found.astype(np.float32)
        rule = f"multi-label labels of {name} that are no NaN must be 0 or 1"
        remedy = f"Correct it; {_TAKES}"
        if are_numbers(found):
            refuse_where(~_are_marks(found).all(axis=1), found, "node", rule, remedy)
        return found.astype(np.float32)
    labels = labels.reshape(-1)
    if _is_number(kind, labels):
        return as_numbers(labels)
    if labels.dtype == np.int32:
        return labels
    rule = f"the labels of {name} must be whole numbers"
    remedy = f"Number the classes from 0; {_TAKES}"
    return _as_classes(labels, -(2**31), 2**31, "node", rule, remedy)


def _is_number(kind: str | None, labels: np.ndarray) -> bool:
    return kind == "number" or (kind is None and have_fractions(labels))


def _as_classes(
    labels: np.ndarray, least: int, end: int, row: str, rule: str, remedy: str
) -> np.ndarray:
    """int32 `[n]`: classes in `[least, end)`, -1 for NaN."""
    labels = labels.astype(np.int8) if labels.dtype == bool else labels
    known = np.where(np.isnan(labels), -1, labels) if labels.dtype.kind == "f" else labels
    wrong = (known < least) | (known >= end) | (known != np.floor(known))
    refuse_where(wrong, labels, row, rule, remedy)
    return known.astype(np.int32)


def as_numbers(labels: np.ndarray) -> np.ndarray:
    """Labels that are numbers, float64; those that were given as float32 or float16, float32.
    They become float32 of the model once their mean is taken off: see `Objective`."""
    narrow = labels.dtype in (np.float16, np.float32)
    return labels.astype(np.float32 if narrow else np.float64)


def check_kind(kind: str | None) -> None:
    """Raises `InputError` for an option `label_kind` that there is not."""
    if kind is not None:
        check_choice("the option label_kind", kind, _KINDS)


def have_fractions(labels: np.ndarray) -> bool:
    """Whether one of the labels is a finite number that is not whole. Labels of nodes, of edges
    and of moments are then numbers, unless the user says what they are."""
    if labels.dtype.kind != "f":
        return False
    some = labels[np.isfinite(labels)]
    return bool((some != np.floor(some)).any())


def are_numbers(labels: np.ndarray) -> bool:
    """Whether the labels of a data set are numbers, and no classes: float `[N]`; or float
    `[N, T]`, of which one is neither 0, 1 nor NaN."""
    if labels.ndim == 1 or labels.dtype.kind != "f":
        return labels.dtype.kind == "f"
    step = max(1, _AT_ONCE // max(1, labels.shape[1]))
    pieces = (labels[at : at + step] for at in range(0, len(labels), step))
    return not all(_are_marks(np.asarray(piece)).all() for piece in pieces)


def _are_marks(labels: np.ndarray) -> Any:
    return (labels == 0) | (labels == 1) | np.isnan(labels)


def labelled(labels: np.ndarray) -> np.ndarray:
    """bool `[N]`: which nodes have a label; of several numbers, any of them. Of several classes
    `[N, C]` all nodes do."""
    if labels.ndim == 2:
        numbers = are_numbers(labels)
        return ~np.isnan(labels).all(axis=1) if numbers else np.ones(len(labels), bool)
    return ~np.isnan(labels) if are_numbers(labels) else labels >= 0


def count_classes(labels: np.ndarray) -> int:
    """The outputs that labels need: the largest class + 1; `C` for `[N, C]`, also of numbers; 1
    for numbers `[N]`."""
    if labels.ndim == 2:
        return labels.shape[1]
    return 1 if are_numbers(labels) else int(labels.max(initial=-1)) + 1


def check_labels(name: str, labels: np.ndarray, num_classes: int, num_nodes: int) -> None:
    """Raises `InputError` unless `labels` fit `num_nodes` nodes (see `Dataset`)."""
    what, form = f"the labels of {name}", "[N] or [N, C], one for every node"
    remedy = "Give a label for every node, -1 where there is none."
    require_array(what, labels, form, remedy, N=num_nodes)
    most, value = max(num_nodes, _FEW_CLASSES), str(num_classes)
    if not 1 <= num_classes <= most:
        if labels.dtype.kind != "f" and labels.max(initial=-1) + 1 == num_classes > 0:
            value += f", one more than the label of node {int(np.argmax(labels))}"
        rule = f"the number of classes of {name} must be in [1, {most}]"
        raise InputError(rule, value, f"Number the classes from 0 without gaps; {_TAKES}")
    numbers = are_numbers(labels)
    wrong, rule = np.isinf(labels), f"{what} must be finite, or NaN for none"
    if labels.ndim == 2:
        form = f"{'float64 or ' * numbers}float32 [N, C], a column for each class"
        remedy = "Give one column of 0 and 1 for every class, or of numbers for every target."
        require_array(what, labels, form, remedy, C=num_classes)
        wrong = wrong.any(axis=1)
    elif numbers and (labels.dtype not in NUMBERS or num_classes != 1):
        raise InputError(
            f"labels of {name} that are numbers must be float64 or float32, with num_classes 1",
            f"{labels.dtype} and {num_classes}",
            "Convert them, or number the classes from 0.",
        )
    elif not numbers:
        require_array(what, labels, "int32 [N]", "Convert them with .astype(numpy.int32).")
        wrong = (labels < -1) | (labels >= num_classes)
        rule = f"{what} must be in [0, {num_classes}), or -1 for none"
    refuse_where(wrong, labels, "node", rule, "Correct it, or the number of classes.")


def is_missing(value: Any) -> bool:
    """Whether an entry of a table is empty: None, NaN, pandas' NA, or an empty text."""
    if isinstance(value, np.ndarray):
        return False
    try:
        return value is None or bool(value == "" or value != value)
    except TypeError:  # NA is neither equal nor different
        return True


def class_labels(
    name: str, labels: Any, kind: str | None = None
) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """`labels` as `as_labels` has them, of which text becomes numbers of classes; and the names
    of the classes, or None unless labels are text. Raises `InputError`."""
    values, names = _numbered(f"the labels of {name}", labels, kind)
    return as_labels(name, values, None if names else kind), names


def _numbered(
    what: str, labels: Any, kind: str | None
) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Labels as numbers, text by its place in alphabetical order; and the texts, or None."""
    array = as_numpy(labels)
    if array.dtype.kind not in "OUT" or array.ndim != 1:
        return array, None
    texts = ["" if is_missing(each) else each for each in array.tolist()]
    kinds = {type(each) for each in texts if each != ""}
    if kinds and all(issubclass(each, int | np.integer | np.bool_) for each in kinds):
        with refusing(OverflowError, f"{what} must fit 64 bits", "Give smaller ones."):
            return np.array([-1 if each == "" else int(each) for each in texts], np.int64), None
    if kinds and all(issubclass(each, int | float | np.number) for each in kinds):
        return np.array([np.nan if each == "" else each for each in texts], float), None
    if kinds - {str}:
        found = " and ".join(sorted(each.__name__ for each in kinds))
        remedy = "Convert them with .astype(str)."
        raise InputError(f"{what} must be all numbers, or all text", found, remedy)
    names = tuple(sorted(set(texts) - {""}))
    if kind == "number":
        if names:
            rule = f"{what} must be numbers for label_kind=number"
            raise InputError(rule, repr(names[0]), "Correct them, or leave the option out.")
        return np.full(len(texts), np.nan), None
    number = dict(zip(names, range(len(names)), strict=True)) | {"": -1}
    return np.array([number[each] for each in texts], np.int32), names


def edge_labels(
    what: str, labels: Any, kind: str | None = None, row: str = "edge"
) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """The labels of the edges in the table `what`: classes int32 `[E]`, -1 for none, or numbers
    `[E]`, NaN for none (`as_numbers`); and the names of the classes, or None unless they
    are text.

    `kind` is "class" or "number"; None as for labels of nodes: numbers where one has a
    fraction, else classes. `row` is what messages call what has a label. Raises `InputError`.
    """
    check_kind(kind)
    where, what = f"the {row}s in {what}", f"the labels of the {row}s in {what}"
    values, names = _numbered(what, labels, kind)
    require_array(what, values, "numbers [n], or text, one for each", "Convert them.")
    if _is_number(kind, values):
        numbers = as_numbers(values)
        rule = f"{what} must be finite, or NaN for none"
        refuse_where(np.isinf(numbers), values, row, rule, "Correct them.")
        return numbers, None
    rule = f"the classes of {where} must be integers in [0, {_MOST_CLASSES}), or -1"
    remedy = f"Number them from 0; {_TAKES}"
    return _as_classes(values, -1, _MOST_CLASSES, row, rule, remedy), names or None


def with_label(
    what: str, nodes: dict[str, np.ndarray]
) -> tuple[dict[str, Any], tuple[str, ...] | None]:
    """The columns of the table `what`, with one column `label`, float64 `[N, C]` with NaN for
    what is not known, in place of its columns `label:NAME`; and their names. A table without
    such columns is returned as it is, with None. Raises `InputError`."""
    own = [name for name in nodes if name.startswith(PREFIX)]
    if not own:
        return nodes, None
    if "label" in nodes:
        raise InputError(
            f"{what} must have a column 'label', or columns of labels of which a node can have "
            "several",
            f"'label' and {own[0]!r}",
            "Remove one.",
        )
    columns = [_known(f"the column {name!r} in {what}", nodes[name]) for name in own]
    rest = {name: column for name, column in nodes.items() if name not in own}
    return rest | {"label": np.stack(columns, axis=1)}, tuple(n[len(PREFIX) :] for n in own)


def _known(what: str, column: np.ndarray) -> np.ndarray:
    """float64 `[N]`: a column of 0 and 1, with NaN where it is empty."""
    if column.dtype == object:  # truth values of which some are missing
        column = np.array([np.nan if each is None else each for each in column], object)
        refuse_words(what, column, "Write 0, 1 or nothing.")
    require_array(what, column, "numbers or object [n], each 0, 1 or empty", "Correct it.")
    return column.astype(np.float64)
