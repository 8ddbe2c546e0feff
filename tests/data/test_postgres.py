"""PostgreSQL as a data set, from a real server."""

import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import duckdb
import numpy as np
import pytest
import yaml
from test_database import edges_of

import jgs
from jgs.audit.__main__ import main as audit
from jgs.data import Database
from jgs.data.column_values import Clock
from jgs.data.database.postgres import name_of, without_password
from jgs.predict.__main__ import main as predict
from jgs.train.__main__ import main as train

driver = pytest.importorskip("adbc_driver_postgresql.dbapi")
PASSWORD = "pass@w/rd"
ENCODED = "pass%40w%2Frd"
PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)

# Both PostgreSQL and DuckDB take it.
SCHEMA = """
CREATE TYPE mood AS ENUM ('calm', 'wild');
CREATE TABLE shops(country VARCHAR(2), number INTEGER, size SMALLINT, rate REAL,
    PRIMARY KEY (number, country));
CREATE TABLE users(id UUID PRIMARY KEY, friend UUID REFERENCES users(id), mood mood,
    joined TIMESTAMPTZ, open BOOLEAN, about JSON, email VARCHAR UNIQUE, code NUMERIC(20, 0));
CREATE TABLE "Order"(day TIMESTAMP, "who's" UUID REFERENCES users(id), country VARCHAR(2),
    shop INTEGER, price NUMERIC(8, 2), tags VARCHAR[], due DATE, scores DOUBLE PRECISION[],
    FOREIGN KEY (country, shop) REFERENCES shops(country, number));
INSERT INTO shops VALUES ('de', 1, 4, 0.5), ('it', 1, 3, NULL), ('it', 2, 5, 2.5);
INSERT INTO users VALUES
    ('00000000-0000-0000-0000-000000000001', NULL, 'calm', '2024-01-01 12:00:00+02', TRUE,
        '{"a": 1}', 'x@y', 12345678901234567890);
INSERT INTO users VALUES
    ('00000000-0000-0000-0000-000000000002', '00000000-0000-0000-0000-000000000001', NULL, NULL,
        FALSE, NULL, NULL, 7);
INSERT INTO "Order" VALUES
    ('2024-01-05', '00000000-0000-0000-0000-000000000001', 'it', 2, 12.34, ARRAY['new', 'red'],
        '2024-02-01', ARRAY[1.5, 2]),
    ('2024-01-09', NULL, 'de', 1, NULL, NULL, NULL, ARRAY[3, 4]),
    ('2024-03-09', '00000000-0000-0000-0000-000000000002', NULL, 1, -3,
        ARRAY[]::VARCHAR[], '2024-02-01', ARRAY[3, 4]);
"""
MANIFEST = {
    "val_timestamp": "2024-02-01",
    "tables": {"Order": {"time_col": "day"}},
}


@pytest.fixture(scope="module")
def server():
    """A function that makes a database of statements in a server, and gives its URL."""
    initdb = shutil.which("initdb") or (PROGRAMS and PROGRAMS[0] / "initdb")
    if not initdb:
        pytest.skip("no PostgreSQL server is installed")
    root = os.geteuid() == 0
    user = {"user": "postgres"} if root else {}
    if root and "postgres" not in {each.pw_name for each in pwd.getpwall()}:
        pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # which another user reaches
        place, secret = Path(folder) / "data", Path(folder) / "password"
        secret.write_text(PASSWORD)
        if root:
            shutil.chown(folder, "postgres")
            secret.chmod(0o644)
        settings = ["-A", "scram-sha-256", "-U", "me", f"--pwfile={secret}", "--no-sync"]
        made = [str(initdb), "-D", str(place), "-E", "UTF8", "--locale=C", *settings]
        subprocess.run(made, check=True, capture_output=True, **user)
        begun = [str(Path(initdb).parent / "postgres"), "-F", "-D", str(place), "-k", folder]
        own = ["-c", "listen_addresses="]
        process = subprocess.Popen([*begun, *own], stderr=subprocess.DEVNULL, **user)
        address = f"postgresql://me:{ENCODED}@/{{}}?host={folder}"
        wait_for(address.format("postgres"), process)

        def made_of(name, *statements):
            run(address.format("postgres"), f"CREATE DATABASE {name}")
            run(address.format(name), *statements)
            return address.format(name)

        try:
            yield made_of
        finally:
            process.terminate()  # it waits for nobody
            if process.wait(20):
                process.kill()


