"""Databases that are not as they should be: each is one line or works, and none is changed."""

import sqlite3
import subprocess
import sys

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import jgs
from jgs.data import Database
from jgs.data.__main__ import main as data
from jgs.train.__main__ import main as train

ID = "id INTEGER PRIMARY KEY"
USERS = f"CREATE TABLE u({ID}, age INTEGER);"
SALES = f"CREATE TABLE o({ID}, u INTEGER REFERENCES u(id));"
SHOP = f"""{USERS}{SALES} INSERT INTO u VALUES (1, 30), (2, NULL);
    INSERT INTO o VALUES (1, 1), (2, 2);"""
TIMED = f"CREATE TABLE u({ID}, t {{}}); {SALES} INSERT INTO u VALUES (1, {{}});"
KEYS = {"u": {"pkey": "id"}, "o": {"pkey": "id", "fkeys": {"u": "u"}}}
TIME = {"u": {"time_col": "t"}}
VIEWS = {"v": {"pkey": "id"}, "w": {"fkeys": {"up": "v"}}}
DECIMAL = pa.array([1], pa.decimal128(20, 0))
LATE = "id,age\n" + "".join(f"{i},2\n" for i in range(30_000))
LOW = {"id": [1], "u": [1]}
GENERATED = f"CREATE TABLE u({ID}, d INTEGER AS (id * 2)); {SALES}"

