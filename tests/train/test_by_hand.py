"""The graph of a database, and that of the same tables by hand, as files of a typed graph."""

import jax
import numpy as np
import pandas as pd
import pytest
import yaml
from small_runs import command, result

import jgs.data
from jgs.data import Database
from jgs.data.column_values import Clock
from jgs.sampling import Neighbors, Seeds

FIRST = np.datetime64("2024-01-01", "D")
DAY = int(FIRST.astype(int))
VAL, TEST, HORIZON = 180, 210, 30
SQL = """
    SELECT u.id, t.timestamp, NOT EXISTS (SELECT * FROM sales s WHERE s."user" = u.id
        AND s.day > t.timestamp AND s.day <= t.timestamp + INTERVAL '{timedelta}') AS label
    FROM timestamps t, users u
"""
FLAGS = """
    --model trsage --norm layer --fanouts *=5 *=5 --hidden 16 --batch-size 100 --lr 2e-2
    --no-progress --epochs 4 --metric auc
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """The folders of the database and of the files by hand. Users buy in some thirds of a
    year."""
    base, hand = (tmp_path_factory.mktemp(name) for name in ("base", "hand"))
    rng, users, items = np.random.default_rng(0), 90, 12
    buys = (rng.random((users, 3)) < 0.5).repeat(84, axis=1) & (rng.random((users, 252)) < 0.2)
    user, day = np.nonzero(buys)
    age, price = rng.normal(40, 9, users), rng.normal(20, 5, user.size)
    item, kind = (
        rng.integers(0, items, user.size),
        np.array(["new", "old"])[np.arange(items) % 2],
    )
    tables = {
        "items": {"id": range(items), "kind": kind},
        "sales": {"id": range(user.size), "user": user, "item": item, "price": price}
        | {"day": FIRST + day},
        "users": {"id": range(users), "age": age},
    }
    keys = {name: {"pkey": "id"} for name in tables}
    keys["sales"] |= {"time_col": "day", "fkeys": {"user": "users", "item": "items"}}
    moments = {"val_timestamp": FIRST + VAL, "test_timestamp": FIRST + TEST}
    said = {name: str(moment) for name, moment in moments.items()}
    (base / "manifest.yaml").write_text(yaml.safe_dump(said | {"tables": keys}))
    (base / "churn.sql").write_text(SQL)
    for name, columns in tables.items():
        pd.DataFrame(columns).to_csv(base / f"{name}.csv", index=False)

    early = day < VAL
    scaled = (price - price[early].mean()) / price[early].std()
    at = np.concatenate([np.arange(VAL - HORIZON, -1, -HORIZON), [VAL, TEST]])
    node, moment = np.tile(np.arange(users), at.size), np.repeat(at, users)
    order = np.lexsort((moment, node, moment >= VAL, moment >= TEST))  # as the query's rows
    node, moment = node[order], moment[order]
    bought = [buys[n, m + 1 : m + 1 + HORIZON].any() for n, m in zip(node, moment, strict=True)]
    split = np.where(moment < VAL, "train", np.where(moment < TEST, "val", "test"))
    time, count = DAY + day, np.arange(user.size)
    made = {
        "nodes_items": {"id": range(items), "kind": kind},
        "nodes_sales": {"id": count, "price": scaled, "time": time},
        "nodes_users": {"id": range(users), "age": (age - age.mean()) / age.std()},
        "edges_sales_user_users": {"src": count, "dst": user, "time": time},
        "edges_sales_item_items": {"src": count, "dst": item, "time": time},
        "labels_users": {"node": node, "time": DAY + moment}
        | {"label": ~np.array(bought), "split": split},
    }
    for name, columns in made.items():
        pd.DataFrame(columns).to_csv(hand / f"{name}.csv", index=False)
    return base, hand


def test_graphs_labels_and_draws_are_the_same(shop):
    base, hand = shop
    of_base = Database.open(base).plain(
        task_sql=str(base / "churn.sql"), entity="users", horizon="30 days", clock=Clock("D")
    )
    by_hand = jgs.data.load(hand)
    own, other = of_base.graph, by_hand.graph
    assert own.schema.node_types == other.schema.node_types
    for mine, theirs in zip(of_base.label_table, by_hand.label_table, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    for features in zip(of_base.features.tables, by_hand.features.tables, strict=True):
        np.testing.assert_allclose(*map(np.asarray, features), rtol=1e-6)
    nodes, time = (np.asarray(column)[-200:] for column in of_base.label_table[:2])
    assert (by_hand.label_table.split[-90:] == 2).all()
    seeds, drawn = Seeds(nodes, time), []
    for graph in (own, other):
        sampler = Neighbors(({"*": 3}, {"*": 3}), edges=("type",))
        key = jax.random.key(3)
        drawn.append(sampler.sample(key, graph, sampler.init(graph), seeds, None))
    assert all(int(block.num_edges) > 200 for block in drawn[0].blocks)
    for mine, theirs in zip(*map(jax.tree.leaves, drawn), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_runs_reach_the_same(shop, tmp_path):
    base, hand = shop
    of = ("--task-sql", base / "churn.sql", "--entity users --horizon 30days")
    assert command(FLAGS, "--dataset", base, *of, "--run-dir", tmp_path / "base") == 0
    assert command(FLAGS, "--dataset", hand, "--run-dir", tmp_path / "hand") == 0
    own, other = (result(tmp_path / name)["test_accuracy"] for name in ("base", "hand"))
    assert own == pytest.approx(other, abs=1e-3)
