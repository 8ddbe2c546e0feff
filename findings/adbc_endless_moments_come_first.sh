#!/usr/bin/env bash
# One would guess: what PostgreSQL gives through ADBC is what it gives through any driver. A moment
# without end, 'infinity', is an error or a very late moment; 3.50 of money is 3.50; a matrix is a
# list of lists.
#
# What happens: timestamps count from 2000 in PostgreSQL and from 1970 in Arrow, and the shift wraps
# around. So 'infinity' arrives one microsecond before '-infinity', in the year -290278, and the date
# 'infinity' in -5877522: "valid until ever" sorts first of all. Money arrives as int64 of hundredths,
# with nothing that says so. A two-dimensional array arrives as one list, so {{1,2},{3,4}} and
# {1,2,3,4} are the same. The time 24:00 arrives as 00:00. No error and no warning.
#
# Seen on 2026-11-30, adbc-driver-postgresql 1.13.0, pyarrow 26.0.1, PostgreSQL 15.18 and 16.2:
#   timestamp infinity: -9222425352054775809
#   timestamp -infinity: -9222425352054775808
#   date infinity: -2147472692
#   money 3.50: 350 as int64
#   matrix: [1, 2, 3, 4]
#   24:00: 00:00:00
#
# What jgs does: it asks the server which moments are finite. Others are missing, and a log counts
# them. Money is asked for as a number. An array of several dimensions is one list, as ADBC has it
# (jgs/data/database/postgres.py).
set -euo pipefail
python=${PYTHON:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet pgserver==0.1.4 adbc-driver-postgresql==1.13.0 \
  adbc-driver-manager==1.13.0 pyarrow==26.0.1
chmod 755 "$folder"
cd "$folder"
env/bin/python - <<'PROGRAM'
import tempfile

import adbc_driver_postgresql
import adbc_driver_postgresql.dbapi
import pgserver
import pyarrow

print("adbc", adbc_driver_postgresql.__version__, "pyarrow", pyarrow.__version__)
ASKED = {
    "timestamp infinity": ("'infinity'::timestamp", pyarrow.int64()),
    "timestamp -infinity": ("'-infinity'::timestamp", pyarrow.int64()),
    "date infinity": ("'infinity'::date", pyarrow.int32()),
    "money 3.50": ("3.50::money", None),
    "matrix": ("'{{1,2},{3,4}}'::int[]", None),
    "24:00": ("'24:00'::time", None),
}
server = pgserver.get_server(tempfile.mkdtemp(), cleanup_mode="delete")
found = {}
try:
    with adbc_driver_postgresql.dbapi.connect(server.get_uri()) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT current_setting('server_version')")
        print("PostgreSQL", cursor.fetchone()[0])
        for what, (value, kind) in ASKED.items():
            cursor.execute(f"SELECT {value} AS v")
            column = cursor.fetch_arrow_table().column(0)
            found[what] = (column if kind is None else column.cast(kind))[0].as_py()
            print(f"{what}: {found[what]} as {column.type}")
        cursor.close()
finally:
    server.cleanup()
assert found["timestamp infinity"] < found["timestamp -infinity"] < 0
assert found["date infinity"] < 0, "the behaviour changed"
assert found["money 3.50"] == 350
assert found["matrix"] == [1, 2, 3, 4]
assert str(found["24:00"]) == "00:00:00"
PROGRAM
