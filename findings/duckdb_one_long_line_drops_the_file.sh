#!/usr/bin/env bash
# One would guess: a CSV file of a header and a thousand good lines, of which the last has a comma
# too many, is refused by DuckDB, or read but for that line.
#
# What happens: read_csv guesses that the long line is the table and that everything before it is
# notes to be skipped. The table has one row of three columns, and no warning says that a thousand
# rows and the header are gone. With header = true the long line is the header, and the table is
# empty. From some thousands of lines on the file is refused. skip = 0 ends the skipping; then the
# same file is one column, "id,age", of all lines, and a query that names a column fails.
#
# Seen on 2026-11-30, DuckDB 2.0.1, Python 3.11:
#   1000 lines and a long one: 1 rows of ['column0', 'column1', 'column2']
#   header = true: 0 rows of ['5', '5_1', '5_2']
#   skip = 0: 1001 rows of ['id,age']
#   without the long line: 1000 rows of ['id', 'age']
#   30000 lines and a long one: refused
#
# What jgs does: tables of a folder are read with header = true, skip = 0, so that a manifest's
# columns are missing and the file is refused (jgs/data/database/stored_tables.py; "rows of unequal lengths" in
# tests/data/test_bad_databases.py).
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


def read(count, last="", options=""):
    lines = "".join(f"{i},{i % 9}\n" for i in range(count))
    with open("people.csv", "w") as file:
        file.write("id,age\n" + lines + last)
    try:
        found = duckdb.sql(f"SELECT * FROM read_csv('people.csv'{options})")
        return len(found.fetchall()), found.columns
    except duckdb.Error:
        return None


long = "5,5,5\n"
found = {
    "1000 lines and a long one": read(1000, long),
    "header = true": read(1000, long, ", header = true"),
    "skip = 0": read(1000, long, ", header = true, skip = 0"),
    "without the long line": read(1000),
    "30000 lines and a long one": read(30000, long),
}
for what, seen in found.items():
    print(f"{what}: " + ("refused" if seen is None else f"{seen[0]} rows of {seen[1]}"))
assert found["1000 lines and a long one"] == (1, ["column0", "column1", "column2"])
assert found["header = true"] == (0, ["5", "5_1", "5_2"]), "the behaviour changed"
assert found["skip = 0"] == (1001, ["id,age"])
assert found["without the long line"] == (1000, ["id", "age"])
assert found["30000 lines and a long one"] is None
PROGRAM
