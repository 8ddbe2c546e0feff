"""Shops in which one thing decides who buys next, for `tabular.py`; and the features by hand.

Users have an age, a level, a city and a friend, and buy items in months of 30 days. `CASES` say
what decides whether a user buys in the next month: the user's own columns, whether the user
bought in the last month, or whether the friend did. All else is noise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

CASES = ("own columns", "own history", "the friend's history")
MONTHS, MONTH = 10, 30
VAL, TEST = 7, 8  # the months that are validation and test
LABELS = """
    SELECT u.id, t.timestamp, EXISTS (SELECT * FROM sales s WHERE s.user = u.id
        AND s.day > t.timestamp AND s.day <= t.timestamp + INTERVAL '{timedelta}') AS buys
    FROM timestamps t, users u
"""
HORIZON = f"{MONTH} days"
# The features that trees get, each with those before it.
FEATURES = ("own columns", "counts of own sales", "counts of the friend's sales")
_COUNTS = ", ".join(
    f"count(*) FILTER (s.day > r.time - {days}) AS {{0}}n{days}, "
    f"avg(s.price) FILTER (s.day > r.time - {days}) AS {{0}}price{days}"
    for days in (30, 90)
)
_COUNTED = f"""
    SELECT r.row, {_COUNTS}, min(r.time - s.day) AS {{0}}since
    FROM (SELECT r.row, r.time, {{1}} AS who FROM r JOIN users u ON u.id = r.id) r
    LEFT JOIN sales s ON s.user = r.who AND s.day <= r.time AND s.day > r.time - 90
    GROUP BY r.row ORDER BY r.row
"""


def make(folder: Path, case: str, users: int, seed: int) -> None:
    """Writes `shop.duckdb`, `shop.yaml` and `buys.sql`."""
    import duckdb
    import pyarrow as pa
    import yaml

    rng = np.random.default_rng(seed)
    age, level = rng.uniform(18, 80, users), rng.normal(size=users)
    city, friend = rng.integers(0, 8, users), _one_cycle(rng, users)
    buys = np.zeros((MONTHS, users), bool)
    buys[0] = rng.random(users) < 0.5
    for month in range(1, MONTHS):
        if case == "own columns":
            odds = 0.1 + 0.8 * ((abs(age - 45) < 15) ^ (level + 0.3 * (city % 2) > 0.2))
        else:
            before = buys[month - 1][friend if case == CASES[2] else slice(None)]
            odds = np.where(before, 0.9, 0.1)
        buys[month] = rng.random(users) < odds
    count = rng.poisson(np.where(buys, 3, 0.15))
    month, who = (np.repeat(part, count[count > 0]) for part in np.nonzero(count))
    first = np.datetime64("2024-01-01", "D")
    day = first + month * MONTH + rng.integers(1, MONTH + 1, month.size)
    tables = {
        "users": {"id": range(users), "age": age, "level": level}
        | {"city": [f"city {i}" for i in city], "friend": friend},
        "items": {"id": range(50), "kind": [f"kind {i % 5}" for i in range(50)]},
        "sales": {"user": who, "item": rng.integers(0, 50, who.size)}
        | {"day": day, "price": rng.lognormal(size=who.size)},
    }
    base = duckdb.connect(str(folder / "shop.duckdb"))
    for name, columns in tables.items():
        base.register("made", pa.table(columns))
        base.execute(f"CREATE TABLE {name} AS SELECT * FROM made")
    base.close()
    said: dict[str, Any] = {
        "users": {"pkey": "id", "fkeys": {"friend": "users"}},
        "items": {"pkey": "id"},
        "sales": {"time_col": "day", "fkeys": {"user": "users", "item": "items"}},
    }
    times = {
        f"{n}_timestamp": str(first + m * MONTH) for n, m in (("val", VAL), ("test", TEST))
    }
    (folder / "shop.yaml").write_text(yaml.safe_dump(times | {"tables": said}))
    (folder / "buys.sql").write_text(LABELS)


def _one_cycle(rng: np.random.Generator, users: int) -> np.ndarray:
    """int64 `[users]`: a friend of each, who is somebody else's too, never one's own."""
    order, friend = rng.permutation(users), np.empty(users, np.int64)
    friend[order] = np.roll(order, 1)
    return friend


def by_hand(folder: Path) -> dict[str, Any]:
    """The rows that jgs learns from, with the features of `FEATURES` in one matrix.

    Returns `x` float64 `[n, 13]`, NaN for missing; `sizes`, how many of its columns each of
    `FEATURES` has; `y` `[n]`; `split` `[n]`, 0 to 2. Column 2, the city, is a category.
    """
    import duckdb
    import pyarrow as pa

    from jgs.data import Database

    plain = Database.open(folder / "shop.duckdb").plain(
        task_sql=str(folder / "buys.sql"), entity="users", horizon=HORIZON
    )
    table, start = plain.label_table, plain.graph.schema.nodes("users").start
    rows = {"row": np.arange(table.time.size), "id": table.nodes - start, "time": table.time}
    base = duckdb.connect(str(folder / "shop.duckdb"), read_only=True)
    base.register("asked", pa.table(rows))
    base.execute(
        "CREATE TEMP TABLE r AS SELECT row, id, DATE '1970-01-01' + CAST(time AS INTEGER) AS "
        "time FROM asked"
    )
    own = (
        "SELECT u.age, u.level, CAST(u.city[6:] AS INTEGER) FROM r JOIN users u ON u.id = r.id"
    )
    parts = [_matrix(base, f"{own} ORDER BY r.row")]
    for prefix, who in (("own_", "u.id"), ("friend_", "u.friend")):
        parts.append(_matrix(base, _COUNTED.format(prefix, who))[:, 1:])
    sizes = np.cumsum([part.shape[1] for part in parts]).tolist()
    return {
        "x": np.concatenate(parts, axis=1),
        "sizes": sizes,
        "y": np.asarray(table.labels),
        "split": np.asarray(table.split),
    }


def _matrix(base: Any, query: str) -> np.ndarray:
    columns = base.sql(query).to_arrow_table().columns
    return np.stack([c.cast("double").to_numpy(zero_copy_only=False) for c in columns], axis=1)
