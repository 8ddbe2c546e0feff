"""`jgs audit` finds planted leaks, each by its name, and nothing in databases without."""

import numpy as np
import pyarrow as pa
import pytest
from databases import DAY, TEST, VAL, Made

from jgs.audit import KINDS, audit
from jgs.audit.view import View
from jgs.data import Database
from jgs.data.column_values import Clock
from jgs.data.columns import ColumnRule

ENTITY_EVENTS = (
    "SELECT e.event_id, t.timestamp AS moment, e.amount > 5 AS label FROM timestamps t JOIN "
    "events e ON e.time <= t.timestamp AND e.time > t.timestamp - INTERVAL '{timedelta}' "
    "WHERE e.amount IS NOT NULL"
)


def label_column(made):
    noise = made.rng.random(made.vip.size) < 0.02
    made.tables["users"]["badge"] = np.where(made.vip ^ noise, "gold", "none").astype(object)
    return "users.badge"


def label_copy(made):
    order = made.rng.permutation(made.ids.size)
    accounts = {"user_id": made.ids[order], "state": made.vip[order] + 1.0}
    made.tables["accounts"] = accounts | {"branch": order % 4}
    made.keys["accounts"] = {"fkeys": {"user_id": "users"}}
    return "accounts.state by user_id"


def telling_gaps(made):
    made.tables["users"]["card"] = np.where(made.vip, made.rng.random(made.vip.size), np.nan)
    return "users.card"


def label_in_text(made):
    ends = [" premium"[: 8 * vip] + " w1" for vip in made.vip]
    made.tables["users"]["about"] = [
        a + b for a, b in zip(made.tables["users"]["about"], ends, strict=True)
    ]
    return "the word 'premium' in users.about"


def key_order(made):
    order = np.argsort(made.vip, kind="stable")
    made.keys["users"].pop("time_col", None)
    users = made.tables["users"]
    users |= {name: np.array(list(users[name]), object)[order].tolist() for name in users}
    return "the order of the rows of users"


def hidden_time(made):
    number = np.arange(made.at.size) // 20
    made.tables["sessions"] = {"id": np.unique(number), "x": made.rng.random(number[-1] + 1)}
    made.keys["sessions"] = {"pkey": "id"}
    made.tables["events"]["session"] = number
    made.keys["events"]["fkeys"]["session"] = "sessions"
    return "the order of the rows of sessions"


def timeless_facts(made):
    counts = made.vip * 2 + (made.rng.random(made.vip.size) < 0.2)
    made.tables["refunds"] = {"user_id": np.repeat(made.ids, counts)}
    made.tables["refunds"]["sum"] = made.rng.random(counts.sum())
    made.keys["refunds"] = {"fkeys": {"user_id": "users"}}
    return "the number of rows of refunds by user_id"


def late_aggregate(made):
    made.tables["users"]["total"] = np.bincount(made.at, minlength=made.ids.size)
    return "users.total"


def aggregate_of_lines(made):
    rows = made.rng.integers(0, made.at.size, 2 * made.at.size)
    made.tables["parts"] = {"event_id": made.tables["events"]["event_id"][rows]}
    made.tables["parts"]["weight"] = weight = made.rng.gamma(2, 5, rows.size)
    made.keys["parts"] = {"fkeys": {"event_id": "events"}}
    sums, counts = (np.bincount(made.at[rows], w, made.ids.size) for w in (weight, None))
    made.tables["users"]["total"] = (sums / np.maximum(counts, 1)).round(2)
    return "users.total"  # rounded, as money is


def aggregate_of_prices(made):
    items = made.tables["events"]["item_id"].fill_null(0).to_numpy()
    known = made.tables["events"]["item_id"].is_valid().to_numpy(zero_copy_only=False)
    spent = np.where(known, made.tables["items"]["price"][items], 0)
    made.tables["users"]["spent"] = np.bincount(made.at, spent, made.ids.size)
    return "users.spent"


def timeless_counts(made):
    order = made.rng.permutation(made.at)
    made.tables["visits"] = {"user_id": made.ids[order], "page": made.rng.random(order.size)}
    made.keys["visits"] = {"fkeys": {"user_id": "users"}}
    return "the number of rows of visits by user_id"


def late_write(made):
    events = made.tables["events"]
    events["updated"] = events["time"] + made.rng.integers(0, 60, made.at.size) * DAY
    events["paid"] = (events["time"] + 9 * DAY * made.rng.random(made.at.size)).astype(str)
    return "events.updated and events.paid"


def unborn_entity(made):
    made.keys["users"]["time_col"], made.where = "joined", "TRUE"
    made.tables["users"]["joined"][:40] = VAL - 10 * DAY
    return "users"


def split_order(made):
    made.moment = "t.timestamp + INTERVAL 41 DAY"
    return "task_sql"


def label_window(made):
    made.moment = "t.timestamp + INTERVAL 20 DAY"
    return "task_sql"