# What makes a database, by the ending of its file: SQL, or tables for a folder; the tables of
# its manifest, or all of it; and what the one line says, or None where it works.
CASES = {
    "keys of each other": (
        ".sqlite",
        f"CREATE TABLE a({ID}, b REFERENCES b); CREATE TABLE b({ID}, a REFERENCES A(ID)); "
        "INSERT INTO a VALUES (1, 1); INSERT INTO b VALUES (1, 1);",
        None,
        None,
    ),
    "a key to a table that is not there": (
        ".sqlite", f"CREATE TABLE u({ID}, up REFERENCES u, no REFERENCES gone(id));", None, None
    ),
    "a table that is not there": (".sqlite", SHOP, {"x": {}}, "must have the table x"),
    "no tables": (".duckdb", "SELECT 1", None, "must have tables"),
    "no rows": (".duckdb", USERS + SALES, None, None),
    "no rows, and so no types": (".sqlite", USERS + SALES, None, None),
    "no rows in a CSV file": ("", {"u": "id,age\n", "o": "id,u\n1,\n"}, KEYS, None),
    "a key that names no row": ("", {"u": {"id": [2]}, "o": LOW}, KEYS, None),
    "a foreign key without values": (
        "", {"u": {"id": [1]}, "o": {"id": [1], "u": pa.nulls(1)}}, KEYS, None
    ),
    "a column without values": (
        "", {"u": {"id": [1], "x": pa.nulls(1)}, "o": LOW}, KEYS, None
    ),
    "a key without values": ("", {"u": {"id": pa.nulls(2)}, "o": LOW}, KEYS, "2 rows without"),
    "a key twice": ("", {"u": {"id": [1, 1]}, "o": LOW}, KEYS, "2 rows of 1"),
    "text beside whole numbers": (
        "", {"u": {"id": ["1"]}, "o": LOW}, KEYS, "must be of the type of the key"
    ),
    "decimals beside whole numbers": ("", {"u": {"id": DECIMAL}, "o": LOW}, KEYS, None),
    "lists as keys": ("", {"u": {"id": [[1], [2]]}, "o": {"id": [1], "u": [[2]]}}, KEYS, None),
    "a key called n": (
        "", {"u": {"n": [2, 3]}, "o": {"t": [3]}},
        {"u": {"pkey": "n"}, "o": {"fkeys": {"t": "u"}}}, None
    ),
    "huge keys": (
        ".duckdb",
        "CREATE TABLE u(id HUGEINT PRIMARY KEY); CREATE TABLE o(u HUGEINT REFERENCES u(id)); "
        f"INSERT INTO u VALUES ({2**127 - 1}), (5); INSERT INTO o VALUES (5)",
        None,
        None,
    ),
    "numbers that lose digits": (
        ".duckdb", TIMED.format("BIGINT", f"{2**53 + 1}), (2, NULL"), None, "keep its digits"
    ),
    "a key that is no number": (
        "", {"u": {"id": [1.0, float("nan")]}, "o": {"id": [1], "u": [float("nan")]}}, KEYS,
        "1 rows without"
    ),
    "a key of floats that lost digits": (
        "", {"u": {"id": [2.0**53, 1.0]}, "o": {"id": [1], "u": [2**53 + 1]}}, KEYS,
        "must keep its digits; got 9007199254740992 of type DOUBLE"
    ),
    "lists of unequal lengths": (
        "", {"u": {"id": [1, 2], "v": [[1.5], [1.0, 2.0]]}, "o": LOW}, KEYS, "unequal lengths"
    ),
    "rows of unequal lengths": ("", {"u": LATE + "1,2,3\n", "o": LOW}, KEYS, "Line: 30002"),
    "a number that is text": ("", {"u": LATE + "99999,old\n", "o": LOW}, KEYS, None),
    "a number that is text in SQLite": (
        ".sqlite", SHOP + "INSERT INTO u VALUES (3, 'old');", None, "age of u in"
    ),
    "text that is none": (
        ".sqlite", SHOP + "UPDATE u SET age = CAST(x'ff' AS TEXT);", None, "UTF-8"
    ),
    "whole numbers and others": (".sqlite", SHOP + "UPDATE u SET age = 1.5;", None, None),
    "reserved words and quotes": (
        ".duckdb",
        'CREATE TABLE "select"("from" INTEGER PRIMARY KEY, "group ""by""" INTEGER, "é;--" INT);'
        'CREATE TABLE "o\'rder"("table" INTEGER REFERENCES "select"("from")); '
        'INSERT INTO "select" VALUES (1, 2, 3); INSERT INTO "o\'rder" VALUES (1)',
        None,
        None,
    ),
    "tables called as jgs's own": (
        ".duckdb",
        f"CREATE TABLE source({ID}); CREATE TABLE main(t INTEGER REFERENCES source(id))",
        None,
        None,
    ),
    "upper and lower letters": (
        "", {"u": {"id": [1], "ID": [2], "a": [1], "A": [2]}, "o": LOW}, KEYS, None
    ),
    "a key that upper letters tell apart": (
        "", {"u": {"id": [1], "ID": [2]}, "o": LOW}, KEYS | {"u": {"pkey": "ID"}},
        "must have the column 'ID'"
    ),
    "tables that upper letters tell apart": (
        "", {"u": {"id": [1]}, "U": {"id": [1]}}, {"u": {}, "U": {}}, "already exists"
    ),
    "views": (
        ".duckdb", SHOP + "CREATE VIEW v AS FROM u; CREATE VIEW w AS SELECT u AS up FROM o",
        VIEWS, None
    ),
    "views in SQLite": (
        ".sqlite",
        SHOP + "CREATE VIEW v AS SELECT * FROM u; CREATE VIEW w AS SELECT u AS up FROM o;",
        VIEWS, None
    ),
    "a view of a table that is gone": (
        ".duckdb", "CREATE TABLE t(i INTEGER); CREATE VIEW v AS FROM t; DROP TABLE t",
        {"v": {}}, "name t does not"
    ),
    "generated columns": (".duckdb", GENERATED, None, None),
    "generated columns in SQLite": (
        ".sqlite", GENERATED + "INSERT INTO u VALUES (1);", None, None
    ),
    "tables without row numbers": (
        ".sqlite",
        "CREATE TABLE u(id TEXT PRIMARY KEY) WITHOUT ROWID; "
        "CREATE TABLE o(u TEXT REFERENCES u); "
        "INSERT INTO u VALUES ('a'); INSERT INTO o VALUES ('a');",
        None,
        None,
    ),
    "a log of changes": (".sqlite", "PRAGMA journal_mode = wal;" + SHOP, None, None),
    "an index of words": (
        ".sqlite", SHOP + "CREATE VIRTUAL TABLE f USING fts5(x);", None, None
    ),
    "dates as text": (".sqlite", TIMED.format("TEXT", "'2024-01-02'"), TIME, None),
    "seconds as a date": (".sqlite", TIMED.format("DATETIME", 1700000000), TIME, None),
    "dates of another form": (".sqlite", TIMED.format("DATE", "'1/2/24'"), TIME, "t of u in"),
    "times that are no dates": (
        ".duckdb", TIMED.format("VARCHAR", "'noon'"), TIME, "must be a whole number or a date"
    ),
    "seconds beside dates": (
        ".duckdb",
        TIMED.format("BIGINT", 1700000000)
        + "ALTER TABLE o ADD COLUMN d DATE; INSERT INTO o VALUES (1, 1, '2024-01-01')",
        TIME | {"o": {"time_col": "d"}},
        "counted alike",
    ),
    "seconds beside a date of validation": (
        ".duckdb", TIMED.format("BIGINT", 1700000000),
        {"tables": TIME, "val_timestamp": "2024-01-01"}, "time_unit=D or s"
    ),
    "a moment without end": (
        ".duckdb", TIMED.format("TIMESTAMP", "'infinity'"), TIME, "must be below 2**63"
    ),
    "dates whose day and month are not told": (
        "", {"u": "id,t\n1,01/02/2024\n", "o": LOW},
        KEYS | {"u": {"pkey": "id", "time_col": "t"}}, "got 01/02/2024"
    ),
    "hexadecimal keys": (
        "", {"u": "id,a\n0x1A,1\n26,2\n", "o": "id,u\n1,0x1A\n"}, KEYS, None
    ),
    "dates with zones": (
        ".sqlite", TIMED.format("DATETIME", "'2024-01-02T00:00:00Z'"), TIME, None
    ),
    "lists of all kinds": (
        ".duckdb",
        SHOP + "CREATE TYPE m AS ENUM ('a'); CREATE TABLE l(u INTEGER REFERENCES u(id), "
        "d DECIMAL(4, 2)[], e m[], t VARCHAR[2]); "
        "INSERT INTO l VALUES (1, [1, 2], ['a'], ['a', 'b'])",
        None,
        None,
    ),
    "digits as the date of validation": (
        ".duckdb", TIMED.format("DATE", "'2024-01-02'"),
        {"val_timestamp": 20240102, "tables": TIME}, "Write it as '2024-08-01'"
    ),
    "a date of validation that is none": (
        ".duckdb", SHOP, {"val_timestamp": "soon", "tables": {"u": {}}}, "must be a date"
    ),
    "a date of validation with a zone": (
        ".duckdb", SHOP, {"val_timestamp": "2024-01-01T00:00+02:00", "tables": {"u": {}}},
        "which has a time zone"
    ),
}  # fmt: skip


