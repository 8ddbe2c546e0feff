"""Who will not buy in 30 days? From DuckDB to predictions; more in docs/guides/database.md.

python examples/database.py [EPOCHS]
"""

import sys
import tempfile
from pathlib import Path

import duckdb
import numpy as np

import jgs
from jgs.audit import audit
from jgs.data import Database
from jgs.data.described import schema_of

SHOP = """
    CREATE TABLE users(name VARCHAR PRIMARY KEY, city VARCHAR);
    CREATE TABLE items(sku VARCHAR PRIMARY KEY, price DOUBLE);
    CREATE TABLE sales(name VARCHAR REFERENCES users, sku VARCHAR REFERENCES items, day DATE);
    INSERT INTO users SELECT 'u' || i, ['Rome', NULL][i % 2 + 1] FROM range(300) r(i);
    INSERT INTO items SELECT 's' || i, 5 + i FROM range(40) r(i);
    INSERT INTO sales SELECT 'u' || u, 's' || (u + d) % 40, DATE '2024-01-01' + d
        FROM (SELECT unnest($users) AS u, unnest($days) AS d);
"""
DATES = "val_timestamp: 2024-06-29\ntest_timestamp: 2024-07-29\n"
CHURN = """
    SELECT u.name, t.timestamp, NOT EXISTS (SELECT * FROM sales s WHERE s.name = u.name
        AND s.day > t.timestamp AND s.day <= t.timestamp + INTERVAL '{timedelta}') AS churn
    FROM timestamps t, users u
"""


def main(epochs: int = 10) -> float:
    """Returns the AUC on the test. Users buy in some thirds of the year, not in others."""
    folder, rng = Path(tempfile.mkdtemp()), np.random.default_rng(0)
    buys = (rng.random((300, 3)) < 0.5).repeat(100, axis=1) & (rng.random((300, 300)) < 0.1)
    user, day = np.nonzero(buys)
    with duckdb.connect(f"{folder}/shop.duckdb") as shop:
        shop.execute(SHOP, {"users": user.tolist(), "days": day.tolist()})
    (folder / "shop.yaml").write_text(DATES + "tables: {sales: {time_col: day}}")
    print(*schema_of(Database.open(folder / "shop.duckdb"))["tables"], sep="\n")
    task = (f"task_sql={CHURN}", "entity=users", "horizon=30 days")
    data = {"dataset": f"{folder}/shop.duckdb", "run_dir": f"{folder}/run", "epochs": epochs}
    model = {"model": "trsage", "norm": "layer", "hidden": 16, "fanouts": ("*=10",) * 2}
    asked = {"data_options": task, "metric": "auc", "batch_size": 200, "lr": 1e-2}
    run = jgs.train.run(jgs.train.Config(**data, **model, **asked))
    print(f"findings: {audit(run=folder / 'run', trials=False)}")
    found, users = run.predict(node_type="users", time="2024-10-26"), run.schema.nodes("users")
    for user, *said in list(zip(users, found.prediction, found.probability, strict=True))[:3]:
        print(run.node_ids[user], "will not buy" if said[0] else "will buy", f"{said[1]:.0%}")
    nodes, time = run.rows("test")
    score = jgs.train.auc(run.logits(nodes, time=time) @ [-1, 1], run.labels("test") == 1)
    print(f"AUC of the test: {score:.3f}")
    return score


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]))
