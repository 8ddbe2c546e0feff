"""A database as a data set: what its tables, keys, times and tasks become."""

import shutil
import sqlite3

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import jgs.data
from jgs.data import Database
from jgs.data.column_values import Clock
from jgs.data.columns import ColumnRule
from jgs.data.described import facts

DAY = np.datetime64("2024-01-01", "us")
MANIFEST = {
    "val_timestamp": "2024-03-01",
    "test_timestamp": "2024-04-01",
    "tables": {
        "shops": {"pkey": ["country", "number"]},
        "users": {"pkey": "name", "fkeys": {"friend": "users"}},
        "sales": {"time_col": "day", "fkeys": {"user": "users", "country, shop": "shops"}},
    },
}


@pytest.fixture
def shop(data_folder):
    return data_folder / "shop_db"


def days(*numbers):
    return pa.array([None if n is None else DAY + np.timedelta64(n, "D") for n in numbers])


def tables():
    """Composite keys, a table that names itself, a missing time and a user whom none knows."""
    return {
        "shops": pa.table(
            {"country": ["it", "it", "de"], "number": [1, 2, 1], "size": [3, 5, 4]}
        ),
        "users": pa.table(
            {
                "name": ["ann", "bob", "cy"],
                "friend": ["bob", None, "ann"],
                "age": [30.0, None, 50.0],
                "born": pa.array([1, 2, None], "date32"),
            }
        ),
        "sales": pa.table(
            {
                "day": days(0, 10, None, 70, 95),
                "user": ["ann", "cy", "bob", "eve", "bob"],
                "country": ["it", "de", "de", "it", None],
                "shop": [2, 1, 1, 1, 1],
                "price": pa.array([1, 3, 9, 400, None], pa.decimal128(8, 2)),
                "tags": [["new", "red"], ["red"], [], None, ["late"]],
                "raw": [b"x"] * 5,
            }
        ),
    }


def edges_of(graph):
    """The edges by relation: ends within their types, and times."""
    schema, counts = graph.schema, np.diff(np.asarray(graph.indptr))
    dst, src = np.repeat(np.arange(graph.num_nodes), counts), np.asarray(graph.indices)
    kind, time = np.asarray(graph.edge_type), np.asarray(graph.edge_time)
    found = {}
    for number, (a, name, b) in enumerate(schema.relations):
        own = kind == number
        first = schema.nodes(a).start, schema.nodes(b).start
        ends = zip((src[own] - first[0]).tolist(), (dst[own] - first[1]).tolist(), strict=True)
        found[a, name, b] = sorted(zip(ends, time[own].tolist(), strict=True))
    return found


def test_tables_become_types_and_keys_relations(caplog):
    base = Database.from_tables(tables(), MANIFEST)
    plain, never = base.plain(clock=Clock("D")), np.iinfo(np.int64).min
    assert dict(plain.graph.schema.node_types) == {"shops": 3, "users": 3, "sales": 4}
    first = int(DAY.astype("M8[D]").astype(int))
    found = edges_of(plain.graph)
    assert found["users", "friend", "users"] == [((0, 1), never), ((2, 0), never)]
    own = [((0, 0), first), ((1, 2), first + 10), ((3, 1), first + 95)]  # none knows eve
    assert found["sales", "user", "users"] == own
    shops = [((0, 1), first), ((1, 2), first + 10), ((2, 0), first + 70)]
    assert found["sales", "country_shop", "shops"] == shops
    back = sorted(((b, a), time) for (a, b), time in shops)
    assert found["shops", "rev_country_shop", "sales"] == back
    assert facts(plain)["first_time"] == first  # not of edges that were always there
    names = ["shops:it|2", "users:ann", "sales:3"]
    assert [plain.node_ids[i] for i in (1, 3, 9)] == names
    said = " ".join(caplog.messages)
    assert "1 rows without day are left out" in said
    assert "user of sales in tables: 1 values name no row of users" in said
    assert "sales.raw is BLOB" in said


