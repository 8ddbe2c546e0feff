#!/usr/bin/env bash
# One would guess: the random seed of a sampler tells one stream of draws from another. Whoever gives
# each epoch, worker or repetition the next seed gets other draws, independent of those before.
#
# What happens: SamplerEngine(path, random_seed, num_threads) of kumo-engine draws for the node v with
# a generator of random_seed + v. So the next seed moves all draws by one node: node 0 draws with seed
# 1 what node 1 drew with seed 0, and with 100 seeds in a row 100 nodes of equal degree share 199 draws
# between them instead of having 10,000. The mode "deterministic_uniform" heeds no seed at all.
#
# Seen on 2026-11-30, kumo-engine 1.0.0, pyarrow 26.0.1, 300 users with six facts each, one drawn:
#   seed 0: [3, 1, 0, 4, 1, 2, 1, 1, 3, 2]
#   seed 1: [1, 0, 4, 1, 2, 1, 1, 3, 2, 2]
#   seed 2: [0, 4, 1, 2, 1, 1, 3, 2, 2, 0]
#   users whose draw with seed s + 1 is that of the next user with seed s: 100.0 %; by chance 16.7 %
#
# What jgs does: seed, hop and node are separate words of Threefry, and the draws of keys in a row, for
# one node and for nodes in a row, are tested for independence (`python -m benchmarks.battery`).
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
USERS, FACTS, LATE = 300, 6, 1_600_000_000
pq.write_table(pa.table({"id": np.arange(USERS)}), "users.parquet")
facts = {"id": np.arange(USERS * FACTS), "user": np.repeat(np.arange(USERS), FACTS)}
facts["at"] = np.full(USERS * FACTS, LATE - 1).astype("M8[s]")
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
hop = {"fanout": 1, "absent_key_policy": "uniform_fallback", "mode": "uniform"}
plan = json.dumps({"layers": [{"fanouts": {}, "default_fanout": hop}]})
users, moments = {"users": np.arange(USERS)}, {"users": np.full(USERS, LATE)}


def drawn(seed: int) -> np.ndarray:
    """Which of its facts each user draws."""
    engine = diskgraph.SamplerEngine("index", seed, 1)
    parts = engine.sample(users, plan, False, moments, True, diskgraph.TimeUnit.Seconds)
    nodes = [p["batch"].to_pydict() for p in parts if p["type"] == "node"]
    (rows,) = (n["id_b"] for n in nodes if len(n["id_b"]) == USERS and max(n["id_b"]) >= USERS)
    return np.sort(np.array(rows)) % FACTS


draws = np.stack([drawn(seed) for seed in range(10)])
for seed in range(3):
    print(f"seed {seed}:", draws[seed, :10].tolist())
share = (draws[1:, :-1] == draws[:-1, 1:]).mean()
print(f"users whose draw with seed s + 1 is that of the next user with seed s: {share:.1%}")
assert share == 1, "changed: a seed is no longer added to the node"
PROGRAM
