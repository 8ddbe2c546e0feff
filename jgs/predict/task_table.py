"""The table of predictions that RelBench 3 judges: `relbench.submit.evaluate_task` reads it."""

from __future__ import annotations

import json

import numpy as np

from jgs.answers import sigmoid
from jgs.data.database.database import Database
from jgs.data.database.questions import Question, of_task
from jgs.data.database.stored_tables import WHOLE
from jgs.errors import InputError
from jgs.predict.run import Run
from jgs.predict.saved import clock_of


def task_table(run: Run, split: str) -> dict[str, np.ndarray]:
    """The columns of the table, for the rows of a split, "train", "val" or "test", of a run on
    a task of a database: the entity's key, the moment, and the label. That is the probability
    of class 1 of two; the number, in its unit; or a list of the keys of the best targets, as
    JSON, with -1 where there are fewer. Raises `InputError`."""
    base, asked = _question(run)
    nodes, time = run.rows(split)
    assert time is not None
    moments = _moments(run, time - int(asked.at_its_time))
    columns = {asked.key[0]: _keys(run, base, asked.table, nodes), asked.time: moments}
    if asked.target is not None:
        best, _ = run.recommend(nodes, asked.k or 10, time=time)
        names = np.full(best.shape, -1, object)
        names[best >= 0] = _keys(run, base, asked.target, best[best >= 0]).tolist()
        lists = [json.dumps(row.tolist()) for row in names]
        return columns | {asked.label: np.array(lists, object)}
    if run.numbers:
        return columns | {asked.label: run.predict(nodes, time=time)}
    outputs = run.logits(nodes, time=time).astype(np.float64)
    return columns | {asked.label: sigmoid(outputs[:, 1] - outputs[:, 0])}


def _question(run: Run) -> tuple[Database, Question]:
    options = run.config.data_arguments()
    name, rule = (
        options.get("db_task"),
        "--task-table must be for a run on a task of a database",
    )
    if name is None or run.config.partition is not None:
        seen = "one of parts" if run.config.partition is not None else "one without --db-task"
        raise InputError(rule, seen, "Leave it out.")
    base = Database.open(run.config.dataset, options.get("manifest"))
    asked = of_task(base, str(name), clock_of(run.config, run.time_unit))
    classes = asked.target is None and not run.numbers
    if len(asked.key) != 1 or (classes and (run.multilabel or run.num_classes != 2)):
        of = "labels" if run.multilabel else "classes"
        raise InputError(
            f"{rule} with a key of one column, and two classes, numbers or lists",
            f"the key {', '.join(asked.key)} and {run.num_classes} {of}",
            "Leave it out.",
        )
    return base, asked


def _moments(run: Run, time: np.ndarray) -> np.ndarray:
    """Moments `[n]` as the tables have them: numbers, or dates as text."""
    scale = clock_of(run.config, None).time_scale
    if run.time_unit is None:
        return time if scale == 1 else time / scale
    dates = time.astype(f"M8[{run.time_unit}]").astype(str)
    return np.array([text.replace("T", " ") for text in dates], object)


def _keys(run: Run, base: Database, table: str, nodes: np.ndarray) -> np.ndarray:
    """The keys `[n]` of nodes, numbers where those of the table are whole numbers."""
    names, own = run.node_ids, base.catalogue.tables[table].key
    assert names is not None  # as of every database
    keys = [str(name).removeprefix(f"{table}:") for name in names[nodes]]
    whole = not own or base.columns[table][own[0]] in WHOLE
    return np.array([*map(int, keys)]) if whole else np.array(keys, object)