def window_in_sql(made):
    made.kind = "churn"
    made.given = made.sql.replace("{timedelta}", "45 days")
    return "task_sql"


def equal_rows(made):
    made.given, made.options["entity"] = ENTITY_EVENTS, "events"
    made.options["hide"] = "events.amount"
    events = made.tables["events"]
    old, new = (np.flatnonzero(each)[:40] for each in spans(events["time"]))
    for name in set(events) - {"event_id", "time"}:
        column = list(
            events[name].to_pylist() if hasattr(events[name], "type") else events[name]
        )
        for a, b in zip(old, new, strict=True):
            column[b] = column[a]
        events[name] = column
    return "events"


def spans(times):
    return (times < VAL - 50 * DAY), (times > TEST - 20 * DAY) & (times < TEST)


def odd_moments(made):
    made.tables["events"]["time"][-3:] = np.datetime64("2150-01-01", "us")
    return "events.time"


PLANTED = {
    "label-column": label_column,
    "label-copy": label_copy,
    "telling-gaps": telling_gaps,
    "label-in-text": label_in_text,
    "key-order": key_order,
    "hidden-time": hidden_time,
    "timeless-facts": timeless_facts,
    "late-aggregate": late_aggregate,
    "late-aggregate of a table without times": timeless_counts,
    "late-aggregate of rows two keys away": aggregate_of_lines,
    "late-aggregate of a column two keys away": aggregate_of_prices,
    "late-write": late_write,
    "unborn-entity": unborn_entity,
    "split-order": split_order,
    "label-window": label_window,
    "label-window that SQL says": window_in_sql,
    "equal-rows": equal_rows,
    "odd-moments": odd_moments,
}
TOGETHER = {"split-order": {"label-window"}}


def alarms(made, **options):
    found = audit(made.base, task_sql=made.sql, trials=False, **made.options | options)
    return [each for each in found if each.severity != "note"]


@pytest.mark.parametrize("seed", range(20))
def test_databases_without_leaks_raise_no_alarm(seed):
    assert not alarms(Made(seed))


def test_every_kind_is_planted():
    assert {name.partition(" ")[0] for name in PLANTED} == KINDS.keys()


@pytest.mark.parametrize("copies", [True, False])
def test_a_table_that_is_there_twice_has_equal_rows(copies):
    """Whose rows of training have copies in test; not one of few values, equal anywhere."""
    rng, number = np.random.default_rng(0), np.arange(400) % 200
    color = rng.integers(0, 10**6, 200) if copies else rng.integers(0, 12, 400)
    color = color[number] if copies else color
    users = {"id": np.arange(400), "color": color, "shade": color % 1000 * 3}
    sales = {"user": rng.integers(0, 400, 900), "day": np.datetime64("2024-01-01", "us")}
    sales["day"] = sales["day"] + rng.integers(0, 300, 900) * DAY
    keys = {"users": {"pkey": "id"}, "sales": {"time_col": "day", "fkeys": {"user": "users"}}}
    about = {"val_timestamp": "2024-07-01", "test_timestamp": "2024-08-01", "tables": keys}
    tables = {"users": pa.table(users), "sales": pa.table(sales)}
    sql = "SELECT id, timestamp, hash(id, timestamp) % 2 = 0 FROM timestamps, users "
    sql += "WHERE (id < 200) = (timestamp < TIMESTAMP '2024-07-01')"
    task = {"task_sql": sql, "entity": "users", "horizon": "30 days"}
    base = Database.from_tables(tables, about)
    view = View.open(base, 0, rule=ColumnRule(), clock=Clock(), **task)
    found = [where for _, where, _ in KINDS["equal-rows"].find(view)]
    assert found == ["users"] * copies


def test_what_all_rows_of_an_entity_share_is_no_aggregate():
    made = Made(4, "vip")
    events, users = made.tables["events"], made.tables["users"]
    users["rate"] = made.rng.random(made.ids.size)
    events["rate"] = users["rate"][made.at]
    assert not alarms(made)


def test_a_word_of_every_text_says_only_that_there_is_one():
    made = Made(4, "vip")
    seen = np.flatnonzero((made.vip[made.at] == 1) | (made.rng.random(made.at.size) < 0.02))
    made.tables["events"]["says"] = [f"said {text}" for text in made.tables["events"]["says"]]
    events = pa.table(made.tables["events"]).take(seen)
    made.tables["events"] = {name: events[name] for name in events.column_names}
    assert not alarms(made)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_leak_is_found_by_its_name(name):
    made = Made(len(name), "vip")
    where = PLANTED[name](made)
    found = alarms(made)
    kind = name.partition(" ")[0]
    assert {each.kind for each in found} - TOGETHER.get(kind, set()) == {kind}
    assert {*where.split(" and ")} <= {each.where for each in found}
    assert all(each.evidence and each.remedy for each in found)