def made(folder, name):
    """The database of a case: its path."""
    ending, content, manifest, _ = CASES[name]
    path = folder / f"base{ending}"
    said = path.with_suffix(".yaml") if ending else path / "manifest.yaml"
    if not ending:
        path.mkdir()
        for table, rows in content.items():
            if isinstance(rows, str):
                (path / f"{table}.csv").write_text(rows)
            else:
                pq.write_table(pa.table(rows), path / f"{table}.parquet")
    elif ending == ".duckdb":
        with duckdb.connect(str(path)) as connection:
            connection.execute(content)
    else:
        connection = sqlite3.connect(path)
        connection.executescript(content)
        connection.close()
    if manifest is not None:
        manifest = manifest if "tables" in manifest else {"tables": manifest}
        said.write_text(yaml.safe_dump(manifest))
    return path


def state(folder):
    files = [at for at in folder.rglob("*") if at.is_file()]
    return {at: (at.read_bytes(), at.stat().st_mtime_ns) for at in files}


def one_line(error):
    assert "\n" not in error
    return error


@pytest.mark.parametrize("name", CASES)
def test_a_bad_database_is_one_line_or_works(name, tmp_path, capsys):
    path, says = made(tmp_path, name), CASES[name][-1]
    before, run = state(tmp_path), tmp_path / "run"
    status = data(["describe", str(path)])
    lines = capsys.readouterr().err.splitlines()
    if says is None:
        assert (status, [line for line in lines if line.startswith("error: ")]) == (0, [])
    else:
        assert any(says in line for line in lines if line.startswith(("error: ", "warning: ")))
        asked = ["--dataset", str(path), "--task", "embed", "--run-dir", str(run)]
        assert train(asked) == 2
        *_, error = capsys.readouterr().err.splitlines()
        assert error.startswith("error: ")
        assert says in error
    after = state(tmp_path)
    assert {at: after[at] for at in after if run not in at.parents} == before


def test_databases_of_one_process_are_counted_each_by_itself(tmp_path):
    for name in ("seconds as a date", "dates as text"):
        (tmp_path / name).mkdir()
        assert Database.open(made(tmp_path / name, name)).plain().graph.node_time.size == 1


