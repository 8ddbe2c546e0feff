"""Splits of nodes: those that files have, and those that are drawn, which can keep the shares
of the classes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import jax
import numpy as np

from jgs.data.dataset import Dataset
from jgs.data.label_values import class_labels, labelled
from jgs.data.values import SPLITS
from jgs.errors import InputError

_log = logging.getLogger("jgs")


def split_nodes(
    key: jax.Array,
    labels: Any,
    *,
    train: float = 0.6,
    val: float = 0.2,
    test: float = 0.2,
    stratify: bool = False,
) -> dict[str, np.ndarray]:
    """A split of the nodes that have a label, drawn from `key`: the same on every machine.

    The sizes are the shares of all nodes with a label, rounded by the largest remainder (of
    equal ones the earlier split's first), so that they are exact wherever they can be. What is
    left where the shares make less than 1 is in no split.

    Args:
      key: a key of `jax.random`.
      labels: `[N]`, as of `Dataset.from_arrays`; or `[N, C]` or numbers without `stratify`.
      train, val, test: the shares, not negative, `train` above 0, at most 1 together.
      stratify: whether each class has these shares, instead of all nodes together.

    Returns:
      int32 node ids, ascending, by "train", "val" and "test": `splits` of
      `Dataset.from_arrays`.

    Raises `InputError` for shares that are not possible, and where `stratify` meets labels that
    are no classes.
    """
    kind = "number" if np.ndim(labels) == 2 else None
    numbers, _ = class_labels("the split", labels, kind)
    return _drawn(key, numbers, (train, val, test), stratify)


def _drawn(
    key: jax.Array, numbers: np.ndarray, of: tuple[float, float, float], stratify: bool
) -> dict[str, np.ndarray]:
    # As they are written: 0.1 is a tenth.
    shares = [Fraction(str(share)) for share in of]
    if min(shares) < 0 or sum(shares) > 1 or not shares[0]:
        raise InputError(
            "the shares of train, val and test must be at most 1 together, and train above 0",
            "{}, {} and {}".format(*of),
            "E.g. train=0.6, val=0.2, test=0.2.",
        )
    nodes = np.flatnonzero(labelled(numbers))
    if stratify and numbers.dtype.kind == "f":
        raise InputError(
            "a stratified split must be of nodes with one class each",
            "several labels a node" if numbers.ndim == 2 else "labels that are numbers",
            "Leave stratify out.",
        )
    strata = numbers[nodes] if stratify else np.zeros(nodes.size, np.int32)
    with jax.threefry_partitionable(True):  # the same bits whatever the configuration says
        bits = np.asarray(jax.random.bits(key, (len(numbers),), np.uint32))[nodes]
    order = np.lexsort((nodes, bits, strata))
    starts = np.flatnonzero(np.diff(strata[order], prepend=-1))
    parts: list[list[np.ndarray]] = [[] for _ in SPLITS]
    for of_class in np.split(nodes[order], starts[1:]):
        ends = np.cumsum(_sizes(of_class.size, shares))
        for part, some in zip(parts, np.split(of_class, ends), strict=False):
            part.append(some)
    ids = (np.sort(np.concatenate(part)).astype(np.int32) for part in parts)
    return dict(zip(SPLITS, ids, strict=True))


def _sizes(count: int, shares: list[Fraction]) -> list[int]:
    quotas = [count * share for share in (*shares, 1 - sum(shares))]
    sizes = [int(quota) for quota in quotas]
    by_rest = sorted(range(len(quotas)), key=lambda i: sizes[i] - quotas[i])
    for i in by_rest[: count - sum(sizes)]:
        sizes[i] += 1
    return sizes[: len(shares)]


@dataclass(frozen=True)
class SplitRule:
    """What a user says of the split of nodes; the options of a data set with these names.

    Fields:
      split: shares to draw, "0.6,0.2,0.2" of train, val and test, in place of the split that
        the data have; None: theirs.
      stratify: whether each class has these shares.
      split_seed: of the key with which the split is drawn.
    """

    split: str | None = None
    stratify: bool = False
    split_seed: int = 0

    def __post_init__(self) -> None:
        if (self.stratify or self.split_seed) and not isinstance(self.split, str):
            name = "stratify" if self.stratify else "split_seed"
            raise InputError(
                f"the option {name} must be beside the option split", "none", "E.g. " + _EXAMPLE
            )
        self._shares  # noqa: B018

    def column(self, label: Any, split: Any) -> Any:
        """The column `split` of a table of nodes with the column `label`, drawn anew where the
        options ask for it; else `split` as it is."""
        if self._shares is None or label is None:
            return split
        found = split_nodes(
            self._key, label, **dict(zip(SPLITS, self._shares, strict=True)),
            stratify=self.stratify,
        )  # fmt: skip
        names = np.full(len(label), "", object)
        for name, ids in found.items():
            names[ids] = name
        return names

    def chosen(self, name: str, labels: Any, splits: Sequence[Mapping[str, Any]] = ()) -> Any:
        """One of the `splits` that the files have, masks `[N]` by `train`, `val` and `test`, or
        one that is drawn; None where there is none. Raises `InputError`."""
        number = 0 if self.split is None else self.split
        masks = None
        if isinstance(number, int) and (splits or number):
            if not 0 <= number < len(splits):
                raise InputError(
                    f"the option split of {name} must be the number of a split, or shares",
                    f"{number}, and {len(splits)} splits",
                    "Give a number from 0, or split=0.6,0.2,0.2.",
                )
            masks = {part: np.asarray(splits[number][part]).astype(bool) for part in SPLITS}
            if len(splits) > 1:
                _log.info("%s: split %s of %s, numbered from 0", name, number, len(splits))
        return self.column(labels, masks)

    def of(self, data: Dataset) -> Dataset:
        """The data set with splits drawn anew where the options ask for it; else as it is.
        Raises `InputError`."""
        if self._shares is None:
            return data
        if data.label_table is not None:
            raise InputError(
                "the option split must be for labels of nodes",
                f"{data.name}, with labels at moments",
                "Leave it out, or write the column split of the table labels.",
            )
        found = _drawn(self._key, np.asarray(data.labels), self._shares, self.stratify)
        splits: dict[str, Any] = {f"{split}_idx": ids for split, ids in found.items()}
        return replace(data, **splits).check(False)

    @property
    def _key(self) -> jax.Array:
        return jax.random.key(self.split_seed, impl="threefry2x32")

    @property
    def _shares(self) -> tuple[float, float, float] | None:
        if not isinstance(self.split, str):
            return None
        try:
            train, val, test = map(float, self.split.split(","))
        except ValueError:
            raise InputError(
                "the option split must be three shares with commas between",
                repr(self.split),
                "E.g. " + _EXAMPLE,
            ) from None
        return train, val, test


@dataclass(frozen=True)
class SplitChoice(SplitRule):
    """A `SplitRule` of data that have several splits, of which `split` may be the number of
    one, from 0."""

    split: int | str | None = 0  # type: ignore[assignment]


_EXAMPLE = "split=0.6,0.2,0.2 of train, val and test."
