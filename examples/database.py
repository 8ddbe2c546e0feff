"""Who of a shop will not buy within 30 days? From a DuckDB file to audited predictions, in Python;
docs/guides/database.md does it by commands.

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
from jgs.data.database.schema import schema_of

SHOP = """
    CREATE TABLE users(name VARCHAR PRIMARY KEY, city VARCHAR);
    CREATE TABLE items(sku VARCHAR PRIMARY KEY, price DOUBLE);
    CREATE TABLE sales(name VARCHAR REFERENCES users, sku VARCHAR REFERENCES items, day DATE);
    INSERT INTO users SELECT 'u' || i, ['Rome', NULL][i % 2 + 1] FROM range(300) r(i);
    INSERT INTO items SELECT 's' || i, 5 + i FROM range(40) r(i);
    INSERT INTO sales SELECT 'u' || u, 's' || (u + d) % 40, DATE '2024-01-01' + d
        FROM (SELECT unnest($users) AS u, unnest($days) AS d);
"""
TIMES = """
    val_timestamp: '2024-06-29'
    test_timestamp: '2024-07-29'
    tables: {sales: {time_col: day}}
"""
CHURN = """
    SELECT u.name, t.timestamp, NOT EXISTS (SELECT * FROM sales s WHERE s.name = u.name
        AND s.day > t.timestamp AND s.day <= t.timestamp + INTERVAL '{timedelta}') AS churn
    FROM timestamps t, users u
"""


def main(epochs: int = 10) -> float:
    """Returns the AUC on the test. A user buys in some thirds of the year, and not in others."""
    folder, rng = Path(tempfile.mkdtemp()), np.random.default_rng(0)
    buys = (rng.random((300, 3)) < 0.5).repeat(100, axis=1) & (rng.random((300, 300)) < 0.1)
    user, day = np.nonzero(buys)
    with duckdb.connect(f"{folder}/shop.duckdb") as shop:
        shop.execute(SHOP, {"users": user.tolist(), "days": day.tolist()})
    (folder / "shop.yaml").write_text(TIMES)
    (folder / "churn.sql").write_text(CHURN)
    print(*schema_of(Database.open(folder / "shop.duckdb"))["tables"], sep="\n")
    task = {"task_sql": f"{folder}/churn.sql", "entity": "users", "horizon": "30 days"}
    data = {"dataset": f"{folder}/shop.duckdb", "run_dir": f"{folder}/run", "epochs": epochs}
    model = {"model": "trsage", "norm": "layer", "hidden": 16, "fanouts": ("*=10",) * 2}
    asked = {"data_options": tuple(f"{k}={v}" for k, v in task.items()), "metric": "auc"}
    run = jgs.train.run(jgs.train.Config(**data, **model, **asked, batch_size=200, lr=1e-2))
    for finding in audit(run=folder / "run"):
        print(finding)
    found, users = run.predict(node_type="users", time="2024-10-26"), run.schema.nodes("users")
    for user, *said in list(zip(users, found.prediction, found.probability, strict=True))[:3]:
        print(run.node_ids[user], "will not buy" if said[0] else "will buy", f"{said[1]:.0%}")
    nodes, time = run.rows("test")
    logits = run.logits(nodes, time=time)
    score = jgs.train.auc(logits[:, 1] - logits[:, 0], run.labels("test") == 1)
    print(f"AUC of the test: {score:.3f}")
    return score


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]))