def wait_for(url, process):
    """Waits until a server answers."""
    deadline = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < deadline:
        try:
            return run(url)
        except driver.Error:
            time.sleep(0.05)
    pytest.fail("the server did not start")


def run(url, *statements):
    with driver.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@pytest.fixture(scope="module")
def shop(server):
    return server("shop", *SCHEMA.split(";\n")[:-1])


@pytest.fixture
def manifest(tmp_path):
    (tmp_path / "times.yaml").write_text(yaml.safe_dump(MANIFEST))
    return tmp_path / "times.yaml"


def test_tables_are_those_of_duckdb(shop, manifest, tmp_path):
    file = tmp_path / "shop.duckdb"
    with duckdb.connect(str(file)) as connection:
        # To DuckDB a foreign key has the order of the key that it names.
        named = "(country, shop) REFERENCES shops(country, number)"
        own = "(shop, country) REFERENCES shops(number, country)"
        connection.execute(SCHEMA.replace(named, own))
    found, given = Database.open(shop, manifest), Database.open(file, manifest)
    assert found.catalogue.tables == given.catalogue.tables
    assert found.catalogue.tables["Order"].references == {
        ("shop", "country"): "shops",  # in the order of the key
        ("who's",): "users",
    }
    same = given.columns | {"users": given.columns["users"] | {"mood": "VARCHAR"}}
    assert found.columns == same
    found, given = (base.plain(clock=Clock("D")) for base in (found, given))
    assert found.node_ids.values.tolist() == given.node_ids.values.tolist()
    assert edges_of(found.graph) == edges_of(given.graph)
    assert found.feature_columns == given.feature_columns
    for rows in zip(found.features.tables, given.features.tables, strict=True):
        np.testing.assert_array_equal(*map(np.asarray, rows))


def test_types_that_duckdb_lacks_are_numbers_and_text(server, caplog):
    url = server(
        "types",
        "CREATE DOMAIN small AS NUMERIC(4, 1)",
        "CREATE TABLE t(id NAME PRIMARY KEY, up NAME REFERENCES t, m MONEY, n NUMERIC, "
        "d small, ip INET, c CHAR(4), z TIMETZ, s NUMERIC(4, 2), l NUMERIC[], w TIMESTAMP, "
        "v DATE)",
        "INSERT INTO t VALUES ('a', NULL, 3.5, 1e30, 2.5, '10.0.0.1', 'x', '12:00+02', 'NaN', "
        "'{1.5,2}', 'infinity', '-infinity')",
    )
    base = Database.open(url)
    assert base.sql("SELECT * FROM t").to_pylist()[0] == {
        "id": "a", "up": None, "m": 3.5, "n": 1e30, "d": 2.5, "ip": "10.0.0.1/32", "c": "x",
        "z": "12:00:00+02", "s": None, "l": [1.5, 2.0], "w": None, "v": None,
    }  # fmt: skip
    assert base.columns["t"]["d"] == "DECIMAL(4,1)"
    assert "infinite moments of 1 rows are missing" in caplog.text


def test_all_tables_are_of_one_moment(server):
    url = server(
        "moment",
        "CREATE TABLE a(id INT PRIMARY KEY)",
        "CREATE TABLE b(id INT PRIMARY KEY, a INT REFERENCES a)",
        "INSERT INTO a VALUES (1)",
        "INSERT INTO b VALUES (1, 1)",
    )
    found = []
    with driver.connect(url) as writer, writer.cursor() as cursor:
        cursor.execute("LOCK TABLE b")
        reader = threading.Thread(target=lambda: found.append(Database.open(url)))
        reader.start()
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        deadline = time.monotonic() + 20
        while not cursor.execute(waits).fetchone()[0] and time.monotonic() < deadline:
            time.sleep(0.01)
        cursor.execute("INSERT INTO a VALUES (2)")
        cursor.execute("INSERT INTO b VALUES (2, 2)")
        writer.commit()
    reader.join(20)
    counts = [found[0].sql(f"SELECT * FROM {table}").num_rows for table in "ab"]
    assert counts == [1, 1]


