#!/usr/bin/env bash
# One would guess: a table whose foreign key names its own table (a user's friend, a forum's parent
# post) is filled by one INSERT or COPY, as in SQLite and PostgreSQL, which check at the
# statement's end.
#
# What happens: DuckDB checks each row against what was committed to the key's index before the
# statement. A row that names a row of the same statement is refused, and so is one that names
# itself, which therefore can never be stored: inserting it without its key and updating the key
# afterwards is refused as well.
#
# Seen on 2026-11-29, DuckDB 2.0.1, SQLite 3.40.1, Python 3.11:
#   sqlite: itself True, same statement True, update True
#   duckdb: itself False, same statement False, update False
#
# What jgs does: a DuckDB file need not declare its keys. `<name>.yaml` beside it says them
# (docs/guides/data.md, "A database"), and rows that name themselves are self-loops of the relation.
set -euo pipefail
python=${PYTHON:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet duckdb==2.0.1
"$folder/env/bin/python" - <<'PROGRAM'
import sqlite3

import duckdb

print("duckdb", duckdb.__version__, "sqlite", sqlite3.sqlite_version)
schema = (
    "CREATE TABLE users(id INTEGER PRIMARY KEY, friend INTEGER, "
    "FOREIGN KEY (friend) REFERENCES users(id))"
)
tries = {
    "itself": ["INSERT INTO users VALUES (1, 1)"],
    "same statement": ["INSERT INTO users VALUES (2, NULL), (3, 2)"],
    "update": ["INSERT INTO users VALUES (4, NULL)", "UPDATE users SET friend = 4 WHERE id = 4"],
}


def works(connection, statements):
    connection.execute(schema)
    try:
        for statement in statements:
            connection.execute(statement)
    except (duckdb.ConstraintException, sqlite3.IntegrityError):
        return False
    return True


def lite():
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


found = {}
for name, connect in (("sqlite", lite), ("duckdb", duckdb.connect)):
    found[name] = {what: works(connect(), statements) for what, statements in tries.items()}
    print(name + ":", ", ".join(f"{what} {done}" for what, done in found[name].items()))
assert all(found["sqlite"].values())
assert not any(found["duckdb"].values()), "the behaviour changed"
PROGRAM
