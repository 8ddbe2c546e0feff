#!/usr/bin/env bash
# One would guess: TRY_CAST gives NULL where a text is no number, also of a CSV file whose columns
# were all read as text.
#
# What happens: the cast is moved into the reader, with the reader's own rule, and one bad value
# raises a ConversionException that advises to set the type. With a LIMIT between, or from a table,
# the same cast gives NULL. 'all_varchar = true' has no effect on a column that is cast.
#
# Seen on 2026-11-30, DuckDB 2.0.1, Python 3.11:
#   of the file: ConversionException
#   with a limit between: [(1,), (None,)]
#   of a table: [(1,), (None,)]
#
# What jgs does: `benchmarks/context_tasks.py` reads such a file by lines, and casts a table of text.
set -euo pipefail
python=${PYTHON:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet duckdb==2.0.1
cd "$folder"
env/bin/python - <<'PROGRAM'
import duckdb

print("duckdb", duckdb.__version__)
with open("years.csv", "w") as file:
    file.write("year,name\n1,x\nn/a,y\n")
FILE = "read_csv('years.csv', all_varchar = true)"
duckdb.execute(f"CREATE TABLE years AS SELECT * FROM {FILE}")


def cast(source):
    try:
        return duckdb.sql(f"SELECT TRY_CAST(year AS INTEGER) FROM {source}").fetchall()
    except duckdb.Error as error:
        return type(error).__name__


found = {
    "of the file": cast(FILE),
    "with a limit between": cast(f"(SELECT * FROM {FILE} LIMIT 9)"),
    "of a table": cast("years"),
}
for what, seen in found.items():
    print(f"{what}: {seen}")
assert found["of the file"] == "ConversionException", "the behaviour changed"
assert found["with a limit between"] == found["of a table"] == [(1,), (None,)]
PROGRAM