@pytest.mark.parametrize(
    ("name", "columns", "says"),
    [
        ("letters", ['t(id INT, "ID" INT PRIMARY KEY)'], '"public"."t".id, "public"."t".ID'),
        ("more_letters", ["t(id INT)", '"T"(id INT)'], "got T, t"),
        ("bare", ["t()", "a(id INT)"], None),
    ],
)
def test_names_that_duckdb_takes_for_one_are_one_line(name, columns, says, server):
    url = server(name, *(f"CREATE TABLE {each}" for each in columns))
    if says is None:
        assert list(Database.open(url).catalogue.tables) == ["a"]
        return
    with pytest.raises(jgs.InputError) as error:
        Database.open(url)
    assert says in str(error.value)


def test_schemas_views_partitions_and_other_users(server, tmp_path, caplog):
    url = server(
        "parts",
        'CREATE SCHEMA "My own"',
        'SET search_path = "My own"',
        "CREATE TABLE public.far(id INT PRIMARY KEY)",
        'CREATE TABLE "My own".secret(id INT PRIMARY KEY)',
        'CREATE TABLE "My own".p(id INT, k INT REFERENCES public.far, '
        's INT REFERENCES "My own".secret, PRIMARY KEY (id)) PARTITION BY RANGE (id)',
        'CREATE TABLE "My own".p1 PARTITION OF "My own".p FOR VALUES FROM (0) TO (9)',
        'CREATE TABLE "My own".q(id INT PRIMARY KEY, p INT REFERENCES "My own".p)',
        'INSERT INTO "My own".p VALUES (3)',
        'INSERT INTO "My own".q VALUES (1, 3)',
        'CREATE VIEW "My own".v AS SELECT p AS up FROM "My own".q',
        f"CREATE ROLE other LOGIN PASSWORD '{PASSWORD}'",
        'GRANT USAGE ON SCHEMA "My own" TO other',
        'GRANT SELECT ON "My own".p, "My own".q, "My own".v TO other',
    )
    url = url.replace("//me:", "//other:") + "&schema=My%20own"
    (tmp_path / "m.yaml").write_text("tables: {v: {fkeys: {up: p}}}")
    base = Database.open(url, tmp_path / "m.yaml")
    assert {n: dict(k.references) for n, k in base.catalogue.tables.items()} == {
        "p": {}, "q": {("p",): "p"}, "v": {("up",): "p"},
    }  # fmt: skip
    assert "this user may not read secret" in caplog.text
    assert "k of p, a key of id in far, makes no relation" in caplog.text
    assert base.plain().graph.num_edges == 4
    with pytest.raises(jgs.InputError, match="must have tables; got none"):
        Database.open(url.replace("My%20own", "none"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ((ENCODED, "wrong-word"), "password authentication failed"),
        (("@/shop", "@/nothing"), 'database "nothing" does not exist'),
        (("?host=", "?host=/nowhere"), "No such file or directory"),
        (("?host=", "?sslrootcrt="), "invalid URI query parameter"),
        ((f":{ENCODED}", ""), "no password supplied"),
        (("@/shop", "@/gone"), "terminating connection"),
    ],
)
def test_servers_that_are_away_are_one_line(server, shop, change, says, tmp_path, monkeypatch):
    if "gone" in change[1]:
        # A view whose rows end the connection that reads them.
        end = "CREATE VIEW v AS SELECT pg_terminate_backend(pg_backend_pid()) AS x"
        server("gone", "CREATE TABLE a(id INT PRIMARY KEY)", end)
    (tmp_path / "m.yaml").write_text("tables: {v: {}}")
    monkeypatch.setattr("jgs.data.database.postgres._complete", {})
    monkeypatch.delenv("PGPASSWORD", raising=False)
    with pytest.raises(jgs.InputError) as error:
        Database.open(shop.replace(*change), tmp_path / "m.yaml")
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert not any(word in str(error.value) for word in (PASSWORD, ENCODED, "wrong-word"))


