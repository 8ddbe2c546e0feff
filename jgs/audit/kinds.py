"""`audit`, and the kinds of what it finds: a line each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from jgs.audit import rows, tells, trials
from jgs.audit.tells import Evidence
from jgs.audit.view import View
from jgs.data import Database, layouts
from jgs.errors import InputError
from jgs.predict.open import open_run
from jgs.sampling.checks import require_int

_MOST_LABELS = 20_000  # by which is judged what tells a label


class Finding(NamedTuple):
    """What an audit found.

    Fields:
      kind: a name in `KINDS` or `TRIALS`.
      severity: "error", "warning" or "note".
      where: the table, the column or the task.
      evidence: figures and rows, in words.
      remedy: what to do.
    """

    kind: str
    severity: str
    where: str
    evidence: str
    remedy: str

    def __str__(self) -> str:
        where = f"{self.severity} {self.kind}: {self.where}"
        return f"{where}\n    {self.evidence}.\n    {self.remedy}"


class Kind(NamedTuple):
    """A kind of finding: what finds it in a `View`, and what to do."""

    find: Callable[[View], Iterator[Evidence]]
    remedy: str


_HIDE = "If it is not known at the moment, hide it: hide=TABLE.COLUMN."
_TIME = "Give the table a time_col, or leave it out."
_OURS = "This is a fault of jgs, or of a sampler or model of your own: report it."

KINDS = {
    "label-column": Kind(partial(tells.tell, tells.own_columns), _HIDE),
    "label-copy": Kind(partial(tells.tell, tells.linked_columns), _HIDE),
    "telling-gaps": Kind(partial(tells.tell, tells.gaps), _HIDE),
    "label-in-text": Kind(partial(tells.tell, tells.words), _HIDE),
    "key-order": Kind(
        partial(tells.tell, tells.orders, least=0.9), "Shuffle the rows, then number them."
    ),
    "hidden-time": Kind(tells.hidden_time, _TIME),
    "timeless-facts": Kind(partial(tells.tell, tells.row_counts, least=0.9), _TIME),
    "late-aggregate": Kind(rows.late_aggregate, "Hide it: jgs sees the rows themselves."),
    "late-write": Kind(rows.late_write, "Make it the time_col; or hide it, and what it dates."),
    "unborn-entity": Kind(rows.unborn_entity, "Ask for rows that are there at the moment."),
    "split-order": Kind(rows.split_order, "Move these labels, or the manifest's moments."),
    "label-window": Kind(rows.label_window, "Let training end a horizon before validation."),
    "equal-rows": Kind(rows.equal_rows, "Keep one, or put equal rows into one split."),
    "odd-moments": Kind(rows.odd_moments, "Correct them, or their unit: time_unit=s."),
}
"""The kinds of findings about the data themselves."""

TRIALS = {
    "late-draw": Kind(trials.late_draw, _OURS),
    "late-statistic": Kind(trials.late_statistic, f"Say val_timestamp. Else: {_OURS}"),
    "late-influence": Kind(trials.late_influence, _OURS),
}
"""The kinds of findings about what jgs makes of the data, each a trial."""


def audit(
    database: Database | str | os.PathLike | None = None,
    *,
    run: str | os.PathLike | None = None,
    seed: int = 0,
    trials: bool = True,
    **options: Any,
) -> list[Finding]:
    """What is wrong in a database with a task, or in what jgs draws and computes of it.

    Args:
      database: it, or its path.
      run: a run folder, whose model is tried in place of a new one. The database and the
        options are those of the run where they are not given.
      seed: what is chosen at random depends on it.
      trials: whether to try what jgs does (`TRIALS`), and not to look at the data alone.
      options: as `--data-options` has them: `db_task`, or `task_sql`, `entity` and `horizon`;
        `hide`, and the other options of `Database.plain`.

    Returns the findings, errors first. Raises `InputError`.
    """
    require_int("the seed of an audit", seed, 0)
    opened = None if run is None else open_run(run)
    if opened is not None:
        if not opened.timed or "pairs" in opened.flags:
            raise InputError(
                "an audit with a run must be of one on labels at moments",
                f"one of --task {opened.config.task}",
                "Leave run out: a new model is tried.",
            )
        database = opened.config.dataset if database is None else database
        options = options or opened.config.data_arguments()
    if database is None:
        raise InputError(
            "an audit must have a database, or a run on one", "neither", "Give it."
        )
    manifest = options.pop("manifest", None)
    base = database if isinstance(database, Database) else Database.open(database, manifest)
    view = layouts.call(base.name, partial(View.open, base, seed, opened), options)
    few = view.of(view.some(np.ones(view.entity.size, bool), _MOST_LABELS))
    found = []
    for name, kind in (KINDS | (TRIALS if trials else {})).items():
        of = few if isinstance(kind.find, partial) else view  # what tells the label
        found += [Finding(name, *each, kind.remedy) for each in kind.find(of)]
    return sorted(found, key=lambda each: ("error", "warning", "note").index(each.severity))