def test_columns_are_fitted_before_validation():
    found = Database.from_tables(tables(), MANIFEST).plain()
    names = {name: columns.names for name, columns in found.feature_columns.items()}
    born = (*(f"born[{i}]" for i in range(7)), "born missing")
    assert names["users"] == ("age", "age missing", *born)
    assert names["sales"] == ("price", *(f"tags[{i}]" for i in range(64)))
    sales = np.asarray(found.features.tables[2])
    assert sales[:, 1:].sum(axis=1).tolist() == [2, 1, 0, 1]  # the words of each list
    assert (sales[0, 1:] >= sales[1, 1:]).all()  # red is in both
    np.testing.assert_array_equal(sales[:2, 0], [-1, 1])  # of the mean 2 and the deviation 1
    assert (sales[2, 0], sales[3, 0]) == (398, 0)
    later, changed = tables(), tables()
    rows = changed["sales"].to_pydict()
    rows["price"][3:], rows["tags"][3:] = [7, 8], [["a"], ["b"]]
    later["sales"] = pa.table(rows, schema=changed["sales"].schema)
    other = Database.from_tables(later, MANIFEST).plain()
    assert other.feature_columns == found.feature_columns
    np.testing.assert_array_equal(np.asarray(other.features.tables[2])[:2], sales[:2])


def test_equally_long_lists_of_floats_are_numbers():
    users = pa.table({"id": [1, 2], "friend": [2, None], "v": [[1.0, 5.0], [3.0, 5.0]]})
    keys = {"tables": {"users": {"pkey": "id", "fkeys": {"friend": "users"}}}}
    rows = np.asarray(Database.from_tables({"users": users}, keys).plain().features.tables[0])
    np.testing.assert_array_equal(rows, [[-1, 0], [1, 0]])


@pytest.mark.parametrize("last", [None, [7.0]])
def test_other_lists_of_floats_are_one_line(last):
    users = pa.table({"id": [1, 2], "friend": [2, None], "v": [[1.0, 5.0], last]})
    keys = {"tables": {"users": {"pkey": "id", "fkeys": {"friend": "users"}}}}
    with pytest.raises(jgs.InputError, match="must be numbers, text, dates, or equally long"):
        Database.from_tables({"users": users}, keys).plain()


def test_long_text_is_hashed_by_its_words():
    texts = [f"word{i} same" for i in range(100)]
    users = pa.table({"id": range(100), "friend": range(100), "says": texts})
    keys = {"tables": {"users": {"pkey": "id", "fkeys": {"friend": "users"}}}}
    users = users.append_column("at", days(*range(100)))
    keys["tables"]["users"]["time_col"] = "at"
    rows = np.asarray(Database.from_tables({"users": users}, keys).plain().features.tables[0])
    assert rows.shape == (100, 64)
    assert (rows.all(axis=0)).sum() == 1  # that of the word in all
    assert set(rows.sum(axis=1)) <= {1, 2}


@pytest.mark.parametrize("seed", range(6))
def test_edges_are_those_of_a_join(seed):
    """Random tables with missing keys, equal times, and keys to their own table."""
    rng, made, keys, names = np.random.default_rng(seed), {}, {}, ["a", "b", "c", "d"]
    for i, name in enumerate(names):
        n = int(rng.integers(1, 30))
        key = rng.permutation(n) * 3 + 5
        made[name] = {"id": key if seed % 2 else [f"k{k}" for k in key]}
        keys[name] = {"pkey": "id", "fkeys": {}}
        if i != 1:
            made[name]["at"] = days(*rng.integers(0, 9, n).tolist())
            keys[name]["time_col"] = "at"
        for other in names[: i + 1]:
            known = list(made[other]["id"])
            chosen = [known[j] if j < len(known) else None for j in rng.integers(0, 35, n)]
            made[name][f"to {other}"] = pa.array(
                chosen, pa.int64() if seed % 2 else pa.string()
            )
            keys[name]["fkeys"][f"to {other}"] = other
    made = {name: pa.table(columns) for name, columns in made.items()}
    base = Database.from_tables(made, {"tables": keys})
    found = edges_of(base.plain(clock=Clock("D")).graph)
    joined = duckdb.connect()
    for name, table in made.items():
        joined.register(name, table)
    for name in names:
        for column, other in keys[name]["fkeys"].items():
            times = [f"{t}.at" for t, n in (("x", name), ("y", other)) if "time_col" in keys[n]]
            when = f"greatest({', '.join(times)})" if times else "NULL"
            of = "(SELECT *, row_number() OVER () - 1 AS n FROM {})"
            rows = joined.sql(
                f"SELECT x.n, y.n, date_diff('day', DATE '1970-01-01', {when}::DATE) "
                f'FROM {of.format(name)} x JOIN {of.format(other)} y ON x."{column}" = y.id'
            ).fetchall()
            never = np.iinfo(np.int64).min
            want = sorted(((a, b), never if t is None else t) for a, b, t in rows)
            assert found[name, column, other] == want


