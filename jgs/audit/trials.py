"""What jgs draws and computes, tried: nothing of it may be later than its cutoff."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from flax import nnx

from jgs.audit.tells import Evidence
from jgs.audit.view import NEVER, View
from jgs.data.database.database import Database
from jgs.data.database.graph import plain_of
from jgs.data.database.stored_tables import quoted
from jgs.data.dataset import Plain
from jgs.data.values import SPLITS
from jgs.graph.rows import row_of_edges
from jgs.sampling import Neighbors
from jgs.sampling.edges.random import threefry
from jgs.train.config import Config
from jgs.train.evaluation.by_time import ByTime
from jgs.train.loop.model import make_sampler
from jgs.train.loop.open_data import WholeData
from jgs.train.tasks.nodes import MomentJob, judges_key, outputs_of

_DRAWN, _PREDICTED, _SMALL = 256, 128, 200_000


def late_draw(view: View) -> Iterator[Evidence]:
    """Draws from rows that are not before the cutoff."""
    job = _job(view, view.plain)
    tables = list(view.base.catalogue.tables)
    times = [view.times(table) for table in tables]
    born = np.concatenate(
        [np.full(view.count(n), NEVER) if t is None else t for n, t in zip(tables, times)]
    )
    chosen = np.concatenate([view.some(view.split == s, _DRAWN) for s in range(len(SPLITS))])
    samplers = [make_sampler(job.config, columns=job.edges.columns)]
    if view.plain.graph.num_edges <= _SMALL:
        samplers.append(Neighbors(({"*": -1},) * 2))
    for sampler in samplers:
        items = _items(view, chosen) | {"moment": view.moment[chosen]}
        loader = job.data.loader(sampler, threefry(view.seed), None, {}, (items, None), _DRAWN)
        late = edges = 0
        for batch, _ in loader:
            number, of_batch = _late(view, batch, born)
            late, edges = late + number, edges + of_batch
        loader.close()
        if late:
            text = f"{late:,} of the {edges:,} edges that {sampler!r} drew for {chosen.size:,} "
            yield "error", "the batches", f"{text} labels are not before their moment"


def late_statistic(view: View) -> Iterator[Evidence]:
    """Encodings of the rows before validation that later rows change."""
    start, made = view.starts()[0], view.made | {"features": "typed"}
    plains = [plain_of(base, None, **made) for base in _copies(view, start)]
    schema = view.plain.graph.schema
    for number, (table, _) in enumerate(schema.node_types):
        times = view.times(table)
        early = np.ones(view.count(table), bool) if times is None else times < start
        columns, rows = [], []
        for plain in plains:
            columns.append((plain.feature_columns or {}).get(table))
            of_type = plain.features.tables[number]
            rows.append(b"" if of_type is None else np.asarray(of_type)[early].tobytes())
        if rows[0] != rows[1] or columns[0] != columns[1]:
            each = [{c.name: c for c in own.columns} if own else {} for own in columns]
            moved = [n for n in {**each[0], **each[1]} if each[0].get(n) != each[1].get(n)]
            text = f"what the rows before {np.datetime64(start, 'us')} became changed with the "
            yield "error", table, f"{text}values of later ones: {', '.join(moved) or 'rows'}"


def late_influence(view: View) -> Iterator[Evidence]:
    """Predictions for a moment that later rows change."""
    for split in (1, 2):
        own = view.moment[view.split == split]
        if not own.size:
            continue
        moment = int(np.sort(own)[own.size // 2])
        of = (view.split == split) & (view.moment <= moment)
        chosen, outputs = view.some(of, _PREDICTED), []
        for base in _copies(view, moment):
            job = _job(view, plain_of(base, view.asked, **view.made))
            outputs.append(_predicted(view, job, _items(view, chosen)))
        before, after = (np.ascontiguousarray(each).view(np.uint8) for each in outputs)
        if (moved := (before != after).any(axis=-1)).any():
            most = float(np.abs(outputs[0] - outputs[1]).max())
            text = f"{moved.sum():,} of {moved.size:,} predictions for {SPLITS[split]} up to "
            text += f"{np.datetime64(moment, 'us')} moved, by {most:.3g} at most, when later "
            yield "error", "the model", f"{text}rows changed; {view.names(view.entity[chosen[moved]])}"


def _items(view: View, chosen: np.ndarray) -> dict[str, np.ndarray]:
    table = view.plain.label_table
    kept = np.flatnonzero(table.split >= 0)[chosen]
    return {"nodes": table.nodes[kept], "time": table.time[kept]}


def _job(view: View, plain: Plain) -> MomentJob:
    if view.run is not None:
        config = view.run.config
    else:
        size = min(_DRAWN, int((view.split == 0).sum()))
        fanouts = ("*=10",) * 2
        of = {"batch_size": size, "seed": view.seed, "fanouts": fanouts}
        config = Config(dataset="database", model="trsage", **of)
    return MomentJob(config, WholeData(config, data=plain.dataset()))


def _predicted(view: View, job: MomentJob, items: dict[str, np.ndarray]) -> np.ndarray:
    """float32 `[n, C]`: the outputs of the run's model, or of a new one."""
    config, run = job.config, view.run
    model = config.made("task").model(config, job.shape()) if run is None else run.model
    key = judges_key(config)
    judge = ByTime(config, job.data, model, job.edges.columns, items, key, outputs_of)
    try:
        return judge(nnx.state(model))[0]
    finally:
        judge.close()


