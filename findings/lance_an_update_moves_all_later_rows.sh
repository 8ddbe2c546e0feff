#!/usr/bin/env bash
# One would guess: a Lance dataset with a row of features for each node, in the order of ids, is a table
# from which `take(nodes)` reads a batch's rows, and `update` changes a row where it stands.
#
# What happens: an updated row is deleted and written at the end. `take` counts the rows that are there, so
# after one update of node 5 every later node reads the features of the next one, and `take` raises nothing,
# for the number of rows is the same. `merge_insert` and `delete` do it too, and enable_stable_row_ids=True
# does not help, as those ids are others than the places of `take`.
#
# Seen on 2026-12-01, pylance 14.0.2, pyarrow 26.0.1, Python 3.11. Nodes that take([4, 5, 6, 999]) reads:
#   as written: 4 5 6 999
#   update of node 5: 4 6 7 5
#   update of node 5, stable row ids: 4 6 7 5
#   merge_insert of node 5: 4 6 7 5
#   a filter, node IN (4, 5, 6, 999), after the update: 4 5 6 999
#
# What jgs does: a row of features belongs to its node's number, and `live.set_rows` changes it there.
# Who keeps features in Lance asks by a filter, or sorts by the column of ids after each change.
set -euo pipefail
python=${PYTHON:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet pylance==14.0.2 pyarrow==26.0.1 numpy==2.4.6
cd "$folder"
env/bin/python - <<'PROGRAM'
import lance
import numpy as np
import pyarrow as pa

print("pylance", lance.__version__, "pyarrow", pa.__version__)
NODES, ASKED = np.arange(1000), [4, 5, 6, 999]
ROW = pa.table({"node": [5], "x": [-1.0]})


def written(name, **how):
    table = pa.table({"node": NODES, "x": NODES * 1.0})
    return lance.write_dataset(table, f"{name}.lance", **how)


def updated(data):
    data.update({"x": "-1.0"}, where="node = 5")
    return data


def merged(data):
    data.merge_insert("node").when_matched_update_all().execute(ROW)
    return data


made = {
    "as written": written("plain"),
    "update of node 5": updated(written("updated")),
    "update of node 5, stable row ids": updated(written("stable", enable_stable_row_ids=True)),
    "merge_insert of node 5": merged(written("merged")),
}
found = {what: data.take(ASKED)["node"].to_pylist() for what, data in made.items()}
rows = made["update of node 5"].to_table(filter="node IN (4, 5, 6, 999)")["node"]
found["a filter, node IN (4, 5, 6, 999), after the update"] = sorted(rows.to_pylist())
for what, nodes in found.items():
    print(f"{what}:", *nodes)
first, *moved, last = found.values()
assert first == last == ASKED
assert all(nodes == [4, 6, 7, 5] for nodes in moved), "changed: rows keep their places"
PROGRAM
