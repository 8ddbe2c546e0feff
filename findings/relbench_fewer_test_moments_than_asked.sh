#!/usr/bin/env bash
# One would guess: a task of RelBench 3 with num_eval_timestamps: 2 is judged at two moments in
# validation and in test, or is refused where the data end too early.
#
# What happens: it is refused only if the first window does not fit. Later moments whose window
# ends after the last time in any table are dropped without a word, so validation has two moments
# and the test has one, half as many rows. A single late row, such as a date of the future in one
# table, brings the moment back, with labels that count the facts of a part of their window.
#
# Seen on 2026-11-29, relbench 3.0.2, pandas 3.1.1, DuckDB 2.0.1, Python 3.11:
#   as it is: val 2 moments, 10 rows; test 1 moment, 5 rows
#   with one row of the year 2099: test 2 moments, 10 rows; labels of the last: [1, 1, 1, 0, 0]
#   (ten days of daily visits are 2 for each of five users)
#
# What jgs does: labels by SQL have the same moments, and a log says how many there are of how many
# (jgs/data/database/questions.py); a task's own Parquet files are read as they are.
set -euo pipefail
python=${PYTHON:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet relbench==3.0.2 duckdb==2.0.1
cd "$folder"
env/bin/python - <<'PROGRAM'
from pathlib import Path

import duckdb
import pandas
import relbench
import yaml

print("relbench", relbench.__version__, "pandas", pandas.__version__, "duckdb", duckdb.__version__)
SQL = """
SELECT t.timestamp AS timestamp, u.user_id AS user_id, (
  SELECT count(*) FROM visits v WHERE v.user_id = u.user_id AND v.at > t.timestamp
  AND v.at <= t.timestamp + INTERVAL '{timedelta}') AS number
FROM timestamps t, users u
"""


def written(place, last):
    """Visits on every day up to 14 October, and one at `last`."""
    days = [*pandas.date_range("2024-01-01", "2024-10-14")]
    days += [pandas.Timestamp(last)] if last else []
    visits = {"visit_id": range(len(days)), "at": days, "user_id": [i % 5 for i in range(len(days))]}
    task = place / "tasks" / "visits-ahead"
    task.mkdir(parents=True)
    (place / "db").mkdir()
    pandas.DataFrame(visits).to_parquet(place / "db" / "visits.parquet")
    pandas.DataFrame({"user_id": range(5)}).to_parquet(place / "db" / "users.parquet")
    tables = {
        "users": {"pkey": "user_id", "time_col": None, "fkeys": {}},
        "visits": {"pkey": "visit_id", "time_col": "at", "fkeys": {"user_id": "users"}},
    }
    about = {"name": place.name, "manifest_version": 1, "tables": tables}
    about |= {"val_timestamp": "2024-09-01", "test_timestamp": "2024-10-01"}
    (place / "manifest.yaml").write_text(yaml.safe_dump(about))
    asked = {"name": "visits-ahead", "kind": "forecast", "task_type": "regression"}
    asked |= {"entity_table": "users", "entity_col": "user_id", "target_col": "number"}
    asked |= {"time_col": "timestamp", "timedelta": "10 days", "num_eval_timestamps": 2}
    asked |= {"manifest_version": 1, "sql": SQL}
    (task / "manifest.yaml").write_text(yaml.safe_dump(asked))
    return relbench.load_dataset(str(place.resolve())).load_task("visits-ahead")


def labels(task, split):
    found = task.get_table(split, mask_input_cols=False).df
    moments = sorted(found.timestamp.unique())
    return len(moments), len(found), found[found.timestamp == moments[-1]].number.tolist()


task = written(Path("plain"), None)
val, test = labels(task, "val"), labels(task, "test")
print(f"as it is: val {val[0]} moments, {val[1]} rows; test {test[0]} moment, {test[1]} rows")
late = labels(written(Path("late"), "2099-01-01"), "test")
print(f"with one row of the year 2099: test {late[0]} moments, {late[1]} rows; labels of the last: {late[2]}")
assert val[:2] == (2, 10)
assert test[:2] == (1, 5), "the behaviour changed"
assert late[:2] == (2, 10)
PROGRAM
