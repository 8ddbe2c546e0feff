"""What batches of a database draw, beside a join of its tables by DuckDB."""

from collections import Counter

import duckdb
import jax
import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jgs.data import Database
from jgs.data.column_values import Clock
from jgs.sampling import Loader, Neighbors

DAY, NEVER = np.datetime64("2024-01-01", "us"), np.iinfo(np.int64).min
FIRST = int(DAY.astype("M8[D]").astype(int))


def days(numbers):
    found = [None if n is None else DAY + np.timedelta64(n, "D") for n in numbers]
    return pa.array(found, pa.timestamp("us"))


def key_of(rng, kind):
    """A value of each column of a key: a number, text, or a number and text."""
    values = {"number": rng.randrange(8) << 40, "text": rng.choice("abcdefgh")}
    return [values[name] for name in kind]


def column(kind, values):
    return pa.array(values, pa.int64() if kind == "number" else pa.string())


def database(rng, link=False):
    """Tables, their keys, and the rows that have labels at moments. Keys are missing, name no
    row, or name one of the same table; times are equal, or missing. `row` numbers the rows. A
    table with `link` has two foreign keys, and nothing points at it."""
    names = [f"t{i}" for i in range(rng.randint(1, 4))]
    kinds = {
        name: rng.choice([(), ("number",), ("text",), ("number", "text")]) for name in names
    }
    kinds[names[0]] = kinds[names[0]] or ("text",)
    keyed = [name for name in names if kinds[name]]
    refers = {name: [rng.choice(keyed) for _ in range(rng.randrange(3))] for name in names}
    refers[names[-1]] = refers[names[-1]] or [names[0]]
    if link:
        names, kinds["links"] = [*names, "links"], rng.choice([(), ("text",)])
        refers["links"] = [rng.choice(keyed) for _ in range(2)]
    made = {"clock": pa.table({"row": [0, 1], "at": days([0, 9])})}
    said = {"clock": {"time_col": "at"}}
    for name in names:
        keys = list(
            dict.fromkeys(tuple(key_of(rng, kinds[name])) for _ in range(rng.randint(1, 8)))
        )
        count = len(keys) if kinds[name] else rng.randrange(9)
        columns = {c: column(c, [key[i] for key in keys]) for i, c in enumerate(kinds[name])}
        columns["row"] = pa.array(range(count), pa.int64())
        said[name] = {"pkey": [*kinds[name]] or None, "fkeys": {}}
        if rng.random() < 0.7:
            columns["at"] = days(
                [rng.choice([*range(10), *[None] * bool(i)]) for i in range(count)]
            )
            said[name]["time_col"] = "at"
        for number, target in enumerate(refers[name]):
            own = [f"to {number} {c}" for c in kinds[target]]
            said[name]["fkeys"][", ".join(own)] = target
            keys = [key_of(rng, kinds[target]) for _ in range(count)]
            for i, kind in enumerate(kinds[target]):
                values = [key[i] if rng.random() < 0.8 else None for key in keys]
                columns[own[i]] = column(kind, values)
        made[name] = pa.table(columns)
    entity = rng.choice(keyed)
    first = [
        made[entity].column(c)[0].as_py() for c in kinds[entity]
    ]  # it has labels to train on
    asked = [first, *(key_of(rng, kinds[entity]) for _ in range(5))]
    columns = [
        column(c, v) for c, v in zip(kinds[entity], zip(*asked, strict=True), strict=True)
    ]
    days_asked = [rng.randrange(5), *(rng.randrange(8) for _ in range(5))]
    made["asked"] = pa.table(
        [*columns, days(days_asked), pa.array([0, 1] * 3)], [*kinds[entity], "moment", "y"]
    )
    moments = {"val_timestamp": "2024-01-06", "test_timestamp": "2024-01-08"}
    return made, moments | {"tables": said}, entity


def question(manifest, entity):
    """The options that ask for the labels of `asked`."""
    key = ", ".join(manifest["tables"][entity]["pkey"])
    sql = f"SELECT {key}, moment, y FROM asked JOIN timestamps ON moment = timestamp"
    return {"task_sql": sql, "entity": entity, "horizon": "1 day", "clock": Clock("D")}


def joined(made, manifest):
    """A connection with the table `edges`: the edges in both directions, by the tables and the
    numbers of the rows of both ends, with the day of the younger one."""
    base, parts = duckdb.connect(), []
    for name, rows in made.items():
        base.register(name, rows)
    for name, keys in manifest["tables"].items():
        for own, target in keys.get("fkeys", {}).items():
            named = manifest["tables"][target]["pkey"]
            on = [f'x."{a}" = y."{b}"' for a, b in zip(own.split(", "), named, strict=True)]
            times = [
                f"{a}.at" for a, t in (("x", name), ("y", target)) if "at" in columns(made, t)
            ]
            on += [f"{time} IS NOT NULL" for time in times]
            day = f"greatest({', '.join(times)})" if times else "NULL::TIMESTAMP"
            relation = own.replace(", ", "_")
            for word, a, b in ((relation, "x", "y"), (f"rev_{relation}", "y", "x")):
                of = {"x": name, "y": target}
                parts.append(
                    f"SELECT '{of[a]}' AS a, '{word}' AS name, '{of[b]}' AS b, {a}.row AS src, "
                    f"{b}.row AS dst, {day} AS born FROM {name} x JOIN {target} y "
                    f"ON {' AND '.join(on)}"
                )
    base.execute(f"CREATE TABLE edges AS {' UNION ALL '.join(parts)}")
    return base