SCHEMA = """
    CREATE TABLE shops(country VARCHAR, number INTEGER, size INTEGER,
        PRIMARY KEY (country, number));
    CREATE TABLE users(name VARCHAR PRIMARY KEY, friend VARCHAR, age DOUBLE, born DATE,
        FOREIGN KEY (friend) REFERENCES users(name));
    CREATE TABLE sales(day TIMESTAMP, "user" VARCHAR, country VARCHAR, shop INTEGER,
        price DOUBLE);
"""


def written(folder, kind):
    """The tables in a folder or a file. A file has the keys of two tables in its catalogue, and
    those of the third in a manifest beside it."""
    if kind == "folder":
        (folder / "manifest.yaml").write_text(yaml.safe_dump(MANIFEST))
        for name, table in tables().items():
            pq.write_table(table, folder / f"{name}.parquet")
        return folder
    file, own = folder / f"shop.{kind}", {"sales": MANIFEST["tables"]["sales"]}
    file.with_suffix(".yaml").write_text(yaml.safe_dump(MANIFEST | {"tables": own}))
    base = duckdb.connect(str(file)) if kind == "duckdb" else sqlite3.connect(file)
    for statement in SCHEMA.split(";")[:-1]:
        base.execute(statement)
    for name, table in tables().items():
        rows = [[*row.values()][:5] for row in table.to_pylist()]
        for row in (
            sorted(rows, key=lambda row: row[1] is not None) if name == "users" else rows
        ):
            known = (None, int, float, str)
            row = [v if v is None or isinstance(v, known[1:]) else str(v) for v in row]
            base.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)
    base.commit()
    base.close()
    return file


@pytest.mark.parametrize("kind", ["folder", "duckdb", "sqlite"])
def test_folders_and_files_are_the_tables_in_memory(kind, tmp_path):
    path = written(tmp_path, kind)
    before = path.read_bytes() if path.is_file() else b""
    given, found = (
        base.plain(clock=Clock("D"))
        for base in (Database.from_tables(tables(), MANIFEST), Database.open(path))
    )
    for plain in (given, found):
        assert np.asarray(plain.graph.edge_time).size == 16
    own = [{name for name in plain.node_ids.values.tolist()} for plain in (given, found)]
    assert own[0] == own[1]
    named = []
    for plain in (given, found):
        start = {t: plain.graph.schema.nodes(t).start for t in ("shops", "users", "sales")}
        named.append(
            {
                (name, plain.node_ids[start[a] + i], plain.node_ids[start[b] + j], time)
                for (a, name, b), edges in edges_of(plain.graph).items()
                for (i, j), time in edges
            }
        )
    assert named[0] == named[1]
    assert before == (path.read_bytes() if path.is_file() else b"")


