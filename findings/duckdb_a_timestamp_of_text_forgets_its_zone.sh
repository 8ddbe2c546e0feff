#!/usr/bin/env bash
# One would guess: CAST('2024-01-01T00:00:00+02:00' AS TIMESTAMP) is the moment in UTC, 22:00 of the
# day before, or an error.
#
# What happens: the zone is dropped, and the result is 00:00. AS TIMESTAMPTZ gives the moment.
#
# Seen on 2026-11-30, DuckDB 2.0.1, Python 3.11:
#   TIMESTAMP 2024-01-01 00:00:00
#   TIMESTAMPTZ 2023-12-31 22:00:00+00
#
# What jgs does: text is cast AS TIMESTAMPTZ (`_times_of` in jgs/data/database/questions.py and
# `ticks_sql` in jgs/audit/view.py; `test_times_that_are_text_may_have_zones` in
# tests/data/test_database_tasks.py).
set -euo pipefail
python=${PYTHON:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet duckdb==2.0.1
"$folder/env/bin/python" - <<'PROGRAM'
import duckdb

print("duckdb", duckdb.__version__)
duckdb.execute("SET TimeZone = 'UTC'")
for kind in ("TIMESTAMP", "TIMESTAMPTZ"):
    cast = f"CAST('2024-01-01T00:00:00+02:00' AS {kind})::VARCHAR"
    print(kind, duckdb.sql(f"SELECT {cast}").fetchall()[0][0])
PROGRAM
