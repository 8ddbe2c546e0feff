#!/usr/bin/env bash
# One would guess: two queries of one view, of a file that nobody writes, give its rows in the same
# order, as those of a table are.
#
# What happens: a view that groups gives them in another order each time, as threads and the columns
# that are asked for decide. Who reads the key of a view and then its values joins different rows.
#
# Seen on 2026-11-30, DuckDB 2.0.1, Python 3.11, 2 cores:
#   the key alone, and beside a sum: 49998 of 50000 rows differ
#   the key alone, and again: 49998 of 50000 rows differ
#
# What jgs does: a view of a file is read once, by one thread, into memory
# (jgs/data/database/stored_tables.py; `test_a_view_is_read_once` in
# tests/data/test_database_tasks.py). Before, keys, times and features were of different rows.
set -euo pipefail
python=${PYTHON:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet duckdb==2.0.1
"$folder/env/bin/python" - <<'PROGRAM'
import duckdb

print("duckdb", duckdb.__version__)
rows = "(hash(i) % 50000)::INT AS u, i % 7 / 3 AS x FROM range(1000000) r(i)"
duckdb.execute(f"CREATE TABLE t AS SELECT {rows}")
duckdb.execute("CREATE VIEW v AS SELECT u, sum(x) AS s FROM t GROUP BY u")
keys, both, again = (
    duckdb.sql(f"SELECT {columns} FROM v").fetchall() for columns in ("u", "u, s", "u")
)
for what, other in (("beside a sum", both), ("again", again)):
    differ = sum(a[0] != b[0] for a, b in zip(keys, other, strict=True))
    print(f"the key alone, and {what}: {differ} of {len(keys)} rows differ")
PROGRAM