@pytest.mark.parametrize("task", ["user-churn", "user-spend", "events-gift", "event-kind"])
def test_labels_are_those_of_the_tasks_files(task, shop):
    base = Database.open(shop)
    plain = base.plain(db_task=task)
    said = yaml.safe_load((shop / "tasks" / task / "manifest.yaml").read_text())
    table, start = plain.label_table, plain.graph.schema.nodes(said["entity_table"]).start
    key = said.get("entity_col", "event_id")
    at = 0
    for number, split in enumerate(("train", "val", "test")):
        rows = pq.read_table(shop / "tasks" / task / f"{split}.parquet")
        own = slice(at, at := at + rows.num_rows)
        assert (table.split[own] == number).all()
        np.testing.assert_array_equal(table.nodes[own] - start, rows[key].to_numpy())
        labels = rows[said["target_col"]].to_numpy(zero_copy_only=False)
        np.testing.assert_array_equal(table.labels[own], labels)
    own_time = said["kind"] != "forecast"  # then the row itself is seen
    rows = pq.read_table(shop / "tasks" / task / "test.parquet")
    time = rows[said.get("time_col", "time")].to_numpy().astype("M8[D]").astype(np.int64)
    np.testing.assert_array_equal(table.time[own], time + own_time)
    hidden = {"events-gift": {"amount", "gift"}}.get(task, set())
    events = plain.feature_columns.get("events")
    assert not hidden & {column.name for column in events.columns} if events else hidden


@pytest.mark.parametrize("task", ["user-churn", "user-spend"])
def test_sql_gives_the_labels_that_relbench_wrote(task, tmp_path, shop):
    shutil.copytree(shop, tmp_path / "shop_db")
    for file in (tmp_path / "shop_db" / "tasks" / task).glob("*.parquet"):
        file.unlink()
    said = yaml.safe_load((shop / "tasks" / task / "manifest.yaml").read_text())
    shipped = Database.open(shop).plain(db_task=task).label_table
    sql = tmp_path / "task.sql"
    key, label = said["entity_col"], said["target_col"]
    sql.write_text(f"SELECT {key}, timestamp, {label} FROM ({said['sql']})")
    by_file = {"task_sql": str(sql), "entity": "users", "horizon": said["timedelta"]}
    of_task = Database.open(tmp_path / "shop_db").plain(db_task=task).label_table
    of_file = Database.open(shop).plain(**by_file).label_table
    whole = said.get("num_eval_timestamps", 1) == 1
    for found, splits in ((of_task, (0, 1, 2)), (of_file, (0, 1, 2) if whole else (0,))):
        for split in splits:
            rows = [
                np.array([column[t.split == split] for column in t]) for t in (found, shipped)
            ]
            rows = [each[:, np.lexsort(each)] for each in rows]
            np.testing.assert_allclose(*rows, rtol=1e-12)


def broken(name):
    made, said = tables(), yaml.safe_load(yaml.safe_dump(MANIFEST))
    keys = said["tables"]
    if name == "a table that is not there":
        keys["orders"] = {"pkey": "id"}
    elif name == "a column that is not there":
        keys["users"]["pkey"] = "nam"
    elif name == "a reference to no table":
        keys["users"]["fkeys"] = {"friend": "user"}
    elif name == "a reference to a table without a key":
        keys["users"]["fkeys"] = {"friend": "sales"}
    elif name == "a part of a key":
        keys["sales"]["fkeys"] = {"country": "shops"}
    elif name == "another type of key":
        keys["sales"]["fkeys"] = {"shop": "users"}
    elif name == "a key twice":
        keys["users"]["pkey"], keys["users"]["fkeys"] = "one", {}
        made["users"] = made["users"].append_column("one", pa.array(["x"] * 3))
    elif name == "a key that is missing":
        keys["users"]["pkey"] = "friend"
    elif name == "no foreign key":
        said["tables"] = {"users": {"pkey": "name"}}
    elif name == "no tables":
        said["tables"] = {}
    elif name == "tables as a list":
        said["tables"] = ["users"]
    elif name == "times that are text":
        keys["sales"]["time_col"] = "country"
    return made, said


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("a table that is not there", "must have the table orders"),
        ("a column that is not there", "Did you mean name"),
        ("a reference to no table", "Did you mean users"),
        ("a reference to a table without a key", "Say the key of sales"),
        ("a part of a key", "as many columns as the key of shops"),
        ("another type of key", "must be of the type of the key name"),
        ("a key twice", "3 rows of x"),
        ("a key that is missing", "1 rows without"),
        ("no foreign key", "must have a foreign key"),
        ("no tables", "must have the field tables"),
        ("tables as a list", "must have the field tables"),
        ("times that are text", "must be a whole number or a date"),
    ],
)
def test_bad_databases_are_one_line(name, says):
    made, said = broken(name)
    with pytest.raises(jgs.InputError) as error:
        Database.from_tables(made, said).plain()
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_tables_that_are_seen_at_their_own_moment(shop):
    plain, some = (
        Database.open(shop).plain(db_task="user-churn", inclusive=names).graph
        for names in (None, "events, notes")
    )
    moved = np.asarray(plain.node_time) - np.asarray(some.node_time)
    events, notes = (plain.schema.nodes(name) for name in ("events", "notes"))
    assert moved.sum() == moved[events].sum() + moved[notes].sum() > len(events)


