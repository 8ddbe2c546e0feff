"""A shop with a question, and the leaks that `leaks.py` plants in it and mends.

A user is asked once, a month after joining: does the user buy within the next 60 days? Who
bought much, or has a high `level`, does. Where the world `changes` as validation begins, it is
those of low levels from then on.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

DAY = np.timedelta64(1, "D")
FIRST, EPOCH = np.datetime64("2024-01-01", "D"), np.datetime64("1970-01-01", "D")
VAL, TEST, LAST, HORIZON = 240, 330, 390, 60  # in days
ENDS = np.array([VAL, TEST, LAST + HORIZON])


def dated(days: np.ndarray) -> np.ndarray:
    return (FIRST + days * DAY).astype("M8[us]")


def split_of(moment: np.ndarray) -> np.ndarray:
    return np.digitize(moment, (VAL, TEST)).astype(int)


class Shop:
    """Tables, keys and labels, which plants change in place.

    `users`, `sales`: columns by name; the users' `joined` and the sales' `day` are days.
    `asked`: `entity` (rows of users), `moment`, `label` and `split` of each label.
    """

    def __init__(self, seed: int, users: int, changes: bool):
        self.rng = rng = np.random.default_rng(seed)
        joined, level = rng.integers(0, LAST + 70, users), rng.normal(size=users)
        activity, moment = rng.gamma(1.0, 1.0, users), joined + 30
        sign = np.where(changes & (moment + HORIZON // 2 > VAL), -1, 1)
        odds = 1 / (1 + np.exp(0.5 - 1.5 * sign * level - np.log(activity)))
        self.buys = rng.random(users) < odds
        early, late = rng.poisson(2 * activity), self.buys * (1 + rng.poisson(1.5, users))
        who = np.repeat(np.r_[:users, :users], np.r_[early, late])
        soon = np.arange(who.size) < early.sum()
        day = np.where(soon, rng.integers(1, 30, who.size), rng.integers(31, 89, who.size))
        order = np.argsort(day + joined[who], kind="stable")
        day, self.who = (day + joined[who])[order], who[order]
        words = [f"w{i}" for i in range(300)]
        self.users: dict[str, Any] = {"id": rng.permutation(10 * users)[:users]}
        self.users |= {"joined": joined, "level": level, "plan": rng.integers(0, 5, users)}
        self.users["about"] = [" ".join(rng.choice(words, 5)) for _ in range(users)]
        self.users["city"] = [f"city {i}" for i in rng.integers(0, 8, users)]
        self.sales: dict[str, Any] = {"user": self.users["id"][self.who], "day": day}
        self.sales["amount"] = rng.lognormal(size=day.size)
        self.more: dict[str, dict[str, Any]] = {}
        self.more["plans"] = {"id": np.arange(5), "since": FIRST - 15 * DAY * np.arange(5)}
        self.keys: dict[str, dict] = {"plans": {"pkey": "id"}}
        self.keys["users"] = {"pkey": "id", "time_col": "joined", "fkeys": {"plan": "plans"}}
        self.keys["sales"] = {"time_col": "day", "fkeys": {"user": "users"}}
        split, self.hide, self.right = split_of(moment), "", day
        kept = np.flatnonzero(moment + HORIZON <= ENDS[split])
        self.asked = {"entity": kept, "moment": moment[kept], "split": split[kept]}
        self.asked["label"] = self.buys[kept]

    def ask(self, entity: Any, moment: Any, split: Any, label: Any) -> None:
        """Adds labels."""
        more = {"entity": entity, "moment": moment, "split": split, "label": label}
        self.asked = {name: np.r_[old, more[name]] for name, old in self.asked.items()}

    def keep(self, chosen: np.ndarray) -> None:
        """Leaves out the other labels."""
        self.asked = {name: values[chosen] for name, values in self.asked.items()}

    def write(self, folder: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq
        import yaml

        shutil.rmtree(folder, ignore_errors=True)
        task = folder / "tasks" / "buys"
        task.mkdir(parents=True)
        days = {"joined", "day"}
        for name, columns in {"users": self.users, "sales": self.sales, **self.more}.items():
            columns = dict(columns)
            for day in days & columns.keys():
                columns[day] = dated(columns[day])
            pq.write_table(pa.table(columns), folder / f"{name}.parquet")
        said: dict[str, Any] = {
            f"{name}_timestamp": str(FIRST + at * DAY)
            for name, at in (("val", VAL), ("test", TEST))
        }
        (folder / "manifest.yaml").write_text(yaml.safe_dump(said | {"tables": self.keys}))
        said = {"kind": "forecast", "task_type": "binary_classification", "time_col": "time"}
        said |= {"entity_table": "users", "entity_col": "id", "target_col": "buys"}
        (task / "manifest.yaml").write_text(
            yaml.safe_dump(said | {"timedelta": f"{HORIZON} days", "sql": ""})
        )
        for split, name in enumerate(("train", "val", "test")):
            own = {key: each[self.asked["split"] == split] for key, each in self.asked.items()}
            rows = {"id": np.asarray(self.users["id"])[own["entity"]], "buys": own["label"]}
            rows["time"] = dated(own["moment"])
            pq.write_table(pa.table(rows), task / f"{name}.parquet")


def label_column(shop: Shop) -> None:
    noise = shop.rng.random(shop.buys.size) < 0.02
    shop.users["badge"] = np.where(shop.buys ^ noise, "gold", "none")


def label_copy(shop: Shop) -> None:
    order = shop.rng.permutation(shop.buys.size)
    shop.more["accounts"] = {"user": shop.users["id"][order], "state": shop.buys[order] + 1.0}
    shop.keys["accounts"] = {"fkeys": {"user": "users"}}


def telling_gaps(shop: Shop) -> None:
    shop.users["card"] = np.where(shop.buys, shop.rng.random(shop.buys.size), np.nan)


def label_in_text(shop: Shop) -> None:
    about = zip(shop.users["about"], shop.buys, strict=True)
    shop.users["about"] = [text + " premium" * bool(buys) for text, buys in about]


def key_order(shop: Shop) -> None:
    """Those who buy have the last numbers. The table has no times, which its order tells."""
    shop.users["id"] = np.argsort(np.argsort(shop.buys, kind="stable"), kind="stable")
    shop.sales["user"] = shop.users["id"][shop.who]
    shop.keys["users"].pop("time_col")
    shop.users.pop("joined")


def numbered(shop: Shop) -> None:
    shop.users["id"] = shop.rng.permutation(shop.buys.size)
    shop.sales["user"] = shop.users["id"][shop.who]


def hidden_time(shop: Shop) -> None:
    """Each sale has a row of a table without times, which names the user, too."""
    number = np.arange(shop.who.size)
    shop.more["sessions"] = {"id": number, "user": shop.sales["user"]}
    shop.keys["sessions"] = {"pkey": "id", "fkeys": {"user": "users"}}
    shop.sales["session"] = number
    shop.keys["sales"]["fkeys"]["session"] = "sessions"


def timed(shop: Shop) -> None:
    shop.more["sessions"]["begin"] = dated(shop.sales["day"])
    shop.keys["sessions"]["time_col"] = "begin"


def timeless_facts(shop: Shop) -> None:
    counts = 2 * shop.buys + (shop.rng.random(shop.buys.size) < 0.2)
    shop.more["refunds"] = {"user": np.repeat(shop.users["id"], counts)}
    shop.more["refunds"]["sum"] = shop.rng.random(counts.sum())
    shop.keys["refunds"] = {"fkeys": {"user": "users"}}


def late_aggregate(shop: Shop) -> None:
    shop.users["total"] = np.bincount(shop.who, shop.sales["amount"], shop.buys.size)


def late_write(shop: Shop) -> None:
    """A sale is written again when the user comes back after the first month."""
    back = np.full(shop.buys.size, LAST + 200)
    later = shop.sales["day"] > shop.users["joined"][shop.who] + 30
    np.minimum.at(back, shop.who[later], shop.sales["day"][later])
    soon = shop.sales["day"] + shop.rng.integers(1, 9, later.size)
    written = np.where(later | ~shop.buys[shop.who], soon, back[shop.who])
    shop.sales["written"] = dated(written)


def unborn_entity(shop: Shop) -> None:
    """Users who join two months or more after the moment, who do not buy before."""
    asked = np.unique(np.stack([shop.asked["moment"], shop.asked["split"]]), axis=1)
    for moment, split in asked.T:
        late = np.flatnonzero(shop.users["joined"] > moment + HORIZON)
        who = shop.rng.choice(late, min(5, late.size), replace=False)
        shop.ask(who, np.full(who.size, moment), np.full(who.size, split), who < 0)


def born(shop: Shop) -> None:
    shop.keep(shop.users["joined"][shop.asked["entity"]] <= shop.asked["moment"])


def split_order(shop: Shop) -> None:
    """Which split a label is in is drawn at random."""
    shop.asked["split"] = shop.rng.permutation(shop.asked["split"])


def label_window(shop: Shop) -> None:
    """The windows of the last training labels reach into validation."""
    moment = shop.users["joined"] + 30
    late = np.flatnonzero((moment < VAL) & (moment + HORIZON > VAL))
    shop.ask(late, moment[late], np.zeros(late.size, int), shop.buys[late])


def equal_rows(shop: Shop) -> None:
    """The labels of validation and test train, too."""
    own = {key: values[shop.asked["split"] > 0] for key, values in shop.asked.items()}
    shop.ask(**own | {"split": np.zeros(own["split"].size, int)})


def by_moments(shop: Shop) -> None:
    """Each label is in the split of its moment, once, and its window is there, too."""
    _, first = np.unique(shop.asked["entity"], return_index=True)
    shop.keep(first)
    shop.asked["split"] = split_of(shop.asked["moment"])
    shop.keep(shop.asked["moment"] + HORIZON <= ENDS[shop.asked["split"]])


def odd_moments(shop: Shop) -> None:
    """The sales since validation began are dated in the first days of 1970."""
    shop.right = shop.sales["day"]
    shop.sales["day"] = np.where(shop.right < VAL, shop.right, 1 + (EPOCH - FIRST) // DAY)


def right_moments(shop: Shop) -> None:
    shop.sales["day"] = shop.right


def hides(name: str) -> Callable[[Shop], None]:
    return lambda shop: setattr(shop, "hide", name)


def without(table: str) -> Callable[[Shop], None]:
    return lambda shop: shop.keys.__delitem__(table)


LEAKS: dict[str, tuple[Callable[[Shop], None], Callable[[Shop], None], str]] = {
    "label-column": (label_column, hides("users.badge"), "hidden"),
    "label-copy": (label_copy, hides("accounts.state"), "hidden"),
    "telling-gaps": (telling_gaps, hides("users.card"), "hidden"),
    "label-in-text": (label_in_text, hides("users.about"), "hidden"),
    "key-order": (key_order, numbered, "numbered anew"),
    "hidden-time": (hidden_time, timed, "given a time_col"),
    "timeless-facts": (timeless_facts, without("refunds"), "left out"),
    "late-aggregate": (late_aggregate, hides("users.total"), "hidden"),
    "late-write": (late_write, hides("sales.written"), "hidden"),
    "unborn-entity": (unborn_entity, born, "not asked"),
    "split-order": (split_order, by_moments, "put into their splits"),
    "label-window": (label_window, by_moments, "left out"),
    "equal-rows": (equal_rows, by_moments, "one kept"),
    "odd-moments": (odd_moments, right_moments, "corrected"),
}
