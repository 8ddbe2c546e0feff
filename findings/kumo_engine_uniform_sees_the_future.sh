#!/usr/bin/env bash
# One would guess: a sampler that takes a moment for each seed draws facts before that moment alone,
# whichever way it draws, and draws others when it is asked again.
#
# What happens: SamplerEngine.sample of kumo-engine takes moments and a mode for each hop. The mode
# for the latest facts heeds the moment, and counts a fact at the moment itself as past. The mode for
# uniform draws does not heed it: facts from after the moment are in the sample, without a word. And
# it takes no key: the same call draws the same facts, in every epoch.
#
# Seen on 2026-11-30, kumo-engine 1.0.0, pyarrow 26.0.1, a user with facts on days 0 to 9, asked on
# day 4 for at most 4 of them, and for all 10:
#   latest, at most 4: days [1, 2, 3, 4]
#   latest, all: days [0, 1, 2, 3, 4]
#   uniform, all: days [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
#   uniform, at most 4, asked 20 times: 1 different draw(s)
#
# What jgs does: every draw under a cutoff is of edges before it, with any law; a fact at the cutoff
# is not drawn unless Seeds(inclusive=True) says so; draws depend on a key (jgs/sampling/seeds.py).
set -euo pipefail
python=${PYTHON:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-deps kumo-engine==1.0.0 pyarrow==26.0.1 numpy==2.3.5
cd "$folder"
env/bin/python - <<'PROGRAM'
import json
from importlib.metadata import version

import diskgraph
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

print("kumo-engine", version("kumo-engine"), "pyarrow", pa.__version__)
DAY, NUM = 86_400, 10
at = (np.arange(NUM) * DAY + 1_600_000_000).astype("M8[s]")
pq.write_table(pa.table({"id": [0, 1]}), "users.parquet")
facts = {"id": np.arange(NUM), "user": np.zeros(NUM, np.int64), "at": at}
pq.write_table(pa.table(facts), "facts.parquet")
ids = {"dtype": "int64", "stype": "ID", "dst_key": "id"}
same = {"pkey": {"name": "id", **ids}, "data_source": "local", "cols": [], "fkeys": []}
tables = [{"table_name": n, "source_table_name": n, **same} for n in ("users", "facts")]
tables[1] |= {
    "fkeys": [{"name": "user", "dst_table": "users", **ids}],
    "time_col": {"name": "at", "dtype": "date", "stype": "timestamp"},
}
paths = {name: f"{name}.parquet" for name in ("users", "facts")}
of = {"name": "shop", "tables": tables}, ".", dict.fromkeys(paths, "1")
config = diskgraph.DiskgraphConfigConverter(*of, source_paths=paths).convert()
diskgraph.ingest(json.dumps(config), "index")
engine = diskgraph.SamplerEngine("index", 0, 1)


def days(mode: str, fanout: int) -> list[int]:
    hop = {"fanout": fanout, "absent_key_policy": "uniform_fallback", "mode": mode}
    plan = json.dumps({"layers": [{"fanouts": {}, "default_fanout": hop}]})
    seeds, moments = ({"users": np.array([n])} for n in (0, 1_600_000_000 + 4 * DAY))
    parts = engine.sample(seeds, plan, False, moments, True, diskgraph.TimeUnit.Seconds)
    nodes = [p["batch"] for p in parts if p["type"] == "node" and p["type_id"] == 0]
    return sorted(day for batch in nodes for day in batch.column("id_b").to_pylist())


found = {
    "latest, at most 4": days("temporal_most_recent", 4),
    "latest, all": days("temporal_most_recent", NUM),
    "uniform, all": days("uniform", NUM),
}
draws = {tuple(days("uniform", 4)) for _ in range(20)}
for what, own in found.items():
    print(f"{what}: days {own}")
print(f"uniform, at most 4, asked 20 times: {len(draws)} different draw(s)")
assert found["latest, at most 4"] == [1, 2, 3, 4]  # day 4 is the moment
assert found["latest, all"] == [0, 1, 2, 3, 4]
assert found["uniform, all"] == [*range(NUM)]  # days 5 to 9 are in the future
assert len(draws) == 1
PROGRAM