def _late(view: View, batch: Any, born: np.ndarray) -> tuple[int, int]:
    """How many edges of a batch have an end that is not before the moment of the seed that
    reached it, or no moment of one seed; and how many there are."""
    real, nodes = np.asarray(batch.seed_mask), np.asarray(batch.nodes)
    moment = np.full(nodes.size, NEVER)
    moment[: real.size][real] = np.asarray(batch.items["moment"])[real]
    late = edges = 0
    for block in reversed(batch.blocks):
        count = int(block.num_edges)
        targets = row_of_edges(np.asarray(block.indptr))[:count]
        sources = np.asarray(block.indices)[:count]
        new = moment[sources] == NEVER
        moment[sources[new]] = moment[targets[new]]
        ends = np.maximum(born[nodes[sources]], born[nodes[targets]])
        fits = view.sees(ends, moment[targets]) & (moment[sources] == moment[targets])
        late, edges = late + int((~fits).sum()), edges + count
    return late, edges


def _copies(view: View, start: int) -> list[Database]:
    """The database, and one whose rows that `start` does not see are changed at random."""
    base, rng = view.base, np.random.default_rng(view.seed)
    same, other = {}, {}
    for table in base.catalogue.tables:
        rows = base.sql(base.rows(table))
        times = view.times(table)
        late = np.zeros(0, np.int64)
        if times is not None:
            late = np.flatnonzero(~view.sees(times, start))
        same[table], other[table] = rows, _changed(base, table, rows, late, rng)
    return [base.with_tables(same), base.with_tables(other)]


def _changed(base: Database, table: str, rows: Any, late: np.ndarray, rng: Any) -> Any:
    import pyarrow

    keys = base.catalogue.tables[table]
    orders = {keys.time: rng.permutation(late)}
    for key in keys.references:
        orders |= dict.fromkeys(key, rng.permutation(late))
    for name in rows.column_names if late.size else ():
        column = rows[name].combine_chunks()
        if name in keys.key:
            continue
        if name in orders:
            new = column.take(pyarrow.array(orders[name]))
        else:
            new = _random(column, late, rng)
        place = np.arange(rows.num_rows)
        place[late] = rows.num_rows + np.arange(late.size)
        both = pyarrow.chunked_array([column, new]).take(pyarrow.array(place))
        rows = rows.set_column(rows.column_names.index(name), name, both)
    return rows


def _random(column: Any, late: np.ndarray, rng: np.random.Generator) -> Any:
    """Other values of a column's type, some missing."""
    import pyarrow
    from pyarrow import types

    kind, count = column.type, late.size
    gone = rng.random(count) < 0.25
    if types.is_integer(kind) or types.is_boolean(kind):
        values = rng.integers(0, 2 if types.is_boolean(kind) else 100, count)
    elif types.is_floating(kind):
        values = rng.normal(0, 1e4, count)
    elif types.is_timestamp(kind) or types.is_date(kind):
        values = rng.integers(0, 2_000_000_000, count).astype("M8[s]")
    elif types.is_string(kind) or types.is_large_string(kind):
        values = np.array([f"new {n}" for n in rng.integers(0, 1000, count)], object)
    else:
        return column.take(pyarrow.array(rng.permutation(late), mask=gone))
    return pyarrow.array(values, mask=gone).cast(kind, safe=False)
