"""What batches of a database draw, beside a join of its tables by DuckDB."""

import pickle
from collections import Counter

import duckdb
import jax
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import jgs
from jgs.data import Database
from jgs.data.column_values import Clock
from jgs.data.columns import ColumnRule
from jgs.graph import NodeIds
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
    """The options that ask for the labels of `asked`. Each row's number stays as it is."""
    key = manifest["tables"][entity]["pkey"]
    key = key if isinstance(key, str) else ", ".join(key)
    sql = f"SELECT {key}, moment, y FROM asked JOIN timestamps ON moment = timestamp"
    rule = ColumnRule(",".join(f"{table}.row:number" for table in manifest["tables"]))
    asked = {"task_sql": sql, "entity": entity, "horizon": "1 day"}
    return asked | {"clock": Clock("D"), "rule": rule}


def facts_of(manifest, entity):
    """The tables whose rows are edges with `facts="edges"`."""
    refers = {t: [*keys.get("fkeys", {}).values()] for t, keys in manifest["tables"].items()}
    named = {entity, *(target for targets in refers.values() for target in targets)}
    return {t for t, targets in refers.items() if len(targets) == 2 and t not in named}


def joined(made, manifest, facts, told):
    """A connection with the table `edges`: the edges by the tables and the numbers of the rows
    of both ends, with the day of the youngest row. Those of `facts` have the number of their
    own row where its table is in `told`; others have 0."""
    base, parts = duckdb.connect(), []
    for name, rows in made.items():
        base.register(name, rows)
    for name, keys in manifest["tables"].items():
        keys = [*keys.get("fkeys", {}).items()]
        for group in [keys] if name in facts else [[key] for key in keys]:
            words = [own.replace(", ", "_") for own, _ in group]
            of = {"x": name} | {alias: t for alias, (_, t) in zip("yz", group, strict=False)}
            edges = [("x", words[0], "y"), ("y", f"rev_{words[0]}", "x")]
            if name in facts:
                edges = [("z", f"{name}.{words[0]}", "y"), ("y", f"{name}.{words[1]}", "z")]
            pairs = [
                f'x."{a}" = {alias}."{b}"'
                for alias, (own, target) in zip("yz", group, strict=False)
                for a, b in zip(
                    own.split(", "), manifest["tables"][target]["pkey"], strict=True
                )
            ]
            times = [f"{alias}.at" for alias, t in of.items() if "at" in made[t].column_names]
            born = f"greatest({', '.join(times)})" if times else "NULL::TIMESTAMP"
            there = " AND ".join([*pairs, *(f"{time} IS NOT NULL" for time in times)])
            tables = ", ".join(f"{t} {alias}" for alias, t in of.items())
            for a, word, b in edges:
                parts.append(
                    f"SELECT '{of[a]}' AS a, '{word}' AS name, '{of[b]}' AS b, {a}.row AS src, "
                    f"{b}.row AS dst, {'x.row' if name in told else 0} AS fact, {born} AS born "
                    f"FROM {tables} WHERE {there}"
                )
    base.execute(f"CREATE TABLE edges AS {' UNION ALL '.join(parts)}")
    return base


