"""What jgs draws and computes, tried: nothing of it may be later than its cutoff."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from flax import nnx

from jgs.audit.tells import Evidence
from jgs.audit.view import DATES, NEVER, View, of_numbers
from jgs.data.database.database import Database
from jgs.data.database.graph import plain_of
from jgs.data.database.stored_tables import NUMBERS, quoted
from jgs.data.dataset import Plain
from jgs.data.values import SPLITS
from jgs.graph.rows import row_of_edges
from jgs.sampling import Neighbors
from jgs.sampling.edges.random import threefry
from jgs.sampling.loading.stages import samplers_of
from jgs.train.config import Config
from jgs.train.evaluation.by_samples import BySamples, judges_key, outputs_of
from jgs.train.loop.model import make_sampler
from jgs.train.loop.open_data import WholeData
from jgs.train.tasks.nodes import MomentJob

_DRAWN, _PREDICTED, _SMALL = 256, 128, 200_000
_ROW, _LATE = '"jgs row"', '"jgs late"'  # no user's columns


def late_draw(view: View) -> Iterator[Evidence]:
    """Draws from rows that are not before the cutoff."""
    job = _job(view, view.plain)
    born = np.full(view.plain.graph.num_nodes, NEVER)
    schema = view.plain.graph.schema
    for table, _ in schema.node_types:
        if (times := view.times(table)) is not None:
            nodes = schema.nodes(table)
            born[nodes.start : nodes.stop] = times
    chosen = np.concatenate([view.some(view.split == s, _DRAWN) for s in range(len(SPLITS))])
    facts = _facts(view)
    sampler: Any = make_sampler(job.config, columns=job.edges.columns)
    first: Any = samplers_of(sampler)[0]
    if facts is not None and hasattr(first, "edge_ids"):
        sampler = replace(first, edge_ids=True)
    samplers = [sampler]
    if view.plain.graph.num_edges <= _SMALL:
        every: Any = {"*": -1}
        samplers.append(Neighbors((every, every), edge_ids=facts is not None))
    for sampler in samplers:
        items = _items(view, chosen) | {"moment": view.moment[chosen]}
        loader = job.data.loader(sampler, threefry(view.seed), None, {}, (items, None), _DRAWN)
        late = edges = 0
        for batch, _ in loader:
            number, of_batch = _late(view, batch, born, facts)
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
    if plains[0].edge_feature_columns != plains[1].edge_feature_columns:
        text = "what columns of facts became changed with the values from "
        yield "error", "the edges", f"{text}{np.datetime64(start, 'us')} on"
    for number, (table, _) in enumerate(schema.node_types):
        times = view.times(table)
        early = np.ones(view.count(table), bool) if times is None else times < start
        columns, rows = [], []
        for plain in plains:
            became: Any = plain.feature_columns or {}
            columns.append(became.get(table))
            of_type = plain.features.tables[number]
            rows.append(b"" if of_type is None else np.asarray(of_type)[early].tobytes())
        if rows[0] != rows[1] or columns[0] != columns[1]:
            each = [{c.name: c for c in own.columns} if own else {} for own in columns]
            moved = [n for n in {**each[0], **each[1]} if each[0].get(n) != each[1].get(n)]
            text = f"what the rows before {np.datetime64(start, 'us')} became changed with the "
            yield "error", table, f"{text}values of later ones: {', '.join(moved) or 'rows'}"


def late_influence(view: View) -> Iterator[Evidence]:
    """Predictions for a moment that later rows change, and models that do."""
    moments = np.sort(view.moment[view.split == 1])
    if not moments.size:
        return
    moment = int(moments[moments.size // 2])
    chosen = view.some((view.split == 1) & (view.moment <= moment), _PREDICTED)
    each = (plain_of(base, view.asked, **view.made) for base in _copies(view, moment))
    copies = [of_numbers(plain) for plain in each]
    jobs = [_job(view, plain) for plain in copies]
    config, shapes = jobs[0].config, [job.shape() for job in jobs]
    model = config.made("task").model(config, shapes[0]) if view.run is None else view.run.model
    outputs = []
    for job in jobs:
        of = (model, job.edges.columns, _items(view, chosen), judges_key(config), outputs_of)
        judge = BySamples(config, job.data, *of)
        outputs.append(judge(nnx.state(model))[0])
        judge.close()
    later = f"when rows after {np.datetime64(moment, 'us')} changed"
    if other := [name for name in shapes[0] if shapes[0][name] != shapes[1][name]]:
        yield "error", "the model", f"it is made of other {', '.join(other)} {later}"
    before, after = (np.ascontiguousarray(each).view(np.uint8) for each in outputs)
    if (moved := (before != after).any(axis=-1)).any():
        text = f"{moved.sum():,} of {moved.size:,} predictions moved {later}, by at most "
        text += f"{np.abs(outputs[0] - outputs[1]).max():.3g}: "
        yield "error", "the model", text + view.names(view.entity[chosen[moved]])


def _items(view: View, chosen: np.ndarray) -> dict[str, np.ndarray]:
    table = view.plain.label_table
    kept = np.flatnonzero(table.split >= 0)[chosen]
    return {"nodes": table.nodes[kept], "time": table.time[kept]}


def _job(view: View, plain: Plain) -> MomentJob:
    if view.run is not None:
        config = view.run.config
    else:
        size = min(_DRAWN, int((view.split == 0).sum()))
        of: Any = {"batch_size": size, "seed": view.seed, "fanouts": ("*=10",) * 2}
        config = Config(dataset="database", model="trsage", **of)
    return MomentJob(config, WholeData(config, data=plain.dataset()))


def _facts(view: View) -> np.ndarray | None:
    """int64 `[E]`: the times that the tables say of rows that are edges, `NEVER` for other
    edges; None where all rows are nodes."""
    graph, catalogue = view.plain.graph, view.base.catalogue.tables
    tables = catalogue.keys() - dict(graph.schema.node_types)
    if not tables:
        return None
    kind, order = np.asarray(graph.edge_type), np.asarray(graph.edge_order)
    first = np.cumsum([0, *np.bincount(kind, minlength=len(graph.schema.relations))])
    born = np.full(kind.size, NEVER)
    for table in tables:
        if (times := view.times(table)) is None:
            continue
        a, b = (ends for owner, _, _, ends in view.references if owner == table)
        rows = np.flatnonzero((a >= 0) & (b >= 0))
        names = {f"{table}.{'_'.join(key)}" for key in catalogue[table].references}
        for number, (_, name, _) in enumerate(graph.schema.relations):
            if name in names:
                own = kind == number
                born[own] = times[rows[order[own] - first[number]]]
    return born


def _late(
    view: View, batch: Any, born: np.ndarray, facts: np.ndarray | None
) -> tuple[int, int]:
    """How many edges of a batch have an end that is not before the moment of the seed that
    reached it, or no moment of one seed; and how many there are. Rows of contexts count too,
    which have no edge where the row that they were reached from is left out."""
    real, nodes = np.asarray(batch.seed_mask), np.asarray(batch.nodes)
    moment, of_seeds = np.full(nodes.size, NEVER), np.asarray(batch.items["moment"])
    late = edges = 0
    if batch.groups is None:
        rows = np.arange(real.size) if batch.seed_rows is None else np.asarray(batch.seed_rows)
        moment[rows[real]] = of_seeds[real]
    else:
        groups = np.asarray(batch.groups)
        moment[: groups[-1]] = np.repeat(of_seeds, np.diff(groups))
    if batch.tokens is not None:
        rows = np.flatnonzero(np.asarray(batch.tokens.hop))  # all but the seeds
        late, edges = int((~view.sees(born[nodes[rows]], moment[rows])).sum()), rows.size
    for block in reversed(batch.blocks):
        count = int(block.num_edges)
        targets = row_of_edges(np.asarray(block.indptr))[:count]
        sources = np.asarray(block.indices)[:count]
        while (new := (moment[sources] == NEVER) & (moment[targets] != NEVER)).any():
            moment[sources[new]] = moment[targets[new]]
        ends = np.maximum(born[nodes[sources]], born[nodes[targets]])
        if facts is not None and block.edge_id is not None:
            ends = np.maximum(ends, facts[np.asarray(block.edge_id)[:count]])
        fits = view.sees(ends, moment[targets]) & (moment[sources] == moment[targets])
        late, edges = late + int((~fits).sum()), edges + count
    return late, edges


def _copies(view: View, start: int) -> list[Database]:
    """The database, and one whose rows that `start` does not see are changed at random."""
    base = view.base
    tables = {table: base.sql(base.rows(table)) for table in base.catalogue.tables}
    timed = [table for table, keys in base.catalogue.tables.items() if keys.time]
    other = {table: base.sql(_changed(view, table, start)) for table in timed}
    return [base.with_tables(tables), base.with_tables(tables | other)]


def _changed(view: View, table: str, start: int) -> str:
    """SQL of the rows of a table of which those that `start` does not see have other values, a
    quarter of them missing. Keys stay; times and foreign keys are exchanged."""
    keys, own = view.base.catalogue.tables[table], list[str]()
    exchanged = {keys.time, *(column for key in keys.references for column in key)}
    for name, kind in view.base.columns[table].items():
        old, number = quoted(name), f"hash({_ROW}, {len(own)}, {view.seed})"
        new = f"lag({old}, 1, {old}) OVER (PARTITION BY {_LATE} ORDER BY hash({_ROW}))"
        if name in keys.key:
            new = old
        elif name not in exchanged and not kind.endswith("]"):  # lists are exchanged
            if kind in NUMBERS:
                new = f"CAST({number} % 100 AS {kind})"
            elif kind == "VARCHAR":
                new = f"'new ' || {number} % 1000"
            elif kind == "BOOLEAN":
                new = f"{number} % 2 = 0"
            elif kind.startswith(DATES):
                new = f"CAST(make_timestamp(CAST({number} % 2000000000 AS BIGINT) * 1000000)"
                new += f" AS {kind})"
            new = f"CASE WHEN hash({number}) % 4 = 0 THEN NULL ELSE {new} END"
        own.append(f"CASE WHEN {_LATE} THEN {new} ELSE {old} END AS {old}")
    late = f"{view.ticks_sql(table, str(keys.time))} >= {start + view.asked.at_its_time}"
    rows = f"SELECT *, row_number() OVER () AS {_ROW}, {late} AS {_LATE} FROM "
    rows += f"({view.base.rows(table)})"
    return f"SELECT {', '.join(own)} FROM ({rows}) ORDER BY {_ROW}"