def columns(made, table):
    return made[table].column_names


def expected(base, seeds):
    """Each hop's edges, as `drawn` has them, of seeds (table, row, moment). A seed that is
    there twice is a target twice, and any other node once for each moment."""
    found, known = Counter(), [*seeds]
    for hop in (1, 2):
        base.register(
            "known", pa.table(dict(zip("krt", zip(*known, strict=True), strict=True)))
        )
        rows = base.sql(
            "SELECT a, name, b, src, dst, date_diff('day', DATE '2024-01-01', born::DATE), "
            "date_diff('day', DATE '2024-01-01', t::DATE), t FROM known JOIN edges "
            "ON b = k AND dst = r AND (born IS NULL OR born < t)"
        ).fetchall()
        found.update((hop, *row[:-1]) for row in rows)
        known += {(a, src, t) for a, _, _, src, *_, t in rows} - {*known}
    return found


def numbers(made, manifest, schema):
    """By table the `row` of each of its nodes: those that have a time, in order."""
    found = {}
    for name, count in schema.node_types:
        at = made[name].column("at") if "time_col" in manifest["tables"][name] else None
        rows = made[name] if at is None else made[name].filter(at.is_valid())
        found[name] = rows.column("row").to_pylist()
        assert len(found[name]) == count
    return found


def drawn(batch, rows):
    """The edges of a batch: (hop, relation, rows of both ends, day of the edge, day of the
    cutoff), each with how often it is there. Days count from the first; None was always."""
    found, schema = Counter(), batch.schema
    for hop, layer in ((1, -1), (2, -2)):
        block = batch.block(layer)
        indptr, count = np.asarray(block.indptr), int(block.num_edges)
        target = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
        nodes = [
            np.asarray(batch.nodes)[e] for e in (np.asarray(block.indices)[:count], target)
        ]
        cutoff = np.asarray(batch.cutoff)[target]
        read = (np.asarray(each)[:count] for each in (block.edge_type, block.edge_time))
        of = zip(*nodes, *read, cutoff, strict=True)
        for src, dst, number, time, moment in of:
            a, name, b = schema.relations[number]
            ends = rows[a][src - schema.nodes(a).start], rows[b][dst - schema.nodes(b).start]
            day = None if time == NEVER else int(time) - FIRST
            found[hop, a, name, b, *ends, day, int(moment) - FIRST] += 1
    return found


def batches(plain, size, sampler):
    """Batches of the labels, in their order, as `--task nodes` draws them."""
    table = plain.label_table
    items = {"nodes": table.nodes, "time": table.time}
    with Loader(
        plain.graph, items, size, sampler, key=jax.random.key(1), shuffle=False, prefetch=0
    ) as loader:
        yield from loader


SMALL = settings(
    deadline=None, database=None, derandomize=True, suppress_health_check=[*HealthCheck]
)


@settings(SMALL, max_examples=30)
@given(st.randoms(use_true_random=False))
def test_a_batch_is_a_join(rng):
    made, manifest, entity = database(rng)
    plain = Database.from_tables(made, manifest).plain(**question(manifest, entity))
    rows = numbers(made, manifest, plain.graph.schema)
    base, table = joined(made, manifest), plain.label_table
    first = plain.graph.schema.nodes(entity).start
    seeds = [
        (
            entity,
            rows[entity][node - first],
            (DAY + np.timedelta64(int(time) - FIRST, "D")).item(),
        )
        for node, time in zip(table.nodes, table.time, strict=True)
    ]
    on = " AND ".join(f"x.{c} = asked.{c}" for c in manifest["tables"][entity]["pkey"])
    there = " AND x.at IS NOT NULL" if "at" in columns(made, entity) else ""
    labels = base.sql(
        f"SELECT x.row, moment FROM asked JOIN {entity} x ON {on}{there} "
        "WHERE moment <> TIMESTAMP '2024-01-07'"
    ).fetchall()
    assert Counter(seeds) == Counter((entity, *row) for row in labels)
    size = -(-len(seeds) // 2)
    for number, batch in enumerate(
        batches(plain, size, Neighbors(({"*": -1},) * 2, edges=("type", "time")))
    ):
        own = seeds[number * size : (number + 1) * size]
        assert drawn(batch, rows) == expected(base, own)