ROWS, FROM = "SELECT", "FROM timestamps, users"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"db_task": "user-chur"}, "Did you mean user-churn"),
        ({"db_task": "user-churn", "task_sql": "SELECT 1"}, "got both"),
        ({"task_sql": "SELECT 1", "entity": None}, "without entity or horizon"),
        ({"task_sql": "SELEC 1"}, "must be SQL that DuckDB takes"),
        ({"task_sql": "DROP TABLE users"}, "must be one query, which reads"),
        ({"task_sql": "SELECT 1; SELECT 2"}, "must be one query, which reads"),
        ({"task_sql": "SELECT user_id FROM nobody"}, "must be SQL that DuckDB takes"),
        ({"task_sql": "SELECT user_id FROM users"}, "must give the key of users"),
        ({"task_sql": "SELECT 1", "horizon": "0 days"}, "a length of time above 0"),
        ({"task_sql": "SELECT 1", "horizon": "soon"}, "a length of time above 0"),
        ({"task_sql": "SELECT 1", "horizon": "30"}, "with its unit"),
        ({"task_sql": "SELECT 1", "horizon": "1 month"}, "of days or shorter"),
        ({"task_sql": "SELECT 1", "horizon": "1 ms"}, "3 to 100,000 moments to train on"),
        ({"task_sql": "SELECT user_id, time, TRUE FROM events"}, "the same rows for two"),
        ({"task_sql": f"{ROWS} timestamp, user_id, 1 {FROM}"}, "must be counted alike"),
        ({"task_sql": f"{ROWS} 'u' || user_id, timestamp, 1 {FROM}"}, "must be of the type of"),
        ({"task_sql": "SELECT 1", "horizon": "90 days"}, "must fit between val_timestamp"),
        ({"task_sql": "SELECT 1", "horizon": "58 days"}, "must end before the last time"),
        ({"task_sql": "SELECT 1", "entity": "user"}, "Did you mean users"),
        ({"task_sql": "no.sql"}, "no.sql must be a file"),
        ({"hide": "events.amoun"}, "hide must name columns"),
        ({"inclusive": "event"}, "one of users, items, events, notes"),
        ({"inclusive": "events", "db_task": "events-gift"}, "moments that are not those of"),
        ({"rule": ColumnRule("events.x:drop")}, "must have a column 'x'"),
    ],
)
def test_bad_questions_are_one_line(asked, says, shop):
    if "task_sql" in asked:
        asked = {"entity": "users", "horizon": "30 days", **asked}
    with pytest.raises(jgs.InputError) as error:
        Database.open(shop).plain(**asked)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_damaged_files_are_one_line(tmp_path, shop):
    shutil.copytree(shop, tmp_path / "shop_db")
    (tmp_path / "shop_db" / "db" / "users.parquet").write_bytes(b"PAR1")
    (tmp_path / "a.duckdb").write_bytes(b"not a database")
    (tmp_path / "a.sqlite").write_bytes(b"SQLite format 3\0 and no more")
    (tmp_path / "yaml").mkdir()
    (tmp_path / "yaml" / "manifest.yaml").write_text("tables: [")
    for path in ("shop_db", "a.duckdb", "a.sqlite", "yaml", "none"):
        with pytest.raises(jgs.InputError) as error:
            Database.open(tmp_path / path).plain()
        assert "\n" not in str(error.value)


def test_a_path_needs_a_task_to_learn_labels(shop):
    made = jgs.data.load(shop, db_task="user-churn", inclusive="events, notes")
    assert made.num_classes == 2
    with pytest.raises(jgs.InputError, match="must have a task"):
        jgs.data.load(shop)