def test_a_driver_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql.dbapi", None)
    monkeypatch.delattr("adbc_driver_postgresql.dbapi")
    with pytest.raises(jgs.InputError, match=r"pip install 'jgs\[database\]'"):
        Database.open("postgresql://me@/shop")


def test_a_server_that_says_nothing_is_waited_for_for_a_while():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        with pytest.raises(jgs.InputError, match="timeout expired"):
            Database.open(f"postgresql://me@127.0.0.1:{port}/shop?connect_timeout=2")


@pytest.mark.parametrize(
    ("url", "public", "name"),
    [
        ("postgresql://u:p@h:1/d?schema=s", "postgresql://u@h:1/d?schema=s", "d"),
        ("postgres://u:@[::1],h:2/a%20b", "postgres://u@[::1],h:2/a%20b", "a b"),
        ("postgresql:///d?host=/tmp", "postgresql:///d?host=/tmp", "d"),
        ("postgresql://", "postgresql://", "postgresql"),
        ("mysql://u:secret@h/d", None, None),
        ("postgresql://u:s/ecret@h/d", None, None),
        ("postgresql://u:s@ecret@h/d", None, None),
        ("postgresql://u:s%zecret@h/d", None, None),
        ("postgresql://u:secret%00@h/d", None, None),
        ("postgresql://h/d?user=u&password=secret", None, None),
    ],
)
def test_a_url_is_named_without_its_password(url, public, name):
    if public is not None:
        assert (without_password(url), name_of(url)) == (public, name)
        return
    for asks in (without_password, Database.open, jgs.data.load):
        with pytest.raises(jgs.InputError, match="must be of the form") as error:
            asks(url)
        assert "ecret" not in str(error.value)


def test_a_run_is_resumed_and_predicts_without_its_password_in_a_file(
    shop, manifest, tmp_path, monkeypatch, capsys
):
    asked = "SELECT s.number, s.country, timestamp, s.size > 3 AS big FROM shops s, timestamps"
    own = MANIFEST | {"val_timestamp": "2024-02-01", "test_timestamp": "2024-02-20"}
    manifest.write_text(yaml.safe_dump(own))
    task = ["--task-sql", asked, "--entity", "shops", "--horizon", "5 days"]
    task += ["--manifest", os.path.relpath(manifest)]
    model = ["--model", "trsage", "--fanouts", "*=2", "--hidden", "4", "--batch-size", "4"]
    monkeypatch.setattr("jgs.data.database.postgres._complete", {})
    folder = str(tmp_path / "run")
    flags = ["--dataset", shop, *task, *model, "--run-dir", folder]
    assert train([*flags, "--epochs", "1"]) == 0
    written = "".join(
        each.read_bytes().decode(errors="replace")
        for each in tmp_path.rglob("*")
        if each.is_file()
    )
    assert not any(word in written for word in (PASSWORD, ENCODED))
    saved = json.loads((tmp_path / "run" / "config.json").read_text())
    assert saved["dataset"] == without_password(shop)
    monkeypatch.setattr("jgs.data.database.postgres._complete", {})
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    monkeypatch.chdir(tmp_path)
    assert train(["--resume", "--run-dir", folder, "--epochs", "2"]) == 0
    capsys.readouterr()
    nodes, out = tmp_path / "nodes.txt", tmp_path / "out.csv"
    nodes.write_text("shops:1|it\n")
    asked = ["--run-dir", folder, "--nodes", str(nodes), "--at", "19800", "--out", str(out)]
    assert predict(asked) == 0
    monkeypatch.delenv("PGPASSWORD")
    assert predict([*asked[:-1], str(tmp_path / "later.csv"), "--dataset", shop]) == 0
    assert out.read_text() == (tmp_path / "later.csv").read_text()
    assert "shops:1|it" in out.read_text()
    assert audit(["--run", folder, "--no-trials"]) in (0, 1)
    task[-1] = str(manifest)
    assert audit(["--dataset", shop, *task, "--no-trials"]) in (0, 1)
    said = capsys.readouterr()
    assert not any(word in said.out + said.err for word in (PASSWORD, ENCODED))
