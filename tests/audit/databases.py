"""Small random databases with a task and without a leak, and leaks to plant in them."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from jgs.data import Database

DAY = np.timedelta64(86_400_000_000, "us")
FIRST, LAST = np.datetime64("2023-01-01", "us"), np.datetime64("2023-12-31", "us")
VAL, TEST = np.datetime64("2023-09-01", "us"), np.datetime64("2023-10-15", "us")
HORIZON = "40 days"
AHEAD = "e.time > t.timestamp AND e.time <= t.timestamp + INTERVAL '{timedelta}'"
COUNT = f"count(e.event_id) FILTER ({AHEAD})"
LABELS = {
    "churn": f"{COUNT} = 0",
    "kind": f"CASE WHEN {COUNT} = 0 THEN 'gone' WHEN {COUNT} < 3 THEN 'calm' ELSE 'busy' END",
    "number": f"coalesce(sum(e.amount) FILTER ({AHEAD}), 0) + 0.5",
    "vip": "any_value(u.vip)",  # the same at all moments
}


def days(rng, count, first=0, last=364):
    return FIRST + rng.integers(first * 86_400, last * 86_400, count) * np.timedelta64(1, "s")


def gaps(rng, values, share=0.1):
    return pa.array(values, mask=rng.random(len(values)) < share)


def texts(rng, count, words=40):
    return [
        " ".join(f"w{i}" for i in rng.integers(0, words, rng.integers(2, 8)))
        for _ in range(count)
    ]


class Made:
    """The tables of a database, their keys, and a task. `columns` change in place."""

    def __init__(self, seed, kind=None):
        self.rng = rng = np.random.default_rng(seed)
        n, m = int(rng.integers(250, 400)), int(rng.integers(1500, 3000))
        rate = rng.gamma(0.7, 1, n) + 0.02
        self.ids = rng.permutation(10 * n)[:n]
        if seed % 2:
            self.ids = np.array([f"user {i:05d}" for i in self.ids], object)
        self.kind = kind or [*LABELS][seed % 4]
        self.joined = days(rng, n, 0, 60)
        honest = np.log(rate) + rng.normal(0, 0.7, n)
        self.vip = (np.log(rate) + rng.normal(0, 1, n) > -0.3).astype(int)
        at = rng.choice(n, m, p=rate / rate.sum())
        items = int(rng.integers(20, 40))
        times = np.sort(np.maximum(days(rng, m), self.joined[at] + np.timedelta64(1, "s")))
        self.at = at
        self.tables = {
            "users": {
                "user_id": self.ids,
                "joined": self.joined,
                "level": gaps(rng, honest),
                "city": gaps(rng, [f"city {i}" for i in rng.integers(0, 6, n)]),
                "about": texts(rng, n),
                "vip": self.vip,
                "born": self.joined - rng.integers(6000, 20000, n) * DAY,
                "invited_by": gaps(rng, self.ids[rng.integers(0, n, n)], 0.5),
            },
            "items": {
                "item_id": np.arange(items),
                "price": rng.gamma(2, 10, items),
                "sort": [f"s{i % 4}" for i in range(items)],
            },
            "events": {
                "event_id": rng.permutation(m),
                "time": times,
                "user_id": self.ids[at],
                "item_id": gaps(rng, rng.integers(0, items, m)),
                "amount": gaps(rng, rng.gamma(2, 3, m)),
                "ordered": times - rng.integers(1, 5, m) * DAY,
                "says": texts(rng, m),
            },
            "devices": {
                "user_id": self.ids[rng.integers(0, n, n)],
                "brand": [f"b{i}" for i in rng.integers(0, 5, n)],
            },
        }
        self.keys = {
            "users": {"pkey": "user_id", "fkeys": {"invited_by": "users"}},
            "items": {"pkey": "item_id"},
            "events": {
                "pkey": "event_id",
                "time_col": "time",
                "fkeys": {"user_id": "users", "item_id": "items"},
            },
            "devices": {"fkeys": {"user_id": "users"}},
        }
        self.timed = seed % 3 < 2
        if self.timed:
            self.keys["users"]["time_col"] = "joined"
        self.given = None
        self.moment, self.where = "t.timestamp", "u.joined <= t.timestamp"
        self.options = {"entity": "users", "horizon": HORIZON}
        if self.kind == "number":
            self.options["label_kind"] = "number"
        if self.kind == "vip":
            self.options["hide"] = "users.vip"

    @property
    def sql(self):
        return self.given or (
            f"SELECT u.user_id, {self.moment} AS moment, {LABELS[self.kind]} AS label "
            "FROM timestamps t CROSS JOIN users u LEFT JOIN events e ON e.user_id = u.user_id "
            f"WHERE {self.where} GROUP BY u.user_id, t.timestamp ORDER BY 2, 1"
        )

    @property
    def manifest(self):
        return {"val_timestamp": str(VAL), "test_timestamp": str(TEST), "tables": self.keys}

    @property
    def base(self):
        made = {name: pa.table(columns) for name, columns in self.tables.items()}
        return Database.from_tables(made, self.manifest)

    def write(self, folder):
        """The tables and the manifest as files."""
        folder.mkdir()
        (folder / "manifest.yaml").write_text(yaml.safe_dump(self.manifest))
        for name in self.keys:
            pq.write_table(pa.table(self.tables[name]), folder / f"{name}.parquet")
