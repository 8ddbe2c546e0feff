#!/usr/bin/env bash
# One would guess: read_csv makes TIMESTAMP_NS of a column of moments with nine digits of a second,
# or leaves it as text.
#
# What happens: the column is TIMESTAMP, and the last three digits are gone, without a word. With
# types = {'t': 'TIMESTAMP_NS'} they are kept. So it is with a zone, of which there is no finer type.
#
# Seen on 2026-11-30, DuckDB 2.0.1, Python 3.11:
#   as it is: TIMESTAMP 2024-01-01 00:00:00.123456
#   as it was said: TIMESTAMP_NS 2024-01-01 00:00:00.123456789
#
# What jgs does: columns of CSV files with more than six digits are read as TIMESTAMP_NS
# (jgs/data/database/csv_tables.py;
# `test_a_column_of_a_csv_file_has_the_type_of_all_its_rows` in tests/data/test_database_tasks.py).
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
with open("moments.csv", "w") as file:
    file.write("i,t\n1,2024-01-01 00:00:00.123456789\n2,2024-01-02 00:00:00\n")
found = []
for what, more in (("as it is", ""), ("as it was said", ", types = {'t': 'TIMESTAMP_NS'}")):
    query = f"SELECT typeof(t), t::VARCHAR FROM read_csv('moments.csv'{more}) ORDER BY i"
    found.append(" ".join(duckdb.sql(query).fetchall()[0]))
    print(f"{what}:", found[-1])
cut = "2024-01-01 00:00:00.123456"
assert found == [f"TIMESTAMP {cut}", f"TIMESTAMP_NS {cut}789"], "DuckDB behaves otherwise now"
PROGRAM
