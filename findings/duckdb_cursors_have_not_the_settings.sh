#!/usr/bin/env bash
# One would guess: `cursor()` is "a duplicate of the current connection", so a query gives there what it
# gives on the connection. It is how threads share a database.
#
# What happens: what was set by SET is of the connection alone. A cursor has the machine's time zone
# again, so that the same query casts the same moment to another date there, with no error and no
# warning. Tables that were registered, and SET VARIABLE, are not there either, which at least fails.
# SET GLOBAL reaches cursors, those made before too.
#
# Seen on 2026-11-30, duckdb 2.0.1, pyarrow 26.0.1, with TZ=UTC:
#   connection: 2024-05-01
#   cursor: 2024-05-02
#   cursor after SET GLOBAL: 2024-05-01
#   registered table: CatalogException
#
# What jgs does: it sets what it needs by SET GLOBAL in a database of its own, and works with several
# connections only where all tables are views of files (jgs/data/database/stored_tables.py).
set -euo pipefail
python=${PYTHON:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet duckdb==2.0.1 pyarrow==26.0.1 pytz
cat > "$folder/run.py" <<'EOF'
import duckdb
import pyarrow

QUERY = "SELECT CAST(TIMESTAMPTZ '2024-05-02 01:30:00+00' AS DATE)::VARCHAR"
connection = duckdb.connect(":memory:")
connection.execute("SET TimeZone = 'America/New_York'")
connection.register("names", pyarrow.table({"name": ["a"]}))
cursor = connection.cursor()
first = connection.sql(QUERY).fetchall()[0][0]
second = cursor.sql(QUERY).fetchall()[0][0]
try:
    cursor.sql("SELECT * FROM names").fetchall()
    seen = "there"
except duckdb.Error as error:
    seen = type(error).__name__
connection.execute("SET GLOBAL TimeZone = 'America/New_York'")
third = cursor.sql(QUERY).fetchall()[0][0]
print("duckdb", duckdb.__version__)
print("connection:", first)
print("cursor:", second)
print("cursor after SET GLOBAL:", third)
print("registered table:", seen)
found = first, second, third, seen
wanted = "2024-05-01", "2024-05-02", "2024-05-01", "CatalogException"
assert found == wanted, found
EOF
TZ=UTC "$folder/env/bin/python" "$folder/run.py"