def test_keys_name_rows_in_the_order_of_the_key(tmp_path):
    """A foreign key may name the columns of a key in another order than the key's own."""
    file = tmp_path / "a.sqlite"
    connection = sqlite3.connect(file)
    connection.executescript(
        "CREATE TABLE p(a INT, b INT, PRIMARY KEY (b, a)); INSERT INTO p VALUES (1, 2), (2, 1);"
        "CREATE TABLE q(x INT, y INT, FOREIGN KEY (X, y) REFERENCES P(A, b));"
        "INSERT INTO q VALUES (1, 2);"
    )
    connection.close()
    graph = Database.open(file).plain().graph
    assert np.flatnonzero(np.diff(graph.indptr)).tolist() == [0, 2]  # p(1, 2) and q


def test_a_key_of_other_columns_than_the_key_makes_no_relation(tmp_path, caplog):
    file = tmp_path / "a.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute(
            "CREATE TABLE p(id INT PRIMARY KEY, m INT UNIQUE); INSERT INTO p VALUES (1, 2);"
            "CREATE TABLE q(m INT REFERENCES p(m), i INT REFERENCES p(id)); "
            "INSERT INTO q VALUES (2, 1)"
        )
    assert Database.open(file).catalogue.tables["q"].references == {("i",): "p"}
    assert "m of q, a key of m in p, makes no relation" in caplog.text
    file.with_suffix(".yaml").write_text("tables: {p: {pkey: m}}")  # the key is another then
    tables = Database.open(file).catalogue.tables
    assert (tables["p"].key, tables["q"].references) == (("m",), {("m",): "p"})
    assert "i of q, a key of id in p, makes no relation" in caplog.text


@pytest.mark.parametrize("kind", [".duckdb", ".sqlite"])
def test_a_file_that_another_process_writes_is_one_line(kind, tmp_path, monkeypatch):
    file = tmp_path / f"a{kind}"
    module = "duckdb" if kind == ".duckdb" else "sqlite3"
    hold = f"import {module}; c = {module}.connect({str(file)!r}); "
    hold += "c.execute('CREATE TABLE t(i INT)'); "
    hold += "c.execute('BEGIN EXCLUSIVE'); " if kind == ".sqlite" else ""
    monkeypatch.setattr("jgs.data.database.sqlite.WAIT", 0.1)
    with subprocess.Popen(
        [sys.executable, "-c", f"{hold} print(1, flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as writer:  # fmt: skip
        assert writer.stdout.readline() == b"1\n"
        with pytest.raises(jgs.InputError, match="lock") as error:
            Database.open(file)
        writer.communicate(b"\n")
    one_line(str(error.value))


@pytest.mark.parametrize("how", ["halved", "changed", "empty", "locked away"])
def test_a_damaged_file_is_one_line(how, tmp_path):
    file = tmp_path / "a.duckdb"
    with duckdb.connect() as connection:
        away = " (ENCRYPTION_KEY 'secret')" if how == "locked away" else ""
        connection.execute("SET force_mbedtls_unsafe = true")
        connection.execute(f"ATTACH '{file}' AS a{away}; USE a")
        rows = "INSERT INTO u SELECT i, hash(i) % 2000000000 FROM range(60000) t(i)"
        connection.execute(f"{USERS}{SALES}{rows}")
    whole = file.read_bytes()
    half = len(whole) // 2
    damaged = {"halved": whole[:half], "empty": b"", "locked away": whole}
    changed = whole[:half] + bytes(255 - each for each in whole[half : half + 99])
    file.write_bytes(damaged.get(how, changed + whole[half + 99 :]))
    with pytest.raises(jgs.InputError) as error:
        Database.open(file).plain()
    one_line(str(error.value))


@pytest.mark.parametrize(
    "query",
    [
        "INSERT INTO u VALUES (9, 9)",
        "COPY u TO '{folder}/out.csv'",
        "ATTACH '{folder}/out.duckdb'",
        "SELECT 1; DROP VIEW u",
        "WITH x AS (INSERT INTO u VALUES (9, 9) RETURNING *) FROM x",
        "PRAGMA database_list",
        "SET memory_limit = '1MB'",
        "SELECT * FROM rows",  # a variable of Python, not a table
        "",
    ],
)
def test_sql_only_reads(query, tmp_path):
    path = made(tmp_path, "views")
    before = state(tmp_path)
    with pytest.raises(jgs.InputError) as error:
        Database.open(path).ask(query.format(folder=tmp_path), "the query")
    one_line(str(error.value))
    assert state(tmp_path) == before