def expected(base, seeds):
    """Each hop's edges, as `drawn` has them, of seeds (table, row, moment). A seed that is
    there twice is a target twice, and any other node once for each moment."""
    found, known = Counter(), [*seeds]
    for hop in (1, 2):
        base.register(
            "known", pa.table(dict(zip("krt", zip(*known, strict=True), strict=True)))
        )
        rows = base.sql(
            "SELECT a, name, b, src, dst, fact, "
            "date_diff('day', DATE '2024-01-01', born::DATE), "
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
    """The edges of a batch: (hop, relation, rows of both ends, row of its own, day of the edge,
    day of the cutoff), each with how often it is there. Days count from the first; None was
    always."""
    found, schema = Counter(), batch.schema
    for hop in range(1, len(batch.blocks) + 1):
        block = batch.block(-hop)
        indptr, count = np.asarray(block.indptr), int(block.num_edges)
        target = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
        ends = np.asarray(block.indices)[:count], target
        facts = sum(np.asarray(a) for a in block.edge_columns.values()) + np.zeros(
            block.edge_capacity
        )
        read = (np.asarray(each)[:count] for each in (block.edge_type, facts, block.edge_time))
        of = (
            *(np.asarray(batch.nodes)[e] for e in ends),
            *read,
            np.asarray(batch.cutoff)[target],
        )
        for src, dst, number, fact, time, moment in zip(*of, strict=True):
            a, name, b = schema.relations[number]
            ends = rows[a][src - schema.nodes(a).start], rows[b][dst - schema.nodes(b).start]
            day = None if time == NEVER else int(time) - FIRST
            found[hop, a, name, b, *ends, fact, day, int(moment) - FIRST] += 1
    return found


def batches(plain, size, *fanouts):
    """Batches of the labels, in their order, as `--task nodes` draws them."""
    graph, table = plain.graph, plain.label_table
    items = {"nodes": table.nodes, "time": table.time}
    sampler = Neighbors(
        tuple({"*": k} for k in fanouts), edges=("type", "time", *graph.edge_columns)
    )
    options = {"key": jax.random.key(1), "shuffle": False, "prefetch": 0}
    with Loader(graph, items, size, sampler, **options) as loader:
        yield from loader


def dated(time):
    return (DAY + np.timedelta64(int(time) - FIRST, "D")).item()


SMALL = settings(
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[*HealthCheck],
)


@pytest.mark.parametrize("facts", ["nodes", "edges"])
@settings(SMALL, max_examples=20)
@given(rng=st.randoms(use_true_random=False))
def test_a_batch_is_a_join(facts, rng):
    made, manifest, entity = database(rng, link=facts == "edges")
    base = Database.from_tables(made, manifest)
    plain = base.plain(**question(manifest, entity), facts=facts)
    as_edges = facts_of(manifest, entity) if facts == "edges" else set()
    assert {t for t, _ in plain.graph.schema.node_types} == {*manifest["tables"]} - as_edges
    rows, table = numbers(made, manifest, plain.graph.schema), plain.label_table
    told = {t for t in as_edges if f"{t}_row" in plain.graph.edge_columns}
    base = joined(made, manifest, as_edges, told)
    first = plain.graph.schema.nodes(entity).start
    seeds = [
        (entity, rows[entity][node - first], dated(time))
        for node, time in zip(table.nodes, table.time, strict=True)
    ]
    on = " AND ".join(f"x.{c} = asked.{c}" for c in manifest["tables"][entity]["pkey"])
    there = " AND x.at IS NOT NULL" if "at" in made[entity].column_names else ""
    labels = base.sql(
        f"SELECT x.row, moment FROM asked JOIN {entity} x ON {on}{there} "
        "WHERE moment <> TIMESTAMP '2024-01-07'"
    ).fetchall()
    assert Counter(seeds) == Counter((entity, *row) for row in labels)
    size = -(-len(seeds) // 2)
    for number, batch in enumerate(batches(plain, size, -1, -1)):
        own = seeds[number * size : (number + 1) * size]
        assert drawn(batch, rows) == expected(base, own)


def test_facts_as_edges_draw_the_same_facts():
    """Where sales are the last table, and no row that they name is younger."""
    rng = np.random.default_rng(0)
    sales, users, shops = 400, 25, 9
    made = {
        "users": pa.table({"id": range(users), "friend": rng.integers(0, users, users)}),
        "shops": pa.table({"id": range(shops), "at": days([0] * shops)}),
        "sales": pa.table(
            {
                "user": rng.integers(0, users, sales),
                "shop": rng.integers(0, shops, sales),
                "row": range(sales),
                "at": days(rng.integers(0, 10, sales).tolist()),
            }
        ),
        "asked": pa.table(
            {"id": range(users), "moment": days([4, 5, 3, 4, 7] * 5), "y": [0, 1, 0, 1, 0] * 5}
        ),
    }
    said = {
        "users": {"pkey": "id", "fkeys": {"friend": "users"}},
        "shops": {"pkey": "id", "time_col": "at"},
        "sales": {"time_col": "at", "fkeys": {"user": "users", "shop": "shops"}},
    }
    manifest = {"val_timestamp": "2024-01-06", "test_timestamp": "2024-01-08", "tables": said}
    asked = question(manifest, "users") | {"rule": ColumnRule("sales.row:number")}
    base, found = Database.from_tables(made, manifest), {}
    shop = made["sales"].column("shop").to_pylist()
    for facts, fanouts in (("nodes", (2, -1)), ("edges", (2,))):
        plain = base.plain(**asked, facts=facts)
        rows = {name: range(count) for name, count in plain.graph.schema.node_types}
        (batch,) = batches(plain, plain.label_table.nodes.size, *fanouts)
        edges = drawn(batch, rows)
        if facts == "nodes":
            own = [
                (src, dst, end)
                for (h, a, n, b, src, dst, _, _, end) in edges
                if (h, n) == (1, "user")
            ]
            shops_of = {(dst, src) for (h, a, n, b, src, dst, *_) in edges if n == "rev_shop"}
            found[facts] = sorted(
                (fact, user, s, end)
                for fact, user, end in own
                for f, s in shops_of
                if f == fact
            )
        else:
            found[facts] = sorted(
                (int(fact), user, src, end)
                for (_, a, n, b, src, user, fact, _, end) in edges
                if n == "sales.user"
            )
    assert found["nodes"] == found["edges"]
    assert len(found["edges"]) > 40
    assert all(shop[fact] == s for fact, _, s, _ in found["edges"])


def test_facts_without_both_rows_make_no_edge(caplog):
    made = {
        "a b": pa.table({"id": ["x", "y"]}),
        "sales": pa.table(
            {
                "from": ["x", "x", None, "z", "y"],
                "to": ["y", None, "y", "x", "y"],
                "a b": [1.0, 2.0, 4.0, 8.0, 3.0],
                "a_b": [5.0, 6.0, 7.0, 8.0, 9.0],
            }
        ),
    }
    said = {"a b": {"pkey": "id"}, "sales": {"fkeys": {"from": "a b", "to": "a b"}}}
    base = Database.from_tables(made, {"tables": said})
    found = base.plain(facts="edges")
    assert found.graph.num_nodes == 2
    assert found.graph.schema.relations == (
        ("a b", "sales.from", "a b"),
        ("a b", "sales.to", "a b"),
    )
    names = ("sales_a_b", "sales_a_b_")
    assert tuple(found.graph.edge_columns) == names
    assert tuple(c.name for c in found.edge_feature_columns.columns) == names
    assert "3 rows do not name two rows, and make no edge" in " ".join(caplog.messages)
    ends = (
        np.asarray(found.graph.indices),
        np.repeat([0, 1], np.diff(np.asarray(found.graph.indptr))),
    )
    scaled = np.asarray(found.graph.edge_columns["sales_a_b_"])  # of the mean 7
    edges = sorted(zip(*(e.tolist() for e in ends), (scaled < 0).tolist(), strict=True))
    assert edges == [(0, 1, True), (1, 0, True), (1, 1, False), (1, 1, False)]
    base.plain(facts="nodes")
    with pytest.raises(jgs.InputError, match="facts must be one of nodes, edges"):
        base.plain(facts="both")
    said["sales"] = {"fkeys": {"from": "a b"}}
    Database.from_tables(made, {"tables": said}).plain(facts="edges")
    assert "has no table whose rows can be edges" in " ".join(caplog.messages)


def test_two_keys_of_one_relation_are_refused():
    keys = {"a": {"pkey": ["x", "y"]}, "b": {"fkeys": {"p, q_r": "a", "p_q, r": "a"}}}
    made = {
        "a": pa.table({"x": [1], "y": [2]}),
        "b": pa.table({name: [1] for name in ("p", "q_r", "p_q", "r")}),
    }
    with pytest.raises(jgs.InputError, match="a relation of its own; got two of"):
        Database.from_tables(made, {"tables": keys}).plain()


def test_a_float_that_equals_two_keys_is_refused():
    rows = pa.table({"id": [2**53, 2**53 + 1], "friend": [None, 2.0**53]})
    keys = {"tables": {"users": {"pkey": "id", "fkeys": {"friend": "users"}}}}
    base = Database.from_tables({"users": rows}, keys)
    with pytest.raises(jgs.InputError, match="friend of users in tables must keep its digits"):
        base.plain()
    with pytest.raises(jgs.InputError, match="friend must name one row of users"):
        base.found("users", "SELECT * FROM users", ("friend",))


def test_labels_hide_no_table_that_upper_letters_tell_apart():
    rows = pa.table({"id": [1]})
    base = Database.from_tables({"Timestamps": rows}, {"tables": {"Timestamps": {}}})
    with pytest.raises(jgs.InputError, match="the name timestamps, which labels need"):
        base.sql("SELECT 1", timestamps=rows)


def test_names_are_made_when_they_are_read():
    rows = pa.table({"a": ["x", "y"], "b": [1, 2], "to": ["y", None], "too": [2, 1]})
    keys = {"t": {"pkey": ["a", "b"], "fkeys": {"to, too": "t"}}}
    ids = Database.from_tables({"t": rows}, {"tables": keys}).plain().node_ids
    copied = pickle.loads(pickle.dumps(ids))
    assert len(ids) == len(copied) == 2
    assert ids.nodes(["t:y|2"]).tolist() == [1]
    assert copied.values.tolist() == ids.values.tolist() == ["t:x|1", "t:y|2"]
    rows = pa.table(
        {"a": ["p|q", "p"], "b": ["r", "q|r"], "to": ["p", None], "too": ["q|r", "r"]}
    )
    ids = Database.from_tables({"t": rows}, {"tables": keys}).plain().node_ids
    assert ids.values.tolist() == ["t:p\\|q|r", "t:p|q\\|r"]
    rows = pa.table({"a": pa.array([2**63 + 1, -1], pa.decimal128(38)), "to": [-1, None]})
    keys = {"t": {"pkey": "a", "fkeys": {"to": "t"}}}
    ids = Database.from_tables({"t": rows}, {"tables": keys}).plain().node_ids
    assert ids.values.tolist() == ["t:9223372036854775809", "t:-1"]
    made = []
    later = NodeIds.of_later(2, lambda: made.append(1) or np.array([7, 5]))
    assert (len(later), made) == (2, [])
    assert (later[1], later.nodes([7]).tolist(), made) == (5, [0], [1])
